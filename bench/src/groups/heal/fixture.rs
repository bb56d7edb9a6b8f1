//! Namespaces full of routes, each with a daemon, kept for all rounds and groups.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use homeostat_netlink::Socket;

use super::super::listener::RouteListener;
use super::super::network::TestNetwork;
use super::super::wire::{Ip, RouteMessages, Verb, send_raw};
use super::daemon::Daemon;
use crate::clock;

/// A namespace with a daemon, a socket that deletes routes and a listener.
pub(super) struct Fixture {
    // Dropped first, so that it ends before the routes are deleted.
    pub(super) daemon: Daemon,
    pub(super) listener: RouteListener,
    pub(super) socket: Socket,
    pub(super) network: TestNetwork,
    pub(super) size: usize,
    /// The latencies of the last round, sorted.
    pub(super) times: Vec<Duration>,
    next: usize,
}

thread_local! {
    static KEPT: RefCell<Vec<Fixture>> = const { RefCell::new(Vec::new()) };
}

/// Acts on the fixture of this size, which is created at first use.
pub(super) fn with_fixture<T>(
    size: usize,
    act: impl FnOnce(&mut Fixture) -> Result<T>,
) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        if !kept.iter().any(|fixture| fixture.size == size) {
            kept.push(Fixture::new(size)?);
        }
        let fixture = kept.iter_mut().find(|fixture| fixture.size == size).context("no fixture")?;
        fixture.network.enter()?;
        act(fixture)
    })
}

pub(super) fn clear() {
    KEPT.take();
}

impl Fixture {
    fn new(size: usize) -> Result<Self> {
        Self::with_options(size, &[])
    }

    /// One whose daemon has more options. The calling thread is in its namespace then.
    pub(super) fn with_options(size: usize, options: &[&str]) -> Result<Self> {
        let network = TestNetwork::filled(RouteMessages::ours(Ip::V4), size)?;
        let daemon = Daemon::with_options(size, options)?;
        let (listener, socket) = (RouteListener::open()?, network.socket()?);
        Ok(Fixture { daemon, listener, socket, network, size, times: Vec::new(), next: 0 })
    }

    /// The first of the next `count` routes in a row.
    pub(super) fn others(&mut self, count: usize) -> usize {
        self.next = if self.next + 2 * count > self.size { 0 } else { self.next + count };
        self.next
    }

    /// Deletes one route, far from the last one, and waits until it is back.
    pub(super) fn heal_another(&mut self) -> Result<Duration> {
        // A prime, so that all routes come before one is repeated.
        const STRIDE: usize = 7919;
        self.next = (self.next + STRIDE) % self.size;
        heal(RouteMessages::ours(Ip::V4), self.next, &self.socket, &mut self.listener)
    }
}

/// Deletes a route and waits until it is added again. The time includes the deletion itself, so that no moment is
/// left out.
pub(super) fn heal(
    messages: RouteMessages,
    number: usize,
    socket: &Socket,
    listener: &mut RouteListener,
) -> Result<Duration> {
    let (IpAddr::V4(to), _) = Ip::V4.destination(number) else { bail!("not of IPv4") };
    let delete = messages.send(Verb::Delete, number..number + 1)?;
    listener.drain()?;
    let (healed, elapsed) = clock::time(|| {
        send_raw(socket, &delete)?;
        listener.await_added(to.octets())
    });
    healed.map(|()| elapsed)
}
