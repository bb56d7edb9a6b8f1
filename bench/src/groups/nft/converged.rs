//! A full pass over a ruleset that is as declared.

use anyhow::Result;
use homeostat_engine::Focus;

use super::super::fixture::expect;
use super::load::{self, Load};
use super::prepared::with_prepared;
use super::raw;
use crate::{Budget, Group, Run, Unit, program};

pub(super) fn groups() -> Vec<Group> {
    vec![
        group("nft: converged pass over 1k rules and 100k elements", load::ELEMENTS),
        group("nft: converged pass over 10k rules", load::RULES),
    ]
}

fn group(name: &'static str, load: Load) -> Group {
    Group::new(name, Unit::Seconds)
        .with("raw dump", move |run| raw_dump(run, load), &[])
        .with("homeostat", move |run| ours(run, load), &[Budget::Within(1.3, "raw dump")])
        .with("nft list", move |run| listed(run, load), &[])
}

fn raw_dump(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |_| {
        let (socket, requests) = (raw::socket(0)?, raw::requests(load)?);
        run.time(load.count(), || raw::read(&socket, &requests)).map(|_| ())
    })
}

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |prepared| {
        let report = run.time_and_weigh(load.count(), || prepared.fixture.pass(Focus::All))?;
        expect(&report, [])
    })
}

fn listed(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |_| {
        run.time(load.count(), || program::run_quietly("nft", &["list", "ruleset"]))
    })
}
