//! Steps in order, with everything that will not be done and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use educe::Educe;

use crate::change::{Change, Changes};
use crate::desired::{Desired, Slot};
use crate::explain::{About, Action, Cause, Entry, Explain, Line, PassTrouble, Sampler, Summary};
use crate::finding::{Finding, HeldBy, Kind};
use crate::last_applied::LastApplied;
use crate::outcome::{Dispatch, Failure};
use crate::ownership::Records;
use crate::reversibility::{Parking, Reversibility, Taking};
use crate::seen::Owner;
use crate::source::{Fails, Source};
use crate::waits_on::WaitsOn;

/// One write.
pub trait Step<D: Desired>: Send + Sync + 'static {
    /// The key that it writes.
    fn key(&self, desired: &D) -> D::Key;

    /// The desired state that it fulfils, if it knows; saves looking the key up.
    fn slot(&self) -> Option<Slot> {
        None
    }

    /// What it does to that key.
    fn action(&self) -> Action;

    /// Its place in the order; lower phases run first. A step runs in a later phase than every
    /// step that it needs.
    fn phase(&self) -> u8 {
        0
    }

    /// Names the keys whose steps come before this one, and block it if they fail. Where lanes run, its lane starts
    /// when theirs have ended; else the phases must say so.
    fn needs(&self, desired: &D, need: &mut dyn FnMut(D::Key)) {
        let _ = (desired, need);
    }

    /// What belongs together: a delete waits when a create of its group failed. Asked only after a
    /// failure.
    fn group(&self, desired: &D) -> Option<String> {
        let _ = desired;
        None
    }

    /// Objects that the target deletes along with it.
    fn takes(&self) -> &[Taken] {
        &[]
    }

    /// The part of it that takes nothing of others along. It runs while the whole is held back for what it would take.
    fn harmless_part(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Names other declared keys that the target may change along with this one. They are looked at
    /// again after the step.
    fn disturbs(&self, desired: &D, disturb: &mut dyn FnMut(D::Key)) {
        let _ = (desired, disturb);
    }

    /// Whether the ledger must hold a record, because the target cannot hold the mark or another program could remove
    /// it.
    fn is_recorded(&self) -> bool {
        false
    }

    /// Where it runs: on one node only so many run at once. Asked of sources with lanes only.
    fn node(&self, desired: &D) -> String {
        let _ = desired;
        String::new()
    }

    /// Whether it can be undone.
    fn reversibility(&self, desired: &D) -> Reversibility;

    /// How it is put off while it may have to be undone; nothing, if it is done as it is.
    fn parking(&self) -> Option<Parking<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Names the keys, beside those that it takes from other owners, of which a snapshot must be durable before it: by
    /// that, a rollback makes them again as they were.
    fn records(&self, desired: &D, record: &mut dyn FnMut(D::Key, Taking)) {
        let _ = (desired, record);
    }

    /// What is remembered of it, if it must not be sent twice.
    fn dispatch(&self, desired: &D) -> Dispatch {
        let _ = desired;
        Dispatch { kind: self.action().word().to_owned(), ..Dispatch::default() }
    }

    /// Counts the lines that [`Step::explain`] hands out; override it where that is not one.
    fn count(&self, summary: &mut Summary) {
        summary.count(self.action());
    }

    /// Says what it does, in one line or more.
    fn explain(&self, desired: &D, emit: &mut dyn FnMut(Line));
}

/// An object that the target deletes by itself when a step runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct Taken {
    /// The key, as text.
    pub key: String,
    pub owner: Owner,
}

impl Taken {
    /// An object by its key, as text, and its owner.
    pub fn new(key: impl Into<String>, owner: Owner) -> Self {
        Taken { key: key.into(), owner }
    }
}

/// What a source answers to changes.
#[derive(Educe)]
#[educe(Default)]
pub struct Draft<S: Source> {
    /// The steps, in any order; equal phases keep the order given here.
    pub steps: Vec<S::Step>,
    /// The keys that get no step, and why.
    pub findings: Vec<(S::Key, Finding)>,
}

impl<S: Source> Draft<S> {
    /// A desired state that waits.
    pub fn wait(&mut self, key: S::Key, on: WaitsOn) {
        self.findings.push((key, Finding::Pending { on }));
    }

    /// A desired state that cannot be fulfilled as it is.
    pub fn refuse(&mut self, key: S::Key, failure: Failure) {
        self.findings.push((key, Finding::refused(failure)));
    }
}

