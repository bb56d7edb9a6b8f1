//! Namespaces with a ruleset, kept for all rounds of a group.

use std::cell::RefCell;

use anyhow::{Context as _, Result, ensure};
use homeostat_engine::{Explain as _, Focus};
use homeostat_nft::Nft;
use homeostat_testkit::namespace::Namespace;

use super::super::fixture::Fixture;
use super::load::{Load, source};

/// A namespace with its ruleset, and a converged source in it.
pub(super) struct Prepared {
    namespace: Namespace,
    pub(super) fixture: Fixture<Nft>,
}

thread_local! {
    static KEPT: RefCell<Option<(Load, Prepared)>> = const { RefCell::new(None) };
}

impl Prepared {
    fn new(load: Load) -> Result<Self> {
        let namespace = Namespace::enter()?;
        let mut fixture = Fixture::with_hints(source(), load.desired()?)?;
        ensure!(fixture.pass(Focus::All)?.is_converged(), "the ruleset could not be loaded");
        Ok(Prepared { namespace, fixture: fixture.synced()? })
    }
}

/// Acts on the namespace of a load. One of another load is dropped.
pub(super) fn with_prepared<T>(
    load: Load,
    act: impl FnOnce(&mut Prepared) -> Result<T>,
) -> Result<T> {
    KEPT.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != load) {
            *kept = None;
            *kept = Some((load, Prepared::new(load)?));
        }
        let (_, prepared) = kept.as_mut().context("no namespace")?;
        prepared.namespace.netns().enter()?;
        act(prepared)
    })
}

/// Moves the calling thread into a new namespace; drops the one that is kept.
pub(super) fn fresh() -> Result<Namespace> {
    KEPT.with_borrow_mut(|kept| *kept = None);
    Ok(Namespace::enter()?)
}
