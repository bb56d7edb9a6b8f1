//! Desired states in a store that others write: list-watch, and a provider on top of it.
//!
//! A program that follows a store by events alone misses what it was not there for. One that lists again and again is
//! slow, or a burden. *List-watch* does both: it lists at a revision, watches everything after that revision, and
//! lists again when the watch cannot be continued.
//!
//! ```text
//!          ┌── compacted, regressed, resync due ──┐
//!          ▼                                      │
//!        list at revision r ──▶ watch after r ──▶ event at r+1 ──▶ …
//!                                    ▲            │
//!                                    └── broken ──┘   continued after the last event; no list
//! ```
//!
//! The author of a store implements [`Store`]; [`Reflector`] does the rest and is a [`Provider`]. Where declarations
//! must not vanish before what was created for them, [`Lifecycle`](crate::lifecycle::Lifecycle) puts finalizers on top.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::pacing::Pauses;
use homeostat_engine::{Failure, Key};
use tokio::time::Instant;

use crate::provider::{Answer, Provider};

/// Counts the changes of a store: each change has a greater one than all before it. Changes of one transaction share it.
pub type Revision = u64;

/// A store of values by key.
///
/// Laws:
/// 1. `list` returns everything, and nothing older than any earlier answer, or it fails.
/// 2. A watch returns every change after the revision that it was opened with, in the order of revisions, or says that
///    it cannot ([`WatchEvent::Compacted`], [`WatchEvent::Regressed`]), or fails.
pub trait Store: Send + Sync + 'static {
    /// What a value is stored under.
    type Key: Key;
    /// What is stored.
    type Value: Clone + Send + Sync + 'static;

    /// Everything, with the revision at which it was so.
    fn list(
        &self,
    ) -> impl Future<Output = Result<Snapshot<Self::Key, Self::Value>, Failure>> + Send;

    /// Watches what changes after a revision.
    fn watch(
        &self,
        after: Revision,
    ) -> impl Future<Output = Result<Box<dyn StoreWatch<Self::Key, Self::Value>>, Failure>> + Send;
}

/// Everything in a store at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<K, V> {
    /// The newest change that is in it.
    pub revision: Revision,
    /// The values by key.
    pub values: BTreeMap<K, V>,
}

/// An open watch of a store.
pub trait StoreWatch<K, V>: Send {
    /// The next event. Dropping the future loses nothing; an error ends the watch.
    fn next(&mut self) -> Later<'_, Result<WatchEvent<K, V>, Failure>>;
}

/// What a watch says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum WatchEvent<K, V> {
    /// A key has another value, or none any more.
    Changed {
        /// The change.
        revision: Revision,
        key: K,
        /// Its value; nothing if it was deleted.
        value: Option<V>,
    },
    /// Nothing else changed up to this revision. A sign of life: the watch is not continued from here.
    Progress {
        /// The store's revision.
        revision: Revision,
    },
    /// The store no longer knows the changes since the revision: they must be listed.
    Compacted,
    /// The store is older than what was seen of it, as after the restore of a backup: it must be listed.
    Regressed,
}

/// A copy of a store, kept by events. Pure: it says what to do, and does no I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror<K, V> {
    listed: Revision,
    newest: Revision,
    values: BTreeMap<K, V>,
}

/// What an event meant for a [`Mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it was known, or it is a sign of life.
    None,
    /// The mirror has changed.
    Changed,
    /// The mirror can no longer follow: list again.
    List,
}

impl<K: Ord, V> Mirror<K, V> {
    /// A copy of what was listed.
    #[must_use]
    pub fn new(snapshot: Snapshot<K, V>) -> Self {
        let Snapshot { revision, values } = snapshot;
        Mirror { listed: revision, newest: revision, values }
    }

    /// Takes an event. What the list had already is dropped, and so is what comes after a newer change: some stores
    /// send old events again.
    pub fn take(&mut self, event: WatchEvent<K, V>) -> Effect {
        match event {
            WatchEvent::Changed { revision, key, value } => {
                if revision <= self.listed || revision < self.newest {
                    return Effect::None;
                }
                self.newest = revision;
                match value {
                    Some(value) => self.values.insert(key, value),
                    None => self.values.remove(&key),
                };
                Effect::Changed
            }
            WatchEvent::Progress { revision } if revision >= self.newest => Effect::None,
            WatchEvent::Progress { .. } | WatchEvent::Compacted | WatchEvent::Regressed => {
                Effect::List
            }
        }
    }

    /// The newest change that is in it: a watch is continued after it.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.newest
    }

    /// The values by key.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<K, V> {
        &self.values
    }
}

/// Between tries of a store that fails.
const PAUSES: Pauses = Pauses::BACKOFF;

/// Everything is listed again after this time, whatever the watch says.
const RESYNC: Duration = Duration::from_mins(10);

type Watching<S> = Box<dyn StoreWatch<<S as Store>::Key, <S as Store>::Value>>;

/// Follows a store by list-watch. As a provider its desired state is all that the store holds. While the store cannot
/// be reached it is unknown, so that the last good desired state stands.
pub struct Reflector<S: Store> {
    store: S,
    mirror: Option<Mirror<S::Key, S::Value>>,
    watch: Option<Watching<S>>,
    resync: Duration,
    /// When everything is listed again.
    list_at: Instant,
    failures: u32,
    failed_at: Option<Instant>,
    /// Whether the last try failed, so that the next one waits.
    is_failing: bool,
}

