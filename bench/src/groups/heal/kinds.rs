//! How soon one rule, address, neighbour, nexthop or link among many is restored, beside the two requests that it takes.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use homeostat_netlink::{Event, Family, Listener, Options, Socket};

use super::super::network::TestNetwork;
use super::super::objects::Kind;
use super::super::wire::{Verb, send_raw};
use super::daemon::Daemon;
use super::latency::record;
use crate::{Budget, Group, Run, Unit, clock};

/// From the deletion to the kernel's event of the return, the median of a round. The floor of each size is a deletion
/// and an add among as many objects: the kernel itself walks all rules for each, and all addresses of a link.
pub(super) fn groups() -> Vec<Group> {
    const FEW: &str = "of few";
    const MANY_FLOOR: &str = "floor of many: a deletion and an add";
    let group = |name, kind: Kind, few, many, against| {
        Group::new(name, Unit::Seconds)
            .with("floor of few: a deletion and an add", move |run| floor(run, kind, few), &[])
            .with(FEW, move |run| heals(run, kind, few), &[])
            .with(MANY_FLOOR, move |run| floor(run, kind, many), &[])
            .with("of many", move |run| heals(run, kind, many), &[Budget::Within(3.0, against)])
    };
    vec![
        group("heal: one deleted rule of 100 or 10k", Kind::Rule, 100, 10_000, MANY_FLOOR),
        group("heal: one deleted address of 100 or 20k", Kind::Address, 100, 20_000, MANY_FLOOR),
        group("heal: one deleted neighbour of 100 or 50k", Kind::Neighbour, 100, 50_000, FEW),
        group("heal: one deleted nexthop of 100 or 20k", Kind::Nexthop, 100, 20_000, FEW),
        group("heal: one changed link of 100 or 5k pairs", Kind::Mtu, 100, 5000, FEW),
        group("heal: one deleted link of 100 or 5k pairs", Kind::Pair, 100, 5000, FEW),
    ]
}

/// More than this on the same hundred keys would be contention.
const HEALS: usize = 50;

/// Longer than a busy machine needs.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A prime, so that all come before one is repeated.
const STRIDE: usize = 7919;

/// A namespace with a daemon that keeps many of a kind.
struct Fixture {
    // Dropped first.
    _daemon: Daemon,
    listener: Listener,
    socket: Socket,
    network: TestNetwork,
    kind: Kind,
    size: usize,
    next: usize,
}

thread_local! {
    /// Kept for all rounds of a group.
    static KEPT: RefCell<Vec<Fixture>> = const { RefCell::new(Vec::new()) };
}

fn heals(run: &mut Run, kind: Kind, full: usize) -> Result<()> {
    let size = run.size(full, full.min(200));
    KEPT.with_borrow_mut(|kept| {
        kept.retain(|fixture| fixture.kind == kind);
        if !kept.iter().any(|fixture| fixture.size == size) {
            let network = TestNetwork::new()?;
            let daemon = Daemon::of(&kind.document(size)?)?;
            let options = Options::for_events();
            let listener = Listener::open(Family::Route, &[kind.multicast()], &options)?;
            let socket = network.socket()?;
            kept.push(Fixture { _daemon: daemon, listener, socket, network, kind, size, next: 0 });
        }
        let fixture = kept.iter_mut().find(|fixture| fixture.size == size).context("no fixture")?;
        fixture.network.enter()?;
        let times: Result<Vec<Duration>> = (0..HEALS).map(|_| fixture.heal_another()).collect();
        let mut times = times?;
        times.sort_unstable();
        record(run, &times, 50)
    })
}

impl Fixture {
    fn heal_another(&mut self) -> Result<Duration> {
        self.next = (self.next + STRIDE) % self.size;
        let (kind, number) = (self.kind, self.next);
        let delete = kind.request(Verb::Delete, number)?;
        while self.listener.receive(&mut |_| ())? {}
        let Fixture { socket, listener, .. } = self;
        let (healed, elapsed) = clock::time(|| {
            send_raw(socket, &delete)?;
            let mut is_back = false;
            while !is_back {
                let received = listener.receive_within(TIMEOUT, &mut |event| {
                    if let Event::Message(message) = event {
                        is_back |= kind.is_back(&message, number);
                    }
                })?;
                ensure!(received, "it is not restored");
            }
            Ok(())
        });
        healed.map(|()| elapsed)
    }
}

/// A namespace with many of a kind, and no daemon that keeps them.
struct Unkept {
    socket: Socket,
    network: TestNetwork,
    kind: Kind,
    size: usize,
    next: usize,
}

thread_local! {
    /// Kept for all rounds of a group.
    static UNKEPT: RefCell<Vec<Unkept>> = const { RefCell::new(Vec::new()) };
}

fn floor(run: &mut Run, kind: Kind, full: usize) -> Result<()> {
    let size = run.size(full, full.min(200));
    UNKEPT.with_borrow_mut(|kept| {
        kept.retain(|fixture| fixture.kind == kind);
        if !kept.iter().any(|fixture| fixture.size == size) {
            kept.push(Unkept::new(kind, size)?);
        }
        let fixture = kept.iter_mut().find(|fixture| fixture.size == size).context("no fixture")?;
        fixture.network.enter()?;
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..HEALS {
            fixture.next = (fixture.next + STRIDE) % size;
            let verbs = [Verb::Delete, Verb::Add];
            let [delete, add] = verbs.map(|verb| kind.request(verb, fixture.next));
            let requests = [delete?, add?];
            let socket = &fixture.socket;
            let (sent, elapsed) =
                clock::time(|| requests.iter().try_for_each(|request| send_raw(socket, request)));
            sent?;
            times.push(elapsed);
        }
        times.sort_unstable();
        record(run, &times, 50)
    })
}

impl Unkept {
    fn new(kind: Kind, size: usize) -> Result<Self> {
        let network = TestNetwork::new()?;
        let socket = network.socket()?;
        // A link that is changed has to be there before.
        let made = if kind.is_link() { Kind::Pair } else { kind };
        for number in 0..size {
            send_raw(&socket, &made.request(Verb::Add, number)?)?;
        }
        Ok(Unkept { socket, network, kind, size, next: 0 })
    }
}
