//! One rule or one element of many was deleted by another process, and a hint names the table.

use anyhow::{Result, ensure};
use homeostat_engine::{Explain as _, Focus};

use super::load::{self, File, Load, address, key};
use super::prepared::{fresh, with_prepared};
use super::raw::{self, Rule, add_element, drop_element};
use crate::{Budget, Contestant, Group, Run, Unit};

/// A rule in the middle.
pub const RULE: Group = Group {
    name: "nft: one of 10k rules missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new(FLOOR, raw_rule, &[]),
        Contestant::new("homeostat", our_rule, BUDGETS),
        Contestant::new(WHOLE, |run| whole(run, load::RULES), &[]),
    ],
};

/// An element of a block list.
pub const ELEMENT: Group = Group {
    name: "nft: one of 100k elements missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new(FLOOR, |run| raw_element(run, load::ELEMENTS), &[]),
        Contestant::new("homeostat", |run| our_element(run, load::ELEMENTS), BUDGETS),
        Contestant::new(WHOLE, |run| whole(run, load::ELEMENTS), &[]),
    ],
};

/// An element of a very long list.
pub const ELEMENT_OF_MANY: Group = Group {
    name: "nft: one of 1M elements missing",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new(FLOOR, |run| raw_element(run, load::MANY), &[]),
        Contestant::new("homeostat", |run| our_element(run, load::MANY), BUDGETS),
        Contestant::new(WHOLE, |run| whole(run, load::MANY), &[]),
    ],
};

const FLOOR: &str = "raw dump and one write";
const WHOLE: &str = "nft -f of the whole";
const BUDGETS: &[Budget] = &[Budget::Within(1.3, FLOOR), Budget::Faster(5.0, WHOLE)];

fn raw_rule(run: &mut Run) -> Result<()> {
    let load = load::RULES.at(run);
    with_prepared(load, |_| {
        let (socket, requests) = (raw::socket(0)?, raw::requests(load)?);
        let rule = Rule::at(load.rules / 2)?;
        raw::commit(&socket, &rule.delete)?;
        run.time(load.count(), || {
            raw::read(&socket, &requests)?;
            raw::commit(&socket, &rule.add)
        })
    })
}

fn our_rule(run: &mut Run) -> Result<()> {
    let load = load::RULES.at(run);
    let rule = with_prepared(load, |_| Rule::at(load.rules / 2))?;
    heal(run, load, &rule.delete)
}

fn raw_element(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    with_prepared(load, |_| {
        let (socket, requests) = (raw::socket(0)?, raw::requests(load)?);
        let missing = address(load.elements / 2);
        raw::commit(&socket, &drop_element(missing)?)?;
        let add = add_element(missing)?;
        run.time(load.count(), || {
            raw::read(&socket, &requests)?;
            raw::commit(&socket, &add)
        })
    })
}

fn our_element(run: &mut Run, load: Load) -> Result<()> {
    let load = load.at(run);
    heal(run, load, &drop_element(address(load.elements / 3))?)
}

/// The pass after a hint, up to its report.
fn heal(run: &mut Run, load: Load, harm: &homeostat_netlink::Batch) -> Result<()> {
    with_prepared(load, |prepared| {
        prepared.fixture.drain()?;
        raw::commit(&raw::socket(0)?, harm)?;
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
