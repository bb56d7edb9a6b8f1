//! Runs the steps of a plan, batch by batch, and gathers their outcomes. Start at [`run`].

mod sink;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::operation::Unended;
use homeostat_core::outcome::Later;
use homeostat_core::{
    Batch, Fails, Failure, Outcome, Plan, Schedule, Source, Step, Strictness, Tally, TaskEnd,
    WaitsOn, Work, Writer,
};
use tokio::time::timeout;

use self::sink::Sink;
use crate::config::Config;
use crate::ledger_page::PriorRecords;
use crate::operations::{LaneGuard, Operations};

/// How long a pass of a loop waits for its lanes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A writer that lanes can share: by reference, or by `Arc` where they may be detached.
pub(crate) trait WriterHandle<'a, S: Source>:
    Deref<Target = S::Writer> + Clone + Send + Sync + 'a
{
}

impl<'a, S: Source, W: Deref<Target = S::Writer> + Clone + Send + Sync + 'a> WriterHandle<'a, S>
    for W
{
}

/// Which lanes a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneWait {
    /// All of them, however long they take.
    All,
    /// Those that end within [`PATIENCE`]; the others are detached, if nothing else can write to their keys.
    Patience,
}

/// The outcomes of a plan's steps.
pub(crate) struct StepResults<O> {
    pub(crate) tally: Tally<O>,
    /// Applied steps whose effect the target has not confirmed by itself.
    pub(crate) unverified: Vec<Range<usize>>,
    /// Why the journal does not know of a step that was sent all the same.
    pub(crate) unwritten: Option<Failure>,
}

/// The lane of one key. If its pass does not wait for it, it goes on without.
pub(crate) struct DetachedLane<'a, S: Source> {
    /// Nothing else writes to this key meanwhile.
    pub(crate) key: S::Key,
    /// The record that stood before its steps were announced.
    pub(crate) prior: PriorRecords<S>,
    lane: Later<'a, EndedLane<S>>,
}

/// A lane that has ended, with its steps alone.
pub(crate) struct EndedLane<S: Source> {
    pub(crate) plan: Plan<S>,
    pub(crate) results: StepResults<S::Object>,
    /// Nothing writes to the key until this is dropped.
    pub(crate) lane: Option<LaneGuard<S::Key>>,
}

/// Runs every step that may run. Steps of lanes that are detached leave the plan, and their keys are pending in it.
pub(crate) async fn run<'a, S: Source, W: WriterHandle<'a, S>>(
    plan: &mut Plan<S>,
    writer: &W,
    config: &Config<S::Key>,
    wait: LaneWait,
) -> (StepResults<S::Object>, Vec<DetachedLane<'a, S>>) {
    let doubted = config.dispatch.begin_pass(writer.tasks()).await;
    if let Some(progress) = &config.progress {
        progress.begin(S::NAME, plan.steps.len());
    }
    let finished = if S::FAILS == Fails::Lanes && config.strictness == Strictness::Lenient {
        run_lanes(plan, writer, config, &doubted, wait).await
    } else {
        (run_batches(plan, &**writer, config, &doubted).await, Vec::new())
    };
    if wait == LaneWait::All {
        config.dispatch.answered(&doubted).await;
    }
    if let Some(progress) = &config.progress {
        progress.end();
    }
    finished
}

async fn run_batches<S: Source>(
    plan: &Plan<S>,
    writer: &S::Writer,
    config: &Config<S::Key>,
    doubted: &BTreeSet<S::Key>,
) -> StepResults<S::Object> {
    let sink = Sink::new(plan, &config.dispatch, config.progress.as_deref());
    let run_lane = |steps| run_lane(plan, writer, doubted, &sink, steps);
    let mut schedule = Schedule::<S>::new(config.strictness);
    while let Some(batch) = schedule.next(plan) {
        match batch {
            Batch::Wait { steps, on } => sink.leave(steps, on),
            Batch::Run(steps) if S::FAILS == Fails::Lanes => _ = run_lane(steps).await,
            Batch::Run(steps) => {
                writer.apply(work(plan, steps.clone()), &sink).await;
                sink.close(steps);
            }
            Batch::Lanes(lanes) => {
                for steps in lanes {
                    run_lane(steps).await;
                }
            }
        }
        // After the last batch nothing is left to block.
        for step in sink.take_bad() {
            if !schedule.is_over(plan) {
                schedule.went_bad(plan, step);
            }
        }
    }
    sink.into_results()
}

