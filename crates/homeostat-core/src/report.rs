//! The result of a pass: the plan and the outcomes of its steps.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bits::Bits;
use crate::desired::Desired as _;
use crate::explain::{Entry, Explain, PassTrouble, Sampler, Summary};
use crate::finding::{Finding, Kind};
use crate::outcome::{Failure, Outcome};
use crate::plan::{Plan, Step};
use crate::source::Source;

/// The outcomes of a plan's steps; a million good ones cost a bit each.
#[derive(Debug)]
pub struct Tally<O> {
    good: Bits,
    other: BTreeMap<usize, Outcome<O>>,
}

impl<O: Clone> Tally<O> {
    /// Room for the outcomes of `steps` steps.
    #[must_use]
    pub fn new(steps: usize) -> Self {
        Tally { good: Bits::new(steps), other: BTreeMap::new() }
    }

    /// Records the outcome of some steps. The first word on a step stands, but for a later verdict
    /// by [`Tally::revise`].
    pub fn put(&mut self, steps: Range<usize>, outcome: &Outcome<O>) {
        let end = steps.end.min(self.good.capacity());
        for step in steps.start..end {
            if self.is_open(step) {
                self.revise(step, outcome.clone());
            }
        }
    }

    /// Replaces the outcome of a step: a second look knows better.
    pub fn revise(&mut self, step: usize, outcome: Outcome<O>) {
        if step >= self.good.capacity() {
            return;
        }
        if let Outcome::Applied { .. } = outcome {
            self.good.insert(step);
            self.other.remove(&step);
        } else {
            self.good.remove(step);
            self.other.insert(step, outcome);
        }
    }

    /// Whether the step has no answer.
    #[must_use]
    pub fn is_open(&self, step: usize) -> bool {
        !self.is_applied(step) && !self.other.contains_key(&step)
    }

    /// Whether the step was applied.
    #[must_use]
    pub fn is_applied(&self, step: usize) -> bool {
        self.good.contains(step)
    }

    /// Whether the step changed the target, settled ones included.
    #[must_use]
    pub fn is_good(&self, step: usize) -> bool {
        self.is_applied(step) || self.other.get(&step).is_some_and(Outcome::is_good)
    }

    /// The outcome of a step that was not simply applied.
    #[must_use]
    pub fn other(&self, step: usize) -> Option<&Outcome<O>> {
        self.other.get(&step)
    }

    /// All outcomes that are not simply "applied", by step.
    pub fn others(&self) -> impl Iterator<Item = (usize, &Outcome<O>)> {
        self.other.iter().map(|(step, outcome)| (*step, outcome))
    }
}

/// A plan and the outcomes of its steps.
pub struct Report<S: Source> {
    plan: Plan<S>,
    tally: Tally<S::Object>,
    /// What could not be written, and why.
    unrecorded: Option<(PassTrouble, Failure)>,
}

impl<S: Source> Report<S> {
    /// Joins a plan with its outcomes. A step without an answer is unknown: law 4 was broken.
    #[must_use]
    pub fn new(plan: Plan<S>, mut tally: Tally<S::Object>) -> Self {
        for step in 0..plan.steps.len() {
            if tally.is_open(step) {
                tally.revise(step, Outcome::unanswered(S::NAME));
            }
        }
        Report { plan, tally, unrecorded: None }
    }

    /// Adds that outcomes could not be recorded, and where: the target was written all the same.
    #[must_use]
    pub fn unrecorded(mut self, place: PassTrouble, failure: Failure) -> Self {
        self.unrecorded = Some((place, failure));
        self
    }

    /// Why the outcomes could not be recorded, if so.
    #[must_use]
    pub fn unrecorded_failure(&self) -> Option<&Failure> {
        self.unrecorded.as_ref().map(|(_, failure)| failure)
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan<S> {
        &self.plan
    }

    /// The outcomes.
    #[must_use]
    pub fn tally(&self) -> &Tally<S::Object> {
        &self.tally
    }

    fn good_steps(&self) -> impl Iterator<Item = &S::Step> {
        let steps = self.plan.steps.iter().enumerate();
        steps.filter(|(at, _)| self.tally.is_good(*at)).map(|(_, step)| step)
    }

    /// The steps that were not simply applied: key and finding.
    pub fn step_findings(&self) -> impl Iterator<Item = (S::Key, Finding)> {
        let Plan { steps, desired, .. } = &self.plan;
        self.tally.others().filter_map(|(at, outcome)| {
            let step = steps.get(at)?;
            let settled = |held: &S::Object| {
                let wanted = desired.object(self.plan.slot_of(step)?);
                Some(Finding::settled(&**desired, &wanted, held))
            };
            Some((step.key(desired), outcome.finding(step.action(), settled)?))
        })
    }
}

impl<S: Source> Explain for Report<S> {
    fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
        match kind {
            Kind::Change => {}
            Kind::Applied => self.good_steps().for_each(|step| {
                self.plan.explain_step(step, &mut |line, cause| emit(Entry::Applied(line, cause)));
            }),
            _ => {
                self.plan.explain_findings(kind, emit);
                let from_steps = self.step_findings().filter(|(_, finding)| finding.kind() == kind);
                from_steps.for_each(|(key, finding)| {
                    emit(Entry::Finding { key: key.to_string(), finding });
                });
                let unrecorded = self.unrecorded.clone().filter(|_| kind == Kind::Failed);
                if let Some((about, failure)) = unrecorded {
                    emit(Entry::Pass { about, failure });
                }
            }
        }
    }

    fn sample(&self, kind: Kind, sampler: &mut dyn Sampler) {
        if kind == Kind::Applied {
            for step in self.good_steps() {
                self.plan.sample_step(step, sampler, Entry::Applied);
            }
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        self.good_steps().for_each(|step| step.count(&mut summary));
        summary
    }

    fn is_converged(&self) -> bool {
        self.unrecorded.is_none()
            && !self.plan.has_open_findings()
            && self.tally.others().all(|(_, outcome)| outcome.is_good())
    }
}
