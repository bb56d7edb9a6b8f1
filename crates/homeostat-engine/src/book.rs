//! One page of the ledger, typed, with the edits that a pass makes to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{
    Action, Desired, Holdings, LastApplied, Original, Ownership, Plan, Record, Slot, Source, Stage,
    Step, Tally,
};

use crate::error::Error;
use crate::fate::{Fate, Prior, fates};
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};
use crate::verify::Shown;

/// The ownership that a caller holds for one source in one scope.
pub struct Book<S: Source> {
    ledger: Arc<dyn Ledger>,
    place: LedgerKey,
    holdings: Holdings<S::Key, S::Object>,
    edits: Vec<Edit>,
    advanced: Option<Advanced<S>>,
}

/// Reads what is held at a place.
pub fn holdings<S: Source>(
    pages: &dyn Pages,
    place: &LedgerKey,
) -> Result<Holdings<S::Key, S::Object>, Error> {
    parse::<S>(&pages.page(place)?)
}

fn parse<S: Source>(page: &Page) -> Result<Holdings<S::Key, S::Object>, Error> {
    let mut holdings = Holdings::default();
    for (text, record) in &page.records {
        let bad = |reason: String| Error::BadRecord { key: text.clone(), reason };
        let Ok(key) = text.parse::<S::Key>() else {
            return Err(bad(format!("it is no key of the `{}` source", S::NAME)));
        };
        let record = serde_json::from_str(record).map_err(|error| bad(error.to_string()))?;
        holdings.records.insert(key, record);
    }
    // A torn list of fingerprints only costs the word "config" in place of "drift".
    holdings.last = page.desired.as_deref().and_then(LastApplied::from_bytes).unwrap_or_default();
    Ok(holdings)
}

impl<S: Source> Book<S> {
    /// Opens the page of a place. Records of a former scope of the same name are dropped with the
    /// next write.
    pub fn open(ledger: Arc<dyn Ledger>, place: LedgerKey) -> Result<Self, Error> {
        let page = ledger.page(&place)?;
        let holdings = parse::<S>(&page)?;
        let edits = page.void.into_iter().map(|key| Edit::Drop { key }).collect();
        Ok(Book { ledger, place, holdings, edits, advanced: None })
    }

    /// What is held.
    #[must_use]
    pub fn holdings(&self) -> &Holdings<S::Key, S::Object> {
        &self.holdings
    }

    fn put(&mut self, key: S::Key, record: Record<S::Object>) -> Result<(), Error> {
        if self.holdings.records.get(&key) == Some(&record) {
            return Ok(());
        }
        let text =
            serde_json::to_string(&record).map_err(|error| Error::WriteLedger(Box::new(error)))?;
        self.edits.push(Edit::Put { key: key.to_string(), record: text });
        self.holdings.records.insert(key, record);
        Ok(())
    }

    fn drop(&mut self, key: &S::Key) {
        if self.holdings.records.remove(key).is_some() {
            self.edits.push(Edit::Drop { key: key.to_string() });
        }
    }

    /// Records, durably, what the plan is about to do where the target cannot tell (law 8), and
    /// what it found out without writing. Returns what to put back if a step does nothing.
    pub(crate) fn begin(
        &mut self,
        plan: &Plan<S>,
        ownership: &Ownership,
    ) -> Result<Prior<S>, Error> {
        for key in &plan.found.pruned {
            self.drop(key);
        }
        for key in &plan.found.confirmed {
            self.confirm(plan, key)?;
        }
        for slot in &plan.found.claims {
            let record = self.record(plan, *slot, Stage::Done);
            self.put(plan.desired.key(*slot), record)?;
        }
        let facts = self.edits.len();
        let mut prior = Prior::<S>::new();
        let announced = self.announce(plan, ownership, &mut prior).and_then(|()| self.commit());
        if let Err(error) = announced {
            self.take_back(prior, facts);
            return Err(error);
        }
        Ok(prior)
    }

    fn announce(
        &mut self,
        plan: &Plan<S>,
        ownership: &Ownership,
        prior: &mut Prior<S>,
    ) -> Result<(), Error> {
        for step in &plan.steps {
            let Some(slot) = self.needs_intent(plan, ownership, step) else { continue };
            let key = plan.desired.key(slot);
            // The first step of a key announces for all of them.
            if !prior.contains_key(&key) {
                prior.insert(key.clone(), self.holdings.records.get(&key).cloned());
                self.intend(plan, slot, step.action())?;
            }
        }
        Ok(())
    }