/// Runs the lanes side by side: as many as the operations of the loop allow, else as many as the config says. A lane
/// starts when the lanes that it needs have ended well.
async fn run_lanes<'a, S: Source, W: WriterHandle<'a, S>>(
    plan: &mut Plan<S>,
    writer: &W,
    config: &Config<S::Key>,
    doubted: &BTreeSet<S::Key>,
    wait: LaneWait,
) -> (StepResults<S::Object>, Vec<DetachedLane<'a, S>>) {
    let has_operations = config.dispatch.operations().is_some();
    let limit = if has_operations || config.lanes == 0 { usize::MAX } else { config.lanes };
    let mut queue = LaneQueue::new(split_lanes(plan, config.strictness));
    let mut ended: Vec<EndedLane<S>> = Vec::new();
    if queue.has_needs() {
        let open = plan.findings.iter().filter(|(_, finding)| finding.is_open());
        for (key, _) in open {
            ended.extend(leave(queue.block(key), config));
        }
    }
    let mut running: FuturesUnordered<DetachedLane<'a, S>> = FuturesUnordered::new();
    let all = async {
        loop {
            let room = limit.saturating_sub(running.len()).min(queue.ready.len());
            let started = queue.ready.drain(..room);
            running.extend(started.map(|lane| lane.start(writer, config, doubted)));
            let Some(one) = running.next().await else { break };
            match one.key() {
                Some(key) if one.is_good() => queue.met(&key),
                Some(key) => ended.extend(leave(queue.block(&key), config)),
                None => {}
            }
            // The next pass need not wait for the slowest lane of this one.
            ended.push(EndedLane { lane: None, ..one });
        }
    };
    if has_operations && wait == LaneWait::Patience {
        // The loop concludes the others when they have ended.
        let _ = timeout(PATIENCE, all).await;
    } else {
        all.await;
    }
    let detached: Vec<DetachedLane<'a, S>> = running.into_iter().collect();
    for DetachedLane { key, .. } in &detached {
        plan.wait(key.clone(), WaitsOn::Answer);
    }
    // They wait for lanes that were detached, or for each other.
    for lane in queue.into_rest() {
        let need = lane.needs.first().cloned().unwrap_or_else(|| lane.key.clone());
        ended.push(lane.leave(&need, config));
    }
    ended.sort_by_cached_key(EndedLane::key);
    (join(plan, ended), detached)
}

/// The steps of one key that have not been started.
struct WaitingLane<S: Source> {
    key: S::Key,
    plan: Plan<S>,
    /// The keys whose lanes come first.
    needs: BTreeSet<S::Key>,
}

/// The lanes that have not been started. Each is handed out once the lanes that it needs have ended well.
struct LaneQueue<S: Source> {
    /// May start now.
    ready: VecDeque<WaitingLane<S>>,
    waiting: BTreeMap<S::Key, WaitingLane<S>>,
    /// Which waiting lanes need a key.
    users: BTreeMap<S::Key, Vec<S::Key>>,
}

impl<S: Source> LaneQueue<S> {
    fn new(lanes: Vec<WaitingLane<S>>) -> Self {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            lanes.into_iter().partition(|lane| lane.needs.is_empty());
        let mut users = BTreeMap::<_, Vec<_>>::new();
        for lane in &waiting {
            for need in &lane.needs {
                users.entry(need.clone()).or_default().push(lane.key.clone());
            }
        }
        let waiting = waiting.into_iter().map(|lane| (lane.key.clone(), lane)).collect();
        LaneQueue { ready: ready.into(), waiting, users }
    }

    fn has_needs(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets those start that needed nothing but what is as declared by now.
    fn met(&mut self, key: &S::Key) {
        for user in self.users.remove(key).unwrap_or_default() {
            if let Entry::Occupied(mut lane) = self.waiting.entry(user) {
                lane.get_mut().needs.remove(key);
                if lane.get().needs.is_empty() {
                    self.ready.push_back(lane.remove());
                }
            }
        }
    }

    /// Takes out those that need a key that is not as declared, and those that need them in turn, each with what it
    /// needs.
    fn block(&mut self, key: &S::Key) -> Vec<(WaitingLane<S>, S::Key)> {
        let (mut blocked, mut bad) = (Vec::new(), vec![key.clone()]);
        while let Some(need) = bad.pop() {
            for user in self.users.remove(&need).unwrap_or_default() {
                if let Some(lane) = self.waiting.remove(&user) {
                    blocked.push((lane, need.clone()));
                    bad.push(user);
                }
            }
        }
        blocked
    }

    fn into_rest(self) -> impl Iterator<Item = WaitingLane<S>> {
        self.ready.into_iter().chain(self.waiting.into_values())
    }
}

impl<S: Source> WaitingLane<S> {
    /// Leaves its steps for another pass.
    fn leave(self, need: &S::Key, config: &Config<S::Key>) -> EndedLane<S> {
        let WaitingLane { plan, .. } = self;
        let sink = Sink::new(&plan, &config.dispatch, config.progress.as_deref());
        sink.leave(0..plan.steps.len(), WaitsOn::Key(need.to_string()));
        let results = sink.into_results();
        EndedLane { plan, results, lane: None }
    }

