//! Lanes that a pass does not wait for: they go on aside, and are seen to when they have ended.

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
use homeostat_core::{Fails, Pending, Plan, Schedule, Source, Step, Strictness, Turn};
use tokio::time::timeout;

use super::lane::Lane;
use super::ran::Ran;
use super::sink::Sink;
use crate::config::{Config, Fence, Progress};
use crate::fate::Prior;
use crate::operations::{Held, Operations};

/// How long a pass of a loop waits for its lanes. One that takes longer has a straggler, whose end is as
/// good later.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lane that goes on without the pass that began it.
pub(crate) struct Straggler<S: Source> {
    /// The key, which nobody else writes to meanwhile.
    pub(crate) key: S::Key,
    /// The record that stood before its steps were announced.
    pub(crate) prior: Prior<S>,
    /// Its place among the lanes of its pass.
    nth: usize,
    lane: Later<'static, Ended<S>>,
}

/// A lane that has ended, and what became of its steps.
pub(crate) struct Ended<S: Source> {
    /// Its steps alone.
    pub(crate) plan: Plan<S>,
    pub(crate) ran: Ran<S::Object>,
    /// The key is written to by nobody until this is let go.
    pub(crate) held: Option<Held<S::Key>>,
    nth: usize,
}

impl<S: Source> fmt::Debug for Straggler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Straggler").field("key", &self.key).finish_non_exhaustive()
    }
}

// Nothing in it is pinned but what is behind a pointer.
impl<S: Source> Unpin for Straggler<S> {}

impl<S: Source> Future for Straggler<S> {
    type Output = Ended<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended<S>> {
        let nth = self.nth;
        self.lane.as_mut().poll(context).map(|ended| Ended { nth, ..ended })
    }
}

/// The operations by which lanes may go on alone: nobody else gets at their keys.
pub(crate) fn may_straggle<S: Source>(config: &Config<S::Key>) -> Option<&Operations<S::Key>> {
    match &config.fence {
        Fence::Kept(operations)
            if S::FAILS == Fails::Lanes && config.strictness == Strictness::Lenient =>
        {
            Some(operations)
        }
        _ => None,
    }
}

/// Runs every lane that may run, and waits a little. The plan keeps the steps whose lanes have ended; those
/// of the others are told as pending.
pub(crate) async fn run_promptly<S: Source>(
    plan: &mut Plan<S>,
    writer: &Arc<S::Writer>,
    (config, operations): (&Config<S::Key>, &Operations<S::Key>),
) -> (Ran<S::Object>, Vec<Straggler<S>>) {
    let doubted = operations.ask::<S>(writer).await;
    if let Some(progress) = &config.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let (mut lanes, mut ended) = (depart(plan, writer, (config, &doubted)), Vec::new());
    let all = async {
        while let Some(one) = lanes.next().await {
            // The next one need not wait for the slowest lane of this pass.
            ended.push(Ended { held: None, ..one });
        }
        operations.answered(&doubted).await;
    };
    // Whoever is late is met again.
    let _ = timeout(PATIENCE, all).await;
    operations.act_on_answers::<S>(writer).await;
    operations.leave_doubts();
    if let Some(progress) = &config.progress {
        progress.end();
    }
    let late: Vec<Straggler<S>> = lanes.into_iter().collect();
    for Straggler { key, .. } in &late {
        plan.pending.push(Pending { key: key.clone(), on: LATE.to_owned() });
    }
    ended.sort_by_key(|ended| ended.nth);
    (join(plan, ended), late)
}

/// What a wish waits on whose lane has not ended.
const LATE: &str = "an answer to what it was sent";

/// Takes the steps out of the plan, and begins to work on them.
fn depart<S: Source>(
    plan: &mut Plan<S>,
    writer: &Arc<S::Writer>,
    (config, doubted): (&Config<S::Key>, &BTreeSet<S::Key>),
) -> FuturesUnordered<Straggler<S>> {
    let lanes = FuturesUnordered::new();
    let Some(Turn::Lanes(ranges)) = Schedule::<S>::new(config.strictness).next(plan) else {
        return lanes;
    };
    // Taken out from the last to the first, so that the numbers of the others stay true.
    let parts: Vec<Plan<S>> = ranges.into_iter().rev().map(|steps| plan.part(steps)).collect();
    for (nth, part) in parts.into_iter().rev().enumerate() {
        let Some(key) = part.steps.first().map(|step| step.key(&part.wish)) else { continue };
        let doubted = doubted.get(&key).cloned().into_iter().collect();
        let told = (config.fence.clone(), config.progress.clone());
        let lane = Box::pin(go_on(part, Arc::clone(writer), (told, doubted)));
        lanes.push(Straggler { key, prior: Prior::<S>::new(), nth, lane });
    }
    lanes
}

/// Who is told what becomes of the steps.
type Told<K> = (Fence<K>, Option<Arc<dyn Progress>>);

async fn go_on<S: Source>(
    plan: Plan<S>,
    writer: Arc<S::Writer>,
    ((fence, progress), doubted): (Told<S::Key>, BTreeSet<S::Key>),
) -> Ended<S> {
    let sink = Sink::new(&plan, &fence, progress.as_deref());
    let steps = 0..plan.steps.len();
    let lane = Lane { plan: &plan, writer: &*writer, doubted: &doubted, sink: &sink, steps };
    let held = lane.run().await;
    let ran = sink.into_ran();
    Ended { plan, ran, held, nth: 0 }
}

/// Puts steps and outcomes of ended lanes together, behind the steps that the plan has.
pub(crate) fn join<S: Source>(plan: &mut Plan<S>, ended: Vec<Ended<S>>) -> Ran<S::Object> {
    let steps = ended.iter().map(|ended| ended.plan.steps.len()).sum();
    let mut ran = Ran::new(steps);
    for Ended { plan: part, ran: outcomes, .. } in ended {
        let from = plan.steps.len();
        plan.steps.extend(part.steps);
        ran.take_over(from..plan.steps.len(), outcomes);
    }
    ran
}
