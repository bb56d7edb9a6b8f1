//! Compares the desired state with what is observed: one streaming mark-and-sweep for all sources.
//!
//! One bit a desired state, nothing kept for what agrees. Pure: it never sees the target.
//! Start at [`Diff::see`].

use std::collections::BTreeSet;

use crate::change::{Change, Changes, Conflict, Reason};
use crate::desired::{Agreement, Desired, Slot};
use crate::met::{Barred, Met};
use crate::ownership::{Original, Ownership, Record, Records, Stage};
use crate::seen::{Focus, Owner, Seen};

/// What becomes of a claimed value that is no longer declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRelease {
    /// It stays as it is.
    #[default]
    Leave,
    /// It goes back to its original, if it still is what we wrote.
    Restore,
}

/// What the caller holds and allows.
pub struct Rights<'a, K, O> {
    /// How our objects are told from others'.
    pub ownership: &'a Ownership,
    /// What the ledger says is ours.
    pub records: &'a Records<K, O>,
    /// Keys that may be taken once from whoever has them.
    pub adopt: &'a BTreeSet<K>,
    /// What becomes of released values.
    pub on_release: OnRelease,
}

/// A diff under way.
pub struct Diff<'a, D: Desired> {
    desired: &'a D,
    focus: &'a Focus<D::Key>,
    rights: Rights<'a, D::Key, D::Object>,
    met: Met,
    near: Option<Slot>,
    /// Declared keys that were seen more than once.
    twins: BTreeSet<Slot>,
    /// Keys that the target could not tell about, whatever else it said of them.
    untold: Barred<D::Key>,
    /// What could not be read of objects that are there.
    unsure: Vec<(Slot, String)>,
    recorded: BTreeSet<D::Key>,
    found: Changes<D::Key, D::Object>,
}

/// Whether we may write an object that we saw.
enum Standing {
    Ours,
    Free,
    LostMark,
    Foreign,
}

impl<'a, D: Desired> Diff<'a, D> {
    /// Starts a diff of `desired` against what will be seen in `focus`.
    pub fn new(
        desired: &'a D,
        focus: &'a Focus<D::Key>,
        rights: Rights<'a, D::Key, D::Object>,
    ) -> Self {
        Diff {
            desired,
            focus,
            rights,
            met: Met::new(focus, desired.len()),
            near: None,
            twins: BTreeSet::new(),
            untold: Barred::none(),
            unsure: Vec::new(),
            recorded: BTreeSet::new(),
            found: Changes::default(),
        }
    }

    /// Takes one thing that the target said. What is out of focus is ignored.
    pub fn see(&mut self, seen: Seen<D::Key, D::Object>) {
        match seen {
            Seen::Unknown { key, why } if self.focus.covers(&key) => self.see_unknown(key, why),
            Seen::Present { key, object, owner } if self.focus.covers(&key) => {
                self.see_present(key, object, owner);
            }
            _ => {}
        }
    }

    fn see_unknown(&mut self, key: D::Key, why: String) {
        if let Some(slot) = self.desired.slot(&key, self.near) {
            self.met.set(slot);
            self.near = Some(slot);
            self.untold.slots.insert(slot);
        } else {
            self.untold.keys.insert(key.clone());
        }
        if self.rights.records.contains_key(&key) {
            self.recorded.insert(key.clone());
        }
        self.found.unknown.push((key, why));
    }

    fn see_present(&mut self, key: D::Key, object: D::Object, owner: Owner) {
        if self.record(&key, &object).is_some() {
            self.recorded.insert(key.clone());
        }
        let standing = self.standing(&key, &object, &owner);
        self.found.owned += usize::from(matches!(standing, Standing::Ours));
        match self.desired.slot(&key, self.near) {
            Some(slot) => {
                self.near = Some(slot);
                if self.met.set(slot) {
                    self.twins.insert(slot);
                    return;
                }
                self.see_declared(slot, Present { key, object, owner }, &standing);
            }
            None => self.see_undeclared(Present { key, object, owner }, &standing),
        }
    }

