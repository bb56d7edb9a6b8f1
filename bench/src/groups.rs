//! All benchmark groups: a new one is one file here and one line in [`ALL`].

pub mod lookup;

use crate::contest::Group;

/// Every group, in the order in which they run.
pub const ALL: &[&Group] = &[&lookup::GROUP];
