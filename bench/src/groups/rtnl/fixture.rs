//! The rtnl source in a namespace, its desired states, and namespaces full of routes. One of those is kept for all
//! rounds of a group: to fill one takes longer than most measurements.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_engine::Focus;
use homeostat_rtnl::{DesiredState, Key, Net, Route, RouteKey, Rtnl};

pub(super) use super::super::fixture::expect;
use super::super::network::TestNetwork;
use super::super::wire::{FOREIGN, Ip, OURS, RouteMessages};
use crate::Run;

pub(super) type Fixture = super::super::fixture::Fixture<Rtnl>;

/// Opens the source in the calling thread's namespace for one pass, as `apply` does.
pub(super) fn once(desired: DesiredState) -> Result<Fixture> {
    Fixture::without_hints(Rtnl::here(), Arc::new(desired))
}

/// A desired state of these routes.
pub(super) fn desired(ip: Ip, numbers: Range<usize>) -> Result<DesiredState> {
    let mut builder = DesiredState::builder();
    for number in numbers {
        builder.route(route_key(ip, number)?, Route::via(ip.gateway()))?;
    }
    Ok(builder.build()?)
}

/// The key of a route by its number.
pub(super) fn key(ip: Ip, number: usize) -> Result<Key> {
    Ok(Key::Route(route_key(ip, number)?))
}

fn route_key(ip: Ip, number: usize) -> Result<RouteKey> {
    let (dst, len) = ip.destination(number);
    Ok(RouteKey::new(Net::new(dst, len)?))
}

/// A full namespace, and a converged source in it.
pub(super) struct Prepared {
    pub(super) network: TestNetwork,
    pub(super) fixture: Fixture,
}

/// What a namespace is filled with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) whose: Whose,
    /// The number of routes.
    pub(super) size: usize,
}

impl Setup {
    /// As many routes as a full Internet table has.
    pub(super) fn full_table(run: &Run, whose: Whose) -> Self {
        Setup { whose, size: run.size(1_000_000, 5000) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Ours,
    /// And [`FEW`] of ours, with the numbers after them.
    Foreign,
}

/// How many routes of ours are among foreign ones.
pub(super) const FEW: usize = 100;

thread_local! {
    static KEPT: RefCell<Option<(Setup, Prepared)>> = const { RefCell::new(None) };
}

impl Prepared {
    fn new(setup: Setup) -> Result<Self> {
        let Setup { whose, size } = setup;
        let (protocol, declared) = match whose {
            Whose::Ours => (OURS, 0..size),
            Whose::Foreign => (FOREIGN, size..size + FEW),
        };
        let network = TestNetwork::filled(RouteMessages { ip: Ip::V4, protocol }, size)?;
        let desired = Arc::new(desired(Ip::V4, declared)?);
        let mut fixture = Fixture::with_hints(Rtnl::here(), desired)?;
        if whose == Whose::Foreign {
            fixture.pass(Focus::All)?;
        }
        Ok(Prepared { network, fixture: fixture.synced()? })
    }
}

/// Acts on the namespace of a setup. That of another setup is dropped.
pub(super) fn with_prepared<T>(
    setup: Setup,
    act: impl FnOnce(&mut Prepared) -> Result<T>,
) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != setup) {
            *kept = None;
            *kept = Some((setup, Prepared::new(setup)?));
        }
        let (_, prepared) = kept.as_mut().context("no namespace")?;
        prepared.network.enter()?;
        act(prepared)
    })
}

/// Drops the namespace that is kept.
pub(super) fn clear() {
    KEPT.set(None);
}

/// A new namespace; drops the one that is kept.
pub(super) fn fresh() -> Result<TestNetwork> {
    clear();
    TestNetwork::new()
}
