//! A trial: a document that is in force until it is confirmed, and undone if nobody confirms it in time.
//!
//! A rollback is decided, then begun by giving the loops the document before the trial, then waited for: until the
//! passes have run, the trial counts as open, in memory and on disk. So whoever takes the lock after a holder that died
//! in between begins it again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Document, TRIAL};
use homeostat_engine::{Kind, MassDelete, OnRelease};
use serde_json::json;
use tracing::Level;

use super::clock::{BootTime, Stamp, boot_id};
use super::command::TrialRequest;
use super::recent::Recent;
use super::{Daemon, Recipients, Role, Wake, log, refused};
use crate::confirmed::{ConfirmedDocuments, Origin, RecordedTrial, TrialRecord};
use crate::failure::{self, helped};
use crate::person::Person;
use crate::referenced_files::ReferencedFiles;
use crate::registry::is_remote;
use crate::wire::{NotRestored, RolledBack, TrialEnd, TrialStatus, millis};

/// How many keys that could not be brought back are named.
const NAMED: usize = 20;
/// How long the passes of a rollback are waited for before it is reported as it stands. The loops go on.
const PASSES: Duration = Duration::from_secs(30);
/// The first and the longest wait before a rollback that could not begin is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long a holder without a trial waits for one, and how long one whose trial has ended still answers.
const BEGIN: Duration = Duration::from_mins(1);
const LINGER: Duration = Duration::from_secs(1);

/// A trial that is open.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) record: TrialRecord,
    pub(super) by: Person,
    pub(super) from: Vec<PathBuf>,
    /// Whether the daemon's own document is tried.
    pub(super) is_edit: bool,
    pub(super) phase: Phase,
    /// The keys that were not as declared before it: source, scope, key.
    open_before: Arc<BTreeSet<(String, String, String)>>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// It waits for somebody to confirm it.
    Open { deadline: BootTime },
    /// The document before it could not be given to the loops so often.
    Retrying { why: String, at: BootTime, failures: u32, last: String },
    /// The loops have the document before it. Their passes are waited for until then.
    RollingBack { why: String, until: BootTime },
}

/// The trial that is open, and how the last one ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials {
    pub(super) open: Option<Trial>,
    pub(super) last: Option<(u64, TrialEnd)>,
    /// Whether the daemon's own files changed during a trial: they wait for its end.
    pub(super) has_edit: bool,
    confirmed: u64,
    rolled_back: u64,
}

impl Trial {
    /// One whose holder ended. What it returns to is in force again; the passes are yet to run.
    pub(super) fn left_by_another(left: RecordedTrial) -> Self {
        let RecordedTrial { record, origin } = left;
        let why = "the process that held it ended".to_owned();
        let phase = Phase::RollingBack { why, until: BootTime::after(PASSES) };
        let (by, from) = (origin.applied_by, origin.from);
        Trial { record, by, from, is_edit: false, phase, open_before: Arc::default() }
    }
}

impl Trials {
    /// The open trial, for people.
    pub(super) fn status(&self) -> Option<TrialStatus> {
        let trial = self.open.as_ref()?;
        let (left, rolls_back) = match &trial.phase {
            Phase::Open { deadline } => (deadline.left(), None),
            Phase::Retrying { why, .. } | Phase::RollingBack { why, .. } => {
                (Duration::ZERO, Some(why.clone()))
            }
        };
        Some(TrialStatus {
            id: trial.record.id,
            by: trial.by.to_string(),
            from: trial.from.clone(),
            began_at: trial.record.began_at.clone(),
            left_ms: millis(left),
            returns_to: trial.record.before,
            edit_waits: self.has_edit,
            rolls_back,
        })
    }

    /// How many ended in which way since the start.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        [("confirmed", self.confirmed), ("rolled-back", self.rolled_back)]
    }

    fn ended(&mut self, id: u64, end: TrialEnd) {
        match end {
            TrialEnd::Confirmed { .. } => self.confirmed += 1,
            TrialEnd::RolledBack(_) => self.rolled_back += 1,
        }
        self.last = Some((id, end));
    }

    /// The trial that waits for its confirm.
    fn unconfirmed(&mut self) -> Result<&mut Trial> {
        let trial = self.open.as_mut().ok_or_else(no_trial)?;
        match &trial.phase {
            Phase::Open { .. } => Ok(trial),
            Phase::Retrying { why, .. } | Phase::RollingBack { why, .. } => Err(helped(
                format!("trial {} is being rolled back: {why}", trial.record.id),
                "`homeostat status` shows when that is done; then it can be tried again",
            )),
        }
    }
}

