//! A trial: a document that is in force until it is confirmed, and undone if it is not confirmed in time.
//!
//! A rollback is decided, then begun by giving the loops the document before the trial, then waited for: until the
//! passes have run, the trial counts as open, in memory and on disk. So if the holder dies in between, the next process
//! that takes the lock begins the rollback again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{Document, TRIAL};
use homeostat_engine::{Cascades, Control, Kind, MassDelete, OnRelease, UndoList};
use homeostat_fleet::records::Accepted;
use homeostat_netns::Netns;
use homeostat_registry::Caller;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::Level;

use super::clock::{BootTime, Stamp, boot_id};
use super::command::TrialRequest;
use super::loops_snapshot::LoopsSnapshot;
use super::recent::Recent;
use super::{Daemon, DaemonView, Recipients, Role, Wake, log, refused};
use crate::checks::{Check, CheckResult, run_all};
use crate::confirmed::{
    ConfirmedDocuments, Confirmer, Origin, RecordedTrial, TrialRecord, absolute,
};
use crate::failure::{self, helped};
use crate::person::Person;
use crate::provider::NodeTrial;
use crate::referenced_files::ReferencedFiles;
use crate::registry::is_remote;
use crate::undo_file::{self, UndoFile, Undone, WentAlong};
use crate::wire::{
    ConfirmBy, LastTrial, Leave, NotRestored, OnFailure, RolledBack, Terms, TrialEnd, TrialStatus,
    millis,
};

/// How many keys that could not be brought back are named.
const NAMED: usize = 20;
/// How long the passes of a rollback are waited for before it is reported as it stands. The loops go on.
const PASSES: Duration = Duration::from_secs(30);
/// The same after a boot, which may bring a target only later.
const PASSES_OF_A_BOOT: Duration = Duration::from_mins(10);
/// How long the running passes of a trial are waited for before a rollback begins. It cannot overtake them.
const RUNNING_PASS: Duration = Duration::from_secs(5);
/// The first and the longest wait before a rollback that could not begin is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long a holder without a trial waits for one, and how long one whose trial has ended still answers.
const BEGIN: Duration = Duration::from_mins(1);
const LINGER: Duration = Duration::from_secs(1);

/// When the checks of a trial begin, how often they run, and how many good rounds in a row confirm.
const FIRST_CHECK: Duration = Duration::from_secs(3);
const CHECK_EVERY: Duration = Duration::from_secs(1);
const GOOD_ROUNDS: u32 = 3;
/// How often checks may fail before a trial until they count as failing.
const TRIES_BEFORE: u32 = 3;

/// A trial that is open.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) record: TrialRecord,
    pub(super) by: Person,
    pub(super) from: Vec<PathBuf>,
    /// How long it lasts, unless it gets more time; nothing, if another process has begun it.
    within: Option<Duration>,
    /// Whether the daemon's own document is tried.
    pub(super) is_edit: bool,
    /// The provider's document, if the confirmed one before the trial is not that.
    own_before: Option<Arc<Document>>,
    pub(super) phase: Phase,
    terms: Terms,
    /// Whether it was looked at what the first passes came to.
    is_judged: bool,
    checking: Option<Arc<Checking>>,
    /// How a node of a fleet decides by itself.
    evidence: Option<Arc<Evidence>>,
    /// The keys that were not as declared before it: source, scope, key.
    open_before: Arc<BTreeSet<(String, String, String)>>,
    /// What others lose by its rollback.
    along: Arc<WentAlong>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// It waits for a confirmation.
    Open { deadline: BootTime },
    /// The document before it could not be given to the loops so often.
    Retrying { why: String, at: BootTime, failures: u32, last: String },
    /// The loops have the document before it. Their passes are waited for until then.
    RollingBack { why: String, until: BootTime },
}

/// Runs the checks of an open trial, until it is dropped.
#[derive(Debug)]
struct Checking {
    rounds: watch::Receiver<Rounds>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
struct Rounds {
    good_in_a_row: u32,
    last: Vec<CheckResult>,
}

impl Checking {
    fn start(checks: Vec<Check>, netns: Arc<Netns>) -> Self {
        let (sender, rounds) = watch::channel(Rounds::default());
        let task = tokio::spawn(async move {
            let mut times = interval_at(Instant::now() + FIRST_CHECK, CHECK_EVERY);
            times.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                times.tick().await;
                let last = run_all(&checks, &netns).await;
                let is_good = last.iter().all(|result| result.error.is_none());
                sender.send_modify(|rounds| {
                    rounds.good_in_a_row = if is_good { rounds.good_in_a_row + 1 } else { 0 };
                    rounds.last = last;
                });
            }
        });
        Checking { rounds, task }
    }

