//! From everything to nothing.

use anyhow::Result;
use homeostat_engine::{Action, Focus};
use homeostat_rtnl::DesiredState;
use std::iter::repeat_n;

use super::super::network::TestNetwork;
use super::super::objects::Kind;
use super::super::wire::{Ip, OURS, RouteMessages, Verb, send_all};
use super::fixture::{clear, expect, fresh, once};
use crate::{Budget, Group, Run, Unit};

/// A full Internet table. The floor sends the same messages, encoded before.
pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("rtnl: removal of 1M routes", Unit::Seconds)
            .with("floor", floor, &[])
            .with("homeostat", ours, &[])
            .with("ip route flush", flush, &[]),
        // Each may take others along, so a plan judges it by those that stay.
        Group::new("rtnl: removal of 20k addresses of a link", Unit::Seconds)
            .with("floor", address_floor, &[])
            .with("homeostat", our_addresses, &[Budget::Within(2.0, "floor")]),
    ]
}

fn filled(run: &Run) -> Result<(TestNetwork, usize)> {
    clear();
    let size = run.size(1_000_000, 5000);
    Ok((TestNetwork::filled(RouteMessages::ours(Ip::V4), size)?, size))
}

fn floor(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let sends = RouteMessages::ours(Ip::V4).sends(Verb::Delete, 0..size)?;
    let socket = network.socket()?;
    run.time(size, || send_all(&socket, &sends))?;
    network.expect(Ip::V4, 0)
}

fn ours(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let mut fixture = once(DesiredState::default())?;
    let report = run.time(size, || fixture.pass(Focus::All))?;
    expect(&report, repeat_n(Action::Delete, size))?;
    network.expect(Ip::V4, 0)
}

fn flush(run: &mut Run) -> Result<()> {
    let (network, size) = filled(run)?;
    let protocol = OURS.to_string();
    // On a busy machine `ip` gives up after half a minute; people start it once more then.
    let flush = || network.ip(&["route", "flush", "proto", &protocol]);
    run.time(size, || flush().or_else(|_| flush()).or_else(|_| flush()))?;
    network.expect(Ip::V4, 0)
}

/// A link with addresses, and the number of them.
fn with_addresses(run: &Run) -> Result<(TestNetwork, usize)> {
    let (network, size) = (fresh()?, run.size(20_000, 500));
    send_all(&network.socket()?, &Kind::Address.sends(Verb::Add, size)?)?;
    Ok((network, size))
}

fn address_floor(run: &mut Run) -> Result<()> {
    let (network, size) = with_addresses(run)?;
    let (socket, deletes) = (network.socket()?, Kind::Address.sends(Verb::Delete, size)?);
    run.time(size, || send_all(&socket, &deletes))
}

fn our_addresses(run: &mut Run) -> Result<()> {
    let (_network, size) = with_addresses(run)?;
    let mut fixture = once(DesiredState::default())?;
    let report = run.time(size, || fixture.pass(Focus::All))?;
    expect(&report, repeat_n(Action::Delete, size))
}
