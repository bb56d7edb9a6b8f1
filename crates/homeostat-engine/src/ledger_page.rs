//! One page of the ledger, typed, with the edits that a pass makes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{
    Action, BrokenRecord, Desired, Fails, Focus, HeldBy, Holdings, LastApplied, Original, Outcome,
    Ownership, Plan, Record, Slot, Snapshot, Source, Stage, Step, Tally,
};

use crate::error::Error;
use crate::ledger::{self, Edit, Ledger, LedgerKey, Page, Pages};
use crate::verify::Shown;

/// The records that stood before the steps of a key announced their intent.
pub(crate) type PriorRecords<S> =
    BTreeMap<<S as Source>::Key, Option<Record<<S as Source>::Object>>>;

/// What is taken over from other owners, in full.
pub(crate) type Snapshots<S> = BTreeMap<<S as Source>::Key, Snapshot>;

/// The ownership that a caller holds for one source in one scope.
pub struct LedgerPage<S: Source> {
    ledger: Arc<dyn Ledger>,
    ledger_key: LedgerKey,
    holdings: Holdings<S::Key, S::Object>,
    edits: Vec<Edit>,
    /// What the pass that is under way takes over.
    snapshots: Snapshots<S>,
    advanced: Option<Advanced<S>>,
}

/// Reads what is held for one source in one scope.
pub fn holdings<S: Source>(
    pages: &dyn Pages,
    ledger_key: &LedgerKey,
) -> Result<Holdings<S::Key, S::Object>, Error> {
    Ok(parse::<S>(&pages.page(ledger_key)?))
}

/// A record that cannot be read bars its key, and nothing else: all other records say what they say.
fn parse<S: Source>(page: &Page) -> Holdings<S::Key, S::Object> {
    let mut holdings = Holdings::default();
    for (text, record) in &page.records {
        match (text.parse::<S::Key>(), serde_json::from_str(record)) {
            (Ok(key), Ok(record)) => _ = holdings.records.insert(key, record),
            (Ok(key), Err(error)) => {
                let why = format!(
                    "its record in the ledger cannot be read, so it is left as it is: {error}; use the \
                     version that wrote the record, or forget the key: it is no longer known to be \
                     ours then"
                );
                holdings.broken.keys.insert(key, BrokenRecord::new(text, why));
            }
            (Err(_), _) => {
                let why = format!("it is no key of the `{}` source", S::NAME);
                holdings.broken.unkeyed.push(BrokenRecord::new(text, why));
            }
        }
    }
    // A torn list of fingerprints only costs the word "config" in place of "drift".
    holdings.last = page.desired.as_deref().and_then(LastApplied::from_bytes).unwrap_or_default();
    holdings
}

impl<S: Source> LedgerPage<S> {
    /// Opens the page of one source in one scope. Records of a former scope of the same name are dropped with the
    /// next write.
    pub fn open(ledger: Arc<dyn Ledger>, ledger_key: LedgerKey) -> Result<Self, Error> {
        let page = ledger.page(&ledger_key)?;
        Ok(Self::of(ledger, ledger_key, page))
    }

    /// The same, where the ledger wants its work to be done.
    pub(crate) async fn load(
        ledger: Arc<dyn Ledger>,
        ledger_key: LedgerKey,
    ) -> Result<Self, Error> {
        let page = ledger::read_page(&ledger, &ledger_key).await?;
        Ok(Self::of(ledger, ledger_key, page))
    }

    fn of(ledger: Arc<dyn Ledger>, ledger_key: LedgerKey, page: Page) -> Self {
        let holdings = parse::<S>(&page);
        let edits = page.void.into_iter().map(|key| Edit::Drop { key }).collect();
        LedgerPage {
            ledger,
            ledger_key,
            holdings,
            edits,
            snapshots: BTreeMap::new(),
            advanced: None,
        }
    }

    /// Reads the page again if it has records that could not be read: somebody may have repaired them. Outcomes that are
    /// not durable yet keep it from being read; if it cannot be read, what is known stays.
    pub(crate) async fn reread_broken(&mut self) {
        if self.holdings.broken.is_empty() || !self.edits.is_empty() {
            return;
        }
        if let Ok(page) = Self::load(Arc::clone(&self.ledger), self.ledger_key.clone()).await {
            *self = page;
        }
    }

