//! One pass of a loop: begun, bounded in time, caught if it panics, told, and learned from.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_core::{
    Covers, Entry, Fails, Focus, Key, Kind, Retry, SharedReport, Source, WaitsOn,
};

use super::event::{EventKind, PassId};
use super::handle::Told;
use super::losses::UNNAMED;
use super::made::Made;
use super::mail::Mail;
use super::status::OpenCounts;
use super::wakeup::{Facts, Turn};
use super::{Keeper, LastPass};
use crate::broken::BrokenPass;
use crate::error::Error;

impl<S: Source> Keeper<S> {
    /// Runs one pass, whatever becomes of it. Once told to stop, it is not waited for for long.
    pub(super) async fn take(&mut self, mut turn: Turn<S::Key>, mail: &mut Mail<S>) -> Told {
        self.begin(&turn);
        let made = self.guarded(mail, async |keeper| keeper.make(&mut turn).await).await;
        self.end(&turn, made)
    }

    /// Runs one pass to its end, also while the loop stops.
    pub(super) async fn take_last(&mut self, mut turn: Turn<S::Key>) -> Told {
        self.begin(&turn);
        let made = bounded(self.pace.deadline, self.make(&mut turn)).await;
        let told = self.end(&turn, made);
        self.conclude_rest().await;
        told
    }

    pub(super) fn begin(&mut self, turn: &Turn<S::Key>) {
        let now = self.now();
        self.pass = PassId(self.pass.0 + 1);
        let keys = match &turn.focus {
            Focus::All => None,
            Focus::Keys(keys) => Some(keys.len()),
        };
        match turn.focus {
            Focus::All => self.pulse.health().started_full(now),
            Focus::Keys(_) => self.pulse.health().started(now),
        }
        // Ready work is being taken.
        self.pulse.ready(None);
        let pass = self.pass;
        self.status.send_modify(|status| {
            (status.pass, status.last_attempt) = (pass, Some(now));
            match keys {
                None => status.counts.full += 1,
                Some(_) => status.counts.focused += 1,
            }
        });
        self.tell(EventKind::Started { reasons: turn.reasons, keys, waited: turn.waited });
    }

    pub(super) fn end(&mut self, turn: &Turn<S::Key>, made: Result<Made<S>, Error>) -> Told {
        let now = self.now();
        let began = self.status.borrow().last_attempt;
        let took = began.map_or(Duration::ZERO, |began| now.since(began));
        self.pulse.health().ended(now);
        let stuck: BTreeSet<S::Key> =
            self.agenda.not_converging().map(|one| one.key.clone()).collect();
        let facts = match &made {
            Ok(made) => made.facts.clone(),
            Err(error) => Facts { broken: Some(error.retry()), ..Facts::default() },
        };
        self.agenda.ended(turn, facts, now);
        match made {
            Ok(made) => {
                let has_moved = made.counted.0 > 0
                    || made.facts.failed.values().any(|retry| *retry == Retry::Now);
                self.last_pass = LastPass { is_good: made.is_recorded, has_moved };
                let covers = covers(&turn.focus, &made.facts.held);
                let told = self.ended_well(turn, made, (stuck, took));
                self.record(&covers, &told);
                self.show_tasks(&told);
                Ok(told)
            }
            Err(error) => {
                (self.open, self.has_lost_reader) = (None, true);
                self.broke(&error);
                let has_moved = error.retry() == Retry::Now;
                self.last_pass = LastPass { is_good: false, has_moved };
                let report: SharedReport = Arc::new(BrokenPass::new(&error, S::NAME));
                self.record(&Covers::All, &report);
                Err(Arc::new(error))
            }
        }
    }

    fn ended_well(
        &mut self,
        turn: &Turn<S::Key>,
        made: Made<S>,
        (stuck, took): (BTreeSet<S::Key>, Duration),
    ) -> SharedReport {
        if turn.focus == Focus::All {
            self.holds_removals = made.holds_removals;
        }
        self.note_open(&turn.focus, &made);
        self.told.keep(&turn.focus, &self.unsettled);
        self.tell_shown(&turn.focus, &made);
        self.publish(turn, &made);
        for one in self.agenda.not_converging().filter(|one| !stuck.contains(one.key)) {
            self.tell(EventKind::NotConverging { key: one.key.to_string() });
        }
        let (summary, converged) = (made.told.summary(), made.told.is_converged());
        self.tell(EventKind::Completed { summary, converged, took });
        made.told
    }

    /// Shows people what a run waits for.
    fn show_tasks(&self, report: &SharedReport) {
        let Some(progress) = &self.config.progress else { return };
        if S::FAILS == Fails::Lanes {
            report.explain(Kind::Pending, &mut |entry| {
                if let Entry::Pending { key, on: WaitsOn::Task(task) } = entry {
                    progress.waits(&key, &task);
                }
            });
        }
    }

    fn broke(&mut self, error: &Error) {
        let failure = error.failure();
        self.tell(EventKind::Failed { failure: failure.clone() });
        self.status.send_modify(|status| {
            status.is_converged = false;
            status.last_error = Some(failure);
            status.failures = status.failures.saturating_add(1);
            status.counts.broken += 1;
        });
    }

    fn publish(&mut self, turn: &Turn<S::Key>, made: &Made<S>) {
        let now = self.now();
        let is_full = turn.focus == Focus::All;
        let is_converged = self.unsettled.is_empty() && made.is_recorded;
        let open = OpenCounts::of(self.unsettled.values().map(|open| open.kind));
        let contended = self.agenda.contended().map(|one| {
            let culprit = one.culprit.unwrap_or(UNNAMED).to_owned();
            (one.key.to_string(), culprit, one.pause)
        });
        let contended = contended.collect();
        let not_converging = self.agenda.not_converging().map(|one| one.key.to_string()).collect();
        let counted = <[usize; 2]>::from(made.counted).map(|count| count as u64);
        self.status.send_modify(|status| {
            status.last_success = Some(now);
            (status.last_error, status.failures) = (None, 0);
            status.is_ready |= is_full;
            (status.is_converged, status.open) = (is_converged, open);
            (status.contended, status.not_converging) = (contended, not_converging);
            status.counts.applied += counted[0];
            status.counts.failed += counted[1];
        });
    }

    /// What a pass looked at is as it says; everything else is as it was. What it left alone for now
    /// is also as it was.
    fn note_open(&mut self, focus: &Focus<S::Key>, made: &Made<S>) {
        let before: BTreeMap<_, _> = match focus {
            Focus::All => std::mem::take(&mut self.unsettled),
            Focus::Keys(keys) => {
                keys.iter().filter_map(|key| self.unsettled.remove_entry(key)).collect()
            }
        };
        for (key, open) in &made.open {
            let known = before.get(key).filter(|_| made.facts.held.contains(key));
            self.unsettled.insert(key.clone(), *known.unwrap_or(open));
        }
    }
}

/// What the report of a pass speaks of.
fn covers<K: Key>(focus: &Focus<K>, left_alone: &BTreeSet<K>) -> Covers {
    match focus {
        Focus::All if left_alone.is_empty() => Covers::All,
        Focus::All => Covers::AllBut(left_alone.iter().map(ToString::to_string).collect()),
        Focus::Keys(keys) => {
            Covers::Keys(keys.difference(left_alone).map(ToString::to_string).collect())
        }
    }
}

/// Drives a piece of work, but not for ever, and not through a panic.
pub(super) async fn bounded<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(deadline, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => Err(Error::Panicked { what: words(&*panic) }),
        Err(_) => Err(Error::TooLong { deadline }),
    }
}

/// What a panic said.
pub(super) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no words".to_owned())
}
