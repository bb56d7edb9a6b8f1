//! From everything to nothing.

use anyhow::Result;
use homeostat_engine::{Focus, Summary};
use homeostat_rtnl::Wish;

use super::super::ground::Ground;
use super::super::wire::{Ip, OURS, Pen, Verb, send_raw};
use super::scene::{Scene, expect};
use super::stage::clear;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// A full Internet table. The floor sends the same messages, encoded before.
pub const GROUP: Group = Group {
    name: "rtnl: removal of 1M routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "floor", run: floor, budgets: &[] },
        Contestant { name: "homeostat", run: ours, budgets: &[] },
        Contestant { name: "ip route flush", run: flush, budgets: &[] },
    ],
};

fn filled(run: &Run) -> Result<(Ground, usize)> {
    clear();
    let size = run.size(1_000_000, 5000);
    Ok((Ground::filled(Pen::ours(Ip::V4), size)?, size))
}

fn floor(run: &mut Run) -> Result<()> {
    let (ground, size) = filled(run)?;
    let (sends, socket) = (Pen::ours(Ip::V4).sends(Verb::Delete, size)?, ground.socket()?);
    run.time(size, || sends.iter().try_for_each(|batch| send_raw(&socket, batch)))?;
    ground.expect(Ip::V4, 0)
}

fn ours(run: &mut Run) -> Result<()> {
    let (ground, size) = filled(run)?;
    let mut scene = Scene::once(Wish::default())?;
    let report = run.time(size, || scene.pass(Focus::All))?;
    expect(&report, Summary { delete: size, ..Summary::default() })?;
    ground.expect(Ip::V4, 0)
}

fn flush(run: &mut Run) -> Result<()> {
    let (ground, size) = filled(run)?;
    run.time(size, || flush_all(&ground))?;
    ground.expect(Ip::V4, 0)
}

/// On a busy machine `ip` gives up after half a minute; people start it once more then.
fn flush_all(ground: &Ground) -> Result<()> {
    const TRIES: u32 = 5;
    let protocol = OURS.to_string();
    let mut flushed = Ok(());
    for _ in 0..TRIES {
        flushed = ground.ip(&["route", "flush", "proto", &protocol]);
        if flushed.is_ok() {
            break;
        }
    }
    flushed
}