    /// Whose page it is.
    pub(crate) fn ledger_key(&self) -> &LedgerKey {
        &self.ledger_key
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

    /// Changes the record of a key, if there is one.
    fn update(
        &mut self,
        key: S::Key,
        change: impl FnOnce(&mut Record<S::Object>),
    ) -> Result<(), Error> {
        let Some(mut record) = self.holdings.records.get(&key).cloned() else { return Ok(()) };
        change(&mut record);
        self.put(key, record)
    }

    fn drop(&mut self, key: &S::Key) {
        if self.holdings.records.remove(key).is_some() {
            self.edits.push(Edit::Drop { key: key.to_string() });
        }
    }

    /// Records, durably, what the plan is about to do where the target cannot hold a mark (law 8), and
    /// what it found out without writing. Returns what to put back if a step does nothing. If nothing can be recorded,
    /// the steps that need it are held back, and no others.
    pub(crate) async fn begin(
        &mut self,
        plan: &mut Plan<S>,
        ownership: &Ownership,
        snapshots: Snapshots<S>,
    ) -> Result<PriorRecords<S>, Error> {
        self.snapshots = snapshots;
        for key in &plan.found.pruned {
            self.drop(key);
        }
        let confirmed = plan.found.confirmed.iter().filter_map(|key| plan.desired.slot(key, None));
        for slot in confirmed.chain(plan.found.claims.iter().copied()) {
            let record = self.record(plan, slot, Stage::Done);
            self.put(plan.desired.key(slot), record)?;
        }
        let facts = self.edits.len();
        let mut prior = PriorRecords::<S>::new();
        self.announce(plan, ownership, &mut prior)?;
        let Err(error) = self.commit().await else { return Ok(prior) };
        // Intents that never became durable are none: nothing is written under them. What was found out stays to be
        // recorded.
        self.edits.truncate(facts);
        let mut unrecorded = BTreeSet::new();
        prior.retain(|key, before| {
            if self.holdings.records.get(key) == before.as_ref() {
                return true;
            }
            match before.take() {
                Some(record) => self.holdings.records.insert(key.clone(), record),
                None => self.holdings.records.remove(key),
            };
            unrecorded.insert(key.clone());
            false
        });
        let failure = error.failure();
        let help = failure.help.map(|help| format!("; {help}")).unwrap_or_default();
        let why = format!("{}{help}", failure.error);
        plan.hold(HeldBy::Ledger, |plan, step| {
            unrecorded.contains(&step.key(&plan.desired)).then(|| why.clone())
        });
        Ok(prior)
    }

    fn announce(
        &mut self,
        plan: &Plan<S>,
        ownership: &Ownership,
        prior: &mut PriorRecords<S>,
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
        // The step makes another object than the one that the record is about.
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
        let snapshot = match known {
            Some(known) => known.snapshot.clone(),
            None => self.snapshots.get(&key).cloned(),
        };
        let wrote = plan.desired.object(slot);
        Record { wrote, original, settled: None, stage, identity, snapshot }
    }

    /// Takes the outcomes over into the records; not yet durable.
    pub(crate) fn absorb(
        &mut self,
        plan: &Plan<S>,
        tally: &Tally<S::Object>,
        prior: PriorRecords<S>,
    ) -> Result<(), Error> {
        let mut effects = effects(plan, tally, &prior);
        for (key, before) in prior {
            let known = self.holdings.records.get(&key);
            let is_announced = known.is_some_and(|known| known.stage == Stage::Intent);
            match (effects.remove(&key), before) {
                (Some(Effect::Written { settled }), _) => self.update(key, |record| {
                    (record.stage, record.settled) = (Stage::Done, settled);
                })?,
                // Another pass may have found out more than what was announced.
                (Some(Effect::Nothing), _) if !is_announced => {}
                (Some(Effect::Removed), _) | (Some(Effect::Nothing), None) => self.drop(&key),
                (Some(Effect::Nothing), Some(record)) => self.put(key, record)?,
                // It is not known whether it was written: the intent stays.
                (Some(Effect::Unknown) | None, _) => {}
            }
        }
        Ok(())
    }

    /// Takes over what the second look showed. What was written and is not there may still come: its
    /// record proves no more than an intent.
    pub(crate) fn learn(&mut self, shown: Shown<S::Key>) -> Result<(), Error> {
        for (key, identity) in shown.identities {
            self.update(key, |record| record.identity = Some(identity))?;
        }
        let through = shown.through.into_iter().map(|key| (key, Stage::Done));
        let absent = shown.absent.into_iter().map(|key| (key, Stage::Intent));
        for (key, stage) in through.chain(absent) {
            self.update(key, |record| (record.stage, record.settled) = (stage, None))?;
        }
        Ok(())
    }

    /// Drops the records of what is gone. Only after the second look: what is still there must stay
    /// ours, or it would never be removed.
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

    /// Drops the record of a key, durably, also if it cannot be read; returns whether there was one.
    pub(crate) async fn forget_key(&mut self, key: &S::Key) -> Result<bool, Error> {
        let known = self.holdings.records.contains_key(key);
        self.drop(key);
        let broken = self.holdings.broken.keys.get(key).map(|one| one.stored.clone());
        self.edits.extend(broken.clone().map(|key| Edit::Drop { key }));
        self.commit().await?;
        self.holdings.broken.keys.remove(key);
        Ok(known || broken.is_some())
    }

    /// Remembers which desired state is applied, but for the parts that are not. A pass over some keys adds what an
    /// earlier full pass began and a look at these keys shows: in lanes the target works by itself, so that hardly
    /// anything is done within the pass that began it.
    pub(crate) fn advance(
        &mut self,
        plan: &Plan<S>,
        tally: &Tally<S::Object>,
        focus: &Focus<S::Key>,
    ) {
        let desired = &plan.desired;
        let open = match focus {
            Focus::All => unapplied(plan, tally),
            Focus::Keys(keys) if S::FAILS == Fails::Atomic && covers_all(keys, &**desired) => {
                unapplied(plan, tally)
            }
            // Elsewhere what waits is rare, and a desired state may be long: the next full pass is soon enough.
            Focus::Keys(_) if S::FAILS != Fails::Lanes => return,
            Focus::Keys(keys) => {
                let known = self.advanced.as_ref().filter(|known| {
                    Arc::ptr_eq(&known.desired, desired) && !known.open.is_disjoint(keys)
                });
                let Some(known) = known else { return };
                let still = unapplied(plan, tally);
                let is_open = |key: &&S::Key| still.contains(*key) || !keys.contains(*key);
                known.open.iter().filter(is_open).cloned().collect()
            }
        };
        // The fingerprints of a desired state are taken once, and nothing is done while the same parts are open.
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
    pub(crate) async fn close(&mut self) -> Result<(), Error> {
        ledger::work(&self.ledger, |ledger| ledger.check()).await?;
        self.commit().await.map_err(|error| match error {
            Error::WriteLedger(source) => Error::RecordOutcomes(source),
            other => other,
        })
    }

    /// Makes the edits durable; without any, the disk is left alone (law 6). If it is dropped, the next one makes them
    /// again.
    async fn commit(&mut self) -> Result<(), Error> {
        if self.edits.is_empty() {
            return Ok(());
        }
        if self.ledger.is_offloaded() {
            let (key, edits) = (self.ledger_key.clone(), self.edits.clone());
            ledger::work(&self.ledger, move |ledger| ledger.write(&key, &edits)).await?;
        } else {
            self.ledger.write(&self.ledger_key, &self.edits)?;
        }
        self.edits.clear();
        Ok(())
    }
}

/// What our writes left in the target before one of `next` was announced.
fn left_by<'a, O: PartialEq>(known: &'a Record<O>, next: &O) -> &'a O {
    let is_repeated = known.stage == Stage::Done || known.wrote == *next;
    known.settled.as_ref().filter(|_| is_repeated).unwrap_or(&known.wrote)
}

