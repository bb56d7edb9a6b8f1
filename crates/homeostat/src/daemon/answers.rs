//! The answers to requests. Only what needs the daemon itself is sent to it as a command; everything
//! else goes straight to the loops.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::future::join_all;
use homeostat_engine::{Action, CommandRefused, Control, Entry, Explain, Finding, Kind, Patience};
use homeostat_fleet::order::{self, Order};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::Level;

use super::command::{
    Carried, DaemonCommand, DaemonHandle, StartedPass, Touched, TrialRequest, start_passes,
};
use super::loops_snapshot::LoopsSnapshot;
use super::recent::Recent;
use crate::converge::{Converging, converge};
use crate::failure::{self, helped};
use crate::machine::Waiting;
use crate::orders::{OrderRefused, OrderedAction, Right, ToOrder};
use crate::output::{SourceReport, is_converged, json as report, text};
use crate::person::Person;
use crate::pieces::{NewPiece, PieceName};
use crate::registry;
use crate::wire::{
    About, Ask, DescribeAnswer, FORMAT_VERSION, KeyStatus, LONGEST_PIECE, Leave, OlderDocument,
    Request, SourceAnswer, Terms, refusal,
};

/// The longest that one request waits; who wants to wait longer asks again.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// How many events about one key are told.
const EVENTS: usize = 10;

/// Everything that an answer is made of.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) snapshot: watch::Receiver<LoopsSnapshot>,
    pub(super) commands: DaemonHandle,
    pub(super) recent: Recent,
}

/// Which finding about a key matters most.
const FIRST: [Kind; 6] =
    [Kind::Change, Kind::Held, Kind::Conflict, Kind::Failed, Kind::Pending, Kind::Unknown];

impl Answers {
    /// The answer to one request, as a line.
    pub(super) async fn answer(&self, request: Request, right: Right, by: &Person) -> Vec<u8> {
        let line = match self.respond(request, right, by).await {
            Ok(line) => line,
            Err(error) => {
                let mut text = Vec::new();
                // Nothing fails to be written to memory.
                let _ = failure::write(&error, &mut text);
                refusal(&format!("{error:#}"), &String::from_utf8_lossy(&text)).to_string().into()
            }
        };
        // An answer is one line, whatever it was drawn as.
        let mut line: Vec<u8> = line.into_iter().filter(|byte| *byte != b'\n').collect();
        line.push(b'\n');
        line
    }

    async fn respond(&self, request: Request, right: Right, by: &Person) -> Result<Vec<u8>> {
        // Status and events are answered from the beginning. Everything else is about loops, which are not there yet while
        // the daemon starts: none of them could be paused, and all of none would be converged.
        if !matches!(request, Request::Status { .. } | Request::Events { .. }) {
            let mut snapshot = self.snapshot.clone();
            let arranged = snapshot.wait_for(|snapshot| snapshot.is_arranged).await;
            arranged.map_err(|_| anyhow!("the daemon is stopping"))?;
        }
        match request {
            Request::Status { wait_ms } => self.status(wait_ms).await,
            Request::Key(about) => self.key(&about).await,
            Request::Open { after, limit } => {
                answer(&self.snapshot.borrow().open(after.as_deref(), limit))
            }
            Request::Pause { for_ms, scope } => {
                let during = for_ms.map(Duration::from_millis);
                self.command_each(scope.as_deref(), |control| Ok(control.pause(during)?))
            }
            Request::Resume { scope } => {
                self.command_each(scope.as_deref(), |control| Ok(control.resume()?))
            }
            Request::Resync(ask) => self.passes(None, ask, right).await,
            Request::Reload(ask) => self.passes(Some(DaemonCommand::Reload), ask, right).await,
            Request::Apply { handed, ask, confirm_within_ms, terms } => {
                let trial = confirm_within_ms.map(|within| TrialRequest {
                    within: Duration::from_millis(within),
                    by: by.clone(),
                    terms,
                });
                let command = DaemonCommand::TakeDocument { handed, trial };
                self.passes(Some(command), ask, right).await
            }
            Request::Put { name, format, directory, text, ask } => {
                let name: PieceName = name.parse()?;
                if text.len() > LONGEST_PIECE {
                    return Err(anyhow!("a piece may have {LONGEST_PIECE} bytes"));
                }
                let piece = NewPiece { by: by.clone(), format, directory, text };
                let is_unguarded = ask.leave != Leave::default();
                let command = DaemonCommand::PutPiece { name, piece };
                self.piece(command, ask, right, is_unguarded).await
            }
            Request::Drop { name, ask } => {
                let (name, by) = (name.parse()?, by.clone());
                self.piece(DaemonCommand::DropPiece { name, by }, ask, right, true).await
            }
            Request::Trial { id, wait_ms } => self.trial(id, Duration::from_millis(wait_ms)).await,
            Request::Confirm { extend_ms, same_session } => {
                let extend = extend_ms.map(Duration::from_millis);
                let by = by.clone();
                let command = DaemonCommand::Confirm { by, same_session, extend };
                self.commands.send(command, Leave::default(), Right::Own).await?;
                self.trials()
            }
            Request::Rollback { ask, to: None } => self.roll_back(by.clone(), ask, right).await,
            Request::Rollback { ask, to: Some(OlderDocument { number, confirm_within_ms }) } => {
                let within = Duration::from_millis(confirm_within_ms);
                let trial = TrialRequest { within, by: by.clone(), terms: Terms::default() };
                self.passes(Some(DaemonCommand::TryOlder { number, trial }), ask, right).await
            }
            Request::Adopt { about, ask } => self.adopt(&about, ask, &right).await,
            Request::Release(about) => self.release(&about, &right).await,
            Request::Forget(about) => self.forget(&about, &right).await,
            Request::Source { source, request } => {
                self.source_command(&source, request, &right).await
            }
            Request::Describe { request } => Box::pin(self.describe(*request, by)).await,
            Request::Events { .. } => Err(helped(
                "this request streams events and has no single answer",
                "connect again and read the stream",
            )),
        }
    }

