//! What a loop does when it is spoken to.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use homeostat_core::pacing::Reason;
use homeostat_core::{Focus, OnRelease, Source};

use super::Loop;
use super::agenda::{Turn, Wakeup};
use super::event::What;
use super::handle::{Command, OnStop, Told};
use crate::bound::Bound;
use crate::error::Error;
use crate::guard::{Guards, MassDelete, Section};

impl<S: Source> Loop<S> {
    /// Does what it is told; breaks when that was to stop.
    pub(super) async fn obey(&mut self, command: Command<S>) -> ControlFlow<()> {
        match command {
            Command::Put(bound) => self.put(*bound),
            // Whoever asked may be gone: the pass was made all the same.
            Command::Pass(answer) => _ = answer.send(self.pass_now().await),
            Command::Look(key, answer) => _ = answer.send(self.look(key).await),
            Command::Adopt(key, answer) => _ = answer.send(self.adopt(key).await),
            Command::Forget(key, answer) => _ = answer.send(self.forget(&key)),
            Command::Pause(during) => {
                let until = during.map(|during| self.now().after(during));
                self.agenda.pause(until);
                self.health.paused();
                self.tell(What::Paused { during });
            }
            Command::Resume => {
                let now = self.now();
                self.agenda.resume(now);
                self.health.resumed(now);
                self.tell(What::Resumed);
            }
            Command::Stop(policy, answer) => {
                self.stop(policy).await;
                self.tell(What::Stopped);
                let _ = answer.send(());
                return ControlFlow::Break(());
            }
        }
        let is_paused = self.agenda.is_paused();
        self.status.send_modify(|status| status.is_paused = is_paused);
        ControlFlow::Continue(())
    }

    fn put(&mut self, bound: Bound<S>) {
        self.bound = bound;
        // Reader and writer belong to the source that they were opened for.
        self.open = None;
        self.agenda.wake(Wakeup::Desired, self.now());
    }

    /// A pass that a person asked for waits for nothing, not even for a pause to end.
    async fn pass_now(&mut self) -> Told {
        let turn = self.turn(Focus::All);
        self.take(turn).await
    }

    fn turn(&mut self, focus: Focus<S::Key>) -> Turn<S::Key> {
        let now = self.now();
        self.agenda.command(&focus, now);
        Turn { focus, reasons: Reason::Operator.into(), waited: std::time::Duration::ZERO }
    }

    async fn look(&mut self, key: S::Key) -> Told {
        let focus = Focus::Keys(BTreeSet::from([key]));
        self.peek(focus).await
    }

    async fn adopt(&mut self, key: S::Key) -> Told {
        self.bound.config.adopt.insert(key.clone());
        let focus = Focus::Keys(BTreeSet::from([key.clone()]));
        let turn = self.turn(focus);
        let told = self.take(turn).await;
        self.bound.config.adopt.remove(&key);
        told
    }

    fn forget(&mut self, key: &S::Key) -> Result<bool, Arc<Error>> {
        let open = self.opened().map_err(Arc::new)?;
        open.book.forget_key(key).map_err(Arc::new)
    }

    async fn stop(&mut self, policy: OnStop) {
        match policy {
            OnStop::Leave => {}
            OnStop::Release => {
                let _ = self.means.ledger.clear(&self.bound.place);
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
        self.bound.wish = nothing;
        let _ = self.pass_now().await;
    }
}
