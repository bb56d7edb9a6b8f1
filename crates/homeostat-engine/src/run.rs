//! Runs the steps of a plan, turn by turn, and gathers their outcomes.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use homeostat_core::outcome::Later;
use homeostat_core::{
    Action, Agreement, Desired, Failure, Outcome, Outcomes, Plan, Retry, Schedule, Source, Step,
    Tally, Turn, Work, Writer,
};

use crate::config::{Config, Journal, Progress};

/// What running a plan left behind.
pub(crate) struct Ran<O> {
    pub(crate) tally: Tally<O>,
    /// Applied steps whose effect the target has not told by itself.
    pub(crate) unverified: Vec<Range<usize>>,
}

impl<O> Ran<O> {
    /// The keys of the applied steps that need a second look, with the steps' numbers.
    pub(crate) fn keys<S: Source<Object = O>>(
        &self,
        plan: &Plan<S>,
    ) -> impl Iterator<Item = (S::Key, usize)> {
        let steps = self.unverified.iter().cloned().flatten();
        steps.filter_map(|at| Some((plan.steps.get(at)?.key(&plan.wish), at)))
    }
}

/// Runs every step that may run.
pub(crate) async fn run<S: Source>(
    plan: &Plan<S>,
    writer: &S::Writer,
    config: &Config<S::Key>,
) -> Ran<S::Object> {
    let sink = Sink::new(plan, config);
    if let Some(progress) = sink.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let mut schedule = Schedule::<S>::new(config.strictness);
    while let Some(turn) = schedule.next(plan) {
        match turn {
            Turn::Wait { steps, on } => sink.put(steps, Outcome::Pending { on }),
            Turn::Run(steps) => {
                writer.apply(work(plan, steps.clone()), &sink).await;
                sink.close(steps);
            }
            Turn::Lanes(lanes) => {
                let lanes = futures_util::stream::iter(lanes);
                let sink = &sink;
                lanes
                    .for_each_concurrent(config.lanes, |lane| run_lane(plan, writer, lane, sink))
                    .await;
            }
        }
        // After the last turn nothing is left to block.
        for step in sink.take_bad() {
            if !schedule.is_over(plan) {
                schedule.went_bad(plan, step);
            }
        }
    }
    if let Some(progress) = sink.progress {
        progress.end();
    }
    let state = sink.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ran { tally: state.tally, unverified: state.unverified }
}

/// One key's steps, one after the other; a bad one stops the rest.
async fn run_lane<S: Source>(
    plan: &Plan<S>,
    writer: &S::Writer,
    lane: Range<usize>,
    sink: &Sink<'_, S>,
) {
    for at in lane.clone() {
        writer.apply(work(plan, at..at + 1), sink).await;
        sink.close(at..at + 1);
        if !sink.state().tally.is_good(at) && at + 1 < lane.end {
            let key = plan.steps.get(at).map(|step| step.key(&plan.wish).to_string());
            let on = format!("an earlier step of `{}`", key.unwrap_or_default());
            sink.put(at + 1..lane.end, Outcome::Pending { on });
            return;
        }
    }
}

fn work<S: Source>(plan: &Plan<S>, steps: Range<usize>) -> Work<'_, S> {
    let first = steps.start;
    let steps = plan.steps.get(steps).unwrap_or_default();
    Work { wish: &plan.wish, moment: &plan.moment, first, steps }
}

/// Takes outcomes as they happen.
struct Sink<'a, S: Source> {
    plan: &'a Plan<S>,
    journal: Journal,
    progress: Option<&'a dyn Progress>,
    state: Mutex<State<S::Object>>,
}

struct State<O> {
    tally: Tally<O>,
    unverified: Vec<Range<usize>>,
    bad: Vec<usize>,
}

impl<'a, S: Source> Sink<'a, S> {
    fn new(plan: &'a Plan<S>, config: &'a Config<S::Key>) -> Self {
        let (journal, progress) = (config.journal, config.progress.as_deref());
        let state =
            State { tally: Tally::new(plan.steps.len()), unverified: Vec::new(), bad: Vec::new() };
        Sink { plan, journal, progress, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<S::Object>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write that must not be sent twice is not sent without a journal, unless that was said.
    fn leave(&self) -> Result<(), Failure> {
        match self.journal {
            Journal::Volatile => Ok(()),
            Journal::Absent => {
                let error = "no journal is kept, and this write must not be sent twice";
                Err(Failure::new(error, Retry::Never))
            }
        }
    }

    fn take_bad(&self) -> Vec<usize> {
        std::mem::take(&mut self.state().bad)
    }

    /// A step that nobody answered for blocks what needs it, as any other unknown one.
    fn close(&self, steps: Range<usize>) {
        let state = self.state();
        let open: Vec<_> = steps.filter(|step| state.tally.is_open(*step)).collect();
        drop(state);
        for step in open {
            self.put(step..step + 1, Outcome::unanswered(S::NAME));
        }
    }

    /// Whether the target's own answer already shows that the wish is fulfilled.
    fn is_verified(&self, at: usize, now: Option<&S::Object>) -> bool {
        let Some(step) = self.plan.steps.get(at) else { return false };
        match (now, step.action()) {
            (Some(now), Action::Create | Action::Update | Action::Replace) => {
                let slot = self.plan.slot_of(step);
                slot.is_some_and(|slot| self.plan.wish.compare(slot, now) == Agreement::Agrees)
            }
            _ => false,
        }
    }
}

impl<S: Source> Outcomes<S::Object> for Sink<'_, S> {
    fn put(&self, steps: Range<usize>, outcome: Outcome<S::Object>) {
        if let Some(progress) = self.progress {
            progress.advance(steps.len());
        }
        let mut state = self.state();
        match &outcome {
            Outcome::Applied { now } => {
                let verified = steps.len() == 1 && self.is_verified(steps.start, now.as_ref());
                if !verified {
                    push_joined(&mut state.unverified, steps.clone());
                }
            }
            Outcome::Settled { .. } => {}
            // Written or not: the second look may tell.
            Outcome::Unknown { .. } => {
                push_joined(&mut state.unverified, steps.clone());
                state.bad.extend(steps.clone());
            }
            _ => state.bad.extend(steps.clone()),
        }
        state.tally.put(steps, &outcome);
    }

    fn intent(&self, _step: usize) -> Later<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(self.leave()))
    }

    fn dispatched<'a>(&'a self, _step: usize, _task: &'a str) -> Later<'a, Result<(), Failure>> {
        Box::pin(std::future::ready(self.leave()))
    }
}

/// Neighbouring ranges become one, so that a million single answers stay one range.
fn push_joined(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