    /// What an order for a request must say.
    async fn describe(&self, request: Request, by: &Person) -> Result<Vec<u8>> {
        let needless = || {
            helped(
                "no order can be required for this command",
                "orders are for commands on keys and guests, and for --allow-mass-delete, --allow-cascades and \
                 --accept-loss",
            )
        };
        if !request.can_need_order() {
            return Err(needless());
        }
        let Err(error) = self.respond(request, Right::Describe, by).await else {
            return Err(needless());
        };
        let ToOrder(command) = error.downcast()?;
        answer(&DescribeAnswer { format_version: FORMAT_VERSION.to_owned(), command })
    }

    /// Lets a command be carried out on keys, once it is known how they stand.
    async fn check_order(
        &self,
        right: &Right,
        action: &str,
        about: &About,
        found: &[(Arc<dyn Control>, KeyStatus)],
    ) -> Result<()> {
        let gate = self.snapshot.borrow().orders.clone();
        if !gate.must_know(right, &[action.to_owned()]) {
            return Ok(());
        }
        let keys = found.iter().map(|(_, status)| {
            let KeyStatus { source, scope, key, state, owner, held, .. } = status;
            json!({ "source": source, "scope": scope, "key": key, "state": state, "owner": owner, "held": held })
        });
        let keys = Value::Array(keys.collect());
        let checked = gate.check(right, OrderedAction::of_keys(action, &about.key, &keys)?).await;
        note_order(&self.recent, &checked);
        checked.map(drop)
    }

