//! One page of the ledger, typed, with the edits that a pass makes to it.

use std::sync::Arc;

use homeostat_core::{
    Action, Desired, Holdings, LastWish, Original, Outcome, Ownership, Plan, Record, Slot, Source,
    Stage, Step, Tally,
};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, Page, Pages, Place};

/// The ownership that a caller holds for one source in one scope.
pub struct Book<S: Source> {
    ledger: Arc<dyn Ledger>,
    place: Place,
    holdings: Holdings<S::Key, S::Object>,
    edits: Vec<Edit>,
    /// The wish whose fingerprints are recorded, so that they are not taken again at every pass.
    recorded: Option<Arc<S::Desired>>,
}

/// Reads what is held at a place.
pub fn holdings<S: Source>(
    pages: &dyn Pages,
    place: &Place,
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
    holdings.last = page.wish.as_deref().and_then(LastWish::from_bytes).unwrap_or_default();
    Ok(holdings)
}

impl<S: Source> Book<S> {
    /// Opens the page of a place. Records of a former scope of the same name are dropped with the
    /// next write.
    pub fn open(ledger: Arc<dyn Ledger>, place: Place) -> Result<Self, Error> {
        let page = ledger.page(&place)?;
        let holdings = parse::<S>(&page)?;
        let edits = page.void.into_iter().map(|key| Edit::Drop { key }).collect();
        Ok(Book { ledger, place, holdings, edits, recorded: None })
    }

    /// What is held.
    #[must_use]
    pub fn holdings(&self) -> &Holdings<S::Key, S::Object> {
        &self.holdings
    }

    /// Where the page belongs.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
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
            self.put(plan.wish.key(*slot), record)?;
        }
        let mut prior = Prior::<S>::new();
        for (at, step) in plan.steps.iter().enumerate() {
            if let Some(slot) = self.needs_intent(plan, ownership, step) {
                let key = plan.wish.key(slot);
                prior.push((at, self.holdings.records.get(&key).cloned()));
                self.intend(plan, slot, key)?;
            }
        }
        self.commit()?;
        Ok(prior)
    }

    fn needs_intent(&self, plan: &Plan<S>, ownership: &Ownership, step: &S::Step) -> Option<Slot> {
        if step.action() == Action::Delete {
            return None;
        }
        let keeps_records = matches!(ownership, Ownership::Checkpoint) || step.is_recorded();
        if !keeps_records && plan.found.originals.is_empty() && self.holdings.records.is_empty() {
            return None;
        }
        let key = step.key(&plan.wish);
        let is_known =
            plan.found.originals.contains_key(&key) || self.holdings.records.contains_key(&key);
        (keeps_records || is_known).then(|| plan.wish.slot(&key, None)).flatten()
    }

    /// A record that already says all this stays as it is: healing drift costs no disk write.
    fn intend(&mut self, plan: &Plan<S>, slot: Slot, key: S::Key) -> Result<(), Error> {
        let record = self.record(plan, slot, Stage::Intent);
        match self.holdings.records.get(&key) {
            Some(known) if known.wrote == record.wrote && known.stage == Stage::Done => Ok(()),
            _ => self.put(key, record),
        }
    }

    fn record(&self, plan: &Plan<S>, slot: Slot, stage: Stage) -> Record<S::Object> {
        let key = plan.wish.key(slot);
        let original = match (self.holdings.records.get(&key), plan.found.originals.get(&key)) {
            // The original is captured once; what a crash left as an intent has captured it too.
            (Some(known), _) => known.original.clone(),
            (None, Some(before)) => Original::Was(before.clone()),
            (None, None) => Original::Absent,
        };
        Record { wrote: plan.wish.object(slot), original, settled: None, stage }
    }

    fn confirm(&mut self, plan: &Plan<S>, key: &S::Key) -> Result<(), Error> {
        let Some(slot) = plan.wish.slot(key, None) else { return Ok(()) };
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
        for (at, before) in prior {
            let Some(step) = plan.steps.get(at) else { continue };
            let key = step.key(&plan.wish);
            match tally.other(at) {
                None if tally.is_applied(at) => self.done(key, None)?,
                Some(Outcome::Settled { held }) => self.done(key, Some(held.clone()))?,
                // Nobody knows whether it was written: the intent stands.
                None | Some(Outcome::Unknown { .. } | Outcome::Waiting { .. }) => {}
                Some(_) => match before {
                    Some(record) => self.put(key, record)?,
                    None => self.drop(&key),
                },
            }
        }
        for (at, step) in plan.steps.iter().enumerate() {
            if step.action() == Action::Delete && tally.is_good(at) {
                self.drop(&step.key(&plan.wish));
            }
        }
        Ok(())
    }

    fn done(&mut self, key: S::Key, settled: Option<S::Object>) -> Result<(), Error> {
        let Some(record) = self.holdings.records.get(&key) else { return Ok(()) };
        let record = Record { settled, stage: Stage::Done, ..record.clone() };
        self.put(key, record)
    }

    /// Remembers which wish is applied, but for the parts that are not.
    pub(crate) fn advance(&mut self, plan: &Plan<S>, tally: &Tally<S::Object>) {
        let open = Unapplied::of(plan, tally);
        if open.is_empty() && self.recorded.as_ref().is_some_and(|w| Arc::ptr_eq(w, &plan.wish)) {
            return;
        }
        let last = self.holdings.last.advanced(&*plan.wish, &open.keys);
        if last != self.holdings.last {
            self.edits.push(Edit::Wish(last.to_bytes()));
            self.holdings.last = last;
        }
        self.recorded = open.is_empty().then(|| Arc::clone(&plan.wish));
    }

    /// Makes the edits durable; without any, the disk is left alone (law 6).
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        if self.edits.is_empty() {
            return Ok(());
        }
        self.ledger.write(&self.place, &self.edits)?;
        self.edits.clear();
        Ok(())
    }
}

/// The records that stood before a step announced its intent, by the step's number.
pub(crate) type Prior<S> = Vec<(usize, Option<Record<<S as Source>::Object>>)>;

/// Keys whose wish, or whose removal, has not been carried out.
struct Unapplied<K> {
    keys: std::collections::BTreeSet<K>,
}

impl<K: Ord + Clone> Unapplied<K> {
    fn of<S: Source<Key = K>>(plan: &Plan<S>, tally: &Tally<S::Object>) -> Self {
        let steps = tally.others().filter(|(_, outcome)| !outcome.is_good());
        let mut keys: std::collections::BTreeSet<K> = steps
            .filter_map(|(at, _)| plan.steps.get(at))
            .chain(plan.held.iter().map(|held| &held.step))
            .map(|step| step.key(&plan.wish))
            .collect();
        keys.extend(plan.pending.iter().map(|pending| pending.key.clone()));
        keys.extend(plan.refused.iter().map(|refused| refused.key.clone()));
        keys.extend(plan.found.conflicts.iter().map(|conflict| conflict.key.clone()));
        keys.extend(plan.found.unknown.iter().map(|(key, _)| key.clone()));
        Unapplied { keys }
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
