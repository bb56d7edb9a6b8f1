//! What a reader remembers of an API that is listed in parts.
//!
//! The shadow only saves reading. It is believed where it agrees with the desired state; every difference is
//! looked at before it is told, so that nothing is written by memory.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::{Agreement, Desired as _, Focus, Owner, Records, Seen, Slot};
use tokio::time::Instant;

use super::listing::Shards;
use super::{Api, DesiredObjects, Listed};

type Told<A> = (<A as Api>::Object, Owner);
type Known<A> = BTreeMap<<A as Api>::Key, Told<A>>;

/// What was seen of each part, and when.
pub(super) struct Shadow<A: Api> {
    shards: Shards,
    parts: Vec<Part<A>>,
    last_look: Option<Instant>,
}

struct Part<A: Api> {
    listed: Option<Instant>,
    known: Known<A>,
}

impl<A: Api> Shadow<A> {
    pub(super) fn new(shards: Shards) -> Self {
        let part = || Part { listed: None, known: BTreeMap::new() };
        let parts = (0..shards.count.max(1)).map(|_| part()).collect();
        Shadow { shards, parts, last_look: None }
    }

    /// The parts that the look that begins now must list. The first look lists all of them.
    pub(super) fn due(&mut self, now: Instant) -> Vec<usize> {
        let count = match self.last_look.replace(now) {
            None => self.parts.len(),
            Some(last) => self.shards.due(now.duration_since(last)),
        };
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_by_key(|shard| self.parts.get(*shard).and_then(|part| part.listed));
        let never = self.parts.iter().filter(|part| part.listed.is_none()).count();
        order.truncate(count.max(never));
        order
    }

    /// A part was listed.
    pub(super) fn listed(&mut self, shard: usize, listed: &Listed<A>, now: Instant) {
        let Some(part) = self.parts.get_mut(shard) else { return };
        part.listed = Some(now);
        part.known = listed.iter().filter_map(known::<A>).collect();
    }

    /// Single keys were looked at.
    pub(super) fn looked(&mut self, keys: &BTreeSet<A::Key>, found: &Listed<A>) {
        for key in keys {
            if let Some(part) = self.parts.get_mut(A::shard(key)) {
                part.known.remove(key);
            }
        }
        for (key, seen) in found.iter().filter_map(known::<A>) {
            if let Some(part) = self.parts.get_mut(A::shard(&key)) {
                part.known.insert(key, seen);
            }
        }
    }

    /// A part could not be listed: what is known of it is too old for the next look.
    pub(super) fn forget(&mut self, shard: usize) {
        if let Some(part) = self.parts.get_mut(shard) {
            part.listed = None;
        }
    }

    /// Tells of the parts that were not listed: what is as declared, and what has to be looked at.
    pub(super) fn recall(
        &self,
        listed: &[usize],
        (desired, records): (&DesiredObjects<A>, &Records<A::Key, A::Object>),
    ) -> (Listed<A>, BTreeSet<A::Key>) {
        let (mut told, mut doubts) = (Vec::new(), BTreeSet::new());
        let recalled = |key: &A::Key| !listed.contains(&A::shard(key));
        for (key, (object, owner)) in self.parts.iter().flat_map(|part| &part.known) {
            if !recalled(key) {
                continue;
            }
            let slot = desired.slot(key, None);
            let agrees = slot.map(|slot| desired.compare(slot, object) == Agreement::Agrees);
            match agrees {
                Some(true) => {
                    let (key, object, owner) = (key.clone(), object.clone(), owner.clone());
                    told.push(Seen::Present { key, object, owner });
                }
                // A stranger's that nobody declares: its part tells of it when it is listed.
                None if matches!(owner, Owner::Foreign(_) | Owner::Kernel) => {}
                Some(false) | None => _ = doubts.insert(key.clone()),
            }
        }
        let declared = (0..desired.len()).map(|index| desired.key(Slot::at(index)));
        let named = declared.chain(records.keys().cloned()).filter(|key| recalled(key));
        doubts.extend(named.filter(|key| !self.knows(key)));
        (told, doubts)
    }

    fn knows(&self, key: &A::Key) -> bool {
        self.parts.get(A::shard(key)).is_some_and(|part| part.known.contains_key(key))
    }
}

fn known<A: Api>(seen: &Seen<A::Key, A::Object>) -> Option<(A::Key, Told<A>)> {
    match seen {
        Seen::Present { key, object, owner } => {
            Some((key.clone(), (object.clone(), owner.clone())))
        }
        Seen::Unknown { .. } => None,
    }
}

/// Looks at nothing beyond the focus.
pub(super) fn covered<A: Api>(listed: Listed<A>, focus: &Focus<A::Key>) -> Listed<A> {
    listed.into_iter().filter(|seen| focus.covers(key_of(seen))).collect()
}

pub(super) fn key_of<K, O>(seen: &Seen<K, O>) -> &K {
    match seen {
        Seen::Present { key, .. } | Seen::Unknown { key, .. } => key,
    }
}
