//! Namespaces full of routes, kept for all rounds of a group: to fill one takes longer than most measurements.

use std::cell::RefCell;

use anyhow::{Context as _, Result};
use homeostat_engine::Focus;
use homeostat_rtnl::DesiredState;

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
    /// The groups that share it.
    pub(super) name: &'static str,
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
    static KEPT: RefCell<Vec<(Setup, Prepared)>> = const { RefCell::new(Vec::new()) };
}

impl Prepared {
    fn new(setup: Setup) -> Result<Self> {
        let Setup { whose, size, .. } = setup;
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

    /// Acts without a source in the namespace: meanwhile another namespace has one.
    pub(super) fn alone<T>(&mut self, act: impl FnOnce(&TestNetwork) -> Result<T>) -> Result<T> {
        let elsewhere = TestNetwork::new()?;
        let desired = std::mem::replace(&mut self.fixture, Fixture::open(DesiredState::default())?)
            .into_desired();
        drop(elsewhere);
        self.network.enter()?;
        let done = act(&self.network);
        self.fixture = Fixture::open(desired)?.synced()?;
        done
    }
}

/// Acts on the namespace of a setup. Those of other names are dropped.
pub(super) fn with_prepared<T>(
    setup: Setup,
    act: impl FnOnce(&mut Prepared) -> Result<T>,
) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        kept.retain(|(known, _)| known.name == setup.name);
        if !kept.iter().any(|(known, _)| *known == setup) {
            kept.push((setup, Prepared::new(setup)?));
        }
        let prepared = kept.iter_mut().find(|(known, _)| *known == setup);
        let (_, prepared) = prepared.context("no namespace")?;
        prepared.network.enter()?;
        act(prepared)
    })
}

/// Drops all namespaces.
pub(super) fn clear() {
    KEPT.with_borrow_mut(Vec::clear);
}

/// A new namespace; drops all that are kept.
pub(super) fn fresh() -> Result<TestNetwork> {
    clear();
    TestNetwork::new()
}
