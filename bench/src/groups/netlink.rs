//! The transport against what the kernel alone costs, in fresh network namespaces. Needs root.

use anyhow::{Result, ensure};
use homeostat_netlink::{Answer, Batch, Connection, Dumped, Family};

use super::network::TestNetwork;
use super::peers;
use super::wire::{Ip, OURS, RouteMessages, Verb, dump_request, read_raw, send_raw};
use crate::{Budget, Contestant, Group, Run, Unit, program};

/// New IPv4 routes through a gateway. The floor sends the same messages, encoded before.
pub const INSERT: Group = Group {
    name: "netlink: insert 100k routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", insert_raw, &[]),
        Contestant::new(
            "homeostat-netlink",
            insert_by_connection,
            &[Budget::Within(1.2, "floor"), Budget::Faster(3.0, "ip -batch")],
        ),
        Contestant::new("ip -batch", insert_by_ip, &[]),
    ],
};

/// All routes of a namespace. The floor reads them without parsing.
pub const DUMP: Group = Group {
    name: "netlink: dump 100k routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", dump_raw, &[]),
        Contestant::new("homeostat-netlink", dump_by_connection, &[Budget::Within(1.5, "floor")]),
        Contestant::new("ip route show", dump_by_ip, &[]),
    ],
};

fn insert_raw(run: &mut Run) -> Result<()> {
    let size = run.size(100_000, 5000);
    let network = TestNetwork::new()?;
    let (sends, socket) = (MESSAGES.sends(Verb::Add, size)?, network.socket()?);
    run.time(size, || sends.iter().try_for_each(|batch| send_raw(&socket, batch)))?;
    network.expect(Ip::V4, size)
}

/// How many messages are encoded before they are sent.
const PER_RUN: usize = 2500;
const MESSAGES: RouteMessages = RouteMessages { ip: Ip::V4, protocol: OURS };

fn insert_by_connection(run: &mut Run) -> Result<()> {
    let size = run.size(100_000, 5000);
    let network = TestNetwork::new()?;
    let mut connection = Connection::open(Family::Route)?;
    run.time(size, || insert(&mut connection, size))?;
    network.expect(Ip::V4, size)
}

/// Encodes and sends piece by piece, as a source does.
fn insert(connection: &mut Connection, size: usize) -> Result<()> {
    let mut batch = Batch::new();
    let mut refused = 0;
    for first in (0..size).step_by(PER_RUN) {
        batch.clear();
        for number in first..(first + PER_RUN).min(size) {
            MESSAGES.write(&mut batch, Verb::Add, number, 0)?;
        }
        connection.run(&mut batch, &mut |_, answer| {
            refused += usize::from(!matches!(answer, Answer::Done));
        })?;
    }
    ensure!(refused == 0, "{refused} routes were refused");
    Ok(())
}

fn insert_by_ip(run: &mut Run) -> Result<()> {
    let size = run.size(100_000, 5000);
    let network = TestNetwork::new()?;
    let list = peers::List::of(Ip::V4, size)?;
    run.time(size, || list.apply(&network))?;
    network.expect(Ip::V4, size)
}

/// A namespace full of routes.
fn filled(run: &Run) -> Result<(TestNetwork, usize)> {
    let size = run.size(100_000, 5000);
    Ok((TestNetwork::filled(MESSAGES, size)?, size))
}

fn dump_raw(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let (socket, request) = (network.socket()?, dump_request(Ip::V4)?);
    let bytes = run.time(size, || read_raw(&socket, &request))?;
    ensure!(bytes > size * 40, "only {bytes} bytes for {size} routes");
    Ok(())
}

fn dump_by_connection(run: &mut Run) -> Result<()> {
    let (_ground, size) = filled(run)?;
    let mut connection = Connection::open(Family::Route)?;
    let mut request = dump_request(Ip::V4)?;
    let mut routes = 0;
    run.time(size, || {
        connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Object(_) => routes += 1,
            Dumped::Restart => routes = 0,
        })
    })?;
    ensure!(routes >= size, "{routes} of {size} routes");
    Ok(())
}

fn dump_by_ip(run: &mut Run) -> Result<()> {
    let (_ground, size) = filled(run)?;
    run.time(size, || program::run_quietly("ip", &["route", "show"]))
}
