//! Lanes that a pass does not wait for: they are detached, go on by themselves, and are concluded when they have ended.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::outcome::Later;
use homeostat_core::{
    Batch, Fails, Pending, Plan, Schedule, Source, Step, Strictness, WaitsOn, Writer,
};
use tokio::time::timeout;

use super::lane::Lane;
use super::ran::Ran;
use super::sink::Sink;
use crate::config::{Config, Progress};
use crate::dispatch::DispatchGuard;
use crate::fate::Prior;
use crate::operations::LaneGuard;

/// How long a pass of a loop waits for its lanes. Those that take longer are detached.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lane that goes on without the pass that began it.
pub(crate) struct DetachedLane<S: Source> {
    /// The key, which nobody else writes to meanwhile.
    pub(crate) key: S::Key,
    /// The record that stood before its steps were announced.
    pub(crate) prior: Prior<S>,
    /// Its place among the lanes of its pass.
    nth: usize,
    lane: Later<'static, EndedLane<S>>,
}

/// A lane that has ended, and what became of its steps.
pub(crate) struct EndedLane<S: Source> {
    /// Its steps alone.
    pub(crate) plan: Plan<S>,
    pub(crate) ran: Ran<S::Object>,
    /// The key is written to by nobody until this is let go.
    pub(crate) lane: Option<LaneGuard<S::Key>>,
    nth: usize,
}

impl<S: Source> fmt::Debug for DetachedLane<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedLane").field("key", &self.key).finish_non_exhaustive()
    }
}

// Nothing in it is pinned but what is behind a pointer.
impl<S: Source> Unpin for DetachedLane<S> {}

impl<S: Source> Future for DetachedLane<S> {
    type Output = EndedLane<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<EndedLane<S>> {
        let nth = self.nth;
        self.lane.as_mut().poll(context).map(|ended| EndedLane { nth, ..ended })
    }
}

/// Whether lanes may go on after their pass: nobody else gets at their keys.
pub(crate) fn may_detach<S: Source>(config: &Config<S::Key>) -> bool {
    let is_lenient = config.strictness == Strictness::Lenient;
    S::FAILS == Fails::Lanes && is_lenient && config.dispatch.operations().is_some()
}

/// Runs every lane that may run, and waits a little. The plan keeps the steps whose lanes have ended; the keys of the
/// others are pending.
pub(crate) async fn run_detaching<S: Source>(
    plan: &mut Plan<S>,
    writer: &Arc<S::Writer>,
    config: &Config<S::Key>,
) -> (Ran<S::Object>, Vec<DetachedLane<S>>) {
    let doubted = config.dispatch.begin_pass(writer.tasks()).await;
    if let Some(progress) = &config.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let (mut lanes, mut ended) = (depart(plan, writer, config, &doubted), Vec::new());
    let all = async {
        while let Some(one) = lanes.next().await {
            // The next pass need not wait for the slowest lane of this one.
            ended.push(EndedLane { lane: None, ..one });
        }
    };
    // The loop concludes the others when they have ended.
    let _ = timeout(PATIENCE, all).await;
    if let Some(progress) = &config.progress {
        progress.end();
    }
    let detached: Vec<DetachedLane<S>> = lanes.into_iter().collect();
    for DetachedLane { key, .. } in &detached {
        plan.pending.push(Pending { key: key.clone(), on: WaitsOn::Answer });
    }
    ended.sort_by_key(|ended| ended.nth);
    (join(plan, ended), detached)
}

/// Takes the steps out of the plan, and begins to work on them.
fn depart<S: Source>(
    plan: &mut Plan<S>,
    writer: &Arc<S::Writer>,
    config: &Config<S::Key>,
    doubted: &BTreeSet<S::Key>,
) -> FuturesUnordered<DetachedLane<S>> {
    let lanes = FuturesUnordered::new();
    let Some(Batch::Lanes(ranges)) = Schedule::<S>::new(config.strictness).next(plan) else {
        return lanes;
    };
    // Taken out from the last to the first, so that the numbers of the others stay true.
    let parts: Vec<Plan<S>> = ranges.into_iter().rev().map(|steps| plan.part(steps)).collect();
    for (nth, part) in parts.into_iter().rev().enumerate() {
        let Some(key) = part.steps.first().map(|step| step.key(&part.desired)) else { continue };
        let doubted = doubted.get(&key).cloned().into_iter().collect();
        let (dispatch, progress) = (config.dispatch.clone(), config.progress.clone());
        let lane = Box::pin(go_on(part, Arc::clone(writer), doubted, dispatch, progress));
        lanes.push(DetachedLane { key, prior: Prior::<S>::new(), nth, lane });
    }
    lanes
}

async fn go_on<S: Source>(
    plan: Plan<S>,
    writer: Arc<S::Writer>,
    doubted: BTreeSet<S::Key>,
    dispatch: DispatchGuard<S::Key>,
    progress: Option<Arc<dyn Progress>>,
) -> EndedLane<S> {
    let sink = Sink::new(&plan, &dispatch, progress.as_deref());
    let steps = 0..plan.steps.len();
    let lane = Lane { plan: &plan, writer: &*writer, doubted: &doubted, sink: &sink, steps };
    let lane = lane.run().await;
    let ran = sink.into_ran();
    EndedLane { plan, ran, lane, nth: 0 }
}

/// Puts steps and outcomes of ended lanes together, behind the steps that the plan has.
pub(crate) fn join<S: Source>(plan: &mut Plan<S>, ended: Vec<EndedLane<S>>) -> Ran<S::Object> {
    let steps = ended.iter().map(|ended| ended.plan.steps.len()).sum();
    let mut ran = Ran::new(steps);
    for EndedLane { plan: part, ran: outcomes, .. } in ended {
        let from = plan.steps.len();
        plan.steps.extend(part.steps);
        ran.take_over(from..plan.steps.len(), outcomes);
    }
    ran
}
