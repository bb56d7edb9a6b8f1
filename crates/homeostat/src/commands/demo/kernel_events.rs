//! A thread of its own that only waits for the kernel's events and records when each came.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use homeostat_netlink::uapi::{
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP,
};
use homeostat_netlink::{Event, Family, Group, Listener, Options};

use super::kernel_state::{Change, Key, Names, Object, read};

const GROUPS: [Group; 9] = [
    Group(RTNLGRP_LINK),
    Group(RTNLGRP_NEIGH),
    Group(RTNLGRP_NEXTHOP),
    Group(RTNLGRP_IPV4_IFADDR),
    Group(RTNLGRP_IPV6_IFADDR),
    Group(RTNLGRP_IPV4_ROUTE),
    Group(RTNLGRP_IPV6_ROUTE),
    Group(RTNLGRP_IPV4_RULE),
    Group(RTNLGRP_IPV6_RULE),
];

/// What changed, and when the event came.
pub(super) struct ObservedChange {
    pub(super) at: Instant,
    pub(super) change: Change,
    pub(super) key: Key,
    pub(super) object: Object,
}

/// Starts to listen. The thread ends with the receiver.
pub(super) fn start(names: Names) -> Result<Receiver<ObservedChange>> {
    let listener = Listener::open(Family::Route, &GROUPS, &Options::for_events())?;
    let (to, received) = channel();
    let thread = std::thread::Builder::new().name("listener".into());
    thread.spawn(move || listen(listener, names, &to)).context("cannot start a thread")?;
    Ok(received)
}

fn listen(mut listener: Listener, mut names: Names, to: &Sender<ObservedChange>) {
    let mut is_open = true;
    while is_open {
        let took = listener.receive_within(Duration::from_secs(1), &mut |event| {
            let at = now();
            if let Event::Message(message) = event
                && let Some((change, key, object)) = read(&message, &mut names)
            {
                is_open &= to.send(ObservedChange { at, change, key, object }).is_ok();
            }
        });
        is_open &= took.is_ok();
    }
}

/// The demo measures, so that it is one of the few that read the clock.
#[expect(clippy::disallowed_methods, reason = "latencies are what the demo is about")]
pub(super) fn now() -> Instant {
    Instant::now()
}