    /// Intents that never became durable are none: nothing is written under them.
    fn take_back(&mut self, prior: Prior<S>, facts: usize) {
        self.edits.truncate(facts);
        for (key, before) in prior {
            match before {
                Some(record) => self.holdings.records.insert(key, record),
                None => self.holdings.records.remove(&key),
            };
        }
    }

    fn needs_intent(&self, plan: &Plan<S>, ownership: &Ownership, step: &S::Step) -> Option<Slot> {
        let keeps_records = matches!(ownership, Ownership::Checkpoint) || step.is_recorded();
        if !keeps_records && plan.found.originals.is_empty() && self.holdings.records.is_empty() {
            return None;
        }
        let key = step.key(&plan.desired);
        let is_known =
            plan.found.originals.contains_key(&key) || self.holdings.records.contains_key(&key);
        (keeps_records || is_known).then(|| plan.desired.slot(&key, None)).flatten()
    }

    /// A record that already says all this stays as it is: healing drift costs no disk write.
    fn intend(&mut self, plan: &Plan<S>, slot: Slot, action: Action) -> Result<(), Error> {
        let key = plan.desired.key(slot);
        // What is made is another object than the one that the record is about.
        let makes = matches!(action, Action::Create | Action::Replace);
        let known = self.holdings.records.get(&key);
        if makes && known.is_some_and(|known| known.identity.is_some()) {
            self.drop(&key);
        }
        let mut record = self.record(plan, slot, Stage::Intent);
        if let Some(known) = self.holdings.records.get(&key) {
            if known.wrote == record.wrote && known.stage == Stage::Done {
                return Ok(());
            }
            // What a crash leaves untouched is still what our former write left.
            if action != Action::Create {
                record.settled = Some(left_by(known, &record.wrote).clone());
            }
        }
        self.put(key, record)
    }

    fn record(&self, plan: &Plan<S>, slot: Slot, stage: Stage) -> Record<S::Object> {
        let key = plan.desired.key(slot);
        let known = self.holdings.records.get(&key);
        let identity = plan.found.identities.get(&key);
        let identity = identity.or_else(|| known?.identity.as_ref()).cloned();
        let original = match (known, plan.found.originals.get(&key)) {
            // The original is captured once; what a crash left as an intent has captured it too.
            (Some(known), _) => known.original.clone(),
            (None, Some(before)) => Original::Was(before.clone()),
            (None, None) => Original::Absent,
        };
        Record { wrote: plan.desired.object(slot), original, settled: None, stage, identity }
    }

    fn confirm(&mut self, plan: &Plan<S>, key: &S::Key) -> Result<(), Error> {
        let Some(slot) = plan.desired.slot(key, None) else { return Ok(()) };
        let record = self.record(plan, slot, Stage::Done);
        self.put(key.clone(), record)
    }

    /// Takes the outcomes over into the records; not yet durable.
    pub(crate) fn absorb(
        &mut self,
        plan: &Plan<S>,
        tally: &Tally<S::Object>,
        prior: Prior<S>,
    ) -> Result<(), Error> {
        let fates = fates(plan, tally, &prior);
        for (key, before) in prior {
            let known = self.holdings.records.get(&key);
            let is_announced = known.is_some_and(|known| known.stage == Stage::Intent);
            match (fates.get(&key), before) {
                (Some(Fate::Written { settled }), _) => self.done(key, settled.clone())?,
                // Another pass may have found out more than what was announced.
                (Some(Fate::Untouched), _) if !is_announced => {}
                (Some(Fate::Removed), _) | (Some(Fate::Untouched), None) => self.drop(&key),
                (Some(Fate::Untouched), Some(record)) => self.put(key, record)?,
                // Nobody knows whether it was written: the intent stands.
                (Some(Fate::Open) | None, _) => {}
            }
        }
        Ok(())
    }

    /// Takes over what the second look showed. What was written and is not there may still come: its
    /// record proves no more than an intent.
    pub(crate) fn learn(&mut self, shown: Shown<S::Key>) -> Result<(), Error> {
        for (key, identity) in shown.identities {
            if let Some(record) = self.holdings.records.get(&key) {
                let record = Record { identity: Some(identity), ..record.clone() };
                self.put(key, record)?;
            }
        }
        for key in shown.through {
            self.done(key, None)?;
        }
        for key in shown.absent {
            if let Some(record) = self.holdings.records.get(&key) {
                let record = Record { stage: Stage::Intent, settled: None, ..record.clone() };
                self.put(key, record)?;
            }
        }
        Ok(())
    }

