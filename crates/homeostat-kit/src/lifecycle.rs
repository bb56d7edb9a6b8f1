//! Finalizers: declarations that do not vanish before what was created for them.
//!
//! Where a declaration can be deleted while no loop runs, and the ledger may be lost with the machine that wrote it, the
//! store itself has to remember that something must be cleaned up. So a *finalizer* is set on the declaration before
//! anything is created for it. A delete only marks the declaration as being deleted. It vanishes when the finalizer is
//! removed, after a pass has seen that the object is gone.
//!
//! ```text
//!  declared ──▶ finalizer set ──▶ in the desired state ──pass──▶ created
//!                                          │ delete asked for
//!                                          ▼
//!                       not in the desired state ──pass──▶ seen to be gone ──▶ finalizer removed ──▶ vanished
//! ```
//!
//! [`Lifecycle`] is a provider, for [`Reconciler::run`](crate::Reconciler::run): it follows the store by list-watch, and
//! learns from the loop what its passes left ([`Provider::passed`]). Its desired state has only declarations whose
//! finalizer is set, so nothing is created before. A declaration that is being deleted is not in it, so the cleanup is an
//! ordinary pass: there is no hook to forget, and it may run twice, or where nothing was ever created. A crash between
//! any two steps is made good by the next start, since that begins with a list.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::Failure;
use homeostat_engine::outcome::Later;

use crate::provider::{Answer, Provider, Verdict};
use crate::store::{Mirror, Reflector, Store};

/// What a store with finalizers holds under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration<O> {
    /// What is declared.
    pub object: O,
    /// Whether our finalizer is set.
    pub has_finalizer: bool,
    /// Whether its deletion was asked for.
    pub is_deleting: bool,
}

/// A store that keeps declarations as long as they have a finalizer.
///
/// Laws: what was set or removed is durable when the call returns. A finalizer is not set on a declaration that is being
/// deleted. To remove one that is not there is a success.
pub trait Finalizers: Store<Value = Declaration<<Self as Finalizers>::Object>> {
    /// What is declared.
    type Object: Clone + Send + Sync + 'static;

    /// Sets our finalizer. False if the declaration is being deleted, or gone.
    fn set_finalizer(&self, key: &Self::Key) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Removes our finalizer. An operator whose program will never come back does this by hand; what was created stays
    /// then, and has no owner.
    fn remove_finalizer(&self, key: &Self::Key)
    -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The declarations of a store, each with its finalizer.
pub struct Lifecycle<S: Finalizers> {
    reflector: Reflector<S>,
    /// Being deleted, as the last answer had it.
    answered: BTreeSet<S::Key>,
    /// Being deleted, and not in the desired state that is in force.
    deleting: BTreeSet<S::Key>,
    /// Seen to be gone: their finalizers are to be removed.
    gone: BTreeSet<S::Key>,
}

impl<S: Finalizers> Lifecycle<S> {
    /// Has not asked the store yet. Must be called within a runtime.
    pub fn new(store: S) -> Self {
        Lifecycle {
            reflector: Reflector::new(store),
            answered: BTreeSet::new(),
            deleting: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Lists everything again after this time, as in [`Reflector::with_resync`].
    #[must_use]
    pub fn with_resync(mut self, resync: Duration) -> Self {
        self.reflector = self.reflector.with_resync(resync);
        self
    }

    /// Removes the finalizers of what is gone, sets those that are missing, and returns what may be applied.
    async fn round(&mut self) -> Result<BTreeMap<S::Key, S::Object>, Failure> {
        while let Some(key) = self.gone.first().cloned() {
            self.reflector.store().remove_finalizer(&key).await?;
            self.note_finalizer(&key, false);
            self.gone.remove(&key);
            self.deleting.remove(&key);
        }
        let declarations = self.reflector.sync().await?.values();
        let is_missing = |one: &Declaration<_>| !one.has_finalizer && !one.is_deleting;
        let missing = declarations.iter().filter(|(_, one)| is_missing(one));
        let missing: Vec<S::Key> = missing.map(|(key, _)| key.clone()).collect();
        for key in missing {
            let is_set = self.reflector.store().set_finalizer(&key).await?;
            self.note_finalizer(&key, is_set);
        }
        self.answered.clear();
        let mut declared = BTreeMap::new();
        for (key, one) in self.reflector.mirror().into_iter().flat_map(Mirror::values) {
            match one {
                Declaration { has_finalizer: false, .. } => {}
                Declaration { is_deleting: true, .. } => _ = self.answered.insert(key.clone()),
                Declaration { object, .. } => _ = declared.insert(key.clone(), object.clone()),
            }
        }
        Ok(declared)
    }

    /// Knows of our own write before the watch reports it.
    fn note_finalizer(&mut self, key: &S::Key, is_set: bool) {
        if let Some(one) = self.reflector.value_mut(key) {
            one.has_finalizer = is_set;
        }
    }
}

impl<S: Finalizers> Provider for Lifecycle<S> {
    type DesiredState = BTreeMap<S::Key, S::Object>;
    type Error = Failure;

    fn answer(&mut self) -> Later<'_, Answer<Self::DesiredState, Failure>> {
        Box::pin(async {
            match self.round().await {
                Ok(declared) => Answer::DesiredState(Arc::new(declared)),
                Err(why) => {
                    self.reflector.failed();
                    Answer::Unknown { why }
                }
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            if self.gone.is_empty() || self.reflector.is_failing() {
                self.reflector.wait().await;
            }
        })
    }

    fn judged(&mut self, verdict: Verdict) {
        if verdict == Verdict::Accepted {
            self.deleting.clone_from(&self.answered);
        }
    }

    fn passed(&mut self, is_open: &dyn Fn(&str) -> bool) {
        let gone = self.deleting.iter().filter(|key| !is_open(&key.to_string()));
        self.gone.extend(gone.cloned());
    }
}
