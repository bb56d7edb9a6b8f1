//! Compares the desired state with what is observed: one streaming mark-and-sweep for all sources.
//!
//! One bit a desired state, nothing kept for what agrees. Pure: it never sees the target.
//! Start at [`Diff::see`].

use std::collections::{BTreeMap, BTreeSet};

use crate::bits::Bits;
use crate::change::{Change, Changes, Reason, TakenOver};
use crate::desired::{Agreement, Desired, Slot};
use crate::finding::{Finding, Kind};
use crate::ownership::{BrokenRecords, Original, Ownership, Record, Records, Stage};
use crate::seen::{Focus, Owner, Seen};
use crate::standing::{Standing, Standings};
use crate::text::bounded;
use crate::waits_on::WaitsOn;

/// How a claimed value is released when it is no longer declared.
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
    /// How our objects are distinguished from others'.
    pub ownership: &'a Ownership,
    /// What the ledger says is ours.
    pub records: &'a Records<K, O>,
    /// Keys that may be taken once from any owner.
    pub adopt: &'a BTreeSet<K>,
    /// What becomes of released values.
    pub on_release: OnRelease,
}

/// A diff under way.
pub struct Diff<'a, D: Desired> {
    desired: &'a D,
    focus: &'a Focus<D::Key>,
    rights: Rights<'a, D::Key, D::Object>,
    seen: SeenSlots,
    near: Option<Slot>,
    /// Keys that must not be written in this pass: the target holds two objects, or could not say what it holds, or
    /// what is declared is not known.
    twins: BTreeSet<D::Key>,
    unreadable: BTreeSet<D::Key>,
    /// The slots of both.
    barred: BTreeSet<Slot>,
    /// What could not be read of objects that are there.
    unsure: Vec<(Slot, String)>,
    recorded: BTreeSet<D::Key>,
    /// How conditions let declared keys in focus stand.
    standings: BTreeMap<Slot, &'a Standing>,
    found: Changes<D::Key, D::Object>,
}