    async fn status(&self, wait_ms: Option<u64>) -> Result<Vec<u8>> {
        let wait = Duration::from_millis(wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
        let mut snapshot = self.snapshot.clone();
        let converged = async {
            loop {
                let now = snapshot.borrow_and_update().clone();
                tokio::select! {
                    () = now.wait_until_converged() => return,
                    changed = snapshot.changed() => if changed.is_err() { return },
                }
            }
        };
        // The status is returned either way.
        let _ = tokio::time::timeout(wait, converged).await;
        answer(&self.snapshot.borrow().overview())
    }

    /// Carries out a command of a source, also if the client does not wait for the answer.
    async fn source_command(&self, source: &str, request: Value, right: &Right) -> Result<Vec<u8>> {
        let registered = registry::find(source);
        let carry_out = registered.and_then(|source| Some((source, source.command?)));
        let (deps, gate) = {
            let snapshot = self.snapshot.borrow();
            (snapshot.commands.clone(), snapshot.orders.clone())
        };
        let (Some((registered, carry_out)), Some(deps)) = (carry_out, deps) else {
            return Err(anyhow!("the daemon carries out no commands of `{source}`"));
        };
        if let Some(ordered) = OrderedAction::of_source(registered, &request)? {
            let checked = gate.check(right, ordered).await;
            note_order(&self.recent, &checked);
            checked?;
        } else if *right == Right::Describe {
            return Err(anyhow!("no order can be required for this command of `{source}`"));
        }
        let answer = tokio::spawn(carry_out(deps, request)).await?.map_err(failure::of_source)?;
        self::answer(&SourceAnswer { format_version: FORMAT_VERSION, answer })
    }

    /// Rolls the open trial back, and waits for the end of that.
    async fn roll_back(&self, by: Person, ask: Ask, right: Right) -> Result<Vec<u8>> {
        let id = self.snapshot.borrow().trials.open.as_ref().map(|trial| trial.record.id);
        let report = self.passes(Some(DaemonCommand::RollBack { by }), ask, right).await?;
        self.trial(id.unwrap_or_default(), LONGEST_WAIT).await?;
        let last = self.snapshot.borrow().trials.last.clone();
        let Some(last) = last.filter(|last| ask.text.is_some() && Some(last.id) == id) else {
            return Ok(report);
        };
        let mut report: Value = serde_json::from_slice(&report)?;
        let text = report["text"].as_str().unwrap_or_default();
        report["text"] = json!(format!("{text}{}\n", last.ended));
        answer(&report)
    }

    /// The open trial, and how the last one ended.
    fn trials(&self) -> Result<Vec<u8>> {
        let trials = self.snapshot.borrow().trials.clone();
        let open = trials.status();
        answer(&json!({
            "format_version": FORMAT_VERSION, "trial": open, "last": trials.last,
        }))
    }

    /// The same once this trial is not open any more, or the time is over.
    async fn trial(&self, id: u64, wait: Duration) -> Result<Vec<u8>> {
        let mut snapshot = self.snapshot.clone();
        let is_over = |snapshot: &LoopsSnapshot| {
            snapshot.trials.open.as_ref().is_none_or(|open| open.record.id != id)
        };
        // The answer says whether it is.
        let _ = tokio::time::timeout(wait.min(LONGEST_WAIT), snapshot.wait_for(is_over)).await;
        self.trials()
    }

    /// The loops of one scope, or all.
    fn loops(&self, scope: Option<&str>) -> Result<Vec<Arc<dyn Control>>> {
        let mut loops = self.snapshot.borrow().loops.clone();
        if let Some(scope) = scope {
            loops.retain(|control| control.ledger_key().scope == scope);
            if loops.is_empty() {
                return Err(helped(
                    format!("no loop runs in a scope `{scope}`"),
                    "`homeostat status` names the scopes; the daemon's own is `host`",
                ));
            }
        }
        Ok(loops)
    }

    fn command_each(
        &self,
        scope: Option<&str>,
        command: impl Fn(&dyn Control) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut loops = Vec::new();
        for control in self.loops(scope)? {
            command(&*control)?;
            let ledger_key = control.ledger_key();
            loops.push(json!({ "source": ledger_key.source, "scope": ledger_key.scope }));
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "loops": loops }))
    }

    /// Does what is to be done first, runs a pass of every loop, and returns their report.
    async fn passes(
        &self,
        command: Option<DaemonCommand>,
        ask: Ask,
        right: Right,
    ) -> Result<Vec<u8>> {
        let is_lenient = ask.leave != Leave::default();
        let command = command.or(is_lenient.then_some(DaemonCommand::Arrange));
        let carried = match command {
            Some(command) => self.commands.send(command, ask.leave, right).await?,
            None => Carried { started: start_passes(self.loops(None)?), touched: Touched::All },
        };
        let reports = self.settle(carried, ask.leave).await;
        if is_lenient {
            let leave = Leave::default();
            self.commands.send(DaemonCommand::Arrange, leave, Right::Checked).await?;
        }
        draw(&reports?, ask)
    }

    /// Puts or drops a piece, and reports the passes of what it touches.
    async fn piece(
        &self,
        command: DaemonCommand,
        ask: Ask,
        right: Right,
        is_unguarded: bool,
    ) -> Result<Vec<u8>> {
        let carried = self.commands.send(command, ask.leave, right).await?;
        let reports = self.settle(carried, ask.leave).await;
        if is_unguarded {
            // What guards let through for it they hold again.
            let leave = Leave::default();
            self.commands.send(DaemonCommand::ArrangeChanged, leave, Right::Checked).await?;
        }
        draw(&reports?, ask)
    }

    /// Runs passes as long as that brings something, with the patience that an `apply` has. What is
    /// inside namespaces of our own can be opened only when they are there.
    async fn settle(&self, carried: Carried, leave: Leave) -> Result<Vec<SourceReport>> {
        let Carried { started, touched } = carried;
        let mut all = ended(started, Vec::new()).await;
        let creates_scopes = |one: &&Converging| {
            registry::find(&one.control.ledger_key().source).is_some_and(|it| it.scopes.is_some())
        };
        let made = all.iter().filter(creates_scopes);
        if made.map(Converging::written).sum::<usize>() > 0 {
            let again = match touched {
                Touched::All => DaemonCommand::Arrange,
                Touched::Scopes(_) => DaemonCommand::ArrangeChanged,
            };
            let Carried { started, .. } = self.commands.send(again, leave, Right::Checked).await?;
            let goes_on = |one: &mut Converging| {
                let key = one.control.ledger_key();
                started.iter().any(|started| started.control.ledger_key() == key)
            };
            let again = all.extract_if(.., goes_on).collect();
            let again = ended(started, again).await;
            if touched == Touched::All {
                // A loop that was not asked has ended.
                all.clear();
            }
            all.extend(again);
        }
        // Tasks go on after the answer: the loops follow them.
        let patience = Patience::default().with_tasks(Duration::ZERO);
        converge(&mut all, patience, async |one| one.pass().await, |_| {}).await;
        let mut reports: Vec<SourceReport> =
            all.into_iter().filter_map(Converging::report).collect();
        let snapshot = self.snapshot.borrow();
        let waiting = snapshot.waiting.iter();
        let waiting = waiting.filter(|waiting| touched.has(&waiting.ledger_key.scope));
        reports.extend(waiting.map(Waiting::report));
        Ok(reports)
    }

    /// How a key stands wherever something is to be said of it.
    async fn key(&self, about: &About) -> Result<Vec<u8>> {
        let found = self.find(about).await?.into_iter();
        let mut keys: Vec<KeyStatus> = found.map(|(_, status)| status).collect();
        let is_of_interest = |key: &KeyStatus| key.declared || key.is_mentioned;
        if keys.iter().any(is_of_interest) {
            keys.retain(is_of_interest);
        }
        let converged = keys.iter().all(|key| key.converged);
        answer(&json!({
            "format_version": FORMAT_VERSION, "converged": converged, "keys": keys,
        }))
    }

    /// Takes over the object on a declared key once, from its current owner.
    async fn adopt(&self, about: &About, ask: Ask, right: &Right) -> Result<Vec<u8>> {
        let mut found = self.find(about).await?;
        found.retain(|(_, status)| status.declared);
        if found.is_empty() {
            return Err(helped(
                format!("`{}` is not declared, so there is nothing to take it for", about.key),
                "declare it in the document first",
            ));
        }
        self.check_order(right, "adopt", about, &found).await?;
        let mut reports = Vec::new();
        for (control, status) in found {
            let mut adopted = Converging::new(Arc::clone(&control));
            adopted.record(control.adopt(&status.key).await?);
            reports.extend(adopted.report());
        }
        draw(&reports, ask)
    }

    /// Gives up a key that is not declared. Where the mark is in the target, and no source can take it
    /// off, that is said.
    async fn release(&self, about: &About, right: &Right) -> Result<Vec<u8>> {
        let found = self.find(about).await?;
        if let Some((_, status)) = found.iter().find(|(_, status)| status.declared) {
            return Err(helped(
                format!("`{}` is declared in {}", status.key, status.scope),
                "take it out of the document first; `homeostat pause` keeps it where it is until \
                 it is released",
            ));
        }
        self.check_order(right, "release", about, &found).await?;
        let mut released = Vec::new();
        for (control, status) in found {
            let is_known = control.forget(&status.key).await?.map_err(|error| anyhow!(error))?;
            let after = self.look(&*control, &status.key).await?;
            let marked = after.is_some_and(|after| after.is_mentioned);
            if is_known || marked {
                let remains = marked.then_some(REMAINS);
                let KeyStatus { source, scope, key, .. } = status;
                released.push(json!({
                    "source": source, "scope": scope, "key": key,
                    "recorded": is_known, "remains": remains,
                }));
            }
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "released": released }))
    }

    /// Drops what the ledger knows of a key.
    async fn forget(&self, about: &About, right: &Right) -> Result<Vec<u8>> {
        let found = self.find(about).await?;
        self.check_order(right, "forget", about, &found).await?;
        let mut forgotten = Vec::new();
        for (control, status) in found {
            if control.forget(&status.key).await?.map_err(|error| anyhow!(error))? {
                let KeyStatus { source, scope, key, .. } = status;
                forgotten.push(json!({ "source": source, "scope": scope, "key": key }));
            }
        }
        answer(&json!({ "format_version": FORMAT_VERSION, "forgotten": forgotten }))
    }

    /// Every loop whose source knows such a key looks at it.
    async fn find(&self, about: &About) -> Result<Vec<(Arc<dyn Control>, KeyStatus)>> {
        let mut found = Vec::new();
        for control in self.loops(about.scope.as_deref())? {
            if let Some(status) = self.look(&*control, &about.key).await? {
                found.push((control, status));
            }
        }
        if found.is_empty() {
            return Err(helped(
                format!("`{}` is no key that any source here knows", about.key),
                "a key is written as plans print it, such as `route 10.0.0.0/8`",
            ));
        }
        Ok(found)
    }

    /// How a key stands: looks at it, and writes nothing. Nothing if the text is no key of the source.
    pub(super) async fn look(&self, control: &dyn Control, key: &str) -> Result<Option<KeyStatus>> {
        let report = match control.look(key).await {
            Err(CommandRefused::NotAKey(_)) => return Ok(None),
            other => other?.map_err(|error| anyhow!(error))?,
        };
        let mut status = status(control, &*report, key);
        let last_applied = self.recent.last_applied(control.ledger_key(), &status.key);
        status.last_heal = last_applied.and_then(|line| serde_json::from_str(&line).ok());
        let events = self.recent.about(control.ledger_key(), &status.key, EVENTS);
        status.events = events.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let now = self.snapshot.borrow();
        if status.declared {
            status.declared_at = now.declared_at(control.ledger_key(), &status.key);
        }
        let open = control.find(&status.key, 1).entries.into_iter().next();
        if let Some(open) = open.and_then(|found| found.open).filter(|_| !status.converged) {
            let (scope, key) = (&status.scope, &status.key);
            status.command = now.invocation.resolves(scope, key, open.kind, open.held_by);
        }
        Ok(Some(status))
    }
}

