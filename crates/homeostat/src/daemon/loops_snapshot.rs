//! The loops that run, and what waits for a scope that is not there: what status, open keys and readiness are made of.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use homeostat_document::{Document, NamespaceName};
use homeostat_engine::journal::Millis;
use homeostat_engine::{
    Control, Finding, HealthBoard, Kind, LedgerKey, Mode, OpenCounts, Patience, Status,
};
use homeostat_registry::{CommandDeps, Leader, Memory, Standby, Turn, Turns};
use tokio::time::Instant;

use super::clock::Stamp;
use super::headline::Headline;
use super::provider_health::ProviderHealth;
use super::trial::Trials;
use crate::machine::Waiting;
use crate::orders::OrderGate;
use crate::registry::{find, is_late, is_remote};
use crate::way_out::Invocation;
use crate::wire::{
    CheckStatus, Contended, FORMAT_VERSION, LoopStatus, OpenItem, OpenPage, Overview, PieceStatus,
    Role, RoleStatus, millis,
};

/// How many open keys a page has.
const DEFAULT_PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;
/// How many open keys are part of the status.
const SHOWN: usize = 20;

/// What runs, as the daemon last arranged it.
#[derive(Clone, Default)]
pub(super) struct LoopsSnapshot {
    pub(super) loops: Vec<Arc<dyn Control>>,
    pub(super) waiting: Vec<Waiting>,
    /// Whether the daemon has arranged anything yet.
    pub(super) is_arranged: bool,
    /// What commands of sources are carried out with; nothing without the lock of the first scope.
    pub(super) commands: Option<CommandDeps>,
    /// Whether the document in force was handed over.
    pub(super) is_handed: bool,
    /// Its number, if it was confirmed.
    pub(super) handed_number: Option<u64>,
    /// The number of the confirmed document that is in force in place of the provider's.
    pub(super) fallback: Option<u64>,
    /// Whether the document in force was rolled back before, and none was ever confirmed.
    pub(super) tried_before: bool,
    pub(super) trials: Trials,
    pub(super) provider: Option<ProviderHealth>,
    /// Which commands need an order.
    pub(super) orders: OrderGate,
    /// The document in force.
    pub(super) document: Option<Arc<Document>>,
    /// How people reach this daemon.
    pub(super) invocation: Invocation,
    /// Where sources keep what they count.
    pub(super) memory: Memory,
    /// Which machine acts on targets that several share.
    pub(super) turns: Turns,
    /// The patterns by which scopes are declared.
    pub(super) patterns: Arc<BTreeMap<String, String>>,
    /// What was put beside the document.
    pub(super) pieces: Arc<Vec<PieceStatus>>,
}

impl LoopsSnapshot {
    /// How all of it stands now.
    pub(super) fn overview(&self) -> Overview {
        let mut loops: Vec<LoopStatus> =
            self.loops.iter().map(|one| self.of_loop(&**one)).collect();
        let waiting = self.waiting.iter().filter(|waiting| !waiting.keys.is_empty());
        loops.extend(waiting.map(of_waiting));
        Overview {
            format_version: FORMAT_VERSION.to_owned(),
            converged: self.is_arranged && loops.iter().all(|one| one.converged),
            ready: self.is_ready(),
            handed: self.is_handed,
            handed_number: self.handed_number,
            fallback: self.fallback,
            tried_before: self.tried_before,
            trial: self.trials.status(),
            last_trial: self.trials.last.clone(),
            provider: self.provider.as_ref().map(ProviderHealth::status),
            loops,
            open_keys: self.open(None, Some(SHOWN)).open,
            pieces: self.pieces.to_vec(),
            checks: self.checks(),
        }
    }

    /// How the checks stand, by scope.
    fn checks(&self) -> Vec<CheckStatus> {
        let verdicts = self.memory.of::<HealthBoard>().verdicts().into_iter();
        let all = verdicts.map(|((scope, condition), verdict)| CheckStatus {
            scope,
            check: condition.check,
            state: verdict.state,
            since: verdict.since.map(|since| Stamp::ago(since.elapsed()).to_string()),
            reason: verdict.reason,
            held_ms: verdict
                .held_until
                .map(|until| millis(until.saturating_duration_since(Instant::now())))
                .filter(|left| *left > 0),
            failures: verdict.failures,
            every_ms: millis(condition.every),
            fall: condition.fall,
            rise: condition.rise,
        });
        all.collect()
    }

