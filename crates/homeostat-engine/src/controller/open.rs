//! The keys of a loop that are not as declared: why, since when, and what to do. Only the loop writes; its handles
//! read pages, also while a pass runs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use educe::Educe;
use homeostat_core::pacing::Time;
use homeostat_core::{Finding, Focus, HeldBy, Key, Kind, WaysOut};
use serde::{Serialize, Serializer};

use super::status::{OpenCounts, moment};

/// How many different reasons are kept. Open keys share them: there may be a million.
const MOST_REASONS: usize = 10_000;

/// A key that is not as declared. As JSON: moments are microseconds since the loop began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct OpenEntry {
    pub key: String,
    /// In which way it is open.
    #[serde(serialize_with = "kind_name")]
    pub kind: Kind,
    /// What holds its step back, where that is the reason.
    pub held_by: Option<HeldBy>,
    /// Why; empty where the kind says it all, and where more than ten thousand different reasons were found.
    pub reason: String,
    /// Whose object is on the key, where that is the reason.
    pub owner: Option<String>,
    /// What a person can do about it, where something is known.
    pub help: Option<String>,
    /// When a pass first found it open.
    #[serde(rename = "since_us", serialize_with = "moment")]
    pub since: Time,
    /// When it is tried again, if it failed and does not wait for a change.
    #[serde(rename = "next_try_us", serialize_with = "moment")]
    pub next_try: Option<Time>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn kind_name<S: Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(OpenCounts::kind_name(*kind))
}

/// What the loop keeps of a key that is not as declared.
#[derive(Clone, Debug)]
pub(super) struct OpenKey {
    pub(super) kind: Kind,
    held_by: Option<HeldBy>,
    /// Whether it waits for something that ends by itself.
    pub(super) ends_by_itself: bool,
    /// Who changed it, where the target says so.
    pub(super) by: Option<Arc<str>>,
    pub(super) next_try: Option<Time>,
    since: Time,
    reason: Arc<OpenReason>,
}

