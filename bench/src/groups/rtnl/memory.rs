//! What a million routes take in memory once all are there.

use anyhow::Result;
use homeostat_engine::{Focus, Summary};

use super::super::bird::Bird;
use super::super::wire::Ip;
use super::fixture::{Fixture, desired, expect};
use super::prepared::fresh;
use crate::{Budget, Contestant, Group, Run, Unit};

/// Ours is the heap over that of an idle program, with its peak; BIRD's is its resident memory.
pub const GROUP: Group = Group {
    name: "rtnl: memory with 1M routes",
    unit: Unit::Bytes,
    contestants: &[
        Contestant::new("homeostat", ours, &[Budget::BytesEach(100.0)]),
        Contestant::new("BIRD", bird, &[]),
    ],
};

fn ours(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 5000);
    let network = fresh()?;
    let fixture = run.weigh(size, || -> Result<Fixture> {
        let mut fixture = Fixture::open(desired(Ip::V4, 0..size)?)?;
        let report = fixture.pass(Focus::All)?;
        expect(&report, Summary { create: size, ..Summary::default() })?;
        drop(report);
        fixture.synced()
    })?;
    network.expect(Ip::V4, size)?;
    drop(fixture);
    Ok(())
}

fn bird(run: &mut Run) -> Result<()> {
    let size = run.size(1_000_000, 5000);
    let network = fresh()?;
    let bird = Bird::new(Ip::V4, size)?.start(&network)?;
    run.record_bytes(bird.resident_bytes()?);
    Ok(())
}
