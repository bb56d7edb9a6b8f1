//! What a loop does when it is spoken to.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::pacing::Reason;
use homeostat_core::{Desired, Focus, OnRelease, Source};

use super::event::EventKind;
use super::handle::{Command, Forget, OnStop, Told};
use super::late::Late;
use super::mail::Mail;
use super::settle::Settling;
use super::turn::bounded;
use super::wakeup::{Turn, Wakeup};
use super::{Keeper, NextBound};
use crate::bound::Bound;
use crate::error::Error;
use crate::guard::{Guards, MassDelete};

impl<S: Source> Keeper<S> {
    /// Does what it is told; breaks when that was to stop.
    pub(super) async fn obey(
        &mut self,
        command: Command<S>,
        mail: &mut Mail<S>,
    ) -> ControlFlow<()> {
        match command {
            Command::Put(bound, forget) => self.put(bound, forget),
            // Whoever asked may be gone: the pass was made all the same.
            Command::Pass(answer) => _ = answer.send(self.pass_now(mail).await),
            Command::Settle(patience, answer) => {
                let has_written = self.last_pass.has_moved;
                let caller = Settling::new(answer, patience, has_written, self.now());
                self.settling.push(caller);
            }
            Command::Look(key, answer) => _ = answer.send(self.look(key, mail).await),
            Command::Adopt(key, answer) => _ = answer.send(self.adopt(key, mail).await),
            Command::Forget(key, answer) => _ = answer.send(self.forget(&key).await),
            Command::Pause(during) => self.pause(during),
            Command::Resume => self.resume(),
            Command::Stop(policy, answer) => {
                self.stop(policy).await;
                self.tell(EventKind::Stopped);
                let _ = answer.send(());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes a new desired state. Until its pass starts, the present one is kept as it is.
    fn put(&mut self, bound: Arc<Bound<S>>, forget: Forget) {
        let (nth, forget) = match self.next_bound.take() {
            Some(waiting) if waiting.forget == Forget::All => (waiting.nth + 1, Forget::All),
            Some(waiting) => (waiting.nth + 1, forget),
            None => (self.status.borrow().desired_states + 1, forget),
        };
        self.next_bound = Some(NextBound { bound, nth, forget });
        self.wake(match forget {
            Forget::Changed => Wakeup::Desired,
            Forget::All => Wakeup::Replaced,
        });
    }

    /// Changes over to the newest desired state, if it is not in force yet. Nobody knows then how the
    /// target stands to it.
    pub(super) fn take_desired(&mut self) {
        let Some(NextBound { bound, nth, forget }) = self.next_bound.take() else { return };
        // What goes on for the former desired state is asked about like anything else that is in doubt.
        self.late = Late::default();
        self.config.dispatch.replaced_by(&bound.config.dispatch);
        let is_rebound = forget == Forget::All || !self.bound.differs_only_in_desired(&bound);
        let former = std::mem::replace(&mut self.desired, Arc::clone(&bound.desired));
        self.config = bound.config.clone();
        (self.bound, self.open) = (bound, None);
        self.attend();
        let (desired, now) = (&*self.desired, self.now());
        let is_same = |key: &S::Key| declares_same(desired, &former, key);
        let keeps_task = |key: &S::Key| forget == Forget::Changed && is_same(key);
        self.agenda.rebound(|key| is_rebound || !is_same(key), keeps_task, now);
        self.status
            .send_modify(|status| (status.is_converged, status.desired_states) = (false, nth));
    }

    fn pause(&mut self, during: Option<Duration>) {
        let until = during.map(|during| self.now().after(during));
        self.agenda.pause(until);
        self.attend();
        self.pulse.health().paused();
        self.tell(EventKind::Paused { during });
    }

    /// Goes on, with a look at everything.
    pub(super) fn resume(&mut self) {
        self.agenda.resume();
        self.attend();
        self.pulse.health().resumed(self.now());
        self.tell(EventKind::Resumed);
        self.wake(Wakeup::Operator);
    }

    /// A pass that a person asked for waits for nothing, not even for a pause to end.
    pub(super) async fn pass_now(&mut self, mail: &mut Mail<S>) -> Told {
        let turn = self.turn(Focus::All);
        self.take(turn, mail).await
    }

    fn turn(&mut self, focus: Focus<S::Key>) -> Turn<S::Key> {
        self.take_desired();
        self.drain();
        let focus = self.seeing(focus);
        self.agenda.command(&focus, self.now());
        Turn { focus, reasons: Reason::Operator.into(), waited: Duration::ZERO }
    }

    async fn look(&mut self, key: S::Key, mail: &mut Mail<S>) -> Told {
        self.take_desired();
        let focus = Focus::Keys(BTreeSet::from([key]));
        self.peek(focus, mail).await
    }

    async fn adopt(&mut self, key: S::Key, mail: &mut Mail<S>) -> Told {
        self.take_desired();
        let is_once = self.config.adopt.insert(key.clone());
        let turn = self.turn(Focus::Keys(BTreeSet::from([key.clone()])));
        let told = self.take(turn, mail).await;
        if is_once {
            self.config.adopt.remove(&key);
        }
        told
    }

    async fn forget(&mut self, key: &S::Key) -> Result<bool, Arc<Error>> {
        let deadline = self.pace.deadline;
        let forgotten = bounded(deadline, async { self.forget_key(key) }).await;
        forgotten.map_err(Arc::new)
    }

    async fn stop(&mut self, policy: OnStop) {
        match policy {
            OnStop::Leave => {}
            OnStop::Release => {
                if let Err(error) = self.means.ledger.clear(&self.bound.place) {
                    self.tell(EventKind::Failed { failure: error.failure() });
                }
            }
            OnStop::Revert => self.revert().await,
        }
    }

    /// Declares nothing, and says so aloud.
    async fn revert(&mut self) {
        self.take_desired();
        let Some(nothing) = self.bound.nothing.clone() else { return };
        let config = &mut self.config;
        config.on_release = OnRelease::Restore;
        config.guards = Guards { mass_delete: MassDelete::Allow, ..config.guards };
        (self.desired, self.late) = (nothing, Late::default());
        self.agenda.rebound(|_| true, |_| false, self.now());
        let turn = self.turn(Focus::All);
        let _ = self.take_last(turn).await;
    }
}

/// Whether two desired states say the same of a key.
fn declares_same<D: Desired>(desired: &D, former: &D, key: &D::Key) -> bool {
    match (desired.slot(key, None), former.slot(key, None)) {
        (Some(slot), Some(there)) => desired.is_same(slot, former, there),
        (None, None) => true,
        _ => false,
    }
}