    fn start<'a, W: WriterHandle<'a, S>>(
        self,
        writer: &W,
        config: &Config<S::Key>,
        doubted: &BTreeSet<S::Key>,
    ) -> DetachedLane<'a, S> {
        let WaitingLane { key, plan, .. } = self;
        let doubted = doubted.get(&key).cloned().into_iter().collect();
        let (writer, dispatch) = (writer.clone(), config.dispatch.clone());
        let progress = config.progress.clone();
        let lane = Box::pin(async move {
            let sink = Sink::new(&plan, &dispatch, progress.as_deref());
            let steps = 0..plan.steps.len();
            let lane = run_lane(&plan, &*writer, &doubted, &sink, steps).await;
            let results = sink.into_results();
            EndedLane { plan, results, lane }
        });
        DetachedLane { key, prior: PriorRecords::<S>::new(), lane }
    }
}

/// Leaves lanes for another pass, each with the key that it needs.
fn leave<S: Source>(
    blocked: Vec<(WaitingLane<S>, S::Key)>,
    config: &Config<S::Key>,
) -> impl Iterator<Item = EndedLane<S>> {
    blocked.into_iter().map(|(lane, need)| lane.leave(&need, config))
}

impl<S: Source> EndedLane<S> {
    fn key(&self) -> Option<S::Key> {
        self.plan.steps.first().map(|step| step.key(&self.plan.desired))
    }

    fn is_good(&self) -> bool {
        (0..self.plan.steps.len()).all(|step| self.results.tally.is_good(step))
    }
}

/// Takes the steps out of the plan, as lanes that own them.
fn split_lanes<S: Source>(plan: &mut Plan<S>, strictness: Strictness) -> Vec<WaitingLane<S>> {
    let Some(Batch::Lanes(ranges)) = Schedule::<S>::new(strictness).next(plan) else {
        return Vec::new();
    };
    // Taken out from the last to the first, so that the numbers of the others stay true.
    let parts: Vec<Plan<S>> = ranges.into_iter().rev().map(|steps| plan.part(steps)).collect();
    let lanes = parts.into_iter().rev().filter_map(|plan| {
        let key = plan.steps.first()?.key(&plan.desired);
        let mut needs = BTreeSet::new();
        for step in &plan.steps {
            step.needs(&plan.desired, &mut |need| _ = needs.insert(need));
        }
        needs.remove(&key);
        Some(WaitingLane { key, plan, needs })
    });
    let mut lanes: Vec<_> = lanes.collect();
    if lanes.iter().any(|lane| !lane.needs.is_empty()) {
        // What gets no step, and has nothing in the way, is as it should be.
        let open = plan.findings.iter().filter(|(_, finding)| finding.is_open());
        let open = open.map(|(key, _)| key.clone());
        let unmet: BTreeSet<_> = lanes.iter().map(|lane| lane.key.clone()).chain(open).collect();
        for lane in &mut lanes {
            lane.needs.retain(|need| unmet.contains(need));
        }
    }
    lanes
}

/// Puts steps and outcomes of ended lanes together, behind the steps that the plan has.
pub(crate) fn join<S: Source>(
    plan: &mut Plan<S>,
    ended: Vec<EndedLane<S>>,
) -> StepResults<S::Object> {
    let steps = ended.iter().map(|ended| ended.plan.steps.len()).sum();
    let mut results = StepResults::new(steps);
    for EndedLane { plan: part, results: outcomes, .. } in ended {
        let from = plan.steps.len();
        plan.steps.extend(part.steps);
        results.extend(from..plan.steps.len(), outcomes);
    }
    results
}