impl<S: Store> Reflector<S> {
    /// Has not asked the store yet. Must be called within a runtime.
    pub fn new(store: S) -> Self {
        Reflector {
            store,
            mirror: None,
            watch: None,
            resync: RESYNC,
            list_at: Instant::now(),
            failures: 0,
            failed_at: None,
            is_failing: false,
        }
    }

    /// Lists everything again after this time, ten minutes by default, a day at most. Watches lose events; there is no
    /// "never".
    #[must_use]
    pub fn with_resync(mut self, resync: Duration) -> Self {
        self.resync = resync.clamp(Duration::from_secs(1), Duration::from_hours(24));
        self
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Lists if that is due, opens the watch if there is none, and returns the mirror.
    pub(crate) async fn sync(&mut self) -> Result<&Mirror<S::Key, S::Value>, Failure> {
        let known = self.mirror.take().filter(|_| Instant::now() < self.list_at);
        let mirror = if let Some(mirror) = known {
            self.mirror.insert(mirror)
        } else {
            self.watch = None;
            let listed = Mirror::new(self.store.list().await?);
            self.list_at = Instant::now() + self.resync;
            self.mirror.insert(listed)
        };
        if self.watch.is_none() {
            self.watch = Some(self.store.watch(mirror.revision()).await?);
        }
        self.is_failing = false;
        Ok(mirror)
    }

    pub(crate) fn mirror(&self) -> Option<&Mirror<S::Key, S::Value>> {
        self.mirror.as_ref()
    }

    /// The copy of a value, for who knows of a change before the watch reports it.
    pub(crate) fn value_mut(&mut self, key: &S::Key) -> Option<&mut S::Value> {
        self.mirror.as_mut()?.values.get_mut(key)
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Begins a pause that is longer than the last one. After a time without failures they begin anew.
    pub(crate) fn failed(&mut self) {
        let now = Instant::now();
        let is_old = |at: Instant| now.duration_since(at) > PAUSES.longest().saturating_mul(2);
        self.failures =
            if self.failed_at.is_none_or(is_old) { 1 } else { self.failures.saturating_add(1) };
        (self.failed_at, self.is_failing) = (Some(now), true);
    }

    /// Waits until the mirror has changed, or until another try is due, and takes what has come by then. Dropping the
    /// future loses nothing.
    pub(crate) async fn wait(&mut self) {
        let mut has_changed = false;
        loop {
            if let Some(at) = self.failed_at.filter(|_| self.is_failing) {
                return tokio::time::sleep_until(at + PAUSES.nth(self.failures)).await;
            }
            let (Some(mirror), Some(watch)) = (&mut self.mirror, &mut self.watch) else { return };
            let event = tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.list_at) => return,
                event = watch.next() => event,
                () = std::future::ready(()), if has_changed => return,
            };
            match event.map(|event| mirror.take(event)) {
                Ok(Effect::None) => {}
                Ok(Effect::Changed) => has_changed = true,
                Ok(Effect::List) => {
                    // After a pause: a store may compact everything as soon as it is listed.
                    self.list_at = Instant::now();
                    self.failed();
                }
                Err(_) => {
                    self.watch = None;
                    self.failed();
                }
            }
        }
    }
}

impl<S: Store> Provider for Reflector<S> {
    type DesiredState = BTreeMap<S::Key, S::Value>;
    type Error = Failure;

    fn answer(&mut self) -> Later<'_, Answer<Self::DesiredState, Failure>> {
        Box::pin(async {
            let values = self.sync().await.map(|mirror| mirror.values().clone());
            match values {
                Ok(values) => Answer::DesiredState(Arc::new(values)),
                Err(why) => {
                    self.failed();
                    Answer::Unknown { why }
                }
            }
        })
    }

    fn changed(&mut self) -> Later<'_, ()> {
        Box::pin(self.wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(revision: Revision) -> Mirror<u8, u8> {
        Mirror::new(Snapshot { revision, values: BTreeMap::from([(1, 10)]) })
    }

    fn changed(revision: Revision, key: u8, value: Option<u8>) -> WatchEvent<u8, u8> {
        WatchEvent::Changed { revision, key, value }
    }

    #[test]
    fn what_the_list_had_already_and_what_is_sent_again_changes_nothing() {
        let mut mirror = mirror(5);
        assert_eq!(mirror.take(changed(5, 1, Some(9))), Effect::None);
        assert_eq!(mirror.take(changed(7, 1, Some(11))), Effect::Changed);
        assert_eq!(mirror.take(changed(6, 1, None)), Effect::None);
        assert_eq!((mirror.revision(), mirror.values()), (7, &BTreeMap::from([(1, 11)])));
    }

    #[test]
    fn all_changes_of_a_transaction_are_taken() {
        let mut mirror = mirror(5);
        assert_eq!(mirror.take(changed(6, 1, None)), Effect::Changed);
        assert_eq!(mirror.take(changed(6, 2, Some(20))), Effect::Changed);
        assert_eq!(mirror.values(), &BTreeMap::from([(2, 20)]));
    }

    #[test]
    fn a_sign_of_life_does_not_move_the_revision_and_one_from_the_past_leads_to_a_list() {
        let mut mirror = mirror(5);
        assert_eq!(mirror.take(WatchEvent::Progress { revision: 9 }), Effect::None);
        assert_eq!(mirror.revision(), 5);
        assert_eq!(mirror.take(WatchEvent::Progress { revision: 4 }), Effect::List);
        assert_eq!(mirror.take(WatchEvent::Compacted), Effect::List);
        assert_eq!(mirror.take(WatchEvent::Regressed), Effect::List);
    }
}
