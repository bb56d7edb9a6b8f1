//! Receives events of routes, independently of the daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Event, Family, Group as Multicast, Listener, Message, Options, uapi};

/// Longer than a busy machine needs.
const TIMEOUT: Duration = Duration::from_mins(2);

pub(super) struct RouteListener(Listener);

impl RouteListener {
    /// Subscribes in the calling thread's namespace.
    pub(super) fn open() -> Result<Self> {
        let groups = [Multicast(uapi::RTNLGRP_IPV4_ROUTE)];
        Ok(RouteListener(Listener::open(Family::Route, &groups, &Options::for_events())?))
    }

    /// Waits until a route to this destination is added.
    pub(super) fn await_added(&mut self, to: [u8; 4]) -> Result<()> {
        let mut is_back = false;
        while !is_back {
            self.receive(&mut |added| is_back |= added == to)?;
        }
        Ok(())
    }

    /// Waits until this many routes are added.
    pub(super) fn count_added(&mut self, count: usize) -> Result<()> {
        let mut added = 0;
        while added < count {
            self.receive(&mut |_| added += 1)
                .with_context(|| format!("{added} of {count} routes are back"))?;
        }
        Ok(())
    }

    /// Discards all events so far, and losses.
    pub(super) fn drain(&mut self) -> Result<()> {
        while self.0.receive(&mut |_| ())? {}
        Ok(())
    }

    fn receive(&mut self, each: &mut dyn FnMut([u8; 4])) -> Result<()> {
        let mut is_lost = false;
        let received = self.0.receive_within(TIMEOUT, &mut |event| match event {
            Event::Message(message) => added(&message).into_iter().for_each(&mut *each),
            Event::Lost => is_lost = true,
        })?;
        ensure!(received, "no route was added");
        if is_lost {
            bail!("the listener itself lost events");
        }
        Ok(())
    }
}

fn added(message: &Message<'_>) -> Option<[u8; 4]> {
    let (_, attrs) = message.split::<12>().ok().filter(|_| message.kind == uapi::RTM_NEWROUTE)?;
    attrs.first(uapi::RTA_DST).ok()??.array().ok()
}
