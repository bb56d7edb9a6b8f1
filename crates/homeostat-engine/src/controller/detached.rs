//! Work that goes on after the pass that began it: detached lanes, and tasks of the target that have finished.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use educe::Educe;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use homeostat_core::outcome::Later;
use homeostat_core::pacing::Reason;
use homeostat_core::{Action, Cause, Focus, Source};

use super::bounded;
use super::scheduler::PassRequest;
use crate::error::Error;
use crate::ledger_page::PriorRecords;
use crate::run::{DetachedLane, EndedLane};

/// A detached lane that has ended, or broke.
pub(super) struct FinishedLane<S: Source> {
    key: S::Key,
    pub(super) prior: PriorRecords<S>,
    pub(super) ended: Result<EndedLane<S>, Error>,
}

/// The lanes that passes did not wait for. The loop drives them while it does other things, and concludes them in a
/// pass of their own.
#[derive(Educe)]
#[educe(Default)]
pub(super) struct DetachedLanes<S: Source> {
    running: FuturesUnordered<Later<'static, FinishedLane<S>>>,
    pub(super) finished: Vec<FinishedLane<S>>,
}

impl<S: Source> DetachedLanes<S> {
    /// Each lane has as long to end as a pass.
    pub(super) fn add(&mut self, detached: Vec<DetachedLane<'static, S>>, deadline: Duration) {
        for mut lane in detached {
            let (key, prior) = (lane.key.clone(), std::mem::take(&mut lane.prior));
            self.running.push(Box::pin(async move {
                let ended = bounded(deadline, lane.map(Ok)).await;
                FinishedLane { key, prior, ended }
            }));
        }
    }

    pub(super) fn extend(&mut self, other: DetachedLanes<S>) {
        self.running.extend(other.running);
        self.finished.extend(other.finished);
    }

    /// Takes the finished lanes, with the pass that concludes them.
    pub(super) fn take_finished(&mut self) -> (Vec<FinishedLane<S>>, PassRequest<S::Key>) {
        // What finished together is looked at together.
        while let Some(()) = self.next().now_or_never() {}
        let finished = std::mem::take(&mut self.finished);
        let focus = Focus::Keys(finished.iter().map(|lane| lane.key.clone()).collect());
        let request = PassRequest { focus, reasons: Reason::Hint.into(), waited: Duration::ZERO };
        (finished, request)
    }

    /// Waits until one has finished; for ever, if none runs. Cancel-safe.
    pub(super) async fn next(&mut self) {
        match self.running.next().await {
            Some(finished) => self.finished.push(finished),
            None => std::future::pending().await,
        }
    }

    pub(super) async fn drive(&mut self) -> Infallible {
        loop {
            self.next().await;
        }
    }

    pub(super) async fn finish_all(&mut self) {
        while let Some(finished) = self.running.next().await {
            self.finished.push(finished);
        }
    }
}

/// A task that the target reports as done, and that no look has shown yet.
pub(super) struct FinishedTask {
    pub(super) action: Action,
    pub(super) cause: Cause,
    /// Who caused the drift, where the target says so.
    pub(super) by: Option<Arc<str>>,
    /// The target's name for it.
    pub(super) task: Option<String>,
}