/// Refuses a time that makes no trial.
pub(super) fn check_within(within: Duration) -> Result<()> {
    if TRIAL.contains(&within) {
        return Ok(());
    }
    Err(helped(
        format!("a trial of {within:?} makes no sense"),
        "give a time from 1s to 24h; two minutes are a good start",
    ))
}

/// Refuses to confirm from the session that applied: its connections pass a firewall that drops new ones.
pub(super) fn check_session(trial: &Trial, by: &Person, same_session: bool) -> Result<()> {
    // Who edits a file may do so in any session.
    if same_session || trial.is_edit || by.session != trial.by.session {
        return Ok(());
    }
    Err(helped(
        "this is the session that began the trial: that it still works proves nothing about new connections",
        "open a new session to the machine and confirm there, or insist with --same-session",
    ))
}

/// Why a good document is not taken.
pub(crate) fn tried_before() -> anyhow::Error {
    helped(
        "this document was tried, and nobody confirmed it",
        "change it, or try it again: `homeostat apply DOC --confirm-within 2m`, or `homeostat reload`",
    )
}

pub(super) fn no_trial() -> anyhow::Error {
    helped("there is no open trial", "`homeostat apply DOC --confirm-within 2m` begins one")
}

impl Daemon {
    pub(super) fn confirmed(&self) -> ConfirmedDocuments {
        ConfirmedDocuments::of(&self.context.state_dir, &self.context.caller.owner)
    }

    /// Everything that a trial needs, before anything is written to the machine.
    pub(super) async fn begin_trial(
        &mut self,
        document: &Document,
        request: TrialRequest,
        from: Vec<PathBuf>,
    ) -> Result<()> {
        check_within(request.within)?;
        if let Some(TrialStatus { id, by, left_ms, .. }) = self.trials.status() {
            return Err(helped(
                format!("trial {id} of {by} is open for another {} s", left_ms / 1000),
                "confirm it or roll it back first: `homeostat confirm`, `homeostat rollback`",
            ));
        }
        if self.unconfirmed.is_some() {
            // What the trial returns to must be known to work.
            self.passed().await;
            self.confirm().await;
        }
        let (confirmed, scope) = (self.confirmed(), self.context.top_scope()?.name);
        let before = confirmed.newest_in(&scope).map(|entry| entry.number);
        if before.is_none() && self.options.role == Role::Keep {
            return Err(helped(
                "there is no confirmed document that the trial could return to",
                "the log says why the document in force was not kept; mend that, then `homeostat reload`",
            ));
        }
        let guarded = match self.options.role {
            Role::HoldTrial { guarded } => guarded,
            Role::Keep => {
                self.loops().iter().any(|control| control.status().open.count(Kind::Held) > 0)
            }
        };
        let record = TrialRecord {
            id: confirmed.next_trial(),
            before,
            boot: boot_id(),
            began_at: Stamp::now().to_string(),
            guarded,
        };
        let origin = Origin {
            from: from.clone(),
            scope,
            applied_by: request.by.clone(),
            confirmed_by: None,
        };
        confirmed.begin_trial(document, &ReferencedFiles::of(document), origin, &record)?;
        let phase = Phase::Open { deadline: BootTime::after(request.within) };
        let open_before = self.snapshot.borrow().open(None, Some(usize::MAX)).open.into_iter();
        let open_before = open_before.map(|open| (open.source, open.scope, open.key)).collect();
        let is_edit = from == self.options.from;
        self.trials.open = Some(Trial {
            record,
            by: request.by,
            from,
            is_edit,
            phase,
            open_before: Arc::new(open_before),
        });
        Ok(())
    }

    /// Forgets the trial that was just begun: its document cannot be taken. Some loops may have it all the same.
    pub(super) async fn abandon_trial(&mut self, why: &anyhow::Error) {
        if self.loops().is_empty() || self.arrange(Recipients::All).await.is_ok() {
            self.trials.open = None;
            if let Err(error) = self.confirmed().discard_trial() {
                log::log_error(&error, "a trial that was not begun cannot be discarded");
            }
        } else {
            self.roll_back_or_retry(&failure::text(why)).await;
        }
        self.publish();
    }

