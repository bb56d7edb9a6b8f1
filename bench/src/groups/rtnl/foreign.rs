//! A few routes of ours among a million foreign ones that keep changing.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use homeostat_engine::{Focus, Summary};
use homeostat_netlink::{
    Batch, Event, Family, Group as Multicast, Listener, Options, Socket, uapi,
};

use super::super::network::TestNetwork;
use super::super::wire::{
    FOREIGN, Ip, OURS, RouteMessages, Verb, dump_request, read_raw, send_raw,
};
use super::fixture::{Fixture, expect, key};
use super::prepared::{FEW, Prepared, Setup, Whose, with_prepared};
use crate::{Budget, Contestant, Group, Run, Unit, clock};

/// CPU time per second: of the process that changes routes, or of one that listens.
pub const CHURN: Group = Group {
    name: "rtnl: work a second, 10k changes/s of 1M foreign routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("the changes, nobody listens", changes_alone, &[]),
        Contestant::new("the changes, homeostat listens", changes_with_source, &[]),
        Contestant::new("a listener that hears all", receive_all, &[]),
        Contestant::new("homeostat, listening", ours, &[Budget::AtMost(0.02)]),
    ],
};

/// A full pass over a few routes of ours reads all the others.
pub const PASS: Group = Group {
    name: "rtnl: converged pass beside 1M foreign routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump", raw, &[]),
        Contestant::new("homeostat", pass, &[Budget::Within(1.5, "raw dump")]),
    ],
};

const MESSAGES: RouteMessages = RouteMessages { ip: Ip::V4, protocol: FOREIGN };
const INTERVAL: Duration = Duration::from_millis(10);
/// Deleted and added again in each interval: 10k changes a second.
const ROUTES_PER_INTERVAL: usize = 50;

/// How often a listener checks whether the changes are over.
const CHECK: Duration = Duration::from_millis(100);

fn size(run: &Run) -> usize {
    run.size(1_000_000, 5000)
}

fn setup(size: usize) -> Setup {
    Setup { name: "foreign", whose: Whose::Foreign, size }
}

/// A thread that changes routes at a steady pace.
struct Churn {
    lasts: Duration,
    thread: JoinHandle<Result<Duration>>,
}

impl Churn {
    /// Starts it; its socket belongs to the namespace.
    fn start(run: &Run, network: &TestNetwork, size: usize) -> Result<Self> {
        let beats = run.size(200, 20);
        let socket = network.socket()?;
        let places = (0..size).step_by(ROUTES_PER_INTERVAL).take(beats);
        let sends = places.map(one_interval).collect::<Result<Vec<_>>>()?;
        let thread = thread::spawn(move || {
            let (churned, work) = clock::time_at_work(|| churn(&socket, &sends));
            churned.map(|()| work)
        });
        Ok(Churn { lasts: INTERVAL * u32::try_from(beats)?, thread })
    }

    /// Whether all was changed; on a busy machine that may take longer than it should.
    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    fn part_of_a_second(&self, work: Duration) -> f64 {
        work.as_secs_f64() / self.lasts.as_secs_f64()
    }

    /// Waits for its end; returns its CPU time per second.
    fn work(self) -> Result<f64> {
        let lasts = self.lasts.as_secs_f64();
        let work = self
            .thread
            .join()
            .map_err(|_| anyhow!("the thread that changes routes panicked"))??;
        Ok(work.as_secs_f64() / lasts)
    }
}

/// Deletes a few routes and adds them again.
fn one_interval(first: usize) -> Result<[Batch; 2]> {
    let numbers = first..first + ROUTES_PER_INTERVAL;
    Ok([MESSAGES.send_of(Verb::Delete, numbers.clone())?, MESSAGES.send_of(Verb::Add, numbers)?])
}

fn churn(socket: &Socket, sends: &[[Batch; 2]]) -> Result<()> {
    let start = clock::now();
    let mut next = Duration::ZERO;
    for batch in sends {
        thread::sleep(next.saturating_sub(start.elapsed()));
        batch.iter().try_for_each(|batch| send_raw(socket, batch))?;
        next += INTERVAL;
    }
    Ok(())
}

fn changes_alone(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        let work = prepared.alone(|network| Churn::start(run, network, size)?.work())?;
        run.record(work);
        Ok(())
    })
}

fn changes_with_source(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        prepared.fixture.drain()?;
        let churn = Churn::start(run, &prepared.network, size)?;
        listen(&mut prepared.fixture, &churn)?;
        run.record(churn.work()?);
        Ok(())
    })
}

fn ours(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        prepared.fixture.drain()?;
        let churn = Churn::start(run, &prepared.network, size)?;
        let (received, work) = clock::time_at_work(|| listen(&mut prepared.fixture, &churn));
        received?;
        run.record(churn.part_of_a_second(work));
        churn.work()?;
        still_heals(prepared, size)
    })
}

/// Waits for hints; there must be none.
fn listen(fixture: &mut Fixture, churn: &Churn) -> Result<()> {
    while !churn.is_over() {
        let hint = fixture.hint(CHECK)?;
        ensure!(hint.is_none(), "a hint about what is foreign: {hint:?}");
    }
    Ok(())
}

/// Checks that a deleted route of ours still causes a hint, and is restored.
fn still_heals(prepared: &mut Prepared, size: usize) -> Result<()> {
    let last = size + FEW - 1;
    let ours = RouteMessages { ip: Ip::V4, protocol: OURS };
    send_raw(&prepared.network.socket()?, &ours.send_of(Verb::Delete, last..last + 1)?)?;
    prepared.fixture.await_hint(&key(Ip::V4, last)?)?;
    let one = Summary { create: 1, ..Summary::default() };
    expect(&prepared.fixture.pass(Focus::All)?, one)
}

/// The simplest listener: it receives every change.
fn receive_all(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        let groups = [Multicast(uapi::RTNLGRP_IPV4_ROUTE)];
        let mut listener = Listener::open(Family::Route, &groups, &Options::for_events())?;
        let churn = Churn::start(run, &prepared.network, size)?;
        let (received, work) = clock::time_at_work(|| count_events(&mut listener, &churn));
        ensure!(received? > 0, "no event was received");
        run.record(churn.part_of_a_second(work));
        churn.work()?;
        Ok(())
    })
}

fn count_events(listener: &mut Listener, churn: &Churn) -> Result<usize> {
    let mut count = 0;
    while !churn.is_over() {
        listener.receive_within(CHECK, &mut |event| {
            count += usize::from(matches!(event, Event::Message(_)));
        })?;
    }
    Ok(count)
}

fn raw(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        let (socket, request) = (prepared.network.socket()?, dump_request(Ip::V4)?);
        run.time(size, || read_raw(&socket, &request))?;
        Ok(())
    })
}

fn pass(run: &mut Run) -> Result<()> {
    let size = size(run);
    with_prepared(setup(size), |prepared| {
        let report = run.time_and_weigh(size, || prepared.fixture.pass(Focus::All))?;
        expect(&report, Summary::default())
    })
}
