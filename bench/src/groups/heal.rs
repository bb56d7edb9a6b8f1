//! The daemon as it is installed: how soon it heals, what that costs, and what it costs at rest. Needs
//! root, and the program, built in the directory of this one.
//!
//! All is measured from outside: by a listener of our own, and by the files of `/proc`.

mod burst;
mod daemon;
mod fixture;
mod idle;
mod kinds;
mod latency;
mod memory;
mod page;

use crate::Group;

pub(super) fn groups() -> Vec<Group> {
    let mut groups = vec![latency::group()];
    groups.extend(kinds::groups());
    groups.extend(burst::groups());
    groups.extend(idle::groups());
    groups.push(memory::group());
    groups.push(page::group());
    groups
}