    fn of_loop(&self, control: &dyn Control) -> LoopStatus {
        let (ledger_key, status) = (control.ledger_key(), control.status());
        let ago = |time| millis(control.at(time).elapsed());
        let until = |time| millis(control.at(time).saturating_duration_since(Instant::now()));
        let converged = self.is_as_declared(control, &status);
        let contended = status.contended.into_iter();
        let why = if status.is_paused { "resume".to_owned() } else { status.next_why.to_string() };
        LoopStatus {
            source: ledger_key.source.clone(),
            scope: ledger_key.scope.clone(),
            mode: status.mode,
            paused: status.is_paused,
            ready: status.is_ready,
            converged,
            role: role(self.turns.of(&ledger_key.source)),
            pattern: self.patterns.get(&ledger_key.scope).cloned(),
            pass: status.pass.0,
            last_attempt_ago_ms: status.last_attempt.map(ago),
            last_success_ago_ms: status.last_success.map(ago),
            last_error: status.last_error,
            failures: status.failures,
            next_due_in_ms: status.next_due.map(until),
            next_why: status.next_due.map(|_| why),
            stall: status.stall.map(|stall| stall.to_string()),
            open: status.open,
            counts: serde_json::to_value(status.counts).unwrap_or_default(),
            contended: contended
                .map(|one| Contended {
                    key: one.key,
                    culprit: one.culprit,
                    pause_ms: millis(one.pause),
                })
                .collect(),
            not_converging: status.not_converging,
            waits_on: None,
        }
    }

    /// How everything stands, for people.
    pub(super) fn headline(&self) -> Headline {
        Headline::of(&self.overview(), self.is_healthy(), &self.invocation)
    }

    /// Where the document in force declares a key: file, line and column.
    pub(super) fn declared_at(&self, ledger_key: &LedgerKey, key: &str) -> Option<String> {
        let document = self.document.as_deref()?;
        let source = find(&ledger_key.source)?;
        let is_its = |name: Option<&NamespaceName>| {
            name.is_some_and(|name| name.as_str() == ledger_key.scope)
        };
        // The first scope is the top level, which has whatever is no namespace of the document.
        let named = document.scopes().find(|(name, _)| is_its(*name));
        let (_, section) = named.or_else(|| document.scopes().next())?;
        let place = document.locate((source.written)(section, key)?);
        Some(format!("{}:{}:{}", place.file, place.line, place.column))
    }

    /// Whether everything is as declared.
    pub(super) fn is_converged(&self) -> bool {
        self.is_arranged
            && self.waiting.iter().all(|waiting| waiting.keys.is_empty())
            && self.loops.iter().all(|one| self.is_as_declared(&**one, &one.status()))
    }

    /// Whether a loop has nothing left to do. What another machine acts on is not for this one to bring about.
    fn is_as_declared(&self, control: &dyn Control, status: &Status) -> bool {
        let is_standby = self.turns.is_standby(&control.ledger_key().source);
        status.is_ready && (status.is_converged || is_standby)
    }

    /// Whether every loop that is needed for it has made its first full pass. Nothing waits for a target that may be
    /// reached only once this machine has started.
    pub(super) fn is_ready(&self) -> bool {
        self.is_arranged && self.starting().next().is_none()
    }

    /// The loops that are needed to be ready, and have not made their first full pass.
    pub(super) fn starting(&self) -> impl Iterator<Item = &Arc<dyn Control>> {
        let is_needed = |one: &&Arc<dyn Control>| {
            let (source, status) = (&one.ledger_key().source, one.status());
            let has_tried = is_late(source) && status.last_error.is_some();
            !is_remote(source) && !status.is_ready && !has_tried
        };
        self.loops.iter().filter(is_needed)
    }

    /// Whether no loop is stuck. Idle is healthy.
    pub(super) fn is_healthy(&self) -> bool {
        self.loops.iter().all(|one| one.status().stall.is_none())
    }

