//! The part of a pass that speaks with the source: it may fail, hang or panic.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Explain, Focus, Plan, Source, Step as _};

use super::event::EventKind;
use super::handle::Told;
use super::losses::take_named;
use super::made::{Held, Made};
use super::mail::Mail;
use super::pace::Mode;
use super::wakeup::Turn;
use super::{Keeper, LoopDeps};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::focus;
use crate::pass;
use crate::session::Session;

impl<S: Source> Keeper<S> {
    pub(super) fn open(&mut self) -> Result<Session<S>, Error> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let LoopDeps { lock, ledger, .. } = &self.means;
        let session = Session::open(&self.bound, lock, Arc::clone(ledger), self.pace.hints)?;
        self.named.clear();
        if std::mem::take(&mut self.has_lost_reader) {
            self.status.send_modify(|status| status.counts.resubscribed += 1);
            self.tell(EventKind::Resubscribed);
        }
        Ok(session)
    }

    /// One pass over the keys of the turn and what depends on them.
    pub(super) async fn make(&mut self, turn: &mut Turn<S::Key>) -> Result<Made<S>, Error> {
        self.widen(turn);
        let mut open = self.open()?;
        let made = self.pass_over(&mut open, turn).await?;
        self.tell_steps(&*made.told);
        // After anything else but a whole pass, reader and writer are opened anew.
        self.open = Some(open);
        Ok(made)
    }

    /// What failed and rests on something that is looked at is tried again with it.
    fn widen(&mut self, turn: &mut Turn<S::Key>) {
        turn.focus = focus::widened(&*self.desired, &turn.focus);
        if let Focus::Keys(keys) = &turn.focus {
            let now = self.now();
            for key in keys {
                self.agenda.tries(key, now);
            }
        }
    }

    async fn pass_over(
        &mut self,
        open: &mut Session<S>,
        turn: &Turn<S::Key>,
    ) -> Result<Made<S>, Error> {
        let config = self.config.clone();
        self.note_landed();
        // What ended before the look is seen by it; what ends later, the steps do not know of.
        config.dispatch.look(&turn.focus);
        let asked = self.order(&config, turn.focus.clone());
        let mut plan = pass::plan(&asked, &mut open.observer, open.book.holdings()).await?;
        self.tell(EventKind::Planned { summary: plan.summary() });
        let named = take_named(&mut self.named, &turn.focus);
        self.note_drift(&plan, &turn.focus, &named);
        let holds_removals = config.guards.holds_removals(&plan, &turn.focus);
        if self.pace.mode == Mode::Observe {
            return Ok(Made::planned(plan, holds_removals));
        }
        let held = self.hold(&mut plan, turn);
        let written = written(&plan, &turn.focus);
        let Session { observer, writer, book } = open;
        let asked = self.order(&config, turn.focus.clone());
        let (report, late) = pass::apply_detaching(&asked, observer, writer, (book, plan)).await?;
        let mut made = Made::applied(report, Held { keys: held, removals: holds_removals });
        made.facts.waiting.extend(late.iter().map(|late| late.key.clone()));
        self.late.add(late, self.pace.deadline);
        made.facts.written = written;
        Ok(made)
    }

    /// Holds back what has to wait, and names it.
    fn hold(&self, plan: &mut Plan<S>, turn: &Turn<S::Key>) -> Vec<S::Key> {
        // While a full pass holds removals back, a focused one must not make them one by one.
        if self.holds_removals && turn.focus != Focus::All {
            crate::guard::hold_removals(plan, "the last full pass holds all removals back");
        }
        let (agenda, now, before) = (&self.agenda, self.now(), plan.held.len());
        if agenda.leaves_none() {
            return Vec::new();
        }
        plan.hold(|plan, step| agenda.leaves(&step.key(&plan.desired), turn.reasons, now));
        let held = plan.held.iter().skip(before);
        held.map(|held| held.step.key(&plan.desired)).collect()
    }

    /// How some keys stand; nothing is written.
    pub(super) async fn peek(&mut self, focus: Focus<S::Key>, mail: &mut Mail<S>) -> Told {
        let focus = self.seeing(focus);
        let looked = self.guarded(mail, async |keeper| keeper.plan(focus).await).await;
        looked.map_err(|error| {
            self.lose_reader();
            Arc::new(error)
        })
    }

    async fn plan(&mut self, focus: Focus<S::Key>) -> Result<Arc<Explained>, Error> {
        let mut open = self.open()?;
        let order = self.order(&self.config, focus);
        let plan = pass::plan(&order, &mut open.observer, open.book.holdings()).await?;
        self.open = Some(open);
        Ok(Arc::new(plan))
    }

    pub(super) fn order<'a>(
        &'a self,
        config: &'a Config<S::Key>,
        focus: Focus<S::Key>,
    ) -> Order<'a, S> {
        Order { desired: Arc::clone(&self.desired), ..self.bound.order(config, focus) }
    }

    /// A focused look needs a full one before it.
    pub(super) fn seeing(&self, focus: Focus<S::Key>) -> Focus<S::Key> {
        if self.agenda.is_blind() { Focus::All } else { focus }
    }

    /// Drops what the ledger knows of a key.
    pub(super) fn forget_key(&mut self, key: &S::Key) -> Result<bool, Error> {
        let mut open = self.open()?;
        let known = open.book.forget_key(key)?;
        self.open = Some(open);
        Ok(known)
    }
}

/// What a focused pass is about to write to.
fn written<S: Source>(plan: &Plan<S>, focus: &Focus<S::Key>) -> BTreeSet<S::Key> {
    match focus {
        Focus::All => BTreeSet::new(),
        Focus::Keys(_) => plan.steps.iter().map(|step| step.key(&plan.desired)).collect(),
    }
}

type Explained = dyn Explain + Send + Sync;
