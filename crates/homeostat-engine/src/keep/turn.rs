//! One pass of a loop: opened, bounded in time, caught if it panics, told, and learned from.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_core::pacing::Heal;
use homeostat_core::{Cause, Desired as _, Explain, Focus, Plan, Source, Step as _};

use super::Loop;
use super::agenda::{Facts, Turn};
use super::event::{PassId, What};
use super::handle::Told;
use super::made::Made;
use super::pace::Mode;
use super::status::Counted;
use crate::book::Book;
use crate::bound::Bound;
use crate::config::{Config, Order};
use crate::error::Error;
use crate::observer::Observer;
use crate::pass;

/// Reader, writer and ledger of a loop, as long as nothing breaks.
pub(super) struct Open<S: Source> {
    pub(super) observer: Observer<S>,
    pub(super) writer: S::Writer,
    pub(super) book: Book<S>,
    /// The keys that hints named since the last pass over them.
    pub(super) named: BTreeSet<S::Key>,
}

impl<S: Source> Open<S> {
    fn new(looped: &Loop<S>) -> Result<Self, Error> {
        let Loop { bound, means, .. } = looped;
        // The subscription stands before the first look.
        let observer = Observer::open(&bound.source, &bound.place.scope)?;
        let writer = bound.source.writer(&means.lock).map_err(|failure| Error::Writer {
            name: S::NAME,
            scope: bound.place.scope.clone(),
            failure,
        })?;
        let book = Book::open(Arc::clone(&means.ledger), bound.place.clone())?;
        Ok(Open { observer, writer, book, named: BTreeSet::new() })
    }
}