    /// Begins a trial of the provider's changed document, if the settings ask for that. One that was tried before is
    /// tried again only if somebody asks for it; one that is confirmed needs no trial.
    pub(super) async fn begin_trial_of_edit(
        &mut self,
        document: &Document,
        is_asked_for: bool,
    ) -> Result<()> {
        // A change that takes the setting away is the last one that is tried.
        let within = [document, &*self.document].map(|one| one.settings.confirm_within);
        let Some(within) = within.into_iter().flatten().next() else { return Ok(()) };
        let (confirmed, scope) = (self.confirmed(), self.context.top_scope()?.name);
        if confirmed.is_newest_in(&scope, document, &ReferencedFiles::of(document)) {
            return Ok(());
        }
        if !is_asked_for && confirmed.is_unconfirmed(document) {
            return Err(tried_before());
        }
        let request = TrialRequest { within: within.get(), by: Person::current() };
        let from = self.options.from.clone();
        self.begin_trial(document, request, from).await
    }

    /// Ends the trial: what it made stays.
    pub(super) fn confirm_trial(&mut self, by: &Person, same_session: bool) -> Result<()> {
        check_session(self.trials.unconfirmed()?, by, same_session)?;
        let number = self.confirmed().confirm_trial(by.clone())?;
        self.end_trial(TrialEnd::Confirmed { number, by: by.to_string() });
        Ok(())
    }

    /// Gives the trial more time, from now on.
    pub(super) fn extend_trial(&mut self, during: Duration) -> Result<()> {
        check_within(during)?;
        self.trials.unconfirmed()?.phase = Phase::Open { deadline: BootTime::after(during) };
        self.publish();
        Ok(())
    }

    fn end_trial(&mut self, end: TrialEnd) {
        let Some(trial) = self.trials.open.take() else { return };
        record_end(&self.recent, trial.record.id, &end);
        self.trials.ended(trial.record.id, end);
        self.publish();
    }

    /// Gives the loops the document from before the trial. What only the trial made goes: a section that the document
    /// lacks is no mistake of somebody who edits, and values go back to what they were.
    pub(super) async fn roll_back(&mut self, why: &str, recipients: Recipients) -> Result<()> {
        let trial = self.trials.open.as_ref().ok_or_else(no_trial)?;
        let (record, confirmed) = (trial.record.clone(), self.confirmed());
        let document = Arc::new(confirmed.before(&record)?);
        for control in self.loops() {
            // One that is paused would stay as it is. One that has ended comes again below.
            let _ = control.resume();
        }
        let caller = self.context.caller.clone();
        if !record.guarded {
            self.context.caller.guards.mass_delete = MassDelete::Allow;
        }
        self.context.caller.on_release = OnRelease::Restore;
        let taken = self.take(document, recipients).await;
        self.context.caller = caller;
        taken?;
        (self.own, self.unconfirmed) = (None, None);
        if let Some(trial) = &mut self.trials.open {
            let (why, until) = (why.to_owned(), BootTime::after(PASSES));
            trial.phase = Phase::RollingBack { why, until };
        }
        self.publish();
        Ok(())
    }

    /// Rolls back for nobody who could try again.
    pub(super) async fn roll_back_or_retry(&mut self, why: &str) {
        if let Err(error) = self.roll_back(why, Recipients::All).await {
            self.retry_rollback(why, &error);
        }
    }

    /// The trial cannot be rolled back now. It is logged when it begins, when the reason changes, and ever more rarely.
    fn retry_rollback(&mut self, why: &str, error: &anyhow::Error) {
        let Some(trial) = &mut self.trials.open else { return };
        let text = failure::text(error);
        let failures = match &trial.phase {
            Phase::Retrying { failures, last, .. } if *last == text => failures + 1,
            _ => 1,
        };
        let wait = FIRST_RETRY.saturating_mul(failures).min(LAST_RETRY);
        trial.phase = Phase::Retrying {
            why: why.to_owned(),
            at: BootTime::after(wait),
            failures,
            last: text.clone(),
        };
        if failures.is_power_of_two() {
            tracing::error!(error = text, failures, "the trial cannot be rolled back yet");
            let fields = json!({ "error": text, "failures": failures });
            self.recent.record(Level::ERROR, "trial-not-rolled-back", fields);
        }
        self.publish();
    }

