//! Where writers answer for their steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use homeostat_core::outcome::Later;
use homeostat_core::{
    Action, Agreement, Desired, Dispatch, Failure, Outcome, Outcomes, Plan, Retry, Source, Step,
    WaitsOn,
};

use super::{StepResults, push_joined};
use crate::config::Progress;
use crate::journal::{Intent, Repeat, StepId};
use crate::operations::{DispatchGuard, Operations, unwritten};

/// Takes outcomes as they happen.
pub(super) struct Sink<'a, S: Source> {
    plan: &'a Plan<S>,
    dispatch: &'a DispatchGuard<S::Key>,
    progress: Option<&'a dyn Progress>,
    state: Mutex<State<S::Object>>,
}

struct State<O> {
    results: StepResults<O>,
    bad: Vec<usize>,
    /// The steps that the journal knows.
    begun: BTreeMap<usize, StepId>,
}

impl<'a, S: Source> Sink<'a, S> {
    pub(super) fn new(
        plan: &'a Plan<S>,
        dispatch: &'a DispatchGuard<S::Key>,
        progress: Option<&'a dyn Progress>,
    ) -> Self {
        let results = StepResults::new(plan.steps.len());
        let state = State { results, bad: Vec::new(), begun: BTreeMap::new() };
        Sink { plan, dispatch, progress, state: Mutex::new(state) }
    }

    pub(super) fn dispatch(&self) -> &'a DispatchGuard<S::Key> {
        self.dispatch
    }

    pub(super) fn into_results(self) -> StepResults<S::Object> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).results
    }

    fn state(&self) -> MutexGuard<'_, State<S::Object>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_bad(&self) -> Vec<usize> {
        std::mem::take(&mut self.state().bad)
    }

    /// Steps that are left undone.
    pub(super) fn leave(&self, steps: Range<usize>, on: WaitsOn) {
        self.put(steps, Outcome::Pending { on });
    }

    /// A step without an answer blocks what needs it, as any other unknown one.
    pub(super) fn close(&self, steps: Range<usize>) {
        let state = self.state();
        let open: Vec<_> = steps.filter(|step| state.results.tally.is_open(*step)).collect();
        drop(state);
        for step in open {
            self.put(step..step + 1, Outcome::unanswered(S::NAME));
        }
    }

    pub(super) fn is_good(&self, at: usize) -> bool {
        self.state().results.tally.is_good(at)
    }

    /// The outcome of a step that was not simply applied.
    pub(super) fn outcome(&self, at: usize) -> Option<Outcome<S::Object>> {
        self.state().results.tally.other(at).cloned()
    }

    /// The work that the target does for a step.
    pub(super) fn task(&self, at: usize) -> Option<String> {
        match self.state().results.tally.other(at) {
            Some(Outcome::Waiting { task }) => Some(task.clone()),
            _ => None,
        }
    }

    /// The journal's name for a step.
    pub(super) fn begun(&self, at: usize) -> Option<StepId> {
        self.state().begun.get(&at).copied()
    }

    /// Whether the target's own answer already shows that the desired state is fulfilled.
    fn is_verified(&self, at: usize, now: Option<&S::Object>) -> bool {
        let Some(step) = self.plan.steps.get(at) else { return false };
        match (now, step.action()) {
            (Some(now), Action::Create | Action::Update | Action::Replace) => {
                let slot = self.plan.slot_of(step);
                slot.is_some_and(|slot| self.plan.desired.compare(slot, now) == Agreement::Agrees)
            }
            _ => false,
        }
    }

    async fn begin(
        &self,
        operations: &Operations<S::Key>,
        at: usize,
        repeat: Repeat,
    ) -> Result<(), Failure> {
        let Some(step) = self.plan.steps.get(at) else { return Ok(()) };
        let desired = &*self.plan.desired;
        let Dispatch { kind, parameters, precondition } = step.dispatch(desired);
        let subject = operations.subject(&step.key(desired));
        let (node, command) = (step.node(desired), None);
        let intent = Intent { subject, kind, parameters, precondition, node, repeat, command };
        let id = operations.journal().begin(intent).await.map_err(|error| unwritten(&error))?;
        self.state().begun.insert(at, id);
        Ok(())
    }

    /// The operations that a write goes through. One that must not be sent twice is not sent without a journal, unless
    /// that was said.
    fn guard(&self) -> Result<Option<&'a Operations<S::Key>>, Failure> {
        match self.dispatch {
            DispatchGuard::Absent => {
                let error = "no journal is kept, and this write must not be sent twice";
                Err(Failure::new(error, Retry::Never))
            }
            DispatchGuard::Volatile => Ok(None),
            DispatchGuard::Operations(operations) => Ok(Some(operations)),
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
                    push_joined(&mut state.results.unverified, steps.clone());
                }
            }
            Outcome::Settled { .. } => {}
            // Written or not: the second look may show it.
            Outcome::Unknown { .. } => {
                push_joined(&mut state.results.unverified, steps.clone());
                state.bad.extend(steps.clone());
            }
            _ => state.bad.extend(steps.clone()),
        }
        state.results.tally.put(steps, &outcome);
    }

    fn intent(&self, step: usize) -> Later<'_, Result<(), Failure>> {
        Box::pin(async move {
            match self.guard()? {
                Some(operations) => self.begin(operations, step, Repeat::Hurts).await,
                None => Ok(()),
            }
        })
    }

    fn note(&self, step: usize) -> Later<'_, ()> {
        Box::pin(async move {
            let Some(operations) = self.dispatch.operations() else { return };
            if let Err(failure) = self.begin(operations, step, Repeat::Harmless).await {
                self.state().results.unwritten = Some(failure);
            }
        })
    }

    fn dispatched<'a>(&'a self, step: usize, task: &'a str) -> Later<'a, Result<(), Failure>> {
        Box::pin(async move {
            let (Some(operations), Some(id)) = (self.guard()?, self.begun(step)) else {
                return Ok(());
            };
            let written = operations.journal().dispatched(id, task).await;
            written.map_err(|error| unwritten(&error))
        })
    }
}
