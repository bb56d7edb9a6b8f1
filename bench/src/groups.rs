//! All benchmark groups: a new one is one file here and one line in [`ALL`].

mod bird;
pub mod diff;
mod fixture;
pub mod heal;
pub mod journal;
pub mod lanes;
pub mod ledger;
mod library;
pub mod list;
pub mod lookup;
pub mod netlink;
mod network;
pub mod nft;
pub mod pacing;
pub mod pass;
mod peers;
mod routes;
pub mod rtnl;
pub mod wakeups;
mod wire;

use crate::Group;

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
    &rtnl::cold::SMALL,
    &rtnl::cold::SMALL_V6,
    &rtnl::cold::LARGE,
    &rtnl::converged::SMALL,
    &rtnl::converged::LARGE,
    &rtnl::change::FULL,
    &rtnl::change::FOCUSED,
    &rtnl::removal::GROUP,
    &rtnl::memory::GROUP,
    &rtnl::foreign::CHURN,
    &rtnl::foreign::PASS,
    &heal::latency::GROUP,
    &heal::burst::GROUP,
    &heal::burst::FLOOD,
    &heal::idle::COUNTS,
    &heal::idle::BYTES,
    &heal::idle::WORK,
    &heal::memory::GROUP,
    &nft::cold::ELEMENTS,
    &nft::cold::RULES,
    &nft::converged::ELEMENTS,
    &nft::converged::RULES,
    &nft::change::RULE,
    &nft::change::ELEMENT,
    &nft::change::ELEMENT_OF_MANY,
    &nft::heal::GROUP,
    &nft::memory::GROUP,
    &pacing::GROUP,
    &lanes::GROUP,
    &wakeups::QUEUES,
    &wakeups::LOOPS,
    &ledger::GROUP,
    &journal::RATE,
    &journal::RECOVERY,
    &list::IPV4,
    &list::IPV6,
];