impl OpenKey {
    fn entry(&self, key: &impl Key) -> OpenEntry {
        OpenEntry {
            key: key.to_string(),
            kind: self.kind,
            held_by: self.held_by,
            reason: self.reason.text.clone(),
            owner: self.reason.owner.clone(),
            help: self.reason.help.clone(),
            since: self.since,
            next_try: self.next_try,
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct OpenReason {
    text: String,
    owner: Option<String>,
    help: Option<String>,
}

/// The reasons of the open keys, each kept once.
#[derive(Default)]
pub(super) struct OpenReasons {
    ways_out: WaysOut,
    known: HashSet<Arc<OpenReason>>,
    none: Arc<OpenReason>,
}

impl OpenReasons {
    pub(super) fn new(ways_out: WaysOut) -> Self {
        OpenReasons { ways_out, ..OpenReasons::default() }
    }

    /// Nothing if the key is as declared.
    pub(super) fn open(&mut self, finding: &Finding, now: Time) -> Option<OpenKey> {
        if !finding.kind().is_listed() {
            return None;
        }
        let reason = OpenReason {
            text: finding.reason(),
            owner: finding.owner().map(ToString::to_string),
            help: finding.help(&self.ways_out),
        };
        let ends_by_itself = matches!(finding, Finding::Pending { on } if on.ends_by_itself());
        let held_by = match finding {
            Finding::Held { by, .. } => Some(*by),
            _ => None,
        };
        let (kind, since, reason) = (finding.kind(), now, self.share(reason));
        Some(OpenKey { kind, held_by, ends_by_itself, by: None, next_try: None, since, reason })
    }

    /// A key that gets a step, which is not made.
    pub(super) fn drifted(&self, now: Time) -> OpenKey {
        let reason = Arc::clone(&self.none);
        let (kind, since) = (Kind::Change, now);
        OpenKey {
            kind,
            held_by: None,
            ends_by_itself: false,
            by: None,
            next_try: None,
            since,
            reason,
        }
    }

    fn share(&mut self, reason: OpenReason) -> Arc<OpenReason> {
        if let Some(known) = self.known.get(&reason) {
            return Arc::clone(known);
        }
        if self.known.len() >= MOST_REASONS {
            return Arc::clone(&self.none);
        }
        let reason = Arc::new(reason);
        self.known.insert(Arc::clone(&reason));
        reason
    }

    /// Drops the reasons that no open key has any more, if there are many.
    pub(super) fn prune(&mut self) {
        if self.known.len() >= MOST_REASONS / 2 {
            self.known.retain(|reason| Arc::strong_count(reason) > 1);
        }
    }
}

/// The open keys of a loop, in the order of keys.
#[derive(Educe)]
#[educe(Default)]
pub(super) struct OpenKeys<K>(RwLock<BTreeMap<K, OpenKey>>);

impl<K: Key> OpenKeys<K> {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, BTreeMap<K, OpenKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every key is as declared; those that wait for an optional link may be open.
    pub(super) fn are_converged(&self) -> bool {
        !self.read().values().any(|open| open.kind.is_open())
    }

    /// The first open keys after `after`, at most `limit`. Others are not looked at.
    pub(super) fn page(&self, after: Option<&K>, limit: usize) -> Vec<OpenEntry> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let open = self.read();
        let entries = open.range::<K, _>((start, Bound::Unbounded)).take(limit);
        entries.map(|(key, open)| open.entry(key)).collect()
    }

    /// One key, if it is open.
    pub(super) fn entry(&self, key: &K) -> Option<OpenEntry> {
        self.read().get(key).map(|open| open.entry(key))
    }

    /// Keys that a pass over `focus` looked at are open as it found them, since the first pass that found them so. All
    /// others, and those that the pass deferred, are as they were.
    pub(super) fn update(
        &self,
        focus: &Focus<K>,
        found: Vec<(K, OpenKey)>,
        deferred: &BTreeSet<K>,
    ) {
        let before = self.read();
        let found = found.into_iter().map(|(key, open)| {
            let open = match before.get(&key) {
                Some(known) if deferred.contains(&key) => known.clone(),
                Some(known) => OpenKey { since: known.since, ..open },
                None => open,
            };
            (key, open)
        });
        let mut worst = BTreeMap::<K, OpenKey>::new();
        for (key, open) in found {
            // What waits for a check and could not be deleted is not as declared.
            let is_worse = |known: &OpenKey| known.kind.is_open() && !open.kind.is_open();
            if !worst.get(&key).is_some_and(is_worse) {
                worst.insert(key, open);
            }
        }
        let found = worst;
        drop(before);
        // Readers wait only while the maps are exchanged, not while the former one is freed.
        let _former = match focus {
            Focus::All => Some(self.write(|open| std::mem::replace(open, found))),
            Focus::Keys(keys) => self.write(|open| {
                for key in keys {
                    open.remove(key);
                }
                open.extend(found);
                None
            }),
        };
    }

    /// Keys are open that no pass looked at.
    pub(super) fn add(&self, found: impl IntoIterator<Item = (K, OpenKey)>) {
        self.write(|open| {
            for (key, mut found) in found {
                if let Some(known) = open.get(&key) {
                    found.since = known.since;
                }
                open.insert(key, found);
            }
        });
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<K, OpenKey>) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Owner, Reason, WaitsOn};

    use super::*;

    fn unknown(reasons: &mut OpenReasons, why: &str) -> OpenKey {
        reasons.open(&Finding::Unknown { why: why.to_owned() }, Time::EPOCH).unwrap()
    }

    #[test]
    fn what_to_do_is_said_in_the_words_of_the_program() {
        let foreign = Finding::Conflict { owner: Owner::foreign("bird"), reason: Reason::Foreign };
        let lost = Finding::Conflict { owner: Owner::foreign("bird"), reason: Reason::LostMark };
        let doubt = Finding::Pending { on: WaitsOn::Doubt };
        let mut ways_out = WaysOut::default();
        (ways_out.foreign, ways_out.lost_mark) = ("`take`", "`retake`");
        ways_out.doubt = "`log`";
        let mut reasons = OpenReasons::new(ways_out);
        for (finding, help) in [(foreign, "`take`"), (lost, "`retake`"), (doubt, "`log`")] {
            let open = reasons.open(&finding, Time::EPOCH).unwrap();
            assert_eq!(open.reason.help.as_deref(), Some(help));
        }
    }

    #[test]
    fn keys_share_their_reasons_and_only_so_many_different_ones_are_kept() {
        let mut reasons = OpenReasons::default();
        let [first, second] = [(); 2].map(|()| unknown(&mut reasons, "no answer"));
        assert!(Arc::ptr_eq(&first.reason, &second.reason));
        let names = (0..2 * MOST_REASONS).map(|number| number.to_string());
        let many: Vec<OpenKey> = names.map(|name| unknown(&mut reasons, &name)).collect();
        assert_eq!(reasons.known.len(), MOST_REASONS);
        assert_eq!(many.last().map(|open| &*open.reason.text), Some(""));
        drop(many);
        reasons.prune();
        assert_eq!(reasons.known.len(), 1, "one is still shared");
        assert_eq!(unknown(&mut reasons, "another").reason.text, "another");
    }
}