// Nothing in it is pinned but what is behind a pointer.
impl<S: Source> Unpin for DetachedLane<'_, S> {}

impl<S: Source> Future for DetachedLane<'_, S> {
    type Output = EndedLane<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<EndedLane<S>> {
        self.lane.as_mut().poll(context)
    }
}

/// Runs the steps of one key, one after the other, if its lane is free; a bad one stops the rest. What is not run is
/// left for another pass. Returns the lane if the target works on nothing in it.
///
/// `doubted` are keys for which the result of an earlier step was unknown when they were planned.
async fn run_lane<S: Source>(
    plan: &Plan<S>,
    writer: &S::Writer,
    doubted: &BTreeSet<S::Key>,
    sink: &Sink<'_, S>,
    steps: Range<usize>,
) -> Option<LaneGuard<S::Key>> {
    let first = plan.steps.get(steps.start)?;
    let (key, node) = (first.key(&plan.desired), first.node(&plan.desired));
    let operations = sink.dispatch().operations();
    let taken = match operations {
        None => Ok(None),
        Some(_) if doubted.contains(&key) => Err(WaitsOn::Doubt),
        Some(operations) => operations.take(&key, &node).map(Some),
    };
    let lane = match taken {
        Ok(lane) => lane,
        Err(on) => {
            sink.leave(steps, on);
            return None;
        }
    };
    for at in steps.clone() {
        writer.apply(work(plan, at..at + 1), sink).await;
        sink.close(at..at + 1);
        let rest = at + 1..steps.end;
        if let Some(task) = sink.task(at) {
            sink.leave(rest, WaitsOn::Task(task.clone()));
            if let (Some(operations), Some(lane)) = (operations, lane)
                && let (Some(id), Some(step)) = (sink.begun(at), plan.steps.get(at))
            {
                let change = Some((step.action(), plan.cause(step)));
                let write = Unended { step: id, node: step.node(&plan.desired) };
                operations.follow(lane, write, task, change);
            }
            return None;
        }
        if let Some(operations) = operations {
            record_end(operations, sink, at).await;
        }
        if !sink.is_good(at) {
            sink.leave(rest, WaitsOn::EarlierStep(key.to_string()));
            break;
        }
    }
    lane
}

/// Records how a step ended that was done at once. One whose answer was lost stays open: the target is asked what
/// became of it.
async fn record_end<S: Source>(operations: &Operations<S::Key>, sink: &Sink<'_, S>, at: usize) {
    let Some(id) = sink.begun(at) else { return };
    let end = match sink.outcome(at) {
        None | Some(Outcome::Settled { .. }) => TaskEnd::Succeeded,
        Some(Outcome::Unknown { .. }) => return,
        Some(Outcome::Failed(failure) | Outcome::Unkept(failure)) => TaskEnd::Failed(failure.error),
        Some(_) => TaskEnd::Failed("it was not done".to_owned()),
    };
    operations.end(id, &end).await;
}

fn work<S: Source>(plan: &Plan<S>, steps: Range<usize>) -> Work<'_, S> {
    let first = steps.start;
    let steps = plan.steps.get(steps).unwrap_or_default();
    Work { desired: &plan.desired, moment: &plan.moment, first, steps }
}

impl<O: Clone> StepResults<O> {
    fn new(steps: usize) -> Self {
        StepResults { tally: Tally::new(steps), unverified: Vec::new(), unwritten: None }
    }

    /// Takes over the outcomes of steps that stand at `at` in the whole plan.
    fn extend(&mut self, at: Range<usize>, part: StepResults<O>) {
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

    /// Marks every applied step as unverified, also where the target confirmed it: much may have happened since.
    pub(crate) fn distrust(&mut self, steps: usize) {
        let known = std::mem::take(&mut self.unverified);
        for at in 0..steps {
            if self.tally.is_applied(at) || known.iter().any(|range| range.contains(&at)) {
                push_joined(&mut self.unverified, at..at + 1);
            }
        }
    }

    /// The keys of the unverified steps, with the steps' numbers.
    pub(crate) fn keys<S: Source<Object = O>>(
        &self,
        plan: &Plan<S>,
    ) -> impl Iterator<Item = (S::Key, usize)> {
        let steps = self.unverified.iter().cloned().flatten();
        steps.filter_map(|at| Some((plan.steps.get(at)?.key(&plan.desired), at)))
    }
}

/// Neighbouring ranges become one, so that a million single answers stay one range.
fn push_joined(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
