//! Beside a million routes of somebody else, who keeps changing them.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use homeostat_engine::{Focus, Summary};
use homeostat_netlink::{
    Batch, Event, Family, Group as Multicast, Listener, Options, Socket, uapi,
};

use super::super::ground::Ground;
use super::super::wire::{FOREIGN, Ip, OURS, Pen, Verb, dump_request, read_raw, send_raw};
use super::scene::{Scene, expect, key};
use super::stage::{FEW, Play, Stage, Whose, on_stage};
use crate::budget::Budget;
use crate::clock;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// How much of each second a core works: for the one who changes, or for one who listens.
pub const CHURN: Group = Group {
    name: "rtnl: work a second, 10k changes/s of 1M foreign routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "the changes, nobody listens", run: alone, budgets: &[] },
        Contestant { name: "the changes, homeostat listens", run: heard, budgets: &[] },
        Contestant { name: "a listener that hears all", run: open_ear, budgets: &[] },
        Contestant { name: "homeostat, listening", run: ours, budgets: &[Budget::AtMost(0.02)] },
    ],
};

/// A full pass over a few routes of ours has to look at all the others.
pub const PASS: Group = Group {
    name: "rtnl: converged pass beside 1M foreign routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "raw dump", run: raw, budgets: &[] },
        Contestant { name: "homeostat", run: pass, budgets: &[Budget::Within(1.5, "raw dump")] },
    ],
};

const PEN: Pen = Pen { ip: Ip::V4, protocol: FOREIGN };
const BEAT: Duration = Duration::from_millis(10);
/// Half of them take routes away, half put them back: 10k changes a second.
const ROUTES_A_BEAT: usize = 50;

/// How long one who listens waits before a look whether all is over.
const NAP: Duration = Duration::from_millis(100);

fn size(run: &Run) -> usize {
    run.size(1_000_000, 5000)
}

fn play(size: usize) -> Play {
    Play { name: "foreign", whose: Whose::Foreign, size }
}

/// Somebody who changes routes at a steady pace.
struct Churn {
    lasts: Duration,
    thread: JoinHandle<Result<Duration>>,
}

impl Churn {
    /// Starts it; its socket keeps it in the stage's namespace.
    fn start(run: &Run, ground: &Ground, size: usize) -> Result<Self> {
        let beats = run.size(200, 20);
        let socket = ground.socket()?;
        let places = (0..size).step_by(ROUTES_A_BEAT).take(beats);
        let sends = places.map(beat).collect::<Result<Vec<_>>>()?;
        let thread = thread::spawn(move || {
            let (churned, work) = clock::time_at_work(|| churn(&socket, &sends));
            churned.map(|()| work)
        });
        Ok(Churn { lasts: BEAT * u32::try_from(beats)?, thread })
    }

    /// Whether all was changed; on a busy machine that may take longer than it should.
    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    fn part_of_a_second(&self, work: Duration) -> f64 {
        work.as_secs_f64() / self.lasts.as_secs_f64()
    }

    /// Waits for its end, and tells how much of a second it worked.
    fn work(self) -> Result<f64> {
        let lasts = self.lasts.as_secs_f64();
        let work = self.thread.join().map_err(|_| anyhow!("the one who changes routes fell"))??;
        Ok(work.as_secs_f64() / lasts)
    }
}

/// Takes a few routes away and puts them back.
fn beat(first: usize) -> Result<[Batch; 2]> {
    let numbers = first..first + ROUTES_A_BEAT;
    Ok([PEN.send_of(Verb::Delete, numbers.clone())?, PEN.send_of(Verb::Add, numbers)?])
}

fn churn(socket: &Socket, sends: &[[Batch; 2]]) -> Result<()> {
    let start = clock::now();
    let mut next = Duration::ZERO;
    for batch in sends {
        thread::sleep(next.saturating_sub(start.elapsed()));
        batch.iter().try_for_each(|batch| send_raw(socket, batch))?;
        next += BEAT;
    }
    Ok(())
}

fn alone(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        let work = stage.alone(|ground| Churn::start(run, ground, size)?.work())?;
        run.record(work);
        Ok(())
    })
}

fn heard(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        stage.scene.drain()?;
        let churn = Churn::start(run, &stage.ground, size)?;
        listen(&mut stage.scene, &churn)?;
        run.record(churn.work()?);
        Ok(())
    })
}

fn ours(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        stage.scene.drain()?;
        let churn = Churn::start(run, &stage.ground, size)?;
        let (heard, work) = clock::time_at_work(|| listen(&mut stage.scene, &churn));
        heard?;
        run.record(churn.part_of_a_second(work));
        churn.work()?;
        still_hears(stage, size)
    })
}

/// Waits for hints; there must be none.
fn listen(scene: &mut Scene, churn: &Churn) -> Result<()> {
    while !churn.is_over() {
        let hint = scene.hint(NAP)?;
        ensure!(hint.is_none(), "a hint about what is foreign: {hint:?}");
    }
    Ok(())
}

/// A route of ours that goes is heard of, and put back.
fn still_hears(stage: &mut Stage, size: usize) -> Result<()> {
    let last = size + FEW - 1;
    let ours = Pen { ip: Ip::V4, protocol: OURS };
    send_raw(&stage.ground.socket()?, &ours.send_of(Verb::Delete, last..last + 1)?)?;
    stage.scene.await_hint(&key(Ip::V4, last)?)?;
    let one = Summary { create: 1, ..Summary::default() };
    expect(&stage.scene.pass(Focus::All)?, one)
}

/// What one would write first: every change is received.
fn open_ear(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        let groups = [Multicast(uapi::RTNLGRP_IPV4_ROUTE)];
        let mut listener = Listener::open(Family::Route, &groups, &Options::for_events())?;
        let churn = Churn::start(run, &stage.ground, size)?;
        let (heard, work) = clock::time_at_work(|| hear_all(&mut listener, &churn));
        ensure!(heard? > 0, "nothing was heard");
        run.record(churn.part_of_a_second(work));
        churn.work()?;
        Ok(())
    })
}

fn hear_all(listener: &mut Listener, churn: &Churn) -> Result<usize> {
    let mut heard = 0;
    while !churn.is_over() {
        listener.receive_within(NAP, &mut |event| {
            heard += usize::from(matches!(event, Event::Message(_)));
        })?;
    }
    Ok(heard)
}

fn raw(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        let (socket, request) = (stage.ground.socket()?, dump_request(Ip::V4)?);
        run.time(size, || read_raw(&socket, &request))?;
        Ok(())
    })
}

fn pass(run: &mut Run) -> Result<()> {
    let size = size(run);
    on_stage(play(size), |stage| {
        let report = run.time_and_weigh(size, || stage.scene.pass(Focus::All))?;
        expect(&report, Summary::default())
    })
}
