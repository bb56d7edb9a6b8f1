//! A full pass over routes that are all as declared.

use anyhow::{Result, ensure};
use homeostat_engine::{Focus, Summary};

use super::super::wire::{Ip, dump_request, read_raw};
use super::fixture::expect;
use super::prepared::{Setup, Whose, with_prepared};
use crate::{Budget, Contestant, Group, Run, Unit, program};

/// 100k routes.
pub const SMALL: Group = Group {
    name: "rtnl: converged pass over 100k routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump", |run| raw(run, 100_000), &[]),
        Contestant::new("homeostat", |run| ours(run, 100_000), BUDGETS),
        Contestant::new("ip route show", |run| shown(run, 100_000), &[]),
    ],
};

/// A full Internet table.
pub const LARGE: Group = Group {
    name: "rtnl: converged pass over 1M routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump", |run| raw(run, 1_000_000), &[]),
        Contestant::new("homeostat", |run| ours(run, 1_000_000), BUDGETS),
        Contestant::new("ip route show", |run| shown(run, 1_000_000), &[]),
    ],
};

const BUDGETS: &[Budget] = &[Budget::Within(1.5, "raw dump")];

fn setup(size: usize) -> Setup {
    Setup { name: "converged", whose: Whose::Ours, size }
}

fn size(run: &Run, full: usize) -> usize {
    run.size(full, 5000)
}

fn raw(run: &mut Run, full: usize) -> Result<()> {
    let size = size(run, full);
    with_prepared(setup(size), |prepared| {
        let (socket, request) = (prepared.network.socket()?, dump_request(Ip::V4)?);
        let bytes = run.time(size, || read_raw(&socket, &request))?;
        ensure!(bytes > size * 40, "only {bytes} bytes for {size} routes");
        Ok(())
    })
}

fn ours(run: &mut Run, full: usize) -> Result<()> {
    let size = size(run, full);
    with_prepared(setup(size), |prepared| {
        let report = run.time_and_weigh(size, || prepared.fixture.pass(Focus::All))?;
        expect(&report, Summary::default())
    })
}

fn shown(run: &mut Run, full: usize) -> Result<()> {
    let size = size(run, full);
    with_prepared(setup(size), |_| {
        run.time(size, || program::run_quietly("ip", &["route", "show"]))
    })
}
