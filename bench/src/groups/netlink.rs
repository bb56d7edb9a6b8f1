//! The transport against what the kernel alone costs, in fresh network namespaces. Needs root.

use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Answer, Batch, Connection, Dumped, Family, Options, Socket, uapi};
use homeostat_testkit::namespace::Namespace;
use rustix::net::{AddressFamily, RecvFlags, recv};

use crate::budget::Budget;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// New IPv4 routes through a gateway. The floor sends the same messages, encoded before.
pub const INSERT: Group = Group {
    name: "netlink: insert 100k routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "floor", run: insert_raw, budgets: &[] },
        Contestant {
            name: "homeostat-netlink",
            run: insert_by_connection,
            budgets: &[Budget::Within(1.2, "floor"), Budget::Faster(3.0, "ip -batch")],
        },
        Contestant { name: "ip -batch", run: insert_by_ip, budgets: &[] },
    ],
};

/// All routes of a namespace. The floor reads them without a look inside.
pub const DUMP: Group = Group {
    name: "netlink: dump 100k routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "floor", run: dump_raw, budgets: &[] },
        Contestant {
            name: "homeostat-netlink",
            run: dump_by_connection,
            budgets: &[Budget::Within(1.5, "floor")],
        },
        Contestant { name: "ip route show", run: dump_by_ip, budgets: &[] },
    ],
};

const GATEWAY: [u8; 4] = [10, 0, 0, 9];
const IPV4: u8 = AddressFamily::INET.as_raw().to_le_bytes()[0];
/// What fits into one send of 128 KiB.
const PER_SEND: usize = 2500;
const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace with a link that reaches the gateway.
fn wired() -> Result<Namespace> {
    let namespace = Namespace::enter()?;
    namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"])?;
    namespace.ip(&["address", "add", "10.0.0.1/24", "dev", "v0"])?;
    namespace.ip(&["link", "set", "v0", "up"])?;
    namespace.ip(&["link", "set", "v1", "up"])?;
    Ok(namespace)
}

fn destination(number: usize) -> [u8; 4] {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    [20 + high, middle, low, 0]
}

/// Adds the message for one route, with these flags beside those of a create.
fn add_route(batch: &mut Batch, number: usize, flags: u16) -> Result<()> {
    let create = uapi::NLM_F_CREATE | uapi::NLM_F_EXCL;
    let mut message = batch.message(uapi::RTM_NEWROUTE, create | flags);
    message.fixed(&[IPV4, 24, 0, 0, 254, 76, 0, 1, 0, 0, 0, 0]);
    message.attr(uapi::RTA_DST, &destination(number)).attr(uapi::RTA_GATEWAY, &GATEWAY);
    Ok(message.finish()?)
}

fn insert_raw(run: &mut Run) -> Result<()> {
    let size = run.size(100_000, 5000);
    let namespace = wired()?;
    let mut sends = Vec::new();
    for first in (0..size).step_by(PER_SEND) {
        let mut batch = Batch::new();
        let last = (first + PER_SEND).min(size) - 1;
        for number in first..=last {
            let flags = if number == last { uapi::NLM_F_ACK } else { 0 };
            add_route(&mut batch, number, flags)?;
        }
        sends.push(batch);
    }
    let socket = Socket::open(Family::Route, &Options::default())?;
    run.time(size, || sends.iter().try_for_each(|batch| send_raw(&socket, batch)))?;
    check_count(&namespace, size)
}

/// One send, one answer: the ack of the last message.
fn send_raw(socket: &Socket, batch: &Batch) -> Result<()> {
    socket.send(batch.bytes())?;
    ensure!(socket.wait(PATIENCE)?, "no answer");
    let mut answer = [0; 4096];
    let (count, _) = recv(socket.as_fd(), &mut answer, RecvFlags::empty())?;
    let status = answer.get(16..20).filter(|_| count >= 20).context("a short answer")?;
    ensure!(status == [0; 4], "refused: {status:?}");
    Ok(())
}

fn insert_by_connection(run: &mut Run) -> Result<()> {
    let size = run.size(100_000, 5000);
    let namespace = wired()?;
    let mut connection = Connection::open(Family::Route)?;
    run.time(size, || insert(&mut connection, size))?;
    check_count(&namespace, size)
}

/// Encodes and sends piece by piece, as a source does.
fn insert(connection: &mut Connection, size: usize) -> Result<()> {
    let mut batch = Batch::new();
    let mut refused = 0;
    for first in (0..size).step_by(PER_SEND) {
        batch.clear();
        for number in first..(first + PER_SEND).min(size) {
            add_route(&mut batch, number, 0)?;
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
    let namespace = wired()?;
    let mut lines = String::new();
    for number in 0..size {
        let [a, b, c, d] = destination(number);
        writeln!(lines, "route add {a}.{b}.{c}.{d}/24 via 10.0.0.9 proto 76")?;
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("routes");
    std::fs::write(&path, lines)?;
    let path = path.to_str().context("an odd directory")?;
    run.time(size, || namespace.ip(&["-batch", path]))?;
    check_count(&namespace, size)
}

fn check_count(namespace: &Namespace, size: usize) -> Result<()> {
    let routes = namespace.ip_json(&["route", "show", "proto", "76"])?;
    let count = routes.as_array().map_or(0, Vec::len);
    ensure!(count == size, "{count} of {size} routes are there");
    Ok(())
}

/// A namespace full of routes.
fn filled(run: &Run) -> Result<(Namespace, usize)> {
    let size = run.size(100_000, 5000);
    let namespace = wired()?;
    insert(&mut Connection::open(Family::Route)?, size)?;
    Ok((namespace, size))
}

fn request() -> Result<Batch> {
    let mut batch = Batch::new();
    let mut message = batch.message(uapi::RTM_GETROUTE, uapi::NLM_F_DUMP);
    message.fixed(&[IPV4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.finish()?;
    Ok(batch)
}

fn dump_raw(run: &mut Run) -> Result<()> {
    let (_namespace, size) = filled(run)?;
    let socket = Socket::open(Family::Route, &Options::default())?;
    let request = request()?;
    let bytes = run.time(size, || read_raw(&socket, &request))?;
    ensure!(bytes > size * 40, "only {bytes} bytes for {size} routes");
    Ok(())
}

/// Reads until the message that ends a dump, which stands last in the last datagram.
fn read_raw(socket: &Socket, request: &Batch) -> Result<usize> {
    const DONE: [u8; 2] = [3, 0];
    const DONE_LENGTH: usize = 20;
    socket.send(request.bytes())?;
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    while socket.wait(PATIENCE)? {
        let (count, _) = recv(socket.as_fd(), buffer.as_mut_slice(), RecvFlags::empty())?;
        bytes += count;
        let kind = count.checked_sub(DONE_LENGTH).and_then(|at| buffer.get(at + 4..at + 6));
        if kind == Some(&DONE) {
            return Ok(bytes);
        }
    }
    bail!("the dump did not end")
}

fn dump_by_connection(run: &mut Run) -> Result<()> {
    let (_namespace, size) = filled(run)?;
    let mut connection = Connection::open(Family::Route)?;
    let mut request = request()?;
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
    let (namespace, size) = filled(run)?;
    run.time(size, || namespace.ip(&["route", "show"]))?;
    Ok(())
}
