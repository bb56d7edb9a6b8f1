//! What a loop does when it is spoken to.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::pacing::Reason;
use homeostat_core::{Focus, OnRelease, Source};

use super::Keeper;
use super::event::What;
use super::handle::{Command, OnStop, Told};
use super::late::Late;
use super::mail::Mail;
use super::turn::bounded;
use super::wakeup::{Turn, Wakeup};
use crate::bound::Bound;
use crate::config::Fence;
use crate::error::Error;
use crate::guard::{Guards, MassDelete, Section};
use crate::operations::Awaits;

impl<S: Source> Keeper<S> {
    /// Does what it is told; breaks when that was to stop.
    pub(super) async fn obey(
        &mut self,
        command: Command<S>,
        mail: &mut Mail<S>,
    ) -> ControlFlow<()> {
        match command {
            Command::Put(bound) => self.put(*bound),
            // Whoever asked may be gone: the pass was made all the same.
            Command::Pass(answer) => _ = answer.send(self.pass_now(mail).await),
            Command::Look(key, answer) => _ = answer.send(self.look(key, mail).await),
            Command::Adopt(key, answer) => _ = answer.send(self.adopt(key, mail).await),
            Command::Forget(key, answer) => _ = answer.send(self.forget(&key).await),
            Command::Pause(during) => self.pause(during),
            Command::Resume => self.resume(),
            Command::Stop(policy, answer) => {
                self.stop(policy).await;
                self.tell(What::Stopped);
                let _ = answer.send(());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Nobody knows yet how the target stands to another wish.
    fn put(&mut self, bound: Bound<S>) {
        // What goes on for the former wish is asked about like anything else that is in doubt.
        self.late = Late::default();
        self.leave_for(&bound.config.fence);
        (self.bound, self.open) = (bound, None);
        self.attend();
        self.status.send_modify(|status| {
            status.is_converged = false;
            status.wishes += 1;
        });
        self.wake(Wakeup::Desired);
    }

    /// What is in doubt keeps its places, unless it is somebody else's from here on; but another writer may
    /// reach whom the former one could not ask.
    fn leave_for(&self, next: &Fence<S::Key>) {
        match (&self.bound.config.fence, next) {
            (Fence::Kept(former), Fence::Kept(next)) if former.is(next) => former.ask_anew(),
            _ => self.set_awaits(Awaits::Nobody),
        }
    }

    fn pause(&mut self, during: Option<Duration>) {
        let until = during.map(|during| self.now().after(during));
        self.agenda.pause(until);
        self.attend();
        self.pulse.health().paused();
        self.tell(What::Paused { during });
    }

    /// Goes on, with a look at everything.
    pub(super) fn resume(&mut self) {
        self.agenda.resume();
        self.attend();
        self.pulse.health().resumed(self.now());
        self.tell(What::Resumed);
        self.wake(Wakeup::Operator);
    }

    /// A pass that a person asked for waits for nothing, not even for a pause to end.
    async fn pass_now(&mut self, mail: &mut Mail<S>) -> Told {
        let turn = self.turn(Focus::All);
        self.take(turn, mail).await
    }

    fn turn(&mut self, focus: Focus<S::Key>) -> Turn<S::Key> {
        self.drain();
        let focus = self.seeing(focus);
        self.agenda.command(&focus, self.now());
        Turn { focus, reasons: Reason::Operator.into(), waited: Duration::ZERO }
    }

    async fn look(&mut self, key: S::Key, mail: &mut Mail<S>) -> Told {
        let focus = Focus::Keys(BTreeSet::from([key]));
        self.peek(focus, mail).await
    }

    async fn adopt(&mut self, key: S::Key, mail: &mut Mail<S>) -> Told {
        let is_once = self.bound.config.adopt.insert(key.clone());
        let turn = self.turn(Focus::Keys(BTreeSet::from([key.clone()])));
        let told = self.take(turn, mail).await;
        if is_once {
            self.bound.config.adopt.remove(&key);
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
                    self.tell(What::Failed { failure: error.failure() });
                }
            }
            OnStop::Revert => self.revert().await,
        }
    }

    /// Wishes for nothing, and says so aloud.
    async fn revert(&mut self) {
        let Some(nothing) = self.bound.nothing.clone() else { return };
        let config = &mut self.bound.config;
        config.on_release = OnRelease::Restore;
        config.guards =
            Guards { mass_delete: MassDelete::Allow, section: Section::Stated, ..config.guards };
        (self.bound.wish, self.late) = (nothing, Late::default());
        self.agenda.wake(Wakeup::Desired, self.now());
        let turn = self.turn(Focus::All);
        let _ = self.take_last(turn).await;
    }
}