/// What will be done, in order, and what will not, and why.
#[non_exhaustive]
pub struct Plan<S: Source> {
    /// The desired state that it serves.
    pub desired: Arc<S::Desired>,
    /// What the observe learned beside the objects.
    pub moment: Arc<S::Moment>,
    /// The steps, in order.
    pub steps: Vec<S::Step>,
    /// Why keys are not simply as declared, and will not be by these steps.
    pub findings: Vec<(S::Key, Finding)>,
    /// Everything else that the diff found; its changes have become the steps, its findings those above.
    pub found: Changes<S::Key, S::Object>,
    /// How many objects of ours are not declared any more: what a budget of deletes counts. A guard that
    /// holds some of them for another reason takes them off.
    pub removals: usize,
    last: LastApplied,
    /// Why the records as a whole cannot be trusted, if so.
    broken_record: Option<Failure>,
    /// Keys that are given up: only a changed desired state does that.
    released: BTreeSet<S::Key>,
    /// Keys whose change follows from the result of a check.
    by_check: BTreeSet<S::Key>,
}

impl<S: Source> fmt::Debug for Plan<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("source", &S::NAME).field("summary", &self.summary()).finish()
    }
}

impl<S: Source> Plan<S> {
    /// Asks the source for its steps and puts them in order: by phase, or by key where lanes run.
    pub fn new(
        source: &S,
        desired: Arc<S::Desired>,
        moment: S::Moment,
        mut found: Changes<S::Key, S::Object>,
    ) -> Self {
        let changes = std::mem::take(&mut found.list);
        let by_check = std::mem::take(&mut found.by_check);
        let is_removal = |change: &&Change<S::Key, S::Object>| {
            change.is_removal() && !by_check.contains(&change.key(&*desired))
        };
        let removals = changes.others().iter().filter(is_removal).count();
        let released = changes.others().iter().filter_map(|change| match change {
            Change::Release { key, .. } | Change::GiveBack { key, .. } => Some(key.clone()),
            _ => None,
        });
        let released = released.collect();
        let withheld = changes.withheld().clone();
        let Draft { mut steps, findings: drafted } = source.plan(&desired, &moment, changes);
        if !withheld.is_empty() {
            // A source may make again what goes along with something else.
            let is_made = |step: &S::Step| step.action() != Action::Delete;
            steps.retain(|step| !is_made(step) || !withheld.contains_key(&step.key(&desired)));
        }
        match S::FAILS {
            Fails::Lanes => {
                steps.sort_by_cached_key(|step| (step.key(&desired), step.phase()));
                sort_by_needs(&*desired, &mut steps);
            }
            _ => steps.sort_by_key(Step::phase),
        }
        let mut findings = std::mem::take(&mut found.findings);
        findings.extend(drafted);
        findings.sort_by(|a, b| a.0.cmp(&b.0));
        Plan {
            findings,
            found,
            removals,
            released,
            by_check,
            ..Plan::of(desired, moment.into(), steps)
        }
    }

    /// Nothing but steps.
    fn of(desired: Arc<S::Desired>, moment: Arc<S::Moment>, steps: Vec<S::Step>) -> Self {
        let (findings, found) = (vec![], Changes::default());
        let (removals, last, released) = (0, LastApplied::default(), BTreeSet::new());
        let (broken_record, by_check) = (None, BTreeSet::new());
        Plan {
            desired,
            moment,
            steps,
            findings,
            found,
            removals,
            last,
            broken_record,
            released,
            by_check,
        }
    }

    /// Takes some steps out, as a plan of their own. What is left is about the others.
    #[must_use]
    pub fn part(&mut self, steps: Range<usize>) -> Self {
        let steps = self.steps.drain(steps).collect();
        let (last, released) = (self.last.clone(), self.released.clone());
        let by_check = self.by_check.clone();
        Plan {
            last,
            released,
            by_check,
            ..Plan::of(self.desired.clone(), self.moment.clone(), steps)
        }
    }

    /// Lets the plan distinguish "config changed" from "drifted".
    #[must_use]
    pub fn since(mut self, last: LastApplied) -> Self {
        self.last = last;
        self
    }

    /// The desired state that a step fulfils; none, if its key is not declared.
    pub fn slot_of(&self, step: &S::Step) -> Option<Slot> {
        step.slot().or_else(|| self.desired.slot(&step.key(&self.desired), None))
    }

    /// Whether a step is about a key whose check has come to another result, or needs such a key.
    fn follows_check(&self, step: &S::Step) -> bool {
        let mut follows = self.by_check.contains(&step.key(&self.desired));
        step.needs(&self.desired, &mut |need| follows |= self.by_check.contains(&need));
        follows
    }