impl<S: Source> Loop<S> {
    /// What the loop works with, opened if it is not.
    pub(super) fn opened(&mut self) -> Result<&mut Open<S>, Error> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::new(self)?,
        };
        Ok(self.open.insert(open))
    }

    /// Runs one pass, whatever becomes of it.
    pub(super) async fn take(&mut self, turn: Turn<S::Key>) -> Told {
        self.begin(&turn);
        let deadline = self.pace.deadline;
        let guarded = AssertUnwindSafe(self.make(&turn)).catch_unwind();
        let made = tokio::time::timeout(deadline, guarded).await;
        let made = match made {
            Ok(Ok(made)) => made,
            Ok(Err(panic)) => Err(Error::Panicked { what: words(&*panic) }),
            Err(_) => Err(Error::TooLong { deadline }),
        };
        self.end(&turn, made)
    }

    fn begin(&mut self, turn: &Turn<S::Key>) {
        let now = self.now();
        self.pass = PassId(self.pass.0 + 1);
        let keys = match &turn.focus {
            Focus::All => None,
            Focus::Keys(keys) => Some(keys.len()),
        };
        match turn.focus {
            Focus::All => self.health.started_full(now),
            Focus::Keys(_) => self.health.started(now),
        }
        let pass = self.pass;
        self.status.send_modify(|status| {
            (status.pass, status.last_attempt) = (pass, Some(now));
            match keys {
                None => status.counts.full += 1,
                Some(_) => status.counts.focused += 1,
            }
        });
        self.tell(What::Started { reasons: turn.reasons, keys, waited: turn.waited });
    }

    /// How some keys stand; nothing is written.
    pub(super) async fn peek(&mut self, focus: Focus<S::Key>) -> Told {
        // A focused look needs a full one before it.
        let focus = if self.agenda.is_synced() { focus } else { Focus::All };
        let config = self.bound.config.clone();
        let looked = async {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => Open::new(self)?,
            };
            let order = order(&self.bound, &config, focus);
            let plan = pass::plan(&order, &mut open.observer, open.book.holdings()).await?;
            self.open = Some(open);
            Ok(plan)
        };
        match looked.await {
            Ok(plan) => Ok(Arc::new(plan)),
            Err(error) => Err(Arc::new(error)),
        }
    }

    async fn make(&mut self, turn: &Turn<S::Key>) -> Result<Made<S>, Error> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(self)?,
        };
        let made = self.pass_over(&mut open, turn).await?;
        // After anything else but a whole pass, reader and writer are opened anew.
        self.open = Some(open);
        Ok(made)
    }

    async fn pass_over(
        &mut self,
        open: &mut Open<S>,
        turn: &Turn<S::Key>,
    ) -> Result<Made<S>, Error> {
        let config = self.config(turn);
        let asked = order(&self.bound, &config, turn.focus.clone());
        let mut plan = pass::plan(&asked, &mut open.observer, open.book.holdings()).await?;
        self.tell(What::Planned { summary: plan.summary() });
        if self.pace.mode == Mode::Observe {
            return Ok(Made::Planned(plan));
        }
        let named = take_named(&mut open.named, &turn.focus);
        self.count_drift(&plan, &named);
        self.note_losses(&plan, &named);
        let (agenda, now) = (&self.agenda, self.now());
        plan.hold(|plan, step| agenda.leaves(&step.key(&plan.wish), turn.reasons, now));
        let Open { observer, writer, book, .. } = open;
        let asked = order(&self.bound, &config, turn.focus.clone());
        let report = pass::apply(&asked, observer, writer, (book, plan)).await?;
        Ok(Made::Applied(report))
    }

    /// While a full pass holds removals back, a focused one must not make them one by one.
    fn config(&self, turn: &Turn<S::Key>) -> Config<S::Key> {
        let mut config = self.bound.config.clone();
        if self.holds_removals && turn.focus != Focus::All {
            config.guards.section = crate::guard::Section::Missing;
        }
        config
    }

    fn count_drift(&self, plan: &Plan<S>, named: &BTreeSet<S::Key>) {
        if !plan.wish.is_empty() && !self.agenda.is_synced() {
            return;
        }
        let drifted = plan.steps.iter().filter(|step| plan.cause(step) == Cause::Drift);
        let (mut by_hint, mut by_resync) = (0, 0);
        for step in drifted {
            let is_named = named.contains(&step.key(&plan.wish));
            *(if is_named { &mut by_hint } else { &mut by_resync }) += 1;
        }
        self.status.send_modify(|status| {
            status.counts.drift_by_hint += by_hint;
            status.counts.drift_by_resync += by_resync;
        });
    }

    /// What a hint named, and what rests on nothing else that a hint named, somebody undid.
    fn note_losses(&mut self, plan: &Plan<S>, named: &BTreeSet<S::Key>) {
        if named.is_empty() {
            return;
        }
        let now = self.now();
        for step in plan.steps.iter().filter(|step| plan.cause(step) == Cause::Drift) {
            let key = step.key(&plan.wish);
            let mut follows = false;
            step.needs(&plan.wish, &mut |need| follows |= named.contains(&need));
            if !named.contains(&key) || follows {
                continue;
            }
            if let Heal::At(until) = self.agenda.lost(key.clone(), None, now) {
                let (key, culprit) = (key.to_string(), "somebody".to_owned());
                self.tell(What::Contention { key, culprit, pause: until.since(now) });
            }
        }
    }

    fn end(&mut self, turn: &Turn<S::Key>, made: Result<Made<S>, Error>) -> Told {
        let now = self.now();
        let took =
            self.status.borrow().last_attempt.map_or(Duration::ZERO, |began| now.since(began));
        self.health.ended(now);
        let facts = match &made {
            Ok(made) => made.facts(),
            Err(error) => Facts { broken: Some(error.retry()), ..Facts::default() },
        };
        self.agenda.ended(turn, facts, now);
        match made {
            Ok(made) => {
                if turn.focus == Focus::All {
                    self.holds_removals = made.holds_removals();
                }
                self.settle(turn, &made);
                let told = made.explain();
                self.tell_steps(&*told);
                self.tell_end(&*told, took);
                Ok(told)
            }
            Err(error) => {
                self.open = None;
                self.broke(&error);
                Err(Arc::new(error))
            }
        }
    }

    fn tell_end(&self, told: &dyn Explain, took: Duration) {
        let (summary, converged) = (told.summary(), told.is_converged());
        self.status.send_modify(|status| {
            status.counts.applied += u64::try_from(summary.total()).unwrap_or(u64::MAX);
        });
        self.tell(What::Completed { summary, converged, took });
    }

    fn broke(&mut self, error: &Error) {
        let (failure, streak) = (error.failure(), self.agenda.streak());
        self.tell(What::Failed { failure: failure.clone() });
        self.status.send_modify(|status| {
            status.is_converged = false;
            status.last_error = Some(failure);
            status.failures = streak;
            status.counts.broken += 1;
        });
    }

    fn settle(&mut self, turn: &Turn<S::Key>, made: &Made<S>) {
        self.note_open(&turn.focus, made);
        let now = self.now();
        let is_full = turn.focus == Focus::All;
        let is_converged = self.unsettled.is_empty() && made.is_recorded();
        let open = Counted::of(self.unsettled.values());
        let next_due = self.agenda.deadline();
        let contended = self.agenda.contended().map(|one| {
            let culprit = one.culprit.unwrap_or("somebody").to_owned();
            (one.key.to_string(), culprit, one.pause)
        });
        let contended = contended.collect();
        let not_converging = self.agenda.not_converging().map(|one| one.key.to_string()).collect();
        self.status.send_modify(|status| {
            status.last_success = Some(now);
            (status.last_error, status.failures) = (None, 0);
            status.is_ready |= is_full;
            (status.is_converged, status.open, status.next_due) = (is_converged, open, next_due);
            (status.contended, status.not_converging) = (contended, not_converging);
        });
    }

    /// What a pass looked at is as it says; everything else is as it was.
    fn note_open(&mut self, focus: &Focus<S::Key>, made: &Made<S>) {
        match focus {
            Focus::All => self.unsettled.clear(),
            Focus::Keys(keys) => self.unsettled.retain(|key, _| !keys.contains(key)),
        }
        made.open(&mut |key, kind| {
            self.unsettled.insert(key, kind);
        });
    }
}

fn order<'a, S: Source>(
    bound: &'a Bound<S>,
    config: &'a Config<S::Key>,
    focus: Focus<S::Key>,
) -> Order<'a, S> {
    let Bound { source, wish, ownership, .. } = bound;
    Order { source, wish: Arc::clone(wish), ownership, focus, config }
}

/// The named keys that a pass looks at.
fn take_named<K: Ord + Clone>(named: &mut BTreeSet<K>, focus: &Focus<K>) -> BTreeSet<K> {
    match focus {
        Focus::All => std::mem::take(named),
        Focus::Keys(keys) => {
            let taken: BTreeSet<K> = named.intersection(keys).cloned().collect();
            named.retain(|key| !keys.contains(key));
            taken
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no words".to_owned())
}