    /// The keys that are not as declared after the `next` of another page: ordered by source and scope, then in the
    /// order of keys.
    pub(super) fn open(&self, after: Option<&str>, limit: Option<usize>) -> OpenPage {
        let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, LARGEST_PAGE);
        let running = self.loops.iter().map(|one| (one.ledger_key(), Part::Loop(&**one)));
        let waiting = self.waiting.iter().map(|one| (&one.ledger_key, Part::Waiting(one)));
        // The position of a key that ends a page begins with its source and scope.
        let parts = running.chain(waiting);
        let mut parts: Vec<_> = parts
            .map(|(key, part)| (format!("{}/{}/", key.source, key.scope), key, part))
            .collect();
        parts.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let (mut open, after) = (Vec::new(), after.unwrap_or_default());
        for (prefix, ledger_key, part) in &parts {
            let after =
                after.strip_prefix(&**prefix).map(Some).or((&**prefix > after).then_some(None));
            let Some(after) = after.filter(|_| open.len() < limit) else { continue };
            open.extend(part.page(ledger_key, after, limit - open.len(), &self.invocation));
        }
        let last = open.last().filter(|_| open.len() == limit);
        let next = last.map(|one| format!("{}/{}/{}", one.source, one.scope, one.key));
        OpenPage { format_version: FORMAT_VERSION.to_owned(), open, next }
    }

    /// Waits until everything is as declared.
    pub(super) async fn wait_until_converged(&self) {
        loop {
            let is_ours = |one: &dyn Control| !self.turns.is_standby(&one.ledger_key().source);
            self.wait_for(|status| status.is_ready && status.is_converged, is_ours).await;
            self.wait_for(|status| status.is_ready, |_| true).await;
            if self.overview().converged {
                return;
            }
            if !self.is_arranged || self.waiting.iter().any(|waiting| !waiting.keys.is_empty()) {
                // What waits for a scope comes with the next snapshot.
                pending::<()>().await;
            }
        }
    }

    /// Waits until every loop on this machine has made a full pass for its newest desired state.
    pub(super) async fn wait_until_passed(&self) {
        self.wait_for(|status| status.has_passed, |one| !is_remote(&one.ledger_key().source)).await;
    }

    /// Waits until the loops on this machine have made their passes, and nothing is left that a moment could cure.
    pub(super) async fn wait_until_settled(&self) {
        self.wait_until_passed().await;
        let here = self.loops.iter().filter(|one| !is_remote(&one.ledger_key().source));
        let patience = Patience::default().with_tasks(Duration::ZERO);
        join_all(here.map(|one| one.settle(patience))).await;
    }

    /// Waits until all of these loops stand like this at once.
    async fn wait_for(&self, so: fn(&Status) -> bool, which: impl Fn(&dyn Control) -> bool) {
        let is_left = |one: &&Arc<dyn Control>| which(&***one) && !so(&one.status());
        while let Some(one) = self.loops.iter().find(is_left) {
            // One that has ended comes again with the next snapshot.
            if one.wait_for(Box::new(so)).await.is_err() {
                pending::<()>().await;
            }
        }
    }
}

/// The loops that have open keys.
enum Part<'a> {
    Loop(&'a dyn Control),
    /// A scope that is not there.
    Waiting(&'a Waiting),
}

impl Part<'_> {
    /// The first open keys after `after`, at most `limit`.
    fn page(
        &self,
        ledger_key: &LedgerKey,
        after: Option<&str>,
        limit: usize,
        invocation: &Invocation,
    ) -> Vec<OpenItem> {
        let item = |key, kind| OpenItem {
            source: ledger_key.source.clone(),
            scope: ledger_key.scope.clone(),
            key,
            kind: OpenCounts::kind_name(kind).to_owned(),
            ..OpenItem::default()
        };
        match self {
            Part::Loop(control) => {
                // It fails if the source does not know such a key: then no page can end with it.
                let open = control.open_keys(after, limit).unwrap_or_default();
                let until =
                    |time| millis(control.at(time).saturating_duration_since(Instant::now()));
                let items = open.into_iter().map(|open| OpenItem {
                    reason: Some(open.reason).filter(|reason| !reason.is_empty()),
                    owner: open.owner,
                    since: Some(Stamp::ago(control.at(open.since).elapsed()).to_string()),
                    help: open.help,
                    command: invocation.resolves(
                        &ledger_key.scope,
                        &open.key,
                        open.kind,
                        open.held_by,
                    ),
                    next_try_in_ms: open.next_try.map(until),
                    ..item(open.key, open.kind)
                });
                items.collect()
            }
            Part::Waiting(waiting) => {
                let is_last = |key: &String| after == Some(key.as_str());
                let start = waiting.keys.iter().position(is_last).map_or(0, |last| last + 1);
                let keys = waiting.keys.iter().skip(start).take(limit);
                let reason = || Some(Finding::Pending { on: waiting.on.clone() }.reason());
                keys.map(|key| OpenItem { reason: reason(), ..item(key.clone(), Kind::Pending) })
                    .collect()
            }
        }
    }
}

/// Who acts on a target that machines share.
fn role(turn: Turn) -> Option<RoleStatus> {
    let since = |Millis(millis)| Stamp::of_millis(millis).to_string();
    match turn {
        Turn::Alone => None,
        Turn::Leader(Leader { shared, since: began, .. }) => Some(RoleStatus {
            role: Role::Leader,
            since: since(began),
            shared,
            leader: None,
            trouble: None,
        }),
        Turn::Standby(Standby { shared, since: began, leader, trouble }) => {
            Some(RoleStatus { role: Role::Standby, since: since(began), shared, leader, trouble })
        }
    }
}

fn of_waiting(waiting: &Waiting) -> LoopStatus {
    LoopStatus {
        source: waiting.ledger_key.source.clone(),
        scope: waiting.ledger_key.scope.clone(),
        mode: Mode::Heal,
        ready: true,
        open: OpenCounts::of(waiting.keys.iter().map(|_| Kind::Pending)),
        waits_on: Some(waiting.on.to_string()),
        ..LoopStatus::default()
    }
}