    fn last(&self) -> Vec<CheckResult> {
        self.rounds.borrow().last.clone()
    }

    async fn wait_until_good(&self) {
        let mut rounds = self.rounds.clone();
        // It ends only with this value.
        let _ = rounds.wait_for(|rounds| rounds.good_in_a_row >= GOOD_ROUNDS).await;
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for what makes an assignment of a fleet good, until it is dropped: everything is as declared for some time without
/// a break, then the checks are good and a member of the store answers.
#[derive(Debug)]
struct Evidence {
    /// What is missing; nothing, once it is good.
    missing: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Evidence {
    fn start(trial: NodeTrial, mut view: DaemonView, netns: Arc<Netns>) -> Self {
        let first = Some("not everything was as declared for long enough".to_owned());
        let (sender, missing) = watch::channel(first);
        let task = tokio::spawn(async move {
            loop {
                view.wait_until_passed().await;
                if !view.is_converged() {
                    sender.send_replace(Some("not everything is as declared".to_owned()));
                }
                stay_converged(&mut view, trial.settle).await;
                let results = run_all(&trial.checks, &netns).await;
                let bad = results.into_iter().find(|result| result.error.is_some());
                let bad = match bad {
                    Some(bad) => Some(bad.to_string()),
                    None => (trial.reach)().await.err(),
                };
                match bad {
                    // It may have changed while the checks ran.
                    None if view.is_converged() => {
                        sender.send_replace(None);
                        return;
                    }
                    None => {}
                    Some(bad) => {
                        sender.send_replace(Some(bad));
                        tokio::time::sleep(CHECK_EVERY).await;
                    }
                }
            }
        });
        Evidence { missing, task }
    }

    async fn wait_until_good(&self) {
        let mut missing = self.missing.clone();
        if missing.wait_for(Option::is_none).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until everything has been as declared for this time without a break.
async fn stay_converged(view: &mut DaemonView, settle: Duration) {
    let mut since = None;
    loop {
        if !view.is_converged() {
            since = None;
            view.changed().await;
            continue;
        }
        let until = *since.get_or_insert_with(Instant::now) + settle;
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = view.changed() => {}
        }
    }
}

/// The trial that is open, and how the last one ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials {
    pub(super) open: Option<Trial>,
    pub(super) last: Option<LastTrial>,
    /// What is done with the daemon's own document once the open trial has ended.
    pub(super) next: Option<NextDocument>,
    confirmed: u64,
    rolled_back: u64,
}

/// The daemon's own document, while it waits for the end of a trial.
#[derive(Clone, Debug)]
pub(super) enum NextDocument {
    /// It changed during the trial, and is tried next: for this time, and on the same terms.
    Tried(Duration, Terms),
    /// It is taken as at any start: the trial was left open by another process.
    Taken,
}

impl Trial {
    /// What becomes of a document that changes during this trial.
    pub(super) fn next_document(&self) -> NextDocument {
        match self.within {
            // What decides about an assignment of a fleet decides about nothing else.
            Some(within) if self.record.assignment.is_none() => {
                NextDocument::Tried(within, self.terms.clone())
            }
            _ => NextDocument::Taken,
        }
    }

    /// One whose holder ended. What it returns to is in force again; the passes are yet to run.
    pub(super) fn left_by_another(left: RecordedTrial, own_before: Option<Arc<Document>>) -> Self {
        let RecordedTrial { record, origin } = left;
        let why = record.why_left().to_owned();
        let phase = Phase::RollingBack { why, until: BootTime::after(PASSES) };
        Trial {
            record,
            by: origin.applied_by,
            from: origin.from,
            within: None,
            is_edit: false,
            own_before,
            phase,
            terms: Terms::default(),
            is_judged: true,
            checking: None,
            evidence: None,
            open_before: Arc::default(),
            along: Arc::default(),
        }
    }

    fn needs_judgement(&self) -> bool {
        let Terms { confirm_by, on_failure, .. } = self.terms;
        !self.is_judged && (on_failure == OnFailure::Rollback || confirm_by == ConfirmBy::Passes)
    }

    /// Waits until its checks, or what a node of a fleet sees, confirm it: for ever, if they are not to do that.
    async fn wait_until_checked(&self, loops: &LoopsSnapshot) {
        if let Some(evidence) = &self.evidence {
            return evidence.wait_until_good().await;
        }
        match &self.checking {
            Some(checking) if self.terms.confirm_by == ConfirmBy::Checks => {
                loops.wait_until_passed().await;
                checking.wait_until_good().await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Why its time is over without a confirm.
    fn why_unconfirmed(&self) -> String {
        if let Some(evidence) = &self.evidence {
            let missing = evidence.missing.borrow().clone();
            return missing
                .unwrap_or_else(|| "its time was over before it could be confirmed".to_owned());
        }
        let last = self.checking.as_ref().map(|checking| checking.last()).unwrap_or_default();
        let bad = last.into_iter().find(|result| result.error.is_some());
        let bad = bad.map(|result| result.to_string());
        match (self.terms.confirm_by, bad) {
            (ConfirmBy::Checks, Some(bad)) => bad,
            (ConfirmBy::Checks, None) => "its checks were not good three times in a row".to_owned(),
            (_, Some(bad)) => format!("nobody confirmed it in time, and {bad}"),
            (_, None) => "nobody confirmed it in time".to_owned(),
        }
    }
}

impl Trials {
    /// What guards let through for the open trial.
    pub(super) fn granted(&self) -> Option<Leave> {
        let trial = self.open.as_ref()?;
        matches!(trial.phase, Phase::Open { .. }).then(|| trial.record.granted())
    }

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
            edit_waits: self.next.is_some(),
            rolls_back,
            confirm_by: trial.terms.confirm_by,
            checks: trial.checking.as_ref().map(|checking| checking.last()).unwrap_or_default(),
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
        self.last = Some(LastTrial { id, ended: end });
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

/// A rollback that could not begin, or could not be completed.
#[derive(Debug, PartialEq, Eq)]
struct FailedAgain {
    /// So often for this reason.
    failures: u32,
    /// Until it is tried again.
    wait: Duration,
    is_logged: bool,
}

impl FailedAgain {
    /// It is logged when it begins, when the reason changes, and ever more rarely.
    fn after(phase: &Phase, error: &str) -> Self {
        let failures = match phase {
            Phase::Retrying { failures, last, .. } if last == error => failures + 1,
            _ => 1,
        };
        let wait = FIRST_RETRY.saturating_mul(failures).min(LAST_RETRY);
        FailedAgain { failures, wait, is_logged: failures.is_power_of_two() }
    }
}

/// Refuses a time that makes no trial.
pub(super) fn check_within(within: Duration) -> Result<()> {
    if TRIAL.contains(&within) {
        return Ok(());
    }
    let what = if within < *TRIAL.start() { "short" } else { "long" };
    Err(helped(
        format!("a trial of {} s is too {what}", within.as_secs_f64()),
        "give a time from 1s to 24h; two minutes are a good start",
    ))
}

/// Refuses checks that cannot decide anything: there is too little time for them, or they fail already.
async fn check_terms(request: &TrialRequest, netns: &Netns) -> Result<()> {
    let TrialRequest { within, terms: Terms { checks, confirm_by, .. }, .. } = request;
    let least = FIRST_CHECK + CHECK_EVERY * GOOD_ROUNDS;
    if *confirm_by == ConfirmBy::Checks && *within < least {
        return Err(helped(
            format!("checks cannot confirm a trial within {within:?}"),
            format!(
                "they begin after {FIRST_CHECK:?} and must be good three times: give at least {least:?}"
            ),
        ));
    }
    if *confirm_by == ConfirmBy::Node {
        // The document may be there to mend what they fail for. Nobody waits for an answer who could leave them out.
        return Ok(());
    }
    let mut bad = None;
    for _ in 0..TRIES_BEFORE {
        let results = run_all(checks, netns).await;
        bad = results.into_iter().find(|result| result.error.is_some());
        if bad.is_none() {
            return Ok(());
        }
    }
    bad.map_or(Ok(()), |bad| {
        Err(helped(
            format!("{bad}, before anything was changed"),
            "mend that first, or leave this check out",
        ))
    })
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

/// Where the document of a trial comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// A client handed it over.
    HandedOver,
    /// The daemon's own files changed.
    Edit,
    /// A fleet assigned it.
    Assigned(Accepted),
}

/// Everything that a trial needs, before anything is written to the machine.
pub(super) async fn begin(
    daemon: &mut Daemon,
    document: &Document,
    request: TrialRequest,
    from: Vec<PathBuf>,
    tried: Tried,
) -> Result<()> {
    check_within(request.within)?;
    if let Some(TrialStatus { id, by, left_ms, .. }) = daemon.trials.status() {
        return Err(helped(
            format!("trial {id} of {by} is open for another {} s", left_ms / 1000),
            "confirm it or roll it back first: `homeostat confirm`, `homeostat rollback`",
        ));
    }
    let netns = Arc::clone(&daemon.context.top_scope()?.netns);
    check_terms(&request, &netns).await?;
    if daemon.unconfirmed.is_some() {
        // What the trial returns to must be known to work.
        daemon.passed().await;
        daemon.confirm().await;
    }
    let (confirmed, scope) = (daemon.confirmed(), daemon.context.top_scope()?.name);
    let before = confirmed.newest_in(&scope).map(|entry| entry.number);
    if before.is_none() && daemon.options.role == Role::Keep {
        return Err(helped(
            "there is no confirmed document that the trial could return to",
            "the log says why the document in force was not kept; mend that, then `homeostat reload`",
        ));
    }
    let guarded = match daemon.options.role {
        Role::HoldTrial { guarded } => guarded,
        Role::Keep => {
            daemon.loops().iter().any(|control| control.status().open.count(Kind::Held) > 0)
        }
    };
    let record = TrialRecord {
        id: confirmed.next_trial(),
        before,
        boot: boot_id(),
        began_at: Stamp::now().to_string(),
        guarded,
        cascades: daemon.context.caller.guards.cascades == Cascades::Allow,
        mass_delete: daemon.context.caller.guards.mass_delete == MassDelete::Allow,
        handed: tried == Tried::HandedOver,
        assignment: match tried {
            Tried::Assigned(assignment) => Some(assignment),
            Tried::HandedOver | Tried::Edit => None,
        },
    };
    let origin = Origin {
        from: from.iter().map(|path| absolute(path)).collect(),
        scope,
        applied_by: request.by.clone(),
        confirmed_by: None,
    };
    confirmed.begin_trial(document, &ReferencedFiles::of(document), origin, &record)?;
    daemon.context.caller.trial = Some(daemon.losses);
    daemon.context.caller.undo = Some(Arc::new(UndoFile::new(confirmed.undo_file())));
    let within = request.within.as_secs_f64();
    tracing::info!(trial = record.id, by = %request.by, within, "trial begun");
    let phase = Phase::Open { deadline: BootTime::after(request.within) };
    let open_before = daemon.snapshot.borrow().open(None, Some(usize::MAX)).open.into_iter();
    let open_before = open_before.map(|open| (open.source, open.scope, open.key)).collect();
    let is_node = request.terms.confirm_by == ConfirmBy::Node;
    let checks = Some(request.terms.checks.clone());
    let checks = checks.filter(|checks| !is_node && !checks.is_empty());
    daemon.trials.open = Some(Trial {
        record,
        by: request.by,
        from,
        within: Some(request.within),
        is_edit: tried != Tried::HandedOver,
        own_before: daemon.own.clone().filter(|_| daemon.handed_number.is_some()),
        phase,
        terms: request.terms,
        is_judged: false,
        checking: checks.map(|checks| Arc::new(Checking::start(checks, netns))),
        evidence: None,
        open_before: Arc::new(open_before),
        along: Arc::default(),
    });
    Ok(())
}

/// Forgets the trial that was just begun: its document cannot be taken. Some loops may have it all the same.
pub(super) async fn abandon(daemon: &mut Daemon, why: &anyhow::Error) {
    leave(daemon);
    let is_undone = match daemon.options.role {
        Role::Keep => daemon.arrange(Recipients::All).await.is_ok(),
        // Before a trial it has no loops.
        Role::HoldTrial { .. } => daemon.loops().is_empty(),
    };
    if is_undone {
        daemon.trials.open = None;
        if let Err(error) = daemon.confirmed().discard_trial() {
            log::log_error(&error, "a trial that was not begun cannot be discarded");
        }
    } else {
        roll_back_or_retry(daemon, &failure::text(why)).await;
    }
    daemon.publish();
}

/// Begins a trial of the provider's changed document, if the settings ask for that or it changed during another trial. One
/// that was tried before is taken only on request; one that is confirmed needs no trial.
pub(super) async fn begin_for_edit(
    daemon: &mut Daemon,
    document: &Document,
    is_asked_for: bool,
    next: Option<NextDocument>,
) -> Result<()> {
    let (confirmed, scope) = (daemon.confirmed(), daemon.context.top_scope()?.name);
    let files = ReferencedFiles::of(document);
    let has_confirmed = confirmed.newest_in(&scope).is_some();
    let is_refused = !is_asked_for && has_confirmed && confirmed.is_unconfirmed(document, &files);
    // A change that takes the setting away is the last one that is tried.
    let within = [document, &*daemon.document].map(|one| one.settings.confirm_within);
    let within = within.into_iter().flatten().next().map(|within| within.get());
    let (within, terms) = match (within, next) {
        // There is nothing that a trial could return to.
        (_, Some(NextDocument::Taken)) if !has_confirmed => return Ok(()),
        (Some(within), _) => (within, Terms::default()),
        (None, Some(NextDocument::Tried(within, terms))) => (within, terms),
        (None, _) if is_refused => return Err(tried_before()),
        (None, _) => return Ok(()),
    };
    if confirmed.is_newest_in(&scope, document, &files) {
        return Ok(());
    }
    if is_refused {
        return Err(tried_before());
    }
    let request = TrialRequest { within, by: Person::current(), terms };
    let from = daemon.options.from.clone();
    begin(daemon, document, request, from, Tried::Edit).await
}

/// Begins the trial of an assignment of a fleet, which the node decides by itself.
pub(super) async fn begin_for_node(
    daemon: &mut Daemon,
    document: &Document,
    node: &NodeTrial,
) -> Result<()> {
    let terms = Terms {
        checks: node.checks.clone(),
        confirm_by: ConfirmBy::Node,
        on_failure: OnFailure::Rollback,
    };
    let request = TrialRequest { within: node.within, by: Person::current(), terms };
    let from = daemon.options.from.clone();
    begin(daemon, document, request, from, Tried::Assigned(node.assignment)).await
}

/// The loops have the document of an assignment: what they make of it decides from now on.
pub(super) fn watch_node(daemon: &mut Daemon, node: NodeTrial) -> Result<()> {
    let netns = Arc::clone(&daemon.context.top_scope()?.netns);
    let view = DaemonView::new(&daemon.snapshot, &daemon.events, &daemon.context);
    if let Some(trial) = &mut daemon.trials.open {
        trial.evidence = Some(Arc::new(Evidence::start(node, view, netns)));
    }
    daemon.publish();
    Ok(())
}

/// From here on nothing is put off, and nothing is recorded to be undone.
fn leave(daemon: &mut Daemon) {
    (daemon.context.caller.trial, daemon.context.caller.undo) = (None, None);
}

/// Ends the trial: what it made stays, and what was put off until now is done.
pub(super) async fn confirm(daemon: &mut Daemon, by: &Person, same_session: bool) -> Result<()> {
    check_session(daemon.trials.unconfirmed()?, by, same_session)?;
    confirm_by(daemon, Confirmer::Person(by.clone()), Recipients::AllForClient).await
}

async fn confirm_by(daemon: &mut Daemon, by: Confirmer, recipients: Recipients) -> Result<()> {
    let words = by.to_string();
    let granted = daemon.trials.unconfirmed()?.record.granted();
    let number = daemon.confirmed().confirm_trial(by)?;
    daemon.handed_number = Some(number);
    finish(daemon, TrialEnd::Confirmed { number, by: words });
    leave(daemon);
    let guards = daemon.context.caller.guards;
    daemon.context.caller.guards = granted.apply(guards);
    if let Err(error) = daemon.arrange(recipients).await {
        log::log_error(&error, "the loops cannot be arranged after the trial");
    }
    daemon.context.caller.guards = guards;
    Ok(())
}

pub(super) async fn confirm_by_checks(daemon: &mut Daemon) {
    let Ok(trial) = daemon.trials.unconfirmed() else { return };
    let checks = trial.terms.checks.clone();
    if checks.is_empty() {
        return confirm_or_roll_back(daemon, Confirmer::Passes).await;
    }
    confirm_or_roll_back(daemon, Confirmer::Checks(checks)).await;
}

async fn confirm_or_roll_back(daemon: &mut Daemon, by: Confirmer) {
    if let Err(error) = confirm_by(daemon, by, Recipients::All).await {
        log::log_error(&error, "the trial cannot be confirmed");
        roll_back_or_retry(daemon, &failure::text(&error)).await;
    }
}

/// The first passes of a trial have run: a document that could not be applied completely may have to go back.
pub(super) async fn judge(daemon: &mut Daemon) {
    let (not, _) = not_restored(daemon);
    let Ok(trial) = daemon.trials.unconfirmed() else { return };
    trial.is_judged = true;
    let (confirm_by, on_failure) = (trial.terms.confirm_by, trial.terms.on_failure);
    // The time of a node's trial is for what may still come.
    let is_final = |one: &&NotRestored| {
        confirm_by != ConfirmBy::Node || !["pending", "unknown"].contains(&&*one.kind)
    };
    match not.iter().find(is_final) {
        Some(first) if on_failure == OnFailure::Rollback => {
            let NotRestored { key, kind, reason, .. } = first;
            let why = reason.as_deref().unwrap_or(kind);
            let why = format!("not everything could be applied: {key}: {why}");
            roll_back_or_retry(daemon, &why).await;
        }
        None if confirm_by == ConfirmBy::Passes => {
            confirm_or_roll_back(daemon, Confirmer::Passes).await;
        }
        _ => {}
    }
}

/// Gives the trial more time, from now on.
pub(super) fn extend(daemon: &mut Daemon, during: Duration) -> Result<()> {
    check_within(during)?;
    daemon.trials.unconfirmed()?.phase = Phase::Open { deadline: BootTime::after(during) };
    daemon.publish();
    Ok(())
}

fn finish(daemon: &mut Daemon, end: TrialEnd) {
    let Some(trial) = daemon.trials.open.take() else { return };
    daemon.rolls_back_as = None;
    if let Some(assignment) = &trial.record.assignment {
        let rolled_back = match &end {
            TrialEnd::Confirmed { .. } => None,
            TrialEnd::RolledBack(end) => Some(&*end.why),
        };
        daemon.provider.tried(assignment, rolled_back);
    }
    record_end(&daemon.recent, trial.record.id, &end);
    daemon.trials.ended(trial.record.id, end);
    daemon.publish();
}

/// Gives the loops the document from before the trial. What only the trial made goes: a section that the document
/// lacks is no mistake of an editor, and values go back to what they were.
pub(super) async fn roll_back(
    daemon: &mut Daemon,
    why: &str,
    recipients: Recipients,
) -> Result<()> {
    let trial = daemon.trials.open.as_ref().ok_or_else(no_trial)?;
    let (record, confirmed) = (trial.record.clone(), daemon.confirmed());
    let before = Arc::new(confirmed.before(&record)?);
    // Those that do not fit the document before came after it.
    let document = daemon.with_pieces(Arc::clone(&before)).unwrap_or(before);
    let loops = daemon.loops();
    let _ = tokio::time::timeout(RUNNING_PASS, hold_off(&loops, &confirmed)).await;
    let along = Arc::new(WentAlong::default());
    let mut caller = daemon.context.caller.clone();
    caller.guards = record.leave().apply(caller.guards);
    caller.on_release = OnRelease::Restore;
    caller.trial = None;
    caller.undo = Some(Arc::clone(&along) as Arc<dyn UndoList>);
    let taken = take_back(daemon, document, caller, &loops).await;
    if taken.is_ok() && recipients == Recipients::AllForClient {
        daemon.scopes.start_passes();
    }
    for control in loops.into_iter().chain(daemon.loops()) {
        // One that an operator has paused would stay as it is. One that has ended came again.
        let _ = control.resume();
    }
    if taken.is_err() {
        daemon.rolls_back_as = None;
    }
    taken?;
    leave(daemon);
    let own_before = daemon.trials.open.as_ref().and_then(|trial| trial.own_before.clone());
    daemon.handed_number = record.before.filter(|_| own_before.is_some());
    (daemon.own, daemon.unconfirmed) = (own_before, None);
    if let Some(trial) = &mut daemon.trials.open {
        let passes = if record.is_of_this_boot() { PASSES } else { PASSES_OF_A_BOOT };
        let (why, until) = (why.to_owned(), BootTime::after(passes));
        trial.phase = Phase::RollingBack { why, until };
        trial.along = along;
    }
    daemon.publish();
    Ok(())
}

/// Gives the loops, which are held off, the document before the trial, with all that the trial has recorded.
async fn take_back(
    daemon: &mut Daemon,
    document: Arc<Document>,
    mut caller: Caller,
    loops: &[Arc<dyn Control>],
) -> Result<()> {
    let path = daemon.confirmed().undo_file();
    loop {
        let known = undo_file::read(&path);
        caller.recorded = undo_file::recorded(&path);
        daemon.rolls_back_as = Some(caller.clone());
        daemon.take(Arc::clone(&document), Recipients::All).await?;
        let idle = loops.iter().map(|control| control.restore(Vec::new()));
        let idle = futures_util::future::join_all(idle);
        // A pass of the trial that a client waits for runs also if passes are held off. It may have run meanwhile.
        if tokio::time::timeout(RUNNING_PASS, idle).await.is_err()
            || undo_file::read(&path) == known
        {
            return Ok(());
        }
    }
}

/// Lets the running passes of a trial end, and no other begin: what they record of what they take must be known to the
/// sources that make it again.
async fn hold_off(loops: &[Arc<dyn Control>], confirmed: &ConfirmedDocuments) {
    for control in loops {
        let _ = control.pause(None);
    }
    // It is answered between two passes.
    let idle =
        || futures_util::future::join_all(loops.iter().map(|control| control.restore(Vec::new())));
    let recorded = || undo_file::read(&confirmed.undo_file());
    idle().await;
    let mut known = recorded();
    loop {
        // A pass that a client waits for runs all the same, and is due at once.
        idle().await;
        let now = recorded();
        if now == known {
            return;
        }
        known = now;
    }
}

/// Rolls back without a client that could try again: a failure is retried.
pub(super) async fn roll_back_or_retry(daemon: &mut Daemon, why: &str) {
    if let Err(error) = roll_back(daemon, why, Recipients::All).await {
        retry_rollback(daemon, why, &error);
    }
}

/// The trial cannot be rolled back now.
fn retry_rollback(daemon: &mut Daemon, why: &str, error: &anyhow::Error) {
    let Some(trial) = &mut daemon.trials.open else { return };
    let text = failure::text(error);
    let FailedAgain { failures, wait, is_logged } = FailedAgain::after(&trial.phase, &text);
    trial.phase = Phase::Retrying {
        why: why.to_owned(),
        at: BootTime::after(wait),
        failures,
        last: text.clone(),
    };
    if is_logged {
        tracing::error!(error = text, failures, "the trial cannot be rolled back yet");
        let fields = json!({ "error": text, "failures": failures });
        daemon.recent.record(Level::ERROR, "trial-not-rolled-back", fields);
    }
    daemon.publish();
}

/// The passes of the rollback have run, or have had their time.
pub(super) async fn rolled_back(daemon: &mut Daemon) {
    let Some(trial) = daemon.trials.open.clone() else { return };
    let Trial { record, is_edit, terms, phase, along, .. } = trial;
    let Phase::RollingBack { why, .. } = phase else { return };
    let taken = undo_file::read(&daemon.confirmed().undo_file());
    let Undone { lost, again, left } = undo_file::restore(&taken, &daemon.loops()).await;
    let went_along = along.restore(&daemon.loops()).await;
    let (mut not, not_count) = not_restored(daemon);
    let not_count = not_count + lost.len();
    not.splice(..0, lost);
    not.truncate(NAMED);
    let checks = check_after(daemon, &terms.checks).await;
    let end = RolledBack {
        why: why.clone(),
        to: record.before,
        not,
        not_count,
        made_again: again,
        left,
        went_along,
        checks,
    };
    if let Err(error) = daemon.confirmed().end_trial(&end) {
        return retry_rollback(daemon, &why, &error);
    }
    if is_edit && record.assignment.is_none() {
        refused(&mut daemon.health, &tried_before(), &daemon.recent);
    }
    finish(daemon, TrialEnd::RolledBack(end));
    // What was lifted for the rollback holds again.
    if let Err(error) = daemon.arrange(Recipients::All).await {
        log::log_error(&error, "the loops cannot be arranged after the rollback");
    }
}

/// How the checks of a trial end once it is rolled back. A stop waits only so long.
async fn check_after(daemon: &Daemon, checks: &[Check]) -> Vec<CheckResult> {
    let Ok(top) = daemon.context.top_scope() else { return Vec::new() };
    let ran = run_all(checks, &top.netns);
    let Some(stops_at) = daemon.stops_at else { return ran.await };
    let unknown = |check: &Check| {
        let error = Some("the daemon stopped before it had ended".to_owned());
        CheckResult { check: check.clone(), error }
    };
    tokio::select! {
        results = ran => results,
        () = stops_at.wait() => checks.iter().map(unknown).collect(),
    }
}

/// The first keys that are open now and were not before the trial, and how many there are.
fn not_restored(daemon: &Daemon) -> (Vec<NotRestored>, usize) {
    let snapshot = daemon.snapshot.borrow();
    let open_before = daemon.trials.open.as_ref().map(|trial| Arc::clone(&trial.open_before));
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

/// Waits for what the open trial needs next, or for the end of a daemon that only holds one.
pub(super) fn next_wake(daemon: &Daemon) -> impl Future<Output = Wake> + use<> {
    let trial = daemon.trials.open.clone();
    let (role, last) = (daemon.options.role, daemon.trials.last.is_some());
    let snapshot = daemon.snapshot.borrow().clone();
    async move {
        let Some(trial) = trial else {
            if role != Role::Keep {
                if last {
                    // What was put off until the confirm is under way.
                    let _ = tokio::time::timeout(PASSES, snapshot.wait_until_settled()).await;
                }
                BootTime::after(if last { LINGER } else { BEGIN }).wait().await;
                return Wake::Stop;
            }
            return std::future::pending().await;
        };
        match &trial.phase {
            Phase::Open { deadline } => {
                tokio::select! {
                    () = deadline.wait() => Wake::RollBack(trial.why_unconfirmed()),
                    () = snapshot.wait_until_settled(), if trial.needs_judgement() => Wake::Tried,
                    () = trial.wait_until_checked(&snapshot) => Wake::ChecksAreGood,
                }
            }
            Phase::Retrying { why, at, .. } => {
                at.wait().await;
                Wake::RollBack(why.clone())
            }
            Phase::RollingBack { until, .. } => {
                tokio::select! {
                    () = snapshot.wait_until_settled() => {}
                    () = until.wait() => {}
                }
                Wake::RolledBack
            }
        }
    }
}

pub(super) fn record_end(recent: &Recent, id: u64, end: &TrialEnd) {
    let mut fields = serde_json::to_value(end).unwrap_or_default();
    fields["trial"] = json!(id);
    let level = match end {
        TrialEnd::Confirmed { number, by } => {
            tracing::info!(trial = id, number, by, "trial confirmed");
            Level::INFO
        }
        TrialEnd::RolledBack(RolledBack { why, to, not_count, .. }) => {
            tracing::warn!(trial = id, why, to, not_count, "trial rolled back");
            Level::WARN
        }
    };
    recent.record(level, "trial-ended", fields);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_that_fails_again_and_again_is_tried_and_logged_ever_more_rarely() {
        let failed = |phase: &mut Phase, error: &str| {
            let failed = FailedAgain::after(phase, error);
            let (at, why) = (BootTime::after(failed.wait), String::new());
            let last = error.to_owned();
            *phase = Phase::Retrying { why, at, failures: failed.failures, last };
            failed
        };
        let mut phase = Phase::Open { deadline: BootTime::after(Duration::ZERO) };
        let all: Vec<_> = (0..40).map(|_| failed(&mut phase, "the disk is full")).collect();
        let logged = all.iter().filter(|one| one.is_logged).map(|one| one.failures);
        assert_eq!(logged.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
        let waits: Vec<_> = all.iter().map(|one| one.wait.as_secs()).collect();
        assert_eq!((&waits[..3], waits[28], waits[39]), (&[1, 2, 3][..], 29, 30));
        let other = FailedAgain { failures: 1, wait: FIRST_RETRY, is_logged: true };
        assert_eq!(failed(&mut phase, "a file cannot be read"), other);
        assert_eq!(failed(&mut phase, "the disk is full"), other);
    }
}
