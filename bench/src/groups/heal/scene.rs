//! Full namespaces, each with a keeper of its routes, kept over the rounds and groups.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use homeostat_netlink::Socket;

use super::super::ground::Ground;
use super::super::wire::{Ip, Pen, Verb, send_raw};
use super::daemon::Daemon;
use super::ear::Ear;
use crate::clock;

/// A namespace whose routes a daemon keeps, and a saboteur who listens.
pub(super) struct Scene {
    // It ends before its namespace is emptied.
    pub(super) daemon: Daemon,
    pub(super) ear: Ear,
    pub(super) socket: Socket,
    pub(super) ground: Ground,
    pub(super) size: usize,
    /// What the last round of latencies came to, sorted.
    pub(super) times: Vec<Duration>,
    next: usize,
}

thread_local! {
    static KEPT: RefCell<Vec<Scene>> = const { RefCell::new(Vec::new()) };
}

/// Acts on the scene of this size; it is set when it is asked for first.
pub(super) fn on_scene<T>(size: usize, act: impl FnOnce(&mut Scene) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        if !kept.iter().any(|scene| scene.size == size) {
            kept.push(Scene::set(size)?);
        }
        let scene = kept.iter_mut().find(|scene| scene.size == size).context("no scene")?;
        scene.ground.enter()?;
        act(scene)
    })
}

/// Strikes all scenes.
pub(super) fn clear() {
    KEPT.with_borrow_mut(Vec::clear);
}

impl Scene {
    fn set(size: usize) -> Result<Self> {
        let ground = Ground::filled(Pen::ours(Ip::V4), size)?;
        let daemon = Daemon::start(size)?;
        let (ear, socket) = (Ear::open()?, ground.socket()?);
        Ok(Scene { daemon, ear, socket, ground, size, times: Vec::new(), next: 0 })
    }

    /// The number of another route each time, far from the last one.
    pub(super) fn another(&mut self) -> usize {
        // A prime: every route has its turn before one has its second.
        const STRIDE: usize = 7919;
        self.next = (self.next + STRIDE) % self.size;
        self.next
    }

    /// The first of `count` routes in a row, others each time.
    pub(super) fn others(&mut self, count: usize) -> usize {
        self.next = if self.next + 2 * count > self.size { 0 } else { self.next + count };
        self.next
    }

    /// Deletes one route and waits until it is back.
    pub(super) fn heal_another(&mut self) -> Result<Duration> {
        let number = self.another();
        heal(Pen::ours(Ip::V4), number, (&self.socket, &mut self.ear))
    }
}

/// Deletes a route and waits for the event of its return. The clock starts before the message is sent,
/// so that the deletion itself counts too, and no moment between it and its event is left out.
pub(super) fn heal(
    pen: Pen,
    number: usize,
    (socket, ear): (&Socket, &mut Ear),
) -> Result<Duration> {
    let (IpAddr::V4(to), _) = Ip::V4.destination(number) else { bail!("not of IPv4") };
    let delete = pen.send_of(Verb::Delete, number..number + 1)?;
    ear.drain()?;
    let (healed, elapsed) = clock::time(|| {
        send_raw(socket, &delete)?;
        ear.await_added(to.octets())
    });
    healed.map(|()| elapsed)
}
