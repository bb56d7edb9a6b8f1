//! One route of many was deleted by another process.

use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_engine::{Focus, Summary};

use super::super::wire::{Ip, RouteMessages, Verb, dump_request, read_raw, send_raw};
use super::fixture::{expect, key};
use super::prepared::{Prepared, Setup, Whose, with_prepared};
use crate::{Budget, Contestant, Group, Run, Unit, clock};

/// Found by a full pass.
pub const FULL: Group = Group {
    name: "rtnl: full pass, one of 1M routes missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump and one write", raw, &[]),
        Contestant::new("homeostat", full, &[]),
    ],
};

/// Named by a hint, so that only it is read. The time is that of the pass.
pub const FOCUSED: Group = Group {
    name: "rtnl: focused pass, one route missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("of 100, p50", |run| heal(run, 100, 50), &[]),
        Contestant::new(
            "of 1M, p50",
            |run| heal(run, 1_000_000, 50),
            &[Budget::Within(1.5, "of 100, p50"), Budget::AtMost(0.0005)],
        ),
        Contestant::new("of 1M, p99", |run| heal(run, 1_000_000, 99), &[Budget::AtMost(0.002)]),
    ],
};

const MESSAGES: RouteMessages = RouteMessages { ip: Ip::V4, protocol: super::super::wire::OURS };
/// Healed in each round, unless that takes longer than [`LONG`].
const HEALS: usize = 500;
const LONG: Duration = Duration::from_secs(3);
const ONE: Summary = Summary { create: 1, update: 0, replace: 0, delete: 0 };

fn setup(size: usize) -> Setup {
    Setup { name: "change", whose: Whose::Ours, size }
}

fn large(run: &Run) -> usize {
    run.size(1_000_000, 5000)
}

/// Deletes one route, as another process would.
fn remove(prepared: &Prepared, number: usize) -> Result<()> {
    send_raw(&prepared.network.socket()?, &MESSAGES.send_of(Verb::Delete, number..number + 1)?)
}

fn raw(run: &mut Run) -> Result<()> {
    let size = large(run);
    with_prepared(setup(size), |prepared| {
        let missing = size / 2;
        remove(prepared, missing)?;
        let (socket, dump) = (prepared.network.socket()?, dump_request(Ip::V4)?);
        let write = MESSAGES.send_of(Verb::Add, missing..missing + 1)?;
        run.time(size, || {
            read_raw(&socket, &dump)?;
            send_raw(&socket, &write)
        })
    })
}

fn full(run: &mut Run) -> Result<()> {
    let size = large(run);
    with_prepared(setup(size), |prepared| {
        remove(prepared, size / 3)?;
        let report = run.time(size, || prepared.fixture.pass(Focus::All))?;
        expect(&report, ONE)
    })
}

fn heal(run: &mut Run, full: usize, percentile: usize) -> Result<()> {
    let size = run.size(full, full.min(5000));
    with_prepared(setup(size), |prepared| {
        let mut times = Vec::new();
        let (start, stride) = (clock::now(), (size / HEALS).max(1));
        for nth in 0..HEALS {
            if start.elapsed() > LONG {
                break;
            }
            times.push(heal_one(prepared, nth * stride % size)?);
        }
        times.sort_unstable();
        let at = (times.len() * percentile / 100).min(times.len().saturating_sub(1));
        run.record(times.get(at).context("nothing was healed")?.as_secs_f64());
        Ok(())
    })
}

fn heal_one(prepared: &mut Prepared, number: usize) -> Result<Duration> {
    let key = key(Ip::V4, number)?;
    remove(prepared, number)?;
    prepared.fixture.await_hint(&key)?;
    let focus = Focus::Keys([key].into());
    let (report, elapsed) = clock::time(|| prepared.fixture.pass(focus));
    expect(&report?, ONE)?;
    Ok(elapsed)
}
