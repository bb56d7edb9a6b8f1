//! Runs the steps of a plan, turn by turn, and gathers their outcomes.

mod detached;
mod lane;
mod ran;
mod sink;

use std::ops::Range;

use futures_util::StreamExt as _;
use homeostat_core::{Batch, Fails, Plan, Schedule, Source, Work, Writer};

pub(crate) use self::detached::{DetachedLane, EndedLane, join, may_detach, run_detaching};
use self::lane::Lane;
pub(crate) use self::ran::Ran;
use self::sink::Sink;
use crate::config::Config;

/// Runs every step that may run, and waits for all of them.
pub(crate) async fn run<S: Source>(
    plan: &Plan<S>,
    writer: &S::Writer,
    config: &Config<S::Key>,
) -> Ran<S::Object> {
    let doubted = config.dispatch.begin_pass(writer.tasks()).await;
    let sink = Sink::new(plan, &config.dispatch, config.progress.as_deref());
    if let Some(progress) = &config.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let lane = |steps| Lane { plan, writer, doubted: &doubted, sink: &sink, steps };
    let mut schedule = Schedule::<S>::new(config.strictness);
    while let Some(turn) = schedule.next(plan) {
        match turn {
            Batch::Wait { steps, on } => sink.leave(steps, on),
            Batch::Run(steps) if S::FAILS == Fails::Lanes => _ = lane(steps).run().await,
            Batch::Run(steps) => {
                writer.apply(work(plan, steps.clone()), &sink).await;
                sink.close(steps);
            }
            Batch::Lanes(lanes) => {
                let lanes = futures_util::stream::iter(lanes);
                let run = async |steps| drop(lane(steps).run().await);
                lanes.for_each_concurrent(config.lanes, run).await;
            }
        }
        // After the last turn nothing is left to block.
        for step in sink.take_bad() {
            if !schedule.is_over(plan) {
                schedule.went_bad(plan, step);
            }
        }
    }
    config.dispatch.answered(&doubted).await;
    if let Some(progress) = &config.progress {
        progress.end();
    }
    sink.into_ran()
}

fn work<S: Source>(plan: &Plan<S>, steps: Range<usize>) -> Work<'_, S> {
    let first = steps.start;
    let steps = plan.steps.get(steps).unwrap_or_default();
    Work { desired: &plan.desired, moment: &plan.moment, first, steps }
}
