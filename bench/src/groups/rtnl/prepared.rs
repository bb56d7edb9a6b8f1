//! Namespaces full of routes, kept for all rounds of a group: to fill one takes longer than most measurements.

use std::cell::RefCell;

use anyhow::{Context as _, Result};
use homeostat_engine::Focus;

use super::super::network::TestNetwork;
use super::super::wire::{FOREIGN, Ip, OURS, RouteMessages};
use super::fixture::{Fixture, desired};

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
        let mut fixture = Fixture::open(desired(Ip::V4, declared)?)?;
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
