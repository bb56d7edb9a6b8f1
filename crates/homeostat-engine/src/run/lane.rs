//! One key's steps, one after the other; a bad one stops the rest.

use std::collections::BTreeSet;
use std::ops::Range;

use homeostat_core::{Outcome, Plan, Source, Step, TaskEnd, WaitsOn, Writer};

use super::sink::Sink;
use super::work;
use crate::operations::{Accepted, LaneGuard, Operations};

pub(super) struct Lane<'a, S: Source> {
    pub(super) plan: &'a Plan<S>,
    pub(super) writer: &'a S::Writer,
    /// Keys of which it was not known, when they were planned for, what became of an earlier step.
    pub(super) doubted: &'a BTreeSet<S::Key>,
    pub(super) sink: &'a Sink<'a, S>,
    pub(super) steps: Range<usize>,
}

impl<S: Source> Lane<'_, S> {
    /// Runs the steps if the key's lane is free; else they are left for another pass. Hands the lane back when nothing
    /// goes on in it.
    pub(super) async fn run(self) -> Option<LaneGuard<S::Key>> {
        let first = self.plan.steps.get(self.steps.start)?;
        let Some(operations) = self.sink.dispatch().operations() else {
            return self.steps(None).await;
        };
        let key = first.key(&self.plan.desired);
        let taken = if self.doubted.contains(&key) {
            Err(WaitsOn::Doubt)
        } else {
            operations.take(&key, &first.node(&self.plan.desired))
        };
        match taken {
            Ok(lane) => self.steps(Some(lane)).await,
            Err(on) => {
                self.sink.leave(self.steps, on);
                None
            }
        }
    }

    async fn steps(self, lane: Option<LaneGuard<S::Key>>) -> Option<LaneGuard<S::Key>> {
        let Lane { plan, writer, sink, steps, .. } = self;
        let operations = sink.dispatch().operations();
        for at in steps.clone() {
            writer.apply(work(plan, at..at + 1), sink).await;
            sink.close(at..at + 1);
            let rest = at + 1..steps.end;
            if let Some(task) = sink.task(at) {
                sink.leave(rest, WaitsOn::Task(task.clone()));
                let step = plan.steps.get(at);
                if let (Some(operations), Some(lane)) = (operations, lane)
                    && let (Some(id), Some(step)) = (sink.begun(at), step)
                {
                    let change = Some((step.action(), plan.cause(step)));
                    let node = step.node(&plan.desired);
                    operations.follow(lane, Accepted { step: id, node, task, change });
                }
                return None;
            }
            if let Some(operations) = operations {
                note_end(operations, sink, at).await;
            }
            if !sink.is_good(at) {
                let key = plan.steps.get(at).map(|step| step.key(&plan.desired).to_string());
                sink.leave(rest, WaitsOn::EarlierStep(key.unwrap_or_default()));
                break;
            }
        }
        lane
    }
}

/// Writes down how a step ended that was done at once. One whose answer was lost stays open: the target is asked what
/// became of it.
async fn note_end<S: Source>(operations: &Operations<S::Key>, sink: &Sink<'_, S>, at: usize) {
    let Some(id) = sink.begun(at) else { return };
    let end = match sink.outcome(at) {
        None | Some(Outcome::Settled { .. }) => TaskEnd::Succeeded,
        Some(Outcome::Unknown { .. }) => return,
        Some(Outcome::Failed(failure) | Outcome::Unkept(failure)) => TaskEnd::Failed(failure.error),
        Some(_) => TaskEnd::Failed("it was not done".to_owned()),
    };
    operations.end(id, &end).await;
}
