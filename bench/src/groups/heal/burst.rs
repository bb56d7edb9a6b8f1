//! Many routes are deleted at once, or more than the receive buffer has room for events.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::super::network::TestNetwork;
use super::super::wire::{Ip, RouteMessages, Verb, dump_request, read_raw, send_all};
use super::fixture::{Fixture, with_fixture};
use super::latency::{LARGE, size};
use crate::{Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // From the first deletion to the return of the last route.
        Group::new("heal: 10k routes deleted at once", Unit::Seconds)
            .with("floor: the deletions and 10k adds", floor, &[])
            .with("of 10k", |run| burst(run, 10_000), &[])
            .with("of 1M", |run| burst(run, LARGE), &[]),
        // The daemon is stopped while 300k routes are deleted, three times what its buffer holds: events are lost.
        // From the moment when it continues to the return of the last route.
        Group::new("heal: 300k of 1M routes deleted, events lost", Unit::Seconds)
            .with("floor: a dump and 300k adds", flood_floor, &[])
            .with("homeostat", flood, &[]),
    ]
}

const MESSAGES: RouteMessages = RouteMessages::ours(Ip::V4);

fn floor(run: &mut Run) -> Result<()> {
    let count = run.size(10_000, 1000);
    let network = TestNetwork::filled(MESSAGES, count)?;
    let socket = network.socket()?;
    let mut sends = MESSAGES.sends(Verb::Delete, 0..count)?;
    sends.extend(MESSAGES.sends(Verb::Add, 0..count)?);
    run.time(count, || send_all(&socket, &sends))?;
    network.expect(Ip::V4, count)
}

fn burst(run: &mut Run, full: usize) -> Result<()> {
    let (size, count) = (size(run, full), run.size(10_000, 1000));
    with_fixture(size, |fixture| {
        let first = fixture.others(count);
        let deletes = MESSAGES.sends(Verb::Delete, first..first + count)?;
        fixture.listener.drain()?;
        let Fixture { socket, listener, .. } = fixture;
        run.time(count, || {
            send_all(socket, &deletes)?;
            listener.count_added(count)
        })?;
        fixture.network.expect(Ip::V4, size)
    })
}

fn flood_floor(run: &mut Run) -> Result<()> {
    let count = run.size(300_000, 2000);
    let network = TestNetwork::new()?;
    let (socket, request) = (network.socket()?, dump_request(Ip::V4)?);
    let adds = MESSAGES.sends(Verb::Add, 0..count)?;
    run.time(count, || {
        read_raw(&socket, &request)?;
        send_all(&socket, &adds)
    })?;
    network.expect(Ip::V4, count)
}

fn flood(run: &mut Run) -> Result<()> {
    let (size, count) = (size(run, LARGE), run.size(300_000, 2000));
    with_fixture(size, |fixture| {
        let pid = Pid::from_raw(i32::try_from(fixture.daemon.running.pid())?);
        let pid = pid.context("no process")?;
        let deletes = MESSAGES.sends(Verb::Delete, 0..count)?;
        kill_process(pid, Signal::STOP)?;
        let sent = send_all(&fixture.socket, &deletes);
        kill_process(pid, Signal::CONT)?;
        sent?;
        run.time(count, || fixture.network.await_count(Ip::V4, size, || Ok(())))
    })
}
