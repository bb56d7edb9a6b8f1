//! All benchmark groups: a new one is one file here and one line in [`all`].

mod bird;
mod document;
mod files;
mod fixture;
mod fleet;
mod heal;
mod journal;
mod lanes;
mod large;
mod library;
mod list;
mod listener;
mod long_write;
mod namespaces;
mod network;
mod nft;
mod objects;
mod pacing;
mod pass;
mod render;
mod report;
mod routes;
mod rtnl;
mod stop;
mod trial;
mod wakeups;
mod wire;

use crate::Group;

/// Every group, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Group> {
    let groups = [
        pass::groups(),
        rtnl::groups(),
        heal::groups(),
        namespaces::groups(),
        long_write::groups(),
        nft::groups(),
        vec![pacing::group(), lanes::group()],
        wakeups::groups(),
        journal::groups(),
        list::groups(),
        large::groups(),
        report::groups(),
        vec![render::group()],
        trial::groups(),
        vec![stop::group()],
        files::groups(),
        fleet::groups(),
    ];
    groups.into_iter().flatten().collect()
}
