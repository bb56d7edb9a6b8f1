//! Whole passes over a million routes in memory: observe, diff, plan, apply, verify, record.

use std::iter::repeat_n;
use std::sync::Arc;

use anyhow::{Result, ensure};
use homeostat_engine::{Action, Focus};

use super::fixture::{Fixture, expect};
use super::routes::{DesiredState, Table};
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // From nothing to everything. The floor writes and reads the same table without an engine.
        Group::new("pass: 1M cold", Unit::Seconds).with("write and read back", floor, &[]).with(
            "homeostat",
            cold,
            &[Budget::AtMost(0.3)],
        ),
        // Everything is as declared.
        Group::new("pass: 1M converged", Unit::Seconds).with(
            "homeostat",
            converged,
            &[Budget::AtMost(0.05), Budget::BytesEach(1.0)],
        ),
        // One route was deleted by another process.
        Group::new("pass: heal one, 1000 times", Unit::Seconds)
            .with("of 100", |run| heal(run, 100), &[])
            .with("of 1M", |run| heal(run, 1_000_000), &[Budget::Within(1.5, "of 100")]),
    ]
}

fn fixture(table: &Table, size: usize) -> Result<Fixture<Table>> {
    Fixture::without_hints(table.clone(), Arc::new(DesiredState::new(size)))
}

fn floor(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let table = Table::new(size);
    let kept = run.time(size, || {
        let mut routes = table.routes();
        routes.iter_mut().for_each(|route| *route = Some(1));
        routes.iter().flatten().count()
    });
    ensure!(kept == size, "kept {kept} routes");
    Ok(())
}

fn cold(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let mut fixture = fixture(&Table::new(size), size)?;
    let report = run.time_and_weigh(size, || fixture.pass(Focus::All))?;
    expect(&report, repeat_n(Action::Create, size))
}

fn converged(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 10_000);
    let mut fixture = fixture(&Table::new(size), size)?;
    fixture.pass(Focus::All)?;
    let report = run.time_and_weigh(size, || fixture.pass(Focus::All))?;
    expect(&report, [])
}

fn heal(run: &mut Run, size: usize) -> Result<()> {
    const HEALS: u32 = 1000;
    let size = run.size(size, size.min(10_000));
    let table = Table::new(size);
    let mut fixture = fixture(&table, size)?;
    fixture.pass(Focus::All)?;
    let stride = u32::try_from(size)? / 100;
    run.time(HEALS as usize, || {
        (0..HEALS).try_for_each(|nth| {
            let key = nth % 100 * stride;
            if let Some(route) = table.routes().get_mut(key as usize) {
                *route = None;
            }
            let report = fixture.pass(Focus::Keys([key].into()))?;
            expect(&report, [Action::Create])
        })
    })
}
