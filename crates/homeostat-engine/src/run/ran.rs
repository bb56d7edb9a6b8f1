//! What running steps left behind.

use std::ops::Range;

use homeostat_core::{Failure, Outcome, Plan, Source, Step, Tally};

/// The outcomes of a plan's steps, and what has still to be seen to.
pub(crate) struct Ran<O> {
    pub(crate) tally: Tally<O>,
    /// Applied steps whose effect the target has not told by itself.
    pub(crate) unverified: Vec<Range<usize>>,
    /// Why the journal does not tell of a step that was sent all the same.
    pub(crate) unwritten: Option<Failure>,
}

impl<O: Clone> Ran<O> {
    /// Nothing but room for the outcomes of so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        Ran { tally: Tally::new(steps), unverified: Vec::new(), unwritten: None }
    }

    /// Takes over the outcomes of steps that stand at `at` in the whole plan.
    pub(crate) fn take_over(&mut self, at: Range<usize>, part: Ran<O>) {
        for (nth, step) in at.clone().enumerate() {
            let applied = part.tally.is_applied(nth).then_some(Outcome::Applied { now: None });
            if let Some(outcome) = applied.or_else(|| part.tally.other(nth).cloned()) {
                self.tally.revise(step, outcome);
            }
        }
        for Range { start, end } in part.unverified {
            push_joined(&mut self.unverified, at.start + start..at.start + end);
        }
        self.unwritten = self.unwritten.take().or(part.unwritten);
    }

    /// Has every applied step of a plan looked at, also where the target told its effect: much may have
    /// happened since.
    pub(crate) fn distrust(&mut self, steps: usize) {
        let known = std::mem::take(&mut self.unverified);
        for at in 0..steps {
            if self.tally.is_applied(at) || known.iter().any(|range| range.contains(&at)) {
                push_joined(&mut self.unverified, at..at + 1);
            }
        }
    }

    /// The keys of the applied steps that need a second look, with the steps' numbers.
    pub(crate) fn keys<S: Source<Object = O>>(
        &self,
        plan: &Plan<S>,
    ) -> impl Iterator<Item = (S::Key, usize)> {
        let steps = self.unverified.iter().cloned().flatten();
        steps.filter_map(|at| Some((plan.steps.get(at)?.key(&plan.desired), at)))
    }
}

/// Neighbouring ranges become one, so that a million single answers stay one range.
pub(super) fn push_joined(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
