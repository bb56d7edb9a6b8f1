//! From everything to nothing.

use anyhow::Result;
use homeostat_engine::{Focus, Summary};
use homeostat_rtnl::DesiredState;

use super::super::network::TestNetwork;
use super::super::wire::{Ip, OURS, RouteMessages, Verb, send_raw};
use super::fixture::{Fixture, expect};
use super::prepared::clear;
use crate::{Contestant, Group, Run, Unit};

/// A full Internet table. The floor sends the same messages, encoded before.
pub const GROUP: Group = Group {
    name: "rtnl: removal of 1M routes",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("floor", floor, &[]),
        Contestant::new("homeostat", ours, &[]),
        Contestant::new("ip route flush", flush, &[]),
    ],
};

fn filled(run: &Run) -> Result<(TestNetwork, usize)> {
    clear();
    let size = run.size(1_000_000, 5000);
    Ok((TestNetwork::filled(RouteMessages::ours(Ip::V4), size)?, size))
}

fn floor(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let (sends, socket) =
        (RouteMessages::ours(Ip::V4).sends(Verb::Delete, size)?, network.socket()?);
    run.time(size, || sends.iter().try_for_each(|batch| send_raw(&socket, batch)))?;
    network.expect(Ip::V4, 0)
}

fn ours(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let mut fixture = Fixture::once(DesiredState::default())?;
    let report = run.time(size, || fixture.pass(Focus::All))?;
    expect(&report, Summary { delete: size, ..Summary::default() })?;
    network.expect(Ip::V4, 0)
}

fn flush(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    run.time(size, || flush_all(&network))?;
    network.expect(Ip::V4, 0)
}

/// On a busy machine `ip` gives up after half a minute; people start it once more then.
fn flush_all(network: &TestNetwork) -> Result<()> {
    const TRIES: u32 = 5;
    let protocol = OURS.to_string();
    let mut flushed = Ok(());
    for _ in 0..TRIES {
        flushed = network.ip(&["route", "flush", "proto", &protocol]);
        if flushed.is_ok() {
            break;
        }
    }
    flushed
}