    /// Drops the records of what is gone. Only after the second look: what is still there must stay
    /// ours, or nobody would ever remove it.
    pub(crate) fn forget(&mut self, plan: &Plan<S>, tally: &Tally<S::Object>) {
        if self.holdings.records.is_empty() {
            return;
        }
        for (at, step) in plan.steps.iter().enumerate() {
            if step.action() != Action::Delete || !tally.is_good(at) {
                continue;
            }
            let key = step.key(&plan.desired);
            // A declared key that lost a part, or was made again, is still ours.
            if plan.desired.slot(&key, None).is_none() {
                self.drop(&key);
            }
        }
    }

    /// Drops the record of a key, durably; tells whether there was one.
    pub(crate) fn forget_key(&mut self, key: &S::Key) -> Result<bool, Error> {
        let known = self.holdings.records.contains_key(key);
        self.drop(key);
        self.commit()?;
        Ok(known)
    }

    fn done(&mut self, key: S::Key, settled: Option<S::Object>) -> Result<(), Error> {
        let Some(record) = self.holdings.records.get(&key) else { return Ok(()) };
        let record = Record { settled, stage: Stage::Done, ..record.clone() };
        self.put(key, record)
    }

    /// Remembers which desired state is applied, but for the parts that are not.
    pub(crate) fn advance(&mut self, plan: &Plan<S>, tally: &Tally<S::Object>) {
        self.advance_to(&plan.desired, unapplied(plan, tally));
    }

    /// The same for what a full pass began and a look at these keys shows: the target works by itself, so
    /// that hardly anything in a lane is done within the pass that began it.
    pub(crate) fn catch_up(
        &mut self,
        plan: &Plan<S>,
        tally: &Tally<S::Object>,
        looked_at: &BTreeSet<S::Key>,
    ) {
        let known =
            self.advanced.as_ref().filter(|known| Arc::ptr_eq(&known.desired, &plan.desired));
        let Some(known) = known.filter(|known| !known.open.is_disjoint(looked_at)) else { return };
        let still = unapplied(plan, tally);
        let is_open = |key: &&S::Key| still.contains(*key) || !looked_at.contains(*key);
        let open = known.open.iter().filter(is_open).cloned().collect();
        self.advance_to(&plan.desired, open);
    }

    /// The fingerprints of a desired state are taken once, and nothing is done while the same parts are open.
    fn advance_to(&mut self, desired: &Arc<S::Desired>, open: BTreeSet<S::Key>) {
        let known = self.advanced.take().filter(|known| Arc::ptr_eq(&known.desired, desired));
        let prints = match known {
            Some(known) if known.open == open => {
                self.advanced = Some(known);
                return;
            }
            Some(known) => known.prints,
            None => LastApplied::of(&**desired),
        };
        let last = self.holdings.last.advanced(&**desired, prints.clone(), &open);
        if last != self.holdings.last {
            self.edits.push(Edit::DesiredState(last.to_bytes()));
            self.holdings.last = last;
        }
        self.advanced = Some(Advanced { desired: Arc::clone(desired), prints, open });
    }

    /// Makes the outcomes durable.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.commit().map_err(|error| match error {
            Error::WriteLedger(source) => Error::RecordOutcomes(source),
            other => other,
        })
    }

    /// Makes the edits durable; without any, the disk is left alone (law 6).
    fn commit(&mut self) -> Result<(), Error> {
        if self.edits.is_empty() {
            return Ok(());
        }
        self.ledger.write(&self.place, &self.edits)?;
        self.edits.clear();
        Ok(())
    }
}

/// What our writes left in the target before one of `next` was announced.
fn left_by<'a, O: PartialEq>(known: &'a Record<O>, next: &O) -> &'a O {
    let is_repeated = known.stage == Stage::Done || known.wrote == *next;
    known.settled.as_ref().filter(|_| is_repeated).unwrap_or(&known.wrote)
}

/// The desired state that a pass last advanced to.
struct Advanced<S: Source> {
    desired: Arc<S::Desired>,
    prints: LastApplied,
    open: BTreeSet<S::Key>,
}

/// Keys whose desired state, or whose removal, has not been carried out.
fn unapplied<S: Source>(plan: &Plan<S>, tally: &Tally<S::Object>) -> BTreeSet<S::Key> {
    let steps = tally.others().filter(|(_, outcome)| !outcome.is_good());
    let steps = steps.filter_map(|(at, _)| plan.steps.get(at));
    let mut keys: BTreeSet<_> = steps.map(|step| step.key(&plan.desired)).collect();
    let open = plan.findings.iter().filter(|(_, finding)| finding.is_open());
    keys.extend(open.map(|(key, _)| key.clone()));
    keys
}
