//! A source with its desired state and scope, erased, so that a registry can hold many kinds.
//!
//! Planning and writing are two types: a [`Planner`] becomes a loop only by handing over the scope's lock.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::outcome::Later;
use homeostat_core::{Condition, Desired as _, Explain, Focus, Ownership, Source};

use crate::config::{Config, PassInput};
use crate::controller::handle::LoopTask;
use crate::controller::{Loop, LoopDeps, Pace};
use crate::error::Error;
use crate::ledger::{LedgerKey, Pages};
use crate::ledger_page::holdings;
use crate::observer::Observer;
use crate::pass;

/// One source in one scope with its desired state.
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct Bound<S: Source> {
    pub source: S,
    pub desired: Arc<S::Desired>,
    /// How our objects are distinguished from others'.
    pub ownership: Ownership,
    pub config: Config<S::Key>,
    /// Where the ledger files it.
    pub ledger_key: LedgerKey,
    /// The desired state that declares nothing: what a revert applies. Without it no revert can be asked for.
    pub nothing: Option<Arc<S::Desired>>,
}

impl<S: Source> Bound<S> {
    /// A source with its desired state. Passes behave as usual ([`with_config`](Self::with_config)), and nothing can be
    /// reverted ([`with_nothing`](Self::with_nothing)).
    pub fn new(
        source: S,
        desired: impl Into<Arc<S::Desired>>,
        ownership: Ownership,
        ledger_key: LedgerKey,
    ) -> Self {
        let (config, desired) = (Config::default(), desired.into());
        Bound { source, desired, ownership, config, ledger_key, nothing: None }
    }

    /// The same, whose passes behave in this way.
    #[must_use]
    pub fn with_config(self, config: Config<S::Key>) -> Self {
        Bound { config, ..self }
    }

    /// The same, which can be reverted: this desired state has nothing in it.
    #[must_use]
    pub fn with_nothing(self, nothing: impl Into<Arc<S::Desired>>) -> Self {
        Bound { nothing: Some(nothing.into()), ..self }
    }

    /// Whether a loop over one works in the same way as a loop over the other, whatever their desired states are.
    pub(crate) fn differs_only_in_desired(&self, other: &Self) -> bool {
        self.source.is_same(&other.source)
            && self.ownership == other.ownership
            && self.config.is_same(&other.config)
            && self.ledger_key == other.ledger_key
            && self.nothing.is_some() == other.nothing.is_some()
    }

    /// Whether a loop over one does the same as a loop over the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.differs_only_in_desired(other) && self.desired.is_same_desired(&other.desired)
    }

    /// A pass over `focus` for this desired state, behaving as `config` says.
    pub(crate) fn pass_input<'a>(
        &'a self,
        desired: Arc<S::Desired>,
        config: &'a Config<S::Key>,
        focus: Focus<S::Key>,
    ) -> PassInput<'a, S> {
        let Bound { source, ownership, .. } = self;
        PassInput { source, desired, ownership, focus, config }
    }

    /// Becomes a loop.
    #[must_use]
    pub fn into_loop(self, deps: LoopDeps, pace: Pace) -> LoopTask {
        let (looped, handle) = Loop::new(self, deps, pace);
        LoopTask { control: Arc::new(handle), run: Box::pin(looped.run()) }
    }
}

/// What can be asked of a bound source without a lock.
pub trait Planner: Send {
    /// The place of the source.
    fn ledger_key(&self) -> &LedgerKey;

    /// Observes and plans; reads the ledger, writes nothing.
    fn plan<'a>(&'a self, pages: &'a dyn Pages) -> Later<'a, Result<Box<dyn Explain>, Error>>;

    /// Whether the ledger can be asked about the source; to be asked before anything is written. Single records that
    /// cannot be read are findings of a pass.
    fn check_records(&self, pages: &dyn Pages) -> Result<(), Error>;

    /// The usual pace of a loop over the source.
    fn pace(&self, seed: u64) -> Pace;

    /// What has to be checked while a loop over it runs.
    fn to_check(&self) -> BTreeSet<Condition>;

    /// Becomes a loop.
    fn into_loop(self: Box<Self>, deps: LoopDeps, pace: Pace) -> LoopTask;

    /// The bound source itself, for a caller that knows its type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<S: Source> Planner for Bound<S> {
    fn ledger_key(&self) -> &LedgerKey {
        &self.ledger_key
    }

    fn plan<'a>(&'a self, pages: &'a dyn Pages) -> Later<'a, Result<Box<dyn Explain>, Error>> {
        Box::pin(async move {
            let held = holdings::<S>(pages, &self.ledger_key)?;
            let mut observer = Observer::without_hints(&self.source, &self.ledger_key.scope)?;
            let input = self.pass_input(Arc::clone(&self.desired), &self.config, Focus::All);
            let plan = pass::plan(&input, &mut observer, &held).await?;
            Ok(Box::new(plan) as Box<dyn Explain>)
        })
    }

    fn check_records(&self, pages: &dyn Pages) -> Result<(), Error> {
        holdings::<S>(pages, &self.ledger_key).map(drop)
    }

    fn pace(&self, seed: u64) -> Pace {
        Pace::of::<S>(seed)
    }

    fn to_check(&self) -> BTreeSet<Condition> {
        self.config.conditions.to_check()
    }

    fn into_loop(self: Box<Self>, deps: LoopDeps, pace: Pace) -> LoopTask {
        Bound::into_loop(*self, deps, pace)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
