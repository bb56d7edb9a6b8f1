//! From nothing to everything: the first message until all is verified.

use anyhow::Result;
use homeostat_engine::{Focus, Summary};

use super::super::bird::Bird;
use super::super::library::{self, Pace};
use super::super::peers::List;
use super::super::wire::{Ip, RouteMessages, Verb, send_raw};
use super::fixture::{Fixture, desired, expect};
use super::prepared::fresh;
use crate::{Budget, Contestant, Group, Run, Unit};

/// 100k IPv4 routes.
pub const SMALL: Group = Group {
    name: "rtnl: cold apply of 100k IPv4 routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", |run| floor(run, SMALL_V4), &[]),
        Contestant::new("homeostat", |run| ours(run, SMALL_V4), OF_FEW),
        Contestant::new("ip -batch", |run| batch(run, SMALL_V4), &[]),
        Contestant::new("BIRD", |run| bird(run, SMALL_V4), &[]),
        Contestant::new("rtnetlink, one by one", |run| crates(run, SMALL_V4, Pace::OneByOne), &[]),
        Contestant::new("rtnetlink, pipelined", |run| crates(run, SMALL_V4, Pace::Pipelined), &[]),
    ],
};

/// 100k IPv6 routes.
pub const SMALL_V6: Group = Group {
    name: "rtnl: cold apply of 100k IPv6 routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", |run| floor(run, V6), &[]),
        Contestant::new("homeostat", |run| ours(run, V6), OF_FEW),
        Contestant::new("ip -batch", |run| batch(run, V6), &[]),
        Contestant::new("BIRD", |run| bird(run, V6), &[]),
        Contestant::new("rtnetlink, one by one", |run| crates(run, V6, Pace::OneByOne), &[]),
        Contestant::new("rtnetlink, pipelined", |run| crates(run, V6, Pace::Pipelined), &[]),
    ],
};

/// A full Internet table.
pub const LARGE: Group = Group {
    name: "rtnl: cold apply of 1M IPv4 routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", |run| floor(run, LARGE_V4), &[]),
        Contestant::new("homeostat", |run| ours(run, LARGE_V4), BUDGETS),
        Contestant::new("ip -batch", |run| batch(run, LARGE_V4), &[]),
        Contestant::new("BIRD", |run| bird(run, LARGE_V4), &[]),
        Contestant::new("rtnetlink, one by one", |run| slowly(run, Pace::OneByOne), &[]),
        Contestant::new("rtnetlink, pipelined", |run| slowly(run, Pace::Pipelined), &[]),
    ],
};

/// With few routes the programs' own start counts for much, so that only the floor is a measure.
const OF_FEW: &[Budget] = &[Budget::Within(1.2, "floor")];

const BUDGETS: &[Budget] =
    &[Budget::Within(1.2, "floor"), Budget::Faster(3.0, "ip -batch"), Budget::Faster(2.0, "BIRD")];

/// What is to be added.
#[derive(Clone, Copy)]
struct Load {
    ip: Ip,
    size: usize,
}

const SMALL_V4: Load = Load { ip: Ip::V4, size: 100_000 };
const LARGE_V4: Load = Load { ip: Ip::V4, size: 1_000_000 };
const V6: Load = Load { ip: Ip::V6, size: 100_000 };

impl Load {
    fn at(self, run: &Run) -> (Ip, usize) {
        (self.ip, run.size(self.size, 5000))
    }
}

fn floor(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let (sends, socket) = (RouteMessages::ours(ip).sends(Verb::Add, size)?, network.socket()?);
    run.time(size, || sends.iter().try_for_each(|batch| send_raw(&socket, batch)))?;
    network.expect(ip, size)
}

fn ours(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let mut fixture = Fixture::once(desired(ip, 0..size)?)?;
    let report = run.time(size, || fixture.pass(Focus::All))?;
    expect(&report, Summary { create: size, ..Summary::default() })?;
    network.expect(ip, size)
}

fn batch(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let list = List::of(ip, size)?;
    run.time(size, || list.apply(&network))?;
    network.expect(ip, size)
}

fn bird(run: &mut Run, load: Load) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    let bird = Bird::new(ip, size)?;
    let _running = run.time(size, || bird.start(&network))?;
    network.expect(ip, size)
}

fn crates(run: &mut Run, load: Load, pace: Pace) -> Result<()> {
    let ((ip, size), network) = (load.at(run), fresh()?);
    run.time(size, || library::add(ip, size, pace))?;
    network.expect(ip, size)
}

fn slowly(run: &mut Run, pace: Pace) -> Result<()> {
    run.leave_out_if_slow()?;
    crates(run, LARGE_V4, pace)
}
