//! Many routes are deleted at once, or more than the receive buffer has room for events.

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::super::network::TestNetwork;
use super::super::wire::{Ip, RouteMessages, Verb, send_raw};
use super::fixture::{Fixture, with_fixture};
use super::latency::{LARGE, size};
use crate::{Contestant, Group, Run, Unit, clock};

/// From the first deletion to the return of the last route.
pub const GROUP: Group = Group {
    name: "heal: 10k routes deleted at once",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor: the deletions and 10k adds", floor, &[]),
        Contestant::new("of 10k", |run| burst(run, 10_000), &[]),
        Contestant::new("of 1M", |run| burst(run, LARGE), &[]),
    ],
};

/// The daemon is stopped while 300k routes are deleted, three times what its buffer holds: events are lost. From the
/// moment when it continues to the return of the last route.
pub const FLOOD: Group = Group {
    name: "heal: 300k of 1M routes deleted, events lost",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor: a dump and 300k adds", flood_floor, &[]),
        Contestant::new("homeostat", flood, &[]),
    ],
};

const MESSAGES: RouteMessages = RouteMessages { ip: Ip::V4, protocol: super::super::wire::OURS };

fn count(run: &Run) -> usize {
    run.size(10_000, 1000)
}

fn floor(run: &mut Run) -> Result<()> {
    let count = count(run);
    let network = TestNetwork::filled(MESSAGES, count)?;
    let socket = network.socket()?;
    let (deletes, adds) = (MESSAGES.sends(Verb::Delete, count)?, MESSAGES.sends(Verb::Add, count)?);
    run.time(count, || {
        let all = deletes.iter().chain(&adds);
        all.into_iter().try_for_each(|batch| send_raw(&socket, batch))
    })?;
    network.expect(Ip::V4, count)
}

fn burst(run: &mut Run, full: usize) -> Result<()> {
    let (size, count) = (size(run, full), count(run));
    with_fixture(size, |fixture| {
        let first = fixture.others(count);
        let delete = MESSAGES.sends_of(Verb::Delete, first..first + count)?;
        fixture.listener.drain()?;
        let Fixture { socket, listener, .. } = fixture;
        run.time(count, || {
            delete.iter().try_for_each(|batch| send_raw(socket, batch))?;
            listener.count_added(count)
        })?;
        fixture.network.expect(Ip::V4, size)
    })
}

fn flooded(run: &Run) -> usize {
    run.size(300_000, 2000)
}

fn flood_floor(run: &mut Run) -> Result<()> {
    let count = flooded(run);
    let network = TestNetwork::new()?;
    let socket = network.socket()?;
    let (request, adds) =
        (super::super::wire::dump_request(Ip::V4)?, MESSAGES.sends(Verb::Add, count)?);
    run.time(count, || -> Result<()> {
        super::super::wire::read_raw(&socket, &request)?;
        adds.iter().try_for_each(|batch| send_raw(&socket, batch))
    })?;
    network.expect(Ip::V4, count)
}

fn flood(run: &mut Run) -> Result<()> {
    let (size, count) = (size(run, LARGE), flooded(run));
    with_fixture(size, |fixture| {
        let pid = Pid::from_raw(i32::try_from(fixture.daemon.running.pid())?);
        let pid = pid.ok_or_else(|| anyhow::anyhow!("no process"))?;
        let delete = MESSAGES.sends(Verb::Delete, count)?;
        kill_process(pid, Signal::STOP)?;
        let sent = delete.iter().try_for_each(|batch| send_raw(&fixture.socket, batch));
        kill_process(pid, Signal::CONT)?;
        sent?;
        run.time(count, || restored(&fixture.network, size))
    })
}

/// Waits until the kernel counts all routes again.
fn restored(network: &TestNetwork, size: usize) -> Result<()> {
    let start = clock::now();
    loop {
        let (count, cost) = clock::time(|| network.count(Ip::V4));
        let count = count?;
        if count >= size {
            return Ok(());
        }
        ensure!(start.elapsed().as_secs() < 120, "{count} of {size} routes are back");
        // Counting takes the kernel a walk over all routes, so it is not done too often.
        std::thread::sleep(cost);
    }
}
