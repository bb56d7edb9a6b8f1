//! Many routes are deleted at once, or more than the receive buffer has room for events.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::super::network::TestNetwork;
use super::super::wire::{Ip, RouteMessages, Verb, dump_request, read_raw, send_all};
use super::fixture::{Fixture, with_fixture};
use super::latency::{LARGE, size};
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // From the first deletion to the return of the last route.
        Group::new("heal: 10k routes deleted at once", Unit::Seconds)
            .with("floor of 10k: the deletions and 10k adds", |run| floor(run, 10_000), &[])
            .with("of 10k", |run| burst(run, 10_000), &[])
            .with(BURST_FLOOR, |run| floor(run, LARGE), &[])
            .with("of 1M", |run| burst(run, LARGE), &[Budget::Within(1.5, BURST_FLOOR)]),
        // The daemon is stopped while 300k routes are deleted, three times what its buffer holds: events are lost.
        // From the moment when it continues to the return of the last route.
        Group::new("heal: 300k of 1M routes deleted, events lost", Unit::Seconds)
            .with(FLOOD_FLOOR, flood_floor, &[])
            .with("homeostat", flood, &[Budget::Within(1.5, FLOOD_FLOOR)]),
    ]
}

const BURST_FLOOR: &str = "floor of 1M: the deletions and 10k adds";
const FLOOD_FLOOR: &str = "floor: a dump of 700k and 300k adds";

const MESSAGES: RouteMessages = RouteMessages::ours(Ip::V4);

fn floor(run: &mut Run, full: usize) -> Result<()> {
    let (size, count) = (size(run, full), run.size(10_000, 1000));
    let network = TestNetwork::filled(MESSAGES, size)?;
    let socket = network.socket()?;
    let mut sends = MESSAGES.sends(Verb::Delete, 0..count)?;
    sends.extend(MESSAGES.sends(Verb::Add, 0..count)?);
    run.time(count, || send_all(&socket, &sends))?;
    network.expect(Ip::V4, size)
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
    let (size, count) = (size(run, LARGE), run.size(300_000, 2000));
    let network = TestNetwork::filled(MESSAGES, size)?;
    let (socket, request) = (network.socket()?, dump_request(Ip::V4)?);
    send_all(&socket, &MESSAGES.sends(Verb::Delete, 0..count)?)?;
    let adds = MESSAGES.sends(Verb::Add, 0..count)?;
    run.time(count, || {
        read_raw(&socket, &request)?;
        send_all(&socket, &adds)
    })?;
    network.expect(Ip::V4, size)
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
