//! A trial: a document that is in force until it is confirmed, and undone if nobody confirms it in time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Document, TRIAL};
use homeostat_engine::{Kind, LedgerKey, MassDelete, OnRelease, Restored};
use homeostat_registry::Caller;
use serde_json::json;
use tracing::Level;

use super::clock::{BootTime, Stamp, boot_id};
use super::command::TrialRequest;
use super::recent::Recent;
use super::{Daemon, Recipients, log, refused};
use crate::confirmed::{ConfirmedDocuments, Origin, TrialRecord};
use crate::failure::{self, helped};
use crate::person::Person;
use crate::referenced_files::ReferencedFiles;
use crate::undo_file::{self, TakenObject, UndoFile};
use crate::wire::{TrialEnd, TrialStatus, millis};

/// A trial that is open.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) record: TrialRecord,
    pub(super) by: Person,
    pub(super) from: Vec<PathBuf>,
    pub(super) deadline: BootTime,
    /// Whether the daemon's own document is tried.
    pub(super) is_edit: bool,
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

impl Trials {
    /// The open trial, for people.
    pub(super) fn status(&self) -> Option<TrialStatus> {
        let trial = self.open.as_ref()?;
        Some(TrialStatus {
            id: trial.record.id,
            by: trial.by.to_string(),
            from: trial.from.clone(),
            began_at: trial.record.began_at.clone(),
            left_ms: millis(trial.deadline.left()),
            returns_to: trial.record.before,
            edit_waits: self.has_edit,
        })
    }