/// What all steps of one key together did to its object.
enum Effect<O> {
    /// Something was written: the object is ours, whatever became of later steps. The target may keep another value in
    /// place of it.
    Written {
        settled: Option<O>,
    },
    /// It is not known whether anything was written.
    Unknown,
    /// It was removed and not made again.
    Removed,
    Nothing,
}

/// The effects on the keys that announced an intent.
fn effects<S: Source>(
    plan: &Plan<S>,
    tally: &Tally<S::Object>,
    prior: &PriorRecords<S>,
) -> BTreeMap<S::Key, Effect<S::Object>> {
    let mut effects = BTreeMap::new();
    if prior.is_empty() {
        return effects;
    }
    for (at, step) in plan.steps.iter().enumerate() {
        let key = step.key(&plan.desired);
        if !prior.contains_key(&key) {
            continue;
        }
        let effect = effects.entry(key).or_insert(Effect::Nothing);
        match tally.other(at) {
            // A delete after a write is part of a replace.
            _ if step.action() == Action::Delete && tally.is_good(at) => {
                if !matches!(effect, Effect::Written { .. }) {
                    *effect = Effect::Removed;
                }
            }
            _ if tally.is_applied(at) => *effect = Effect::Written { settled: None },
            Some(Outcome::Settled { held }) => {
                *effect = Effect::Written { settled: Some(held.clone()) };
            }
            // A partly written object is not a settled value.
            _ if matches!(effect, Effect::Written { .. }) => {
                *effect = Effect::Written { settled: None };
            }
            Some(Outcome::Unknown { .. } | Outcome::Waiting { .. }) | None => {
                *effect = Effect::Unknown;
            }
            Some(_) => {}
        }
    }
    effects
}

/// The desired state that a pass last advanced to.
struct Advanced<S: Source> {
    desired: Arc<S::Desired>,
    prints: LastApplied,
    open: BTreeSet<S::Key>,
}

/// Whether a look at these keys is a look at everything that is declared.
fn covers_all<D: Desired>(keys: &BTreeSet<D::Key>, desired: &D) -> bool {
    let mut slots = (0..desired.len()).map(Slot::at);
    keys.len() >= desired.len() && slots.all(|slot| keys.contains(&desired.key(slot)))
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
