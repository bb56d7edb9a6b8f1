//! From nothing to everything: the first message until all is verified.

use std::fmt::Write as _;
use std::iter::repeat_n;

use anyhow::Result;
use homeostat_engine::{Action, Focus};

use super::super::bird::Bird;
use super::super::library;
use super::super::wire::{Ip, OURS, RouteMessages, Verb, send_all};
use super::fixture::{desired, expect, fresh, once};
use crate::{Budget, Group, Run, Unit, program};

pub(super) fn groups() -> Vec<Group> {
    let large = [
        Budget::Within(1.15, "floor"),
        Budget::Faster(3.0, "ip -batch"),
        Budget::Faster(2.0, "BIRD"),
    ];
    // With few routes the programs' own start counts for much, so that only the floor is a measure.
    let small = &large[..1];
    vec![
        group("rtnl: cold apply of 100k IPv4 routes", Load { ip: Ip::V4, size: 100_000 }, small),
        group("rtnl: cold apply of 100k IPv6 routes", Load { ip: Ip::V6, size: 100_000 }, small),
        group("rtnl: cold apply of 1M IPv4 routes", Load { ip: Ip::V4, size: 1_000_000 }, &large),
    ]
}

fn group(name: &'static str, load: Load, budgets: &[Budget]) -> Group {
    Group::new(name, Unit::Seconds)
        .with("floor", move |run| floor(run, load), &[])
        .with("homeostat", move |run| ours(run, load), budgets)
        .with("ip -batch", move |run| batch(run, load), &[])
        .with("BIRD", move |run| bird(run, load), &[])
        .with("rtnetlink, one by one", move |run| by_library(run, load, 1), &[])
        // As many as the default receive buffer has room for answers.
        .with("rtnetlink, pipelined", move |run| by_library(run, load, 256), &[])
}

/// What is to be added.
#[derive(Clone, Copy)]
struct Load {
    ip: Ip,
    size: usize,
}

impl Load {
    fn at(self, run: &Run) -> (Ip, usize) {
        (self.ip, run.size(self.size, 5000))
    }
}

fn floor(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let (sends, socket) = (RouteMessages::ours(ip).sends(Verb::Add, 0..size)?, network.socket()?);
    run.time(size, || send_all(&socket, &sends))?;
    network.expect(ip, size)
}

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let mut fixture = once(desired(ip, 0..size)?)?;
    let report = run.time(size, || fixture.pass(Focus::All))?;
    expect(&report, repeat_n(Action::Create, size))?;
    network.expect(ip, size)
}

fn batch(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let (mut lines, gateway) = (String::new(), ip.gateway());
    for number in 0..size {
        let (dst, len) = ip.destination(number);
        writeln!(lines, "route add {dst}/{len} via {gateway} proto {OURS}")?;
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("routes");
    std::fs::write(&path, lines)?;
    let version = if ip == Ip::V4 { "-4" } else { "-6" };
    let path = program::text(&path)?;
    run.time(size, || network.ip(&[version, "-batch", path]))?;
    network.expect(ip, size)
}

fn bird(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let bird = Bird::new(ip, size)?;
    let _running = run.time(size, || bird.start(&network))?;
    network.expect(ip, size)
}

fn by_library(run: &mut Run, load: Load, in_flight: usize) -> Result<()> {
    if load.size > 100_000 {
        run.leave_out_if_slow()?;
    }
    let ((ip, size), network) = (load.at(run), fresh()?);
    run.time(size, || library::add(ip, size, in_flight))?;
    network.expect(ip, size)
}