    /// Why a step has to be taken.
    pub fn cause(&self, step: &S::Step) -> Cause {
        if !self.by_check.is_empty() && self.follows_check(step) {
            return Cause::Check;
        }
        if let Some(slot) = self.slot_of(step) {
            return self.last.cause_of(&*self.desired, slot);
        }
        let key = step.key(&self.desired);
        if self.released.contains(&key) {
            return Cause::Config;
        }
        self.last.cause_of_removal(&*self.desired, &key)
    }

    /// Hands out the lines of one step with their cause.
    pub fn explain_step(&self, step: &S::Step, emit: &mut dyn FnMut(Line, Cause)) {
        let cause = self.cause(step);
        let mut taken = taken_along(step.takes());
        step.explain(&self.desired, &mut |mut line| {
            let notes = line.note.take().into_iter().chain(taken.take());
            line.note = Some(notes.collect::<Vec<_>>().join("; ")).filter(|note| !note.is_empty());
            emit(line, cause);
        });
    }

    /// Hands out the lines of one step, if they are wanted.
    pub(crate) fn sample_step(
        &self,
        step: &S::Step,
        sampler: &mut dyn Sampler,
        entry: fn(Line, Cause) -> Entry,
    ) {
        if sampler.wants(self.cause(step)) {
            self.explain_step(step, &mut |line, cause| sampler.take(entry(line, cause)));
        }
    }

    /// The keys of what steps claim or take over.
    #[must_use]
    pub fn claimed(&self) -> BTreeSet<S::Key> {
        if self.found.originals.is_empty() {
            return BTreeSet::new();
        }
        let keys = self.steps.iter().map(|step| step.key(&self.desired));
        keys.filter(|key| self.found.originals.contains_key(key)).collect()
    }

    /// Holds back the steps for which `why` has an answer, and returns the findings about them. Of a step that would
    /// take something of others along, the harmless part stays.
    pub fn hold(
        &mut self,
        by: HeldBy,
        why: impl Fn(&Self, &S::Step) -> Option<String>,
    ) -> &[(S::Key, Finding)] {
        let before = self.findings.len();
        let steps = std::mem::take(&mut self.steps);
        let mut kept = Vec::with_capacity(steps.len());
        for step in steps {
            match why(self, &step) {
                Some(why) => {
                    let (key, action) = (step.key(&self.desired), step.action());
                    self.findings.push((key, Finding::Held { action, by, why }));
                    let part = Some(step).filter(|_| by == HeldBy::Cascade);
                    kept.extend(part.and_then(|step| step.harmless_part()));
                }
                None => kept.push(step),
            }
        }
        self.steps = kept;
        self.findings.get(before..).unwrap_or_default()
    }

    /// Holds back what a record may be about whose key is not known: it may say that an object has to be given back
    /// instead of deleted, and what a value was before our first write. So of the keys without a record of their own,
    /// what is no longer declared stays, and nothing is claimed or taken over. All else is healed.
    pub fn hold_for_broken_record(
        &mut self,
        failure: Failure,
        records: &Records<S::Key, S::Object>,
    ) {
        let why = "it is not known whether a record that cannot be read is about it";
        let held = self.hold(HeldBy::Ledger, |plan, step| {
            let key = step.key(&plan.desired);
            let is_removal = step.action() == Action::Delete && plan.slot_of(step).is_none();
            let is_concerned = is_removal || plan.found.originals.contains_key(&key);
            (is_concerned && !records.contains_key(&key)).then(|| why.to_owned())
        });
        let held: BTreeSet<S::Key> = held.iter().map(|(key, _)| key.clone()).collect();
        // The budget of deletes counts what is deleted.
        let removed = held.iter().filter(|key| self.desired.slot(key, None).is_none()).count();
        self.removals = self.removals.saturating_sub(removed);
        self.found.claims.clear();
        self.found.originals.clear();
        self.broken_record = Some(failure);
    }

    /// Why the records as a whole cannot be trusted, if so.
    #[must_use]
    pub fn broken_record(&self) -> Option<&Failure> {
        self.broken_record.as_ref()
    }

    /// Takes what is put off until it is certain that it will not be undone out of the count of removals. To be called
    /// before guards: they judge these steps like any other, but their budget is for what is deleted now.
    pub fn discount_put_off(&mut self) {
        let is_put_off = |step: &&S::Step| {
            step.action() == Action::Delete && matches!(step.parking(), Some(Parking::Nothing))
        };
        let count = self.steps.iter().filter(is_put_off).count();
        self.removals = self.removals.saturating_sub(count);
    }

    /// Puts other steps in the place of those that could not be undone.
    pub fn park(&mut self) {
        for step in std::mem::take(&mut self.steps) {
            match step.parking() {
                None => self.steps.push(step),
                Some(Parking::Instead(other)) => self.steps.push(other),
                Some(Parking::Nothing) => self.note_parked(&step),
                Some(Parking::By(other)) => {
                    self.note_parked(&step);
                    self.steps.push(other);
                }
            }
        }
    }

