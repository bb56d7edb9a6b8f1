//! A full pass over routes that are all as declared, or foreign.

use anyhow::{Result, ensure};
use homeostat_engine::Focus;

use super::super::wire::{Ip, dump_request, read_raw};
use super::fixture::{Setup, Whose, expect, with_prepared};
use crate::{Budget, Group, Run, Unit, program};

/// A full Internet table.
pub(super) fn group() -> Group {
    Group::new("rtnl: converged pass over 1M routes", Unit::Seconds)
        .with("raw dump", |run| raw(run, Whose::Ours), &[])
        .with("homeostat", |run| ours(run, Whose::Ours), &[Budget::Within(1.2, "raw dump")])
        .with("ip route show", shown, &[])
}

pub(super) fn raw(run: &mut Run, whose: Whose) -> Result<()> {
    let setup = Setup::full_table(run, whose);
    with_prepared(setup, |prepared| {
        let (socket, request) = (prepared.network.socket()?, dump_request(Ip::V4)?);
        let bytes = run.time(setup.size, || read_raw(&socket, &request))?;
        ensure!(bytes > setup.size * 40, "only {bytes} bytes for {} routes", setup.size);
        Ok(())
    })
}

pub(super) fn ours(run: &mut Run, whose: Whose) -> Result<()> {
    let setup = Setup::full_table(run, whose);
    with_prepared(setup, |prepared| {
        let report = run.time_and_weigh(setup.size, || prepared.fixture.pass(Focus::All))?;
        expect(&report, [])
    })
}

fn shown(run: &mut Run) -> Result<()> {
    let setup = Setup::full_table(run, Whose::Ours);
    with_prepared(setup, |_| {
        run.time(setup.size, || program::run_quietly("ip", &["route", "show"]))
    })
}
