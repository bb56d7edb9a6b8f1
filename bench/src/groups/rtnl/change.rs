//! One route of many was removed behind our back, another one each time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_engine::{Focus, Summary};

use super::super::wire::{Ip, Pen, Verb, dump_request, read_raw, send_raw};
use super::scene::{expect, key};
use super::stage::{Play, Stage, Whose, on_stage};
use crate::budget::Budget;
use crate::clock;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// A look at everything finds it.
pub const FULL: Group = Group {
    name: "rtnl: full pass, one of 1M routes missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "raw dump and one write", run: raw, budgets: &[] },
        Contestant { name: "homeostat", run: full, budgets: &[] },
    ],
};

/// A hint names it, and only it is looked at. Timed is the pass, from the hint to the report.
pub const FOCUSED: Group = Group {
    name: "rtnl: focused pass, one route missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "of 100, p50", run: |run| heal(run, 100, 50), budgets: &[] },
        Contestant {
            name: "of 1M, p50",
            run: |run| heal(run, 1_000_000, 50),
            budgets: &[Budget::Within(1.5, "of 100, p50"), Budget::AtMost(0.0005)],
        },
        Contestant {
            name: "of 1M, p99",
            run: |run| heal(run, 1_000_000, 99),
            budgets: &[Budget::AtMost(0.002)],
        },
    ],
};

const PEN: Pen = Pen { ip: Ip::V4, protocol: super::super::wire::OURS };
/// Healed in each round, unless that takes longer than [`LONG`].
const HEALS: usize = 500;
const LONG: Duration = Duration::from_secs(3);
const ONE: Summary = Summary { create: 1, update: 0, replace: 0, delete: 0 };

fn play(size: usize) -> Play {
    Play { name: "change", whose: Whose::Ours, size }
}

fn large(run: &Run) -> usize {
    run.size(1_000_000, 5000)
}

/// Takes one route away as somebody else would.
fn remove(stage: &Stage, number: usize) -> Result<()> {
    send_raw(&stage.ground.socket()?, &PEN.send_of(Verb::Delete, number..number + 1)?)
}

fn raw(run: &mut Run) -> Result<()> {
    let size = large(run);
    on_stage(play(size), |stage| {
        let missing = size / 2;
        remove(stage, missing)?;
        let (socket, dump) = (stage.ground.socket()?, dump_request(Ip::V4)?);
        let write = PEN.send_of(Verb::Add, missing..missing + 1)?;
        run.time(size, || {
            read_raw(&socket, &dump)?;
            send_raw(&socket, &write)
        })
    })
}

fn full(run: &mut Run) -> Result<()> {
    let size = large(run);
    on_stage(play(size), |stage| {
        remove(stage, size / 3)?;
        let report = run.time(size, || stage.scene.pass(Focus::All))?;
        expect(&report, ONE)
    })
}

fn heal(run: &mut Run, full: usize, percentile: usize) -> Result<()> {
    let size = run.size(full, full.min(5000));
    on_stage(play(size), |stage| {
        let mut times = Vec::new();
        let (start, stride) = (clock::now(), (size / HEALS).max(1));
        for nth in 0..HEALS {
            if start.elapsed() > LONG {
                break;
            }
            times.push(heal_one(stage, nth * stride % size)?);
        }
        times.sort_unstable();
        let at = (times.len() * percentile / 100).min(times.len().saturating_sub(1));
        run.record(times.get(at).context("nothing was healed")?.as_secs_f64());
        Ok(())
    })
}

fn heal_one(stage: &mut Stage, number: usize) -> Result<Duration> {
    let key = key(Ip::V4, number)?;
    remove(stage, number)?;
    stage.scene.await_hint(&key)?;
    let focus = Focus::Keys([key].into());
    let (report, elapsed) = clock::time(|| stage.scene.pass(focus));
    expect(&report?, ONE)?;
    Ok(elapsed)
}
