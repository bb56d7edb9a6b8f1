//! One rule or one element of many was deleted by another process, and a hint names the table.

use anyhow::{Result, ensure};
use homeostat_engine::{Explain as _, Focus};

use super::load::{self, File, Load, key};
use super::prepared::{fresh, with_prepared};
use super::raw::{self, Missing};
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        group("nft: one of 10k rules missing", load::RULES, Missing::rule),
        group("nft: one of 100k elements missing", load::ELEMENTS, Missing::element),
        group("nft: one of 1M elements missing", load::MANY, Missing::element),
    ]
}

fn group(name: &'static str, load: Load, missing: fn(Load) -> Result<Missing>) -> Group {
    const FLOOR: &str = "raw dump and one write";
    const WHOLE: &str = "nft -f of the whole";
    Group::new(name, Unit::Seconds)
        .with(FLOOR, move |run| floor(run, load, missing), &[])
        .with(
            "homeostat",
            move |run| heal(run, load, missing),
            &[Budget::Within(1.3, FLOOR), Budget::Faster(5.0, WHOLE)],
        )
        .with(WHOLE, move |run| whole(run, load), &[])
}

fn floor(run: &mut Run, load: Load, missing: fn(Load) -> Result<Missing>) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |_| {
        let (socket, requests, missing) = (raw::socket(0)?, raw::requests(load)?, missing(load)?);
        raw::commit(&socket, &missing.delete)?;
        run.time(load.count(), || {
            raw::read(&socket, &requests)?;
            raw::commit(&socket, &missing.add)
        })
    })
}

/// The pass after a hint, up to its report.
fn heal(run: &mut Run, load: Load, missing: fn(Load) -> Result<Missing>) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |prepared| {
        prepared.fixture.drain()?;
        raw::commit(&raw::socket(0)?, &missing(load)?.delete)?;
        let key = key()?;
        prepared.fixture.await_hint(&key)?;
        let focus = Focus::Keys([key].into());
        let report = run.time(load.count(), || prepared.fixture.pass(focus))?;
        ensure!(report.is_converged() && report.summary().total() == 1, "{:?}", report.summary());
        Ok(())
    })
}

/// Without homeostat: the whole file once more.
fn whole(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let file = File::of(load)?;
    file.load()?;
    run.time(load.count(), || file.load())
}
