//! The nft source against what the kernel alone costs, and against `nft`, in fresh network namespaces.
//! Needs root.
//!
//! The *floor* reads dumps without parsing, and sends messages that were encoded before.

mod change;
mod cold;
mod converged;
mod heal;
mod load;
mod prepared;
mod raw;

use crate::Group;

pub(super) fn groups() -> Vec<Group> {
    let mut groups = cold::groups();
    groups.extend(converged::groups());
    groups.extend(change::groups());
    groups.extend([heal::group(), cold::memory_group()]);
    groups
}
