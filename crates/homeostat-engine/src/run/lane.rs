//! One key's steps, one after the other; a bad one stops the rest.

use std::collections::BTreeSet;
use std::ops::Range;

use homeostat_core::{Outcome, Plan, Source, Step, TaskEnd, Writer};

use super::sink::Sink;
use super::work;
use crate::config::Fence;
use crate::operations::{Flight, Held, Operations};

pub(super) struct Lane<'a, S: Source> {
    pub(super) plan: &'a Plan<S>,
    pub(super) writer: &'a S::Writer,
    /// Keys of which nobody knew, when they were planned for, what became of an earlier step.
    pub(super) doubted: &'a BTreeSet<S::Key>,
    pub(super) sink: &'a Sink<'a, S>,
    pub(super) steps: Range<usize>,
}

/// A lane, and where it comes from.
type Taken<'a, K> = (&'a Operations<K>, Held<K>);

impl<S: Source> Lane<'_, S> {
    /// Runs the steps if it is the key's turn; else they are left for another pass. Hands the lane back when
    /// nothing goes on in it.
    pub(super) async fn run(self) -> Option<Held<S::Key>> {
        let first = self.plan.steps.get(self.steps.start)?;
        let Fence::Kept(operations) = self.sink.fence() else {
            return self.steps(None).await;
        };
        let key = first.key(&self.plan.wish);
        let turn = if self.doubted.contains(&key) {
            Err("what became of an earlier step of it".to_owned())
        } else {
            operations.turn(&key, first.node(&self.plan.wish))
        };
        match turn {
            Ok(held) => self.steps(Some((operations, held))).await,
            Err(on) => {
                self.sink.leave(self.steps, on);
                None
            }
        }
    }

    async fn steps(self, lane: Option<Taken<'_, S::Key>>) -> Option<Held<S::Key>> {
        let Lane { plan, writer, sink, steps, .. } = self;
        for at in steps.clone() {
            writer.apply(work(plan, at..at + 1), sink).await;
            sink.close(at..at + 1);
            let rest = at + 1..steps.end;
            if let Some(task) = sink.task(at) {
                let on = format!("task {task}");
                if let (Some((operations, held)), Some(id)) = (lane, sink.begun(at)) {
                    let (end, step) = (writer.follow(&task), plan.steps.get(at));
                    let told = step.map(|step| (step.action(), plan.cause(step)));
                    operations.follow(Flight { held, id, task, told }, end);
                }
                sink.leave(rest, on);
                return None;
            }
            if let Some((operations, _)) = &lane {
                note_end(operations, sink, at).await;
            }
            if !sink.is_good(at) {
                let key = plan.steps.get(at).map(|step| step.key(&plan.wish).to_string());
                sink.leave(rest, format!("an earlier step of `{}`", key.unwrap_or_default()));
                break;
            }
        }
        lane.map(|(_, held)| held)
    }
}

/// Writes down how a step ended that was done at once. One whose answer was lost stays open: the next pass
/// asks what became of it.
async fn note_end<S: Source>(operations: &Operations<S::Key>, sink: &Sink<'_, S>, at: usize) {
    let Some(id) = sink.begun(at) else { return };
    let ended = match sink.outcome(at) {
        None | Some(Outcome::Settled { .. }) => TaskEnd::Succeeded,
        Some(Outcome::Unknown { .. }) => return,
        Some(Outcome::Failed(failure) | Outcome::Unkept(failure)) => TaskEnd::Failed(failure.error),
        Some(_) => TaskEnd::Failed("it was not done".to_owned()),
    };
    operations.end(id, ended).await;
}