    /// How many ended in which way since the start.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        [("confirmed", self.confirmed), ("rolled-back", self.rolled_back)]
    }

    fn ended(&mut self, id: u64, end: TrialEnd) {
        match end {
            TrialEnd::Confirmed { .. } => self.confirmed += 1,
            TrialEnd::RolledBack { .. } => self.rolled_back += 1,
        }
        self.last = Some((id, end));
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
    ) -> Result<Trial> {
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
        let confirmed = self.confirmed();
        let before = confirmed.entries()?.last().map(|entry| entry.number);
        let before = before.ok_or_else(|| {
            helped(
                "there is no confirmed document that the trial could return to",
                "the log says why the document in force was not kept; mend that, then `homeostat reload`",
            )
        })?;
        let record = TrialRecord {
            id: confirmed.next_trial(before),
            before,
            boot: boot_id(),
            began_at: Stamp::now().to_string(),
            guards_held: self.guards_hold(),
        };
        let origin = Origin {
            from: from.clone(),
            scope: self.context.top_scope()?.name,
            applied_by: request.by.clone(),
            confirmed_by: None,
        };
        let files = ReferencedFiles::of(document);
        confirmed.begin_trial(document, &files, origin, &record)?;
        self.context.caller.trial = Some(self.losses);
        self.context.caller.undo = Some(Arc::new(UndoFile::new(confirmed.undo_file())));
        let deadline = BootTime::after(request.within);
        let is_edit = from == self.options.from;
        Ok(Trial { record, by: request.by, from, deadline, is_edit })
    }

    /// Begins a trial of the provider's changed document, if the settings ask for that. One that was tried before is
    /// tried again only if somebody asks for it.
    pub(super) async fn begin_trial_of_edit(
        &mut self,
        document: &Document,
        is_asked_for: bool,
    ) -> Result<Option<Trial>> {
        // A change that takes the setting away is the last one that is tried.
        let within = [document, &*self.document].map(|one| one.settings.confirm_within);
        let Some(within) = within.into_iter().flatten().next() else { return Ok(None) };
        if !is_asked_for && self.confirmed().is_unconfirmed(document) {
            return Err(tried_before());
        }
        let request = TrialRequest { within: within.get(), by: Person::current() };
        let from = self.options.from.clone();
        self.begin_trial(document, request, from).await.map(Some)
    }

    /// Ends a trial of which nothing was written.
    pub(super) fn abandon_trial(&mut self) -> Result<()> {
        self.leave_trial();
        self.confirmed().end_trial()
    }

    fn leave_trial(&mut self) {
        (self.context.caller.trial, self.context.caller.undo) = (None, None);
    }

    /// Ends the trial: what it made stays, and what was put off until now is done.
    pub(super) async fn confirm_trial(&mut self, by: &Person, same_session: bool) -> Result<()> {
        let trial = self.trials.open.as_ref().ok_or_else(no_trial)?;
        check_session(trial, by, same_session)?;
        let number = self.confirmed().confirm_trial(by.clone())?;
        self.end_trial(TrialEnd::Confirmed { number, by: by.to_string() });
        self.leave_trial();
        self.arrange(Recipients::AllForClient).await
    }

    /// Gives the trial more time, from now on.
    pub(super) fn extend_trial(&mut self, during: Duration) -> Result<()> {
        check_within(during)?;
        let trial = self.trials.open.as_mut().ok_or_else(no_trial)?;
        trial.deadline = BootTime::after(during);
        self.publish();
        Ok(())
    }

    fn end_trial(&mut self, end: TrialEnd) {
        let Some(trial) = self.trials.open.take() else { return };
        record_end(&self.recent, trial.record.id, &end);
        self.trials.ended(trial.record.id, end);
        self.publish();
    }

    /// Returns to the document that was confirmed before the trial.
    pub(super) async fn roll_back(&mut self, why: &str) -> Result<()> {
        let trial = self.trials.open.clone().ok_or_else(no_trial)?;
        let confirmed = self.confirmed();
        let entry = confirmed.entry(trial.record.before)?;
        let document = confirmed.load(&entry)?;
        let caller = self.undo(&trial.record);
        let taken = self.take(Arc::new(document), Recipients::AllForClient).await;
        self.context.caller = caller;
        taken?;
        self.leave_trial();
        confirmed.end_trial()?;
        self.restore_taken();
        if trial.is_edit {
            refused(&mut self.health, &tried_before(), &self.recent);
        }
        (self.own, self.unconfirmed) = (None, None);
        self.end_trial(TrialEnd::RolledBack { why: why.to_owned(), to: entry.number });
        Ok(())
    }

    /// Makes again what the last trial took from others, once the loops have made a pass with the former document.
    pub(super) fn restore_taken(&self) {
        let Some(path) = self.confirmed().undo_file_of_last(&boot_id()) else { return };
        let (loops, recent) = (self.scopes.loops(), self.recent.clone());
        tokio::spawn(async move {
            let all = undo_file::read(&path);
            for control in loops {
                let of = control.ledger_key();
                let is_here = |one: &&TakenObject| one.source == of.source && one.scope == of.scope;
                let taken = all.iter().filter(is_here);
                let taken: Vec<_> = taken
                    .filter_map(|one| Some((one.key.clone(), one.snapshot.clone()?)))
                    .collect();
                if !taken.is_empty() && control.wait_for(Box::new(|it| it.has_passed)).await.is_ok()
                {
                    let restored = control.restore(taken).await.unwrap_or_default();
                    record_restored(&recent, of, restored);
                }
            }
            // What could not be made again was said; a later start does not try it once more.
            let _ = std::fs::remove_file(&path);
        });
    }

    /// Whether guards hold something back now.
    fn guards_hold(&self) -> bool {
        let loops = self.scopes.loops();
        loops.iter().any(|control| control.status().open.count(Kind::Held) > 0)
    }

    /// Lets the next document undo a trial: what the trial claimed goes back to what it was, and what only the trial
    /// declared is deleted without asking. Returns the caller that is to be put back.
    pub(super) fn undo(&mut self, record: &TrialRecord) -> Caller {
        let caller = self.context.caller.clone();
        self.leave_trial();
        self.context.caller.on_release = OnRelease::Restore;
        if !record.guards_held {
            self.context.caller.guards.mass_delete = MassDelete::Allow;
        }
        caller
    }

    /// Ends a trial whose holder ended: its document is not in force, whatever it was killed by.
    pub(super) fn close_former_trial(&mut self) {
        let confirmed = self.confirmed();
        let Some(TrialRecord { id, before, boot, .. }) = confirmed.open_trial() else { return };
        let why = if boot == boot_id() {
            "the daemon that held it ended"
        } else {
            "the machine was booted"
        };
        if let Err(error) = confirmed.end_trial() {
            log::log_error(&error, "a former trial cannot be closed");
        }
        let end = TrialEnd::RolledBack { why: why.to_owned(), to: before };
        record_end(&self.recent, id, &end);
        self.trials.ended(id, end);
        self.publish();
    }

    /// Waits until the time of the open trial is over.
    pub(super) fn trial_ends(&self) -> impl Future<Output = ()> + use<> {
        let deadline = self.trials.open.as_ref().map(|trial| trial.deadline);
        async move {
            match deadline {
                Some(deadline) => deadline.wait().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The time of the trial is over.
    pub(super) async fn trial_is_over(&mut self) {
        if let Err(error) = self.roll_back("nobody confirmed it in time").await {
            log::log_error(&error, "the trial cannot be rolled back yet");
            let fields = json!({ "error": failure::text(&error) });
            self.recent.record(Level::ERROR, "trial-not-rolled-back", fields);
            if let Some(trial) = &mut self.trials.open {
                trial.deadline = BootTime::after(Duration::from_secs(1));
            }
        }
    }
}

fn record_restored(recent: &Recent, of: &LedgerKey, restored: Vec<(String, Restored)>) {
    for (key, restored) in restored {
        let (level, end, error) = match restored {
            Restored::Back => (Level::INFO, "back", None),
            Restored::There => (Level::INFO, "there-already", None),
            Restored::Failed(failure) => (Level::ERROR, "lost", Some(failure.error)),
        };
        let fields = json!({
            "source": of.source, "scope": of.scope, "key": key, "end": end, "error": error,
        });
        recent.record(level, "trial-object-restored", fields);
    }
}

pub(super) fn record_end(recent: &Recent, id: u64, end: &TrialEnd) {
    let mut fields = serde_json::to_value(end).unwrap_or_default();
    fields["trial"] = json!(id);
    let level = if matches!(end, TrialEnd::Confirmed { .. }) { Level::INFO } else { Level::WARN };
    recent.record(level, "trial-ended", fields);
}
