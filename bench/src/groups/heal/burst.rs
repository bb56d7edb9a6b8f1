//! Many routes are deleted at once, or more than any buffer holds the news of.

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::super::ground::Ground;
use super::super::wire::{Ip, Pen, Verb, send_raw};
use super::latency::{LARGE, size};
use super::scene::{Scene, on_scene};
use crate::clock;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// From the first deletion to the return of the last route.
pub const GROUP: Group = Group {
    name: "heal: 10k routes deleted at once",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "floor: the deletions and 10k adds", run: floor, budgets: &[] },
        Contestant { name: "of 10k", run: |run| burst(run, 10_000), budgets: &[] },
        Contestant { name: "of 1M", run: |run| burst(run, LARGE), budgets: &[] },
    ],
};

/// The daemon stands still while 300k routes go, three times what its buffer holds: events are lost.
/// From the moment when it goes on to the return of the last route.
pub const FLOOD: Group = Group {
    name: "heal: 300k of 1M routes deleted, events lost",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "floor: a dump and 300k adds", run: flood_floor, budgets: &[] },
        Contestant { name: "homeostat", run: flood, budgets: &[] },
    ],
};

const PEN: Pen = Pen { ip: Ip::V4, protocol: super::super::wire::OURS };

fn count(run: &Run) -> usize {
    run.size(10_000, 1000)
}

fn floor(run: &mut Run) -> Result<()> {
    let count = count(run);
    let ground = Ground::filled(PEN, count)?;
    let socket = ground.socket()?;
    let (deletes, adds) = (PEN.sends(Verb::Delete, count)?, PEN.sends(Verb::Add, count)?);
    run.time(count, || {
        let all = deletes.iter().chain(&adds);
        all.into_iter().try_for_each(|batch| send_raw(&socket, batch))
    })?;
    ground.expect(Ip::V4, count)
}

fn burst(run: &mut Run, full: usize) -> Result<()> {
    let (size, count) = (size(run, full), count(run));
    on_scene(size, |scene| {
        let first = scene.others(count);
        let delete = PEN.sends_of(Verb::Delete, first..first + count)?;
        scene.ear.drain()?;
        let Scene { socket, ear, .. } = scene;
        run.time(count, || {
            delete.iter().try_for_each(|batch| send_raw(socket, batch))?;
            ear.count_added(count)
        })?;
        scene.ground.expect(Ip::V4, size)
    })
}

fn flooded(run: &Run) -> usize {
    run.size(300_000, 2000)
}

fn flood_floor(run: &mut Run) -> Result<()> {
    let count = flooded(run);
    let ground = Ground::new()?;
    let socket = ground.socket()?;
    let (request, adds) = (super::super::wire::dump_request(Ip::V4)?, PEN.sends(Verb::Add, count)?);
    run.time(count, || -> Result<()> {
        super::super::wire::read_raw(&socket, &request)?;
        adds.iter().try_for_each(|batch| send_raw(&socket, batch))
    })?;
    ground.expect(Ip::V4, count)
}

fn flood(run: &mut Run) -> Result<()> {
    let (size, count) = (size(run, LARGE), flooded(run));
    on_scene(size, |scene| {
        let pid = Pid::from_raw(i32::try_from(scene.daemon.running.pid())?);
        let pid = pid.ok_or_else(|| anyhow::anyhow!("no process"))?;
        let delete = PEN.sends(Verb::Delete, count)?;
        kill_process(pid, Signal::STOP)?;
        let sent = delete.iter().try_for_each(|batch| send_raw(&scene.socket, batch));
        kill_process(pid, Signal::CONT)?;
        sent?;
        run.time(count, || restored(&scene.ground, size))
    })
}

/// Waits until the kernel counts all routes again.
fn restored(ground: &Ground, size: usize) -> Result<()> {
    let start = clock::now();
    loop {
        let (count, cost) = clock::time(|| ground.count(Ip::V4));
        let count = count?;
        if count >= size {
            return Ok(());
        }
        ensure!(start.elapsed().as_secs() < 120, "{count} of {size} routes are back");
        // The kernel walks all its routes to count them: it is not asked too often.
        std::thread::sleep(cost);
    }
}