/// Whether we may write an object that we saw.
enum Access {
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
            seen: SeenSlots::new(focus, desired.len()),
            near: None,
            twins: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            barred: BTreeSet::new(),
            unsure: Vec::new(),
            recorded: BTreeSet::new(),
            standings: BTreeMap::new(),
            found: Changes::default(),
        }
    }

    /// Heeds the conditions of declared keys: what is withdrawn goes and is not made, what is undecided is not made.
    #[must_use]
    pub fn heeding(mut self, standings: &'a Standings<D::Key>) -> Self {
        for (key, standing) in standings {
            let Some(slot) = self.desired.slot(key, None) else { continue };
            if let Standing::Withdrawn(on) | Standing::Undecided(on) = standing {
                self.found.list.withhold(key.clone(), on.clone());
            }
            if self.focus.covers(key) {
                self.standings.insert(slot, standing);
            }
        }
        self
    }

    /// Bars the keys whose records cannot be read: they are unknown, whatever the target holds there.
    #[must_use]
    pub fn barring(mut self, broken: &BrokenRecords<D::Key>) -> Self {
        let keys = broken.keys.iter().filter(|(key, _)| self.focus.covers(key));
        for (key, record) in keys {
            self.see_unknown(key.clone(), record.why.clone());
        }
        self
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
            self.seen.set(slot);
            self.near = Some(slot);
            self.barred.insert(slot);
        }
        self.unreadable.insert(key.clone());
        if self.rights.records.contains_key(&key) {
            self.recorded.insert(key.clone());
        }
        self.found.findings.push((key, Finding::Unknown { why: bounded(why) }));
    }

    fn see_present(&mut self, key: D::Key, object: D::Object, owner: Owner) {
        if self.record(&key, &object).is_some() {
            self.recorded.insert(key.clone());
        }
        let access = self.access(&key, &object, &owner);
        self.found.owned += usize::from(matches!(access, Access::Ours));
        match self.desired.slot(&key, self.near) {
            Some(slot) => {
                self.near = Some(slot);
                if self.seen.set(slot) {
                    self.barred.insert(slot);
                    self.twins.insert(key);
                    return;
                }
                let seen = Present { key, object, owner };
                match self.standings.get(&slot) {
                    Some(Standing::Withdrawn(on)) => self.see_withdrawn(seen, &access, on),
                    Some(Standing::Undecided(_)) => {
                        self.found.list.is_there(&seen.key);
                        self.see_declared(slot, seen, &access);
                    }
                    Some(Standing::Returned) | None => self.see_declared(slot, seen, &access),
                }
            }
            None => self.see_undeclared(Present { key, object, owner }, &access),
        }
    }

    /// The record of an object. One that is about a former object of the same key says nothing.
    fn record(&self, key: &D::Key, object: &D::Object) -> Option<&'a Record<D::Object>> {
        let record = self.rights.records.get(key)?;
        record.is_about(self.desired.identity(object).as_deref()).then_some(record)
    }

    fn access(&self, key: &D::Key, object: &D::Object, owner: &Owner) -> Access {
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
            _ if is_ours => Access::Ours,
            Owner::Nobody => Access::Free,
            Owner::Foreign(_) if record.is_some_and(|record| record.proves(object)) => {
                Access::LostMark
            }
            _ => Access::Foreign,
        }
    }

    fn strategy_says_ours(&self, key: &D::Key, object: &D::Object) -> bool {
        match self.rights.ownership {
            Ownership::Exclusive(_) => true,
            Ownership::Prefix(prefix) => prefix.matches(&self.desired.name(key)),
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

    fn see_declared(&mut self, slot: Slot, seen: Present<D::Key, D::Object>, access: &Access) {
        let differs = match self.desired.compare(slot, &seen.object) {
            Agreement::Agrees => false,
            Agreement::Differs => true,
            Agreement::Unsure { differs, why } => {
                self.unsure.push((slot, why));
                // A key that may be as declared is left alone until it can be read.
                if !differs && !matches!(access, Access::LostMark) {
                    return;
                }
                differs
            }
        };
        match access {
            Access::Ours => self.see_ours(slot, seen, differs),
            Access::Free => {
                if differs {
                    self.update(slot, seen.object.clone(), None);
                } else {
                    self.found.claims.push(slot);
                }
                let identity = self.desired.identity(&seen.object);
                self.found.identities.extend(identity.map(|which| (seen.key.clone(), which)));
                self.found.originals.insert(seen.key, seen.object);
            }
            Access::Foreign | Access::LostMark if self.may_adopt(slot, &seen.key) => {
                self.update(slot, seen.object.clone(), Some(seen.owner));
                self.found.originals.insert(seen.key, seen.object);
            }
            Access::Foreign if !differs => {
                self.found.findings.push((seen.key, Finding::Matched { owner: seen.owner }));
            }
            Access::Foreign => self.conflict(seen.key, seen.owner, Reason::Foreign),
            Access::LostMark => self.conflict(seen.key, seen.owner, Reason::LostMark),
        }
    }

    fn see_ours(&mut self, slot: Slot, seen: Present<D::Key, D::Object>, differs: bool) {
        if !differs {
            self.confirm(slot, seen);
        } else if self.is_settled(slot, &seen) {
            let wanted = self.desired.object(slot);
            let finding = Finding::settled(self.desired, &wanted, &seen.object);
            self.found.findings.push((seen.key, finding));
        } else {
            self.update(slot, seen.object, None);
        }
    }

    /// What is withdrawn goes, whatever it was before it became ours: given back, it would still be there.
    fn see_withdrawn(&mut self, seen: Present<D::Key, D::Object>, access: &Access, on: &WaitsOn) {
        let Present { key, object: before, .. } = seen;
        self.found.findings.push((key.clone(), Finding::Pending { on: on.clone() }));
        if let Access::Ours = access {
            self.found.by_check.insert(key.clone());
            self.found.list.push(Change::Delete { key, before });
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
        self.found.findings.push((key, Finding::Conflict { owner, reason }));
    }

    fn see_undeclared(&mut self, seen: Present<D::Key, D::Object>, access: &Access) {
        let Present { key, object: before, owner } = seen;
        match (access, &owner) {
            (Access::Ours, Owner::Nobody) => {
                let restore = self.restorable(&key, &before);
                let snapshot = self.record(&key, &before).and_then(|one| one.snapshot.clone());
                let snapshot = snapshot.filter(|_| restore.is_some());
                self.found.list.push(Change::Release { key, before, restore, snapshot });
            }
            (Access::Ours, _) => match self.taken_over(&key, &before) {
                // Without a mark there is nothing to take off.
                Some(taken) if owner == Owner::Unmarked && taken.original == before => {
                    self.recorded.remove(&key);
                }
                Some(taken) => {
                    let taken = Box::new(taken);
                    self.found.list.push(Change::GiveBack { key, before, taken });
                }
                None => self.found.list.push(Change::Delete { key, before }),
            },
            // Its former owner has it back.
            (Access::LostMark, _) if self.taken_over(&key, &before).is_some() => {
                self.recorded.remove(&key);
            }
            (Access::LostMark, _) => self.conflict(key, owner, Reason::LostMark),
            (Access::Free | Access::Foreign, _) => {}
        }
    }

    fn taken_over(&self, key: &D::Key, seen: &D::Object) -> Option<TakenOver<D::Object>> {
        let record = self.record(key, seen)?;
        match (&record.original, &record.snapshot) {
            (Original::Was(original), Some(snapshot)) => Some(TakenOver {
                wrote: record.wrote.clone(),
                original: original.clone(),
                snapshot: snapshot.clone(),
            }),
            _ => None,
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
        let (desired, focus) = (self.desired, self.focus);
        desired.unknown(&mut |key, why| {
            if focus.covers(key) && !self.unreadable.contains(key) {
                self.see_unknown(key.clone(), format!("what is declared is not known: {why}"));
            }
        });
        self.sweep_standings();
        self.sweep();
        self.prune();
        self.take_back();
        self.found.sort();
        self.found
    }

    /// What is absent and may not be there is not made; what may be there again is.
    fn sweep_standings(&mut self) {
        for (slot, standing) in std::mem::take(&mut self.standings) {
            if self.seen.contains(slot) {
                continue;
            }
            let key = self.desired.key(slot);
            match standing {
                Standing::Withdrawn(on) | Standing::Undecided(on) => {
                    self.seen.set(slot);
                    self.found.findings.push((key, Finding::Pending { on: on.clone() }));
                }
                Standing::Returned => _ = self.found.by_check.insert(key),
            }
        }
    }

    fn sweep(&mut self) {
        match self.focus {
            Focus::All => {
                let slots = (0..self.desired.len()).map(Slot::at);
                self.found.list.create(slots.filter(|slot| !self.seen.contains(*slot)));
            }
            Focus::Keys(keys) => {
                let slots = keys.iter().filter_map(|key| self.desired.slot(key, None));
                self.found.list.create(slots.filter(|slot| !self.seen.contains(*slot)));
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

    /// A key that was seen twice is not written, since a replace could hit the other one; and
    /// one that could not be read is not written either.
    fn take_back(&mut self) {
        self.twins.extend(self.undeclared_twins());
        let keys = || self.twins.union(&self.unreadable);
        if keys().next().is_some() {
            let barred: BTreeSet<&D::Key> = keys().collect();
            let is_free = |key: &D::Key| !barred.contains(key);
            let is_free_slot = |slot: &Slot| !self.barred.contains(slot);
            let found = &mut self.found;
            found.list.retain(is_free_slot, |change| match change {
                Change::Create { slot } | Change::Update { slot, .. } => is_free_slot(slot),
                Change::Delete { key, .. }
                | Change::Release { key, .. }
                | Change::GiveBack { key, .. } => is_free(key),
            });
            found.claims.retain(is_free_slot);
            found.findings.retain(|(key, one)| one.kind() == Kind::Unknown || is_free(key));
            found.originals.retain(|key, _| is_free(key));
            found.confirmed.retain(is_free);
            found.identities.retain(|key, _| is_free(key));
        }
        let unsure = self.unsure.drain(..).filter(|(slot, _)| !self.barred.contains(slot));
        let unsure = unsure
            .map(|(slot, why)| (self.desired.key(slot), Finding::Unknown { why: bounded(why) }));
        self.found.findings.extend(unsure);
        for key in self.twins.difference(&self.unreadable) {
            let twin = Finding::Conflict { owner: Owner::Unmarked, reason: Reason::Twin };
            self.found.findings.push((key.clone(), twin));
        }
    }

    /// Keys that are not declared and of which more than one is to go, or is in the way.
    fn undeclared_twins(&self) -> Vec<D::Key> {
        let removed = self.found.list.others().iter().filter_map(|change| match change {
            Change::Delete { key, .. }
            | Change::Release { key, .. }
            | Change::GiveBack { key, .. } => Some(key),
            Change::Create { .. } | Change::Update { .. } => None,
        });
        let conflicts = self.found.findings.iter().filter(|(_, one)| one.kind() == Kind::Conflict);
        let mut keys: Vec<&D::Key> = removed.chain(conflicts.map(|(key, _)| key)).collect();
        keys.sort_unstable();
        let repeated = keys.windows(2).filter(|pair| pair[0] == pair[1]);
        repeated.map(|pair| pair[0].clone()).collect()
    }
}

/// Which desired states were seen: one bit each, or the few that a focused look is about, which costs the same
/// however many desired states there are.
enum SeenSlots {
    All(Bits),
    Few(BTreeSet<Slot>),
}

impl SeenSlots {
    fn new<K>(focus: &Focus<K>, len: usize) -> Self {
        match focus {
            Focus::All => SeenSlots::All(Bits::new(len)),
            Focus::Keys(_) => SeenSlots::Few(BTreeSet::new()),
        }
    }

    /// Notes that a desired state was seen, and returns whether it was before.
    fn set(&mut self, slot: Slot) -> bool {
        let before = self.contains(slot);
        match self {
            SeenSlots::All(bits) => bits.insert(slot.index()),
            SeenSlots::Few(seen) => _ = seen.insert(slot),
        }
        before
    }

    fn contains(&self, slot: Slot) -> bool {
        match self {
            SeenSlots::All(bits) => bits.contains(slot.index()),
            SeenSlots::Few(seen) => seen.contains(&slot),
        }
    }
}

struct Present<K, O> {
    key: K,
    object: O,
    owner: Owner,
}