/// Shows in events that an order was used, or that a command was refused for want of one.
pub(super) fn note_order(recent: &Recent, checked: &Result<Option<Order>>) {
    match checked {
        Ok(Some(order)) => {
            let order::Command { actions, key, .. } = &order.command;
            let fields = json!({ "order": order.id, "actions": actions, "key": key });
            recent.record(Level::INFO, "order-used", fields);
        }
        Err(error) if error.is::<OrderRefused>() => {
            let fields = json!({ "error": failure::text(error), "help": failure::help(error) });
            recent.record(Level::WARN, "order-refused", fields);
        }
        Ok(None) | Err(_) => {}
    }
}

/// Waits for these passes. A loop that ended meanwhile, as with its namespace, has no report;
/// one that went on has the reports of its earlier passes, too.
async fn ended(started: Vec<StartedPass>, mut earlier: Vec<Converging>) -> Vec<Converging> {
    let passes = started
        .into_iter()
        .map(|StartedPass { control, pass }| async move { Some((control, pass.await.ok()?)) });
    let mut all: Vec<Converging> = Vec::new();
    for (control, answer) in join_all(passes).await.into_iter().flatten() {
        let is_same = |one: &mut Converging| one.control.ledger_key() == control.ledger_key();
        let known = all.extract_if(.., is_same).next();
        let known = known.or_else(|| earlier.extract_if(.., is_same).next());
        let mut one = known.unwrap_or_else(|| Converging::new(Arc::clone(&control)));
        one.record(answer);
        all.push(one);
    }
    all
}

