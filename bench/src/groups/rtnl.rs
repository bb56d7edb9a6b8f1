//! The rtnl source against what the kernel alone costs, and against the tools that people use, in
//! fresh network namespaces. Needs root.
//!
//! The *floor* sends the very same messages, encoded before, and reads dumps without parsing.

mod cold;
mod converged;
mod fixture;
mod foreign;
mod many;
mod removal;

use crate::Group;

pub(super) fn groups() -> Vec<Group> {
    let mut groups = cold::groups();
    groups.push(converged::group());
    groups.extend(removal::groups());
    groups.extend(many::groups());
    groups.extend(foreign::groups());
    groups
}