    /// The passes of the rollback have run, or have had their time.
    pub(super) async fn rolled_back(&mut self) {
        let Some(Trial { record, is_edit, phase: Phase::RollingBack { why, .. }, .. }) =
            self.trials.open.clone()
        else {
            return;
        };
        let (not, not_count) = self.not_restored();
        let end = RolledBack { why: why.clone(), to: record.before, not, not_count };
        if let Err(error) = self.confirmed().end_trial(&end) {
            return self.retry_rollback(&why, &error);
        }
        if is_edit {
            refused(&mut self.health, &tried_before(), &self.recent);
        }
        self.end_trial(TrialEnd::RolledBack(end));
        // What was lifted for the rollback holds again.
        if let Err(error) = self.arrange(Recipients::All).await {
            log::log_error(&error, "the loops cannot be arranged after the rollback");
        }
    }

    /// The first keys that are not as they were before the trial, and how many there are.
    fn not_restored(&self) -> (Vec<NotRestored>, usize) {
        let snapshot = self.snapshot.borrow();
        let open_before = self.trials.open.as_ref().map(|trial| Arc::clone(&trial.open_before));
        let open_before = open_before.unwrap_or_default();
        let open = snapshot.open(None, Some(usize::MAX)).open.into_iter();
        let open = open.map(|open| NotRestored {
            source: open.source,
            scope: open.scope,
            key: open.key,
            kind: open.kind,
            reason: open.reason,
        });
        let is_new = |one: &NotRestored| {
            let key = (one.source.clone(), one.scope.clone(), one.key.clone());
            !open_before.contains(&key)
        };
        let unpassed = snapshot.loops.iter().filter(|control| !control.status().has_passed);
        let unpassed = unpassed.filter(|control| !is_remote(&control.ledger_key().source));
        let unpassed = unpassed.map(|control| NotRestored {
            source: control.ledger_key().source.clone(),
            scope: control.ledger_key().scope.clone(),
            key: control.ledger_key().source.clone(),
            kind: "unknown".to_owned(),
            reason: control.status().last_error.map(|failure| failure.error),
        });
        let all: Vec<_> = unpassed.chain(open.filter(is_new)).collect();
        let count = all.len();
        (all.into_iter().take(NAMED).collect(), count)
    }

    /// Closes the record of a trial that a boot has ended: nothing of it is left in the kernel.
    pub(super) fn close_trial_of_another_boot(&mut self) {
        let confirmed = self.confirmed();
        let Some(RecordedTrial { record, .. }) = confirmed.open_trial() else { return };
        if record.boot == boot_id() {
            return;
        }
        let why = "the machine was booted".to_owned();
        let end = RolledBack { why, to: record.before, ..RolledBack::default() };
        if let Err(error) = confirmed.end_trial(&end) {
            log::log_error(&error, "a former trial cannot be closed");
        }
        let end = TrialEnd::RolledBack(end);
        record_end(&self.recent, record.id, &end);
        self.trials.ended(record.id, end);
        self.publish();
    }

    /// Waits for what the open trial needs next, or for the end of a daemon that only holds one.
    pub(super) fn trial_wakes(&self) -> impl Future<Output = Wake> + use<> {
        let phase = self.trials.open.as_ref().map(|trial| trial.phase.clone());
        let (role, last) = (self.options.role, self.trials.last.is_some());
        let snapshot = self.snapshot.borrow().clone();
        async move {
            match phase {
                Some(Phase::Open { deadline }) => {
                    deadline.wait().await;
                    Wake::RollBack("nobody confirmed it in time".to_owned())
                }
                Some(Phase::Retrying { why, at, .. }) => {
                    at.wait().await;
                    Wake::RollBack(why)
                }
                Some(Phase::RollingBack { until, .. }) => {
                    tokio::select! {
                        () = snapshot.wait_until_settled() => {}
                        () = until.wait() => {}
                    }
                    Wake::RolledBack
                }
                None if role == Role::Keep => std::future::pending().await,
                None => {
                    BootTime::after(if last { LINGER } else { BEGIN }).wait().await;
                    Wake::Stop
                }
            }
        }
    }
}

pub(super) fn record_end(recent: &Recent, id: u64, end: &TrialEnd) {
    let mut fields = serde_json::to_value(end).unwrap_or_default();
    fields["trial"] = json!(id);
    let level = if matches!(end, TrialEnd::Confirmed { .. }) { Level::INFO } else { Level::WARN };
    recent.record(level, "trial-ended", fields);
}