/// A report as it was asked for: drawn for people, or whole for programs.
fn draw(reports: &[SourceReport], ask: Ask) -> Result<Vec<u8>> {
    let mut drawn = Vec::new();
    let Some(drawing) = ask.text else {
        report::report(reports, &mut drawn)?;
        return Ok(drawn);
    };
    text::report(reports, drawing, &mut drawn)?;
    answer(&json!({
        "format_version": FORMAT_VERSION,
        "converged": is_converged(reports),
        "text": String::from_utf8_lossy(&drawn),
    }))
}

/// What is to be known of a mark in the target.
const REMAINS: &str = "the target still holds our mark, which this source cannot take off: give it \
                       another one by hand (`ip route change ... proto static`), or the next pass \
                       that nothing holds back removes it";

/// How a key stands, by the report of a look at it.
fn status(control: &dyn Control, report: &dyn Explain, text: &str) -> KeyStatus {
    let about = report.about(text);
    let key = about.as_ref().map_or(text, |about| &about.key).to_owned();
    let wanted = about.and_then(|about| about.wanted);
    let declared = wanted.is_some();
    let mut status = KeyStatus {
        source: control.ledger_key().source.clone(),
        scope: control.ledger_key().scope.clone(),
        declared,
        converged: true,
        state: if declared { "as-declared" } else { "undeclared" }.to_owned(),
        owner: declared.then(|| "ours".to_owned()),
        held: wanted.clone(),
        wanted,
        key,
        ..KeyStatus::default()
    };
    // What matters most comes last, so that its word stands.
    for kind in Kind::in_order(&FIRST).collect::<Vec<_>>().into_iter().rev() {
        report.explain(kind, &mut |entry| learn(&mut status, entry));
    }
    status
}

