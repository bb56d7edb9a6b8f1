//! Which steps may run next, and which must wait: law 9 as a pure state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::explain::Action;
use crate::plan::{Plan, Step};
use crate::source::{Fails, Source};
use crate::waits_on::WaitsOn;

/// Whether a failure stops everything after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// What does not depend on the failed step goes on.
    #[default]
    Lenient,
    /// Nothing is started after the first failure. Steps run one at a time, so that "first" has a
    /// meaning.
    Strict,
}

/// What the engine does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Batch {
    /// Run these steps in one call.
    Run(Range<usize>),
    /// Run these lanes, each in one call, side by side.
    Lanes(Vec<Range<usize>>),
    /// Leave these steps undone.
    Wait { steps: Range<usize>, on: WaitsOn },
}

/// The order of one plan's steps under failures. The engine reports each bad step before it asks
/// for the next turn.
pub struct Schedule<S: Source> {
    strictness: Strictness,
    next: usize,
    bad_keys: BTreeSet<S::Key>,
    bad_groups: BTreeMap<String, String>,
    first_bad: Option<String>,
}

impl<S: Source> Schedule<S> {
    /// A schedule that has run nothing.
    #[must_use]
    pub fn new(strictness: Strictness) -> Self {
        Schedule {
            strictness,
            next: 0,
            bad_keys: BTreeSet::new(),
            bad_groups: BTreeMap::new(),
            first_bad: None,
        }
    }

    /// A step of the plan was not applied, whatever the reason.
    pub fn went_bad(&mut self, plan: &Plan<S>, step: usize) {
        let Some(step) = plan.steps.get(step) else { return };
        let key = step.key(&plan.desired);
        let text = key.to_string();
        self.first_bad.get_or_insert_with(|| text.clone());
        if let Some(group) = step.group(&plan.desired).filter(|_| step.action() != Action::Delete) {
            self.bad_groups.insert(group, text);
        }
        self.bad_keys.insert(key);
    }

    /// Whether every step had its turn, so that nothing can be blocked any more.
    #[must_use]
    pub fn is_over(&self, plan: &Plan<S>) -> bool {
        self.next >= plan.steps.len()
    }

    /// The next turn, until every step had one.
    pub fn next(&mut self, plan: &Plan<S>) -> Option<Batch> {
        let from = self.next;
        if from >= plan.steps.len() {
            return None;
        }
        let turn = match (&self.first_bad, self.strictness, S::FAILS) {
            (Some(bad), Strictness::Strict, _) => {
                let on = WaitsOn::FailedInStrictMode(bad.clone());
                Batch::Wait { steps: from..plan.steps.len(), on }
            }
            (_, _, Fails::Atomic) => Batch::Run(from..plan.steps.len()),
            (_, Strictness::Strict, _) => self.one(plan, from),
            (_, _, Fails::Independent) => Batch::Run(from..plan.steps.len()),
            (_, _, Fails::Lanes) => Batch::Lanes(lanes(plan)),
            (_, _, Fails::Ordered) => self.in_phase(plan, from),
        };
        self.next = turn.end();
        Some(turn)
    }

    fn one(&self, plan: &Plan<S>, at: usize) -> Batch {
        match self.blocker(plan, at) {
            Some(key) => Batch::Wait { steps: at..at + 1, on: WaitsOn::Key(key) },
            None => Batch::Run(at..at + 1),
        }
    }

    /// The longest run of steps of one phase that nothing blocks, or one that must wait. Looks at
    /// no step that it leaves to a later turn but the first, so that all turns are one sweep.
    fn in_phase(&self, plan: &Plan<S>, from: usize) -> Batch {
        let phase = plan.steps.get(from).map(Step::phase);
        let rest = plan.steps.iter().enumerate().skip(from + 1);
        let more = rest.take_while(|(at, step)| {
            Some(step.phase()) == phase && self.blocker(plan, *at).is_none()
        });
        match self.one(plan, from) {
            Batch::Run(first) => Batch::Run(from..first.end + more.count()),
            wait => wait,
        }
    }

    fn blocker(&self, plan: &Plan<S>, at: usize) -> Option<String> {
        if self.bad_keys.is_empty() {
            return None;
        }
        let step = plan.steps.get(at)?;
        let mut blocker = None;
        step.needs(&plan.desired, &mut |key| {
            if self.bad_keys.contains(&key) {
                blocker.get_or_insert_with(|| key.to_string());
            }
        });
        if blocker.is_none() && step.action() == Action::Delete {
            let group = step.group(&plan.desired);
            blocker = group.and_then(|group| self.bad_groups.get(&group).cloned());
        }
        blocker
    }
}

impl Batch {
    fn end(&self) -> usize {
        match self {
            Batch::Run(steps) | Batch::Wait { steps, .. } => steps.end,
            Batch::Lanes(lanes) => lanes.last().map_or(0, |lane| lane.end),
        }
    }
}

/// Steps of one key stand together in the plan of a source with lanes.
fn lanes<S: Source>(plan: &Plan<S>) -> Vec<Range<usize>> {
    let mut lanes: Vec<Range<usize>> = Vec::new();
    let mut last_key = None;
    for (at, step) in plan.steps.iter().enumerate() {
        let key = step.key(&plan.desired);
        match lanes.last_mut().filter(|_| last_key.as_ref() == Some(&key)) {
            Some(lane) => lane.end = at + 1,
            None => lanes.push(at..at + 1),
        }
        last_key = Some(key);
    }
    lanes
}
