//! Runs the steps of a plan, turn by turn, and gathers their outcomes.

mod lane;
mod sink;

use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::StreamExt as _;
use homeostat_core::{Fails, Failure, Plan, Schedule, Source, Step, Tally, Turn, Work, Writer};

use self::lane::Lane;
use self::sink::Sink;
use crate::config::{Config, Fence};

/// What running a plan left behind.
pub(crate) struct Ran<O> {
    pub(crate) tally: Tally<O>,
    /// Applied steps whose effect the target has not told by itself.
    pub(crate) unverified: Vec<Range<usize>>,
    /// Why the journal does not tell of a step that was sent all the same.
    pub(crate) unwritten: Option<Failure>,
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
    let recovered = match &config.fence {
        Fence::Kept(operations) => operations.recover::<S>(writer).await,
        Fence::Absent | Fence::Volatile => BTreeSet::new(),
    };
    let sink = Sink::new(plan, config);
    if let Some(progress) = &config.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let lane = |steps| Lane { plan, writer, recovered: &recovered, sink: &sink, steps };
    let mut schedule = Schedule::<S>::new(config.strictness);
    while let Some(turn) = schedule.next(plan) {
        match turn {
            Turn::Wait { steps, on } => sink.leave(steps, on),
            Turn::Run(steps) if S::FAILS == Fails::Lanes => lane(steps).run().await,
            Turn::Run(steps) => {
                writer.apply(work(plan, steps.clone()), &sink).await;
                sink.close(steps);
            }
            Turn::Lanes(lanes) => {
                let lanes = futures_util::stream::iter(lanes);
                lanes.for_each_concurrent(config.lanes, |steps| lane(steps).run()).await;
            }
        }
        // After the last turn nothing is left to block.
        for step in sink.take_bad() {
            if !schedule.is_over(plan) {
                schedule.went_bad(plan, step);
            }
        }
    }
    if let Some(progress) = &config.progress {
        progress.end();
    }
    sink.into_ran()
}

fn work<S: Source>(plan: &Plan<S>, steps: Range<usize>) -> Work<'_, S> {
    let first = steps.start;
    let steps = plan.steps.get(steps).unwrap_or_default();
    Work { wish: &plan.wish, moment: &plan.moment, first, steps }
}