fn learn(status: &mut KeyStatus, entry: Entry) {
    if entry.key() != status.key {
        return;
    }
    let is_converged = !entry.kind().is_open();
    let finding = match entry {
        Entry::Change(line, _) | Entry::Applied(line, _) => {
            let is_absent = line.action == Action::Create;
            let state = if is_absent { "absent" } else { "differs" };
            (status.state, status.held) = (state.to_owned(), line.before);
            status.owner = (!is_absent).then(|| "ours".to_owned());
            (status.converged, status.reason) = (is_converged, line.note);
            status.is_mentioned = true;
            return;
        }
        Entry::Finding { finding, .. } => finding,
        // It is about no key.
        _ => return,
    };
    (status.converged, status.is_mentioned) = (is_converged, true);
    let state = match finding.kind() {
        Kind::Failed => "refused",
        Kind::Conflict => "conflict",
        kind => kind.list(),
    };
    state.clone_into(&mut status.state);
    if finding.is_open() {
        (status.held, status.owner) = (None, None);
    }
    match finding {
        Finding::Held { action, why, .. } => {
            status.owner = (action != Action::Create).then(|| "ours".to_owned());
            status.reason = Some(format!("{}: {why}", action.word()));
        }
        Finding::Pending { on } => status.waits_on = Some(on.to_string()),
        Finding::Settled { held, .. } => status.held = Some(*held),
        other => {
            if let Some(owner) = other.owner() {
                status.owner = Some(owner.to_string());
            }
            status.reason = Some(other.reason()).filter(|reason| !reason.is_empty());
        }
    }
}

fn answer(answer: &impl Serialize) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_of_loops_waits_until_a_daemon_that_starts_has_arranged_them() {
        let snapshot = watch::Sender::new(LoopsSnapshot::default());
        let (commands, recent) = (DaemonHandle::new().0, Recent::default());
        let answers = Answers { snapshot: snapshot.subscribe(), commands, recent };
        let requests =
            || [Request::Resync(Ask::default()), Request::Pause { for_ms: None, scope: None }];
        for request in requests() {
            let early = tokio::time::timeout(
                LONGEST_WAIT,
                answers.answer(request, Right::Own, &Person::current()),
            )
            .await;
            assert!(early.is_err(), "{:?}", early.map(String::from_utf8));
        }
        let status = Request::Status { wait_ms: None };
        let status = answers.answer(status, Right::Own, &Person::current()).await;
        assert!(
            String::from_utf8_lossy(&status).contains("\"converged\":false"),
            "status answers at once"
        );
        snapshot.send_replace(LoopsSnapshot { is_arranged: true, ..LoopsSnapshot::default() });
        for request in requests() {
            let answer =
                String::from_utf8(answers.answer(request, Right::Own, &Person::current()).await)
                    .unwrap();
            assert!(!answer.contains("error"), "{answer}");
        }
    }
}
