//! A full pass over a ruleset that is as declared.

use anyhow::Result;
use homeostat_engine::{Focus, Summary};

use super::super::fixture::expect;
use super::load::{self, Load};
use super::prepared::with_prepared;
use super::raw;
use crate::{Budget, Contestant, Group, Run, Unit, program};

/// A block list and a firewall.
pub const ELEMENTS: Group = Group {
    name: "nft: converged pass over 1k rules and 100k elements",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump", |run| raw_dump(run, load::ELEMENTS), &[]),
        Contestant::new("homeostat", |run| ours(run, load::ELEMENTS), BUDGETS),
        Contestant::new("nft list", |run| listed(run, load::ELEMENTS), &[]),
    ],
};

/// Many rules.
pub const RULES: Group = Group {
    name: "nft: converged pass over 10k rules",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("raw dump", |run| raw_dump(run, load::RULES), &[]),
        Contestant::new("homeostat", |run| ours(run, load::RULES), BUDGETS),
        Contestant::new("nft list", |run| listed(run, load::RULES), &[]),
    ],
};

const BUDGETS: &[Budget] = &[Budget::Within(1.3, "raw dump")];

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
        expect(&report, Summary::default())
    })
}

fn listed(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |_| {
        run.time(load.count(), || program::run_quietly("nft", &["list", "ruleset"]))
    })
}