    fn note_parked(&mut self, step: &S::Step) {
        let (key, action) = (step.key(&self.desired), step.action());
        self.findings.push((key, Finding::Parked { action }));
    }

    /// Notes which steps cannot be undone.
    pub fn note_losses(&mut self) {
        for step in &self.steps {
            if let Reversibility::Irreversible(why) = step.reversibility(&self.desired) {
                let finding = Finding::Irreversible { why: why.into_owned() };
                self.findings.push((step.key(&self.desired), finding));
            }
        }
    }

    /// Notes that a desired state waits.
    pub fn wait(&mut self, key: S::Key, on: WaitsOn) {
        self.findings.push((key, Finding::Pending { on }));
    }

    /// Whether a key is not as declared, beside those that get a step.
    #[must_use]
    pub fn has_open_findings(&self) -> bool {
        self.broken_record.is_some() || self.findings.iter().any(|(_, finding)| finding.is_open())
    }

    /// The findings of one list, in order.
    pub fn findings_of(&self, kind: Kind) -> impl Iterator<Item = (&S::Key, &Finding)> {
        let findings = self.findings.iter().filter(move |(_, finding)| finding.kind() == kind);
        findings.map(|(key, finding)| (key, finding))
    }

    pub(crate) fn explain_findings(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
        for (key, finding) in self.findings_of(kind) {
            emit(Entry::Finding { key: key.to_string(), finding: finding.clone() });
        }
        if let (Kind::Failed, Some(failure)) = (kind, &self.broken_record) {
            emit(Entry::Pass { about: PassTrouble::BrokenRecord, failure: failure.clone() });
        }
    }
}

/// Puts the steps of each key behind those of the keys that they need. Keys that need each other stay behind all
/// others.
fn sort_by_needs<D: Desired>(desired: &D, steps: &mut [impl Step<D>]) {
    let mut needs: BTreeMap<D::Key, BTreeSet<D::Key>> = BTreeMap::new();
    for step in &*steps {
        let key = step.key(desired);
        step.needs(desired, &mut |need| {
            if need != key {
                needs.entry(key.clone()).or_default().insert(need);
            }
        });
    }
    if needs.is_empty() {
        return;
    }
    let planned: BTreeSet<D::Key> = steps.iter().map(|step| step.key(desired)).collect();
    for needs in needs.values_mut() {
        needs.retain(|need| planned.contains(need));
    }
    needs.retain(|_, needs| !needs.is_empty());
    let (mut ranks, mut rank) = (BTreeMap::new(), 0);
    let mut ready: BTreeSet<D::Key> = planned;
    ready.retain(|key| !needs.contains_key(key));
    while !ready.is_empty() {
        let next = needs.extract_if(.., |_, needs| {
            needs.retain(|need| !ready.contains(need));
            needs.is_empty()
        });
        let next = next.map(|(key, _)| key).collect();
        ranks.extend(std::mem::replace(&mut ready, next).into_iter().map(|key| (key, rank)));
        rank += 1;
    }
    steps.sort_by_cached_key(|step| ranks.get(&step.key(desired)).copied().unwrap_or(rank));
}

/// The objects that the target deletes along with a step, in words.
fn taken_along(taken: &[Taken]) -> Option<String> {
    const NAMED: usize = 3;
    let named = taken.iter().take(NAMED).map(|one| format!("`{}` of {}", one.key, one.owner));
    let named: Vec<_> = named.collect();
    let more = match taken.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| format!("takes along {}{more}", named.join(", ")))
}

impl<S: Source> Explain for Plan<S> {
    fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
        if kind == Kind::Change {
            for step in &self.steps {
                self.explain_step(step, &mut |line, cause| emit(Entry::Change(line, cause)));
            }
        } else {
            self.explain_findings(kind, emit);
        }
    }

    fn sample(&self, kind: Kind, sampler: &mut dyn Sampler) {
        if kind == Kind::Change {
            for step in &self.steps {
                self.sample_step(step, sampler, Entry::Change);
            }
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for step in &self.steps {
            step.count(&mut summary);
        }
        summary
    }

    fn is_converged(&self) -> bool {
        self.steps.is_empty() && !self.has_open_findings()
    }

    fn about(&self, key: &str) -> Option<About> {
        let key: S::Key = key.parse().ok()?;
        let slot = self.desired.slot(&key, None);
        let wanted = slot.map(|slot| self.desired.shown(&self.desired.object(slot)));
        Some(About { key: key.to_string(), wanted })
    }
}
