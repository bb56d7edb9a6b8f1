//! All benchmark groups: a new one is one file here and one line in [`ALL`].

pub mod diff;
pub mod ledger;
pub mod list;
pub mod lookup;
pub mod netlink;
pub mod pacing;
pub mod pass;
mod routes;

use crate::contest::Group;

/// Every group, in the order in which they run.
pub const ALL: &[&Group] = &[
    &lookup::GROUP,
    &diff::CONVERGED,
    &diff::COLD,
    &diff::FOCUSED,
    &pass::COLD,
    &pass::CONVERGED,
    &pass::HEAL,
    &netlink::INSERT,
    &netlink::DUMP,
    &pacing::GROUP,
    &ledger::GROUP,
    &list::IPV4,
    &list::IPV6,
];
