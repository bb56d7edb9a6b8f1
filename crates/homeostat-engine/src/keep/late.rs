//! Lanes that passes did not wait for: driven while the loop does other things, and concluded in a pass of
//! their own when they have ended.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use homeostat_core::outcome::Later;
use homeostat_core::pacing::Reason;
use homeostat_core::{Focus, Kind, Source};

use super::Keeper;
use super::made::{Held, Made};
use super::mail::Mail;
use super::turn::bounded;
use super::wakeup::Turn;
use crate::error::Error;
use crate::fate::Prior;
use crate::pass;
use crate::run::{DetachedLane, EndedLane, join};

/// A lane that has ended, or broke.
struct Met<S: Source> {
    key: S::Key,
    prior: Prior<S>,
    ended: Result<EndedLane<S>, Error>,
}

/// Lanes that were left behind.
pub(super) struct Late<S: Source> {
    under_way: FuturesUnordered<Later<'static, Met<S>>>,
    met: Vec<Met<S>>,
}

impl<S: Source> Default for Late<S> {
    fn default() -> Self {
        Late { under_way: FuturesUnordered::new(), met: Vec::new() }
    }
}

impl<S: Source> Late<S> {
    /// Takes in lanes, which have as long to end as a pass.
    pub(super) fn add(&mut self, detached: Vec<DetachedLane<S>>, deadline: Duration) {
        for mut lane in detached {
            let (key, prior) = (lane.key.clone(), std::mem::take(&mut lane.prior));
            self.under_way.push(Box::pin(async move {
                let ended = bounded(deadline, lane.map(Ok)).await;
                Met { key, prior, ended }
            }));
        }
    }

    /// Takes in those of another.
    fn join(&mut self, other: Late<S>) {
        self.under_way.extend(other.under_way);
        self.met.extend(other.met);
    }

    /// Those that have ended, and the pass that concludes them.
    fn take_met(&mut self) -> (Vec<Met<S>>, Turn<S::Key>) {
        let met = std::mem::take(&mut self.met);
        let keys: BTreeSet<S::Key> = met.iter().map(|met| met.key.clone()).collect();
        let (focus, reasons) = (Focus::Keys(keys), Reason::Hint.into());
        (met, Turn { focus, reasons, waited: Duration::ZERO })
    }

    /// Waits until one has ended. Cancel-safe.
    pub(super) async fn meet(&mut self) {
        match self.under_way.next().await {
            Some(met) => self.met.push(met),
            None => std::future::pending().await,
        }
    }

    async fn drive(&mut self) -> Infallible {
        loop {
            self.meet().await;
        }
    }
}

impl<S: Source> Keeper<S> {
    /// Does something that may hang or panic. What goes on aside goes on meanwhile; once told to stop, it is
    /// not waited for for long.
    pub(super) async fn guarded<T>(
        &mut self,
        mail: &mut Mail<S>,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut late = std::mem::take(&mut self.late);
        let deadline = self.pace.deadline;
        let done = tokio::select! {
            biased;
            done = bounded(deadline, work(self)) => done,
            () = mail.stopped() => Err(Error::Stopped),
            never = late.drive() => match never {},
        };
        self.late.join(late);
        done
    }

    /// Whether there are lanes to conclude. Nothing can be verified before a full pass has seen everything.
    pub(super) fn may_conclude(&self) -> bool {
        !self.late.met.is_empty() && !self.agenda.is_blind()
    }

    /// Concludes the lanes that have ended.
    pub(super) async fn conclude(&mut self, mail: &mut Mail<S>) {
        if self.agenda.is_blind() && self.agenda.is_paused() {
            // Nobody may look for a long time, and commands wait for the lanes.
            self.late.met.clear();
        }
        if !self.may_conclude() {
            return;
        }
        // What ended together is looked at together.
        while let Some(()) = self.late.meet().now_or_never() {}
        let (met, turn) = self.late.take_met();
        self.begin(&turn);
        let made = self.guarded(mail, async |keeper| keeper.sum_up(met, &turn).await).await;
        // The report went out as events, and its sum is in the status.
        let _ = self.end(&turn, made);
    }

    /// Waits for everything that goes on aside, and concludes it: nobody will do so later.
    pub(super) async fn conclude_rest(&mut self) {
        while let Some(met) = self.late.under_way.next().await {
            self.late.met.push(met);
        }
        if self.may_conclude() {
            let (met, turn) = self.late.take_met();
            self.begin(&turn);
            let made = bounded(self.pace.deadline, self.sum_up(met, &turn)).await;
            let _ = self.end(&turn, made);
        }
    }

    async fn sum_up(&mut self, met: Vec<Met<S>>, turn: &Turn<S::Key>) -> Result<Made<S>, Error> {
        let (mut prior, mut ended, mut broken) = (Prior::<S>::new(), Vec::new(), None);
        for one in met {
            match one.ended {
                Ok(lane) => {
                    prior.extend(one.prior);
                    ended.push(lane);
                }
                // What was announced stands: nobody knows whether it was written.
                Err(error) => broken = Some(error),
            }
        }
        let Some(first) = ended.first_mut() else {
            return Err(broken.unwrap_or(Error::Stopped));
        };
        let mut plan = first.plan.part(0..0);
        // Nobody plans for the keys until it is known how they stand.
        let _lanes: Vec<_> = ended.iter_mut().map(|ended| ended.lane.take()).collect();
        let mut ran = join(&mut plan, ended);
        ran.distrust(plan.steps.len());
        let mut open = self.open()?;
        let asked = self.order(&self.config, turn.focus.clone());
        let book = (&mut open.book, prior);
        let report = pass::conclude(&asked, &mut open.observer, book, (plan, ran)).await?;
        let held = Held { keys: Vec::new(), removals: self.holds_removals };
        let mut made = Made::applied(report, held);
        made.facts.written = turn.keys();
        self.requeue_finished(&made);
        self.tell_steps(&*made.told);
        self.open = Some(open);
        broken.map_or(Ok(made), Err)
    }

    /// Queues keys again whose task finished before the pass that sent it was concluded.
    fn requeue_finished(&self, made: &Made<S>) {
        let (agenda, now) = (&self.agenda, self.now());
        let pending = made.open.iter().filter(|(_, open)| open.kind == Kind::Pending);
        // What failed is looked at after its pause.
        let pending =
            pending.filter(|(key, _)| agenda.leaves(key, Reason::Hint.into(), now).is_none());
        self.config.dispatch.requeue_finished(pending.map(|(key, _)| key));
    }
}