    /// The record of an object. One that is about a former object of the same key says nothing.
    fn record(&self, key: &D::Key, object: &D::Object) -> Option<&'a Record<D::Object>> {
        let record = self.rights.records.get(key)?;
        record.is_about(self.desired.identity(object).as_deref()).then_some(record)
    }

    fn standing(&self, key: &D::Key, object: &D::Object, owner: &Owner) -> Standing {
        let record = self.record(key, object);
        let is_exclusive = matches!(self.rights.ownership, Ownership::Exclusive(_));
        let is_ours = match owner {
            Owner::Ours => true,
            Owner::Nobody => record.is_some(),
            Owner::Kernel => false,
            Owner::Foreign(_) => is_exclusive,
            Owner::Unmarked => self.strategy_says_ours(key, object),
        };
        match owner {
            _ if is_ours => Standing::Ours,
            Owner::Nobody => Standing::Free,
            Owner::Foreign(_) if record.is_some_and(|record| record.proves(object)) => {
                Standing::LostMark
            }
            _ => Standing::Foreign,
        }
    }

    fn strategy_says_ours(&self, key: &D::Key, object: &D::Object) -> bool {
        match self.rights.ownership {
            Ownership::Exclusive(_) => true,
            Ownership::Prefix(prefix) => prefix.matches(key),
            Ownership::Marked | Ownership::Checkpoint => {
                self.record(key, object).is_some_and(|record| {
                    record.proves(object) || self.is_as_intended(key, record, object)
                })
            }
        }
    }

    /// What we were about to make may carry more than we declared: a default of the target.
    fn is_as_intended(&self, key: &D::Key, record: &Record<D::Object>, object: &D::Object) -> bool {
        self.desired.slot(key, self.near).is_some_and(|slot| {
            record.wrote == self.desired.object(slot)
                && self.desired.compare(slot, object) == Agreement::Agrees
        })
    }

    fn see_declared(&mut self, slot: Slot, seen: Present<D::Key, D::Object>, standing: &Standing) {
        let differs = match self.desired.compare(slot, &seen.object) {
            Agreement::Agrees => false,
            Agreement::Differs => true,
            Agreement::Unsure { differs, why } => {
                self.unsure.push((slot, why));
                // What may be as declared is left alone until it can be read.
                if !differs && !matches!(standing, Standing::LostMark) {
                    return;
                }
                differs
            }
        };
        match standing {
            Standing::Ours => self.see_ours(slot, seen, differs),
            Standing::Free => {
                if differs {
                    self.update(slot, seen.object.clone(), None);
                } else {
                    self.found.claims.push(slot);
                }
                let identity = self.desired.identity(&seen.object);
                self.found.identities.extend(identity.map(|which| (seen.key.clone(), which)));
                self.found.originals.insert(seen.key, seen.object);
            }
            Standing::Foreign | Standing::LostMark if self.may_adopt(slot, &seen.key) => {
                self.update(slot, seen.object.clone(), Some(seen.owner));
                self.found.originals.insert(seen.key, seen.object);
            }
            Standing::Foreign if !differs => self.found.matched.push((seen.key, seen.owner)),
            Standing::Foreign => self.conflict(seen.key, seen.owner, Reason::Foreign),
            Standing::LostMark => self.conflict(seen.key, seen.owner, Reason::LostMark),
        }
    }

    fn see_ours(&mut self, slot: Slot, seen: Present<D::Key, D::Object>, differs: bool) {
        if !differs {
            self.confirm(slot, seen);
        } else if self.is_settled(slot, &seen) {
            self.found.settled.push((slot, seen.object));
        } else {
            self.update(slot, seen.object, None);
        }
    }

    /// A record that is an intent, that holds another text than the desired state, or that does not know yet
    /// which object it is about, is brought up to date although the target needs no write.
    fn confirm(&mut self, slot: Slot, seen: Present<D::Key, D::Object>) {
        let Some(record) = self.record(&seen.key, &seen.object) else { return };
        let (is_intent, settled) = (record.stage == Stage::Intent, record.settled.is_some());
        let identity = self.desired.identity(&seen.object).filter(|_| record.identity.is_none());
        if is_intent || settled || identity.is_some() || record.wrote != self.desired.object(slot) {
            self.found.identities.extend(identity.map(|identity| (seen.key.clone(), identity)));
            self.found.confirmed.push(seen.key);
        }
    }

    fn is_settled(&self, slot: Slot, seen: &Present<D::Key, D::Object>) -> bool {
        let record = self.record(&seen.key, &seen.object);
        record.is_some_and(|record| record.is_settled(&self.desired.object(slot), &seen.object))
    }

    fn may_adopt(&self, slot: Slot, key: &D::Key) -> bool {
        self.desired.may_adopt(slot) || self.rights.adopt.contains(key)
    }

    fn update(&mut self, slot: Slot, before: D::Object, adopts: Option<Owner>) {
        self.found.list.push(Change::Update { slot, before, adopts });
    }

    fn conflict(&mut self, key: D::Key, owner: Owner, reason: Reason) {
        self.found.conflicts.push(Conflict { key, owner, reason });
    }

    fn see_undeclared(&mut self, seen: Present<D::Key, D::Object>, standing: &Standing) {
        let Present { key, object: before, owner } = seen;
        match (standing, &owner) {
            (Standing::Ours, Owner::Nobody) => {
                let restore = self.restorable(&key, &before);
                self.found.list.push(Change::Release { key, before, restore });
            }
            (Standing::Ours, _) => self.found.list.push(Change::Delete { key, before }),
            (Standing::LostMark, _) => self.conflict(key, owner, Reason::LostMark),
            (Standing::Free | Standing::Foreign, _) => {}
        }
    }

    fn restorable(&self, key: &D::Key, seen: &D::Object) -> Option<D::Object> {
        let record = self.record(key, seen)?;
        let asked = self.rights.on_release == OnRelease::Restore;
        match &record.original {
            Original::Was(original) if asked && record.still_holds(seen) => Some(original.clone()),
            _ => None,
        }
    }

    /// Ends the observation: what was declared and not named is absent.
    #[must_use]
    pub fn finish(mut self) -> Changes<D::Key, D::Object> {
        self.sweep();
        self.prune();
        self.found.sort();
        self.take_back();
        self.found.sort();
        self.found
    }

    fn sweep(&mut self) {
        match self.focus {
            Focus::All => {
                self.found.list.create(self.met.unset());
            }
            Focus::Keys(keys) => {
                for slot in keys.iter().filter_map(|key| self.desired.slot(key, None)) {
                    if !self.met.get(slot) {
                        self.found.list.push(Change::Create { slot });
                    }
                }
            }
        }
    }

    fn prune(&mut self) {
        let records = self.rights.records;
        self.found.pruned = match self.focus {
            Focus::All => records.keys().filter(|key| self.is_void(key)).cloned().collect(),
            Focus::Keys(keys) => keys.iter().filter(|key| self.is_void(key)).cloned().collect(),
        };
    }

    /// Whether the record of a key speaks of something that is gone. What was there before us went
    /// with it: if the key comes back (a link is made again), that is another original, or another
    /// object.
    fn is_void(&self, key: &D::Key) -> bool {
        let Some(record) = self.rights.records.get(key) else { return false };
        let is_gone = !self.recorded.contains(key);
        let is_about_one = matches!(record.original, Original::Was(_)) || record.identity.is_some();
        is_gone && (is_about_one || self.desired.slot(key, None).is_none())
    }

    /// A key that was seen twice is written by nobody, since a replace could hit the other one; and
    /// one that could not be read is written by nobody either.
    fn take_back(&mut self) {
        let untold = std::mem::replace(&mut self.untold, Barred::none());
        let twins =
            Barred { slots: std::mem::take(&mut self.twins), keys: self.undeclared_twins() };
        let is_barred = |slot: &Slot| twins.slots.contains(slot) || untold.slots.contains(slot);
        let unsure = self.unsure.drain(..).filter(|(slot, _)| !is_barred(slot));
        self.found.unknown.extend(unsure.map(|(slot, why)| (self.desired.key(slot), why)));
        let declared = twins.slots.difference(&untold.slots).map(|slot| self.desired.key(*slot));
        let keys = declared.chain(twins.keys.difference(&untold.keys).cloned());
        let conflict = |key| Conflict { key, owner: Owner::Unmarked, reason: Reason::Twin };
        let conflicts: Vec<_> = keys.map(conflict).collect();
        twins.clear(self.desired, &mut self.found);
        untold.clear(self.desired, &mut self.found);
        self.found.conflicts.extend(conflicts);
    }

    /// Keys of which more than one is to go, or is in the way; the findings are in key order.
    fn undeclared_twins(&self) -> BTreeSet<D::Key> {
        let removed = self.found.list.others().iter().filter_map(|change| match change {
            Change::Delete { key, .. } | Change::Release { key, .. } => Some(key),
            Change::Create { .. } | Change::Update { .. } => None,
        });
        let in_the_way = || self.found.conflicts.iter().map(|conflict| &conflict.key);
        let contested: BTreeSet<&D::Key> = in_the_way().collect();
        let both = removed.clone().filter(|key| contested.contains(key));
        repeated(removed).chain(repeated(in_the_way())).chain(both).cloned().collect()
    }
}

/// What stands next to its equal in a sorted stream.
fn repeated<'k, K: PartialEq + 'k>(
    sorted: impl Iterator<Item = &'k K>,
) -> impl Iterator<Item = &'k K> {
    let mut last = None;
    sorted.filter(move |key| last.replace(*key) == Some(*key))
}

struct Present<K, O> {
    key: K,
    object: O,
    owner: Owner,
}
