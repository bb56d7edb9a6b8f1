//! The loops of every scope, brought in line with a document.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::FutureExt as _;
use homeostat_document::{Document, Settings, SourceSettings};
use homeostat_engine::{
    Control, Events, Ledger, LedgerKey, LoopDeps, LoopTask, Mode, Pace, Planner, ScopeLock,
};
use homeostat_netns::Netns;
use homeostat_registry::{Gate, Reach, Scope, ScopePlace, Start, Turn, Turns, declared_name};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::command::{SharedPass, StartedPass, start_pass};
use super::firewall::Firewall;
use super::health::{Place, ScopeChecks};
use super::loop_threads::LoopThreads;
use crate::context::Context;
use crate::machine::{Gates, Machine, Part, Waiting};
use crate::registry::{SOURCES, find, is_remote};

/// Everything that runs, by scope.
#[derive(Default)]
pub(super) struct Scopes {
    running: BTreeMap<String, Running>,
    threads: LoopThreads,
    /// The one on which checks run.
    check_thread: LoopThreads,
    /// The passes that a client waits for.
    started: Vec<StartedPass>,
    waiting: Vec<Waiting>,
    /// The patterns by which scopes are declared.
    patterns: Arc<BTreeMap<String, String>>,
    /// The lock of a scope in which nothing runs yet.
    held: Option<(String, Arc<ScopeLock>)>,
}

/// What runs in one scope.
struct Running {
    scope: String,
    identity: String,
    netns: Arc<Netns>,
    reach: Reach,
    /// One writer per scope and mark; shared by its loops.
    lock: Arc<ScopeLock>,
    loops: BTreeMap<LoopName, Looping>,
    checks: ScopeChecks,
    firewall: Firewall,
}

/// The source of a loop, and its scope: a source may have several in one network scope.
type LoopName = (String, String);

fn loop_name(planner: &dyn Planner) -> LoopName {
    let key = planner.ledger_key();
    (key.source.clone(), key.scope.clone())
}

/// Which of the loops that go on are given their desired states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    /// Those whose desired state or target has changed: the others are not disturbed.
    Changed,
    /// All of them: a client or a signal asks for it.
    All,
    /// All of them, for a client that waits for the reports of the passes that carry it out.
    AllForClient,
    /// Those whose desired state or target has changed, for a client that waits for their reports.
    ChangedForClient,
}

/// What the loops are brought in line with.
#[derive(Clone, Copy)]
pub(super) struct Arrangement<'a> {
    pub(super) context: &'a Context,
    pub(super) document: &'a Document,
    pub(super) ledger: &'a Arc<dyn Ledger>,
    pub(super) events: &'a Events,
    pub(super) recipients: Recipients,
}

/// What was done with a desired state.
enum Put {
    /// It is that of a loop that has begun with this pass.
    Begun(SharedPass),
    /// A loop that goes on has it.
    Changed,
    /// A loop that goes on had it before.
    Unchanged,
}

struct Looping {
    pace: Pace,
    control: Arc<dyn Control>,
    task: JoinHandle<()>,
}

impl Drop for Looping {
    fn drop(&mut self) {
        // Its descriptors would keep a namespace alive.
        self.task.abort();
    }
}

impl Looping {
    /// Waits until the loop writes no more, and has dropped its lock and its descriptors.
    async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Scopes {
    pub(super) fn loops(&self) -> Vec<Arc<dyn Control>> {
        let all = self.running.values().flat_map(|scope| scope.loops.values());
        all.map(|looping| Arc::clone(&looping.control)).collect()
    }

    /// Keeps others from writing in the top scope before anything runs there.
    pub(super) fn hold(&mut self, context: &Context, ledger: &dyn Ledger) -> Result<()> {
        let top = context.top_scope()?;
        let lock = Arc::new(context.lock_to_mark(&top, ledger)?);
        self.held = Some((top.name, lock));
        Ok(())
    }

    /// The lock of a scope in which something runs.
    pub(super) fn lock(&self, scope: &str) -> Option<Arc<ScopeLock>> {
        self.running.get(scope).map(|running| Arc::clone(&running.lock))
    }

    /// The passes that were started for a client since the last call.
    pub(super) fn take_started(&mut self) -> Vec<StartedPass> {
        std::mem::take(&mut self.started)
    }

    /// Starts a pass of each loop for a client that waits for the reports.
    pub(super) fn start_passes(&mut self) {
        for control in self.loops() {
            let pass = start_pass(&control).boxed();
            self.started.push(StartedPass { control, pass });
        }
    }

    /// The patterns by which scopes are declared.
    pub(super) fn patterns(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.patterns)
    }

    /// What waits for a scope that is not there.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        self.waiting.clone()
    }

    /// The places of namespaces that decide what runs: of those that the document or its links name, in
    /// which something runs, or in which we own something.
    pub(super) fn places(
        &self,
        context: &Context,
        document: &Document,
        ledger: &dyn Ledger,
    ) -> Vec<ScopePlace> {
        let declared = document.namespaces.iter().map(|(name, _)| name.value.clone());
        let referred = document.scopes().flat_map(|(_, section)| {
            SOURCES.iter().flat_map(move |source| (source.namespaces)(section))
        });
        let referred = referred.filter_map(|name| name.parse().ok());
        let named = declared.chain(referred).filter_map(|name| declared_name(document, &name).ok());
        // Without a ledger the document cannot be bound either, which is reported there.
        let recorded = ledger.places(&context.caller.owner).unwrap_or_default();
        let is_network =
            |key: &LedgerKey| find(&key.source).is_none_or(|one| one.own_scopes.is_none());
        let recorded = recorded.into_iter().filter(is_network).map(|ledger_key| ledger_key.scope);
        let top = context.top_namespace().ok().flatten();
        let scopes: BTreeSet<_> =
            named.chain(recorded).chain(self.running.keys().cloned()).chain(top).collect();
        // A text that is not a name cannot be a namespace.
        scopes.iter().filter_map(|scope| ScopePlace::of(scope).ok()).collect()
    }

    /// Starts missing loops, gives the others their desired state, and ends loops that are not needed any more.
    pub(super) async fn arrange(&mut self, by: Arrangement<'_>) -> Result<()> {
        // Done first: it must not depend on the success of the rest.
        self.end_gone(by.context).await;
        let parts = self.bind(by).await?;
        self.end_missing(&parts, &by.context.gates).await;
        if self.settle(parts, by).await? {
            // The namespaces that were just created can be opened only now.
            let parts = self.bind(by).await?;
            self.settle(parts, by).await?;
        }
        Ok(())
    }

    /// Binds the document on a thread of its own: it may take as long as `nft` does, and nothing that runs
    /// waits for that.
    async fn bind(&mut self, by: Arrangement<'_>) -> Result<Vec<Part>> {
        let (context, document) = (by.context.clone(), by.document.clone());
        let (ledger, runtime) = (Arc::clone(by.ledger), tokio::runtime::Handle::current());
        let (answer, answered) = oneshot::channel();
        std::thread::Builder::new().name("bind".to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let bound = Machine::bind_or_wait(&context, &document, &*ledger);
            // The daemon may be stopping.
            let _ = answer.send(bound.map(Machine::into_parts));
        })?;
        let bound = answered.await.context("binding the document ended without an answer")?;
        let parts: Vec<Part>;
        (parts, self.waiting) = bound?;
        let by_pattern = |part: &Part| Some((part.scope.name.clone(), part.pattern.clone()?));
        self.patterns = Arc::new(parts.iter().filter_map(by_pattern).collect());
        Ok(parts)
    }

    /// Ends the loops of namespaces that are gone, or are other ones under their names: an open descriptor would keep
    /// them alive.
    pub(super) async fn end_gone(&mut self, context: &Context) {
        let is_gone = |name: &String, running: &mut Running| match running.reach {
            Reach::Host | Reach::Sandbox => false,
            Reach::Namespace => {
                !Scope::is_there(name, &running.netns) && !context.is_pinned(&running.netns)
            }
        };
        let ended: Vec<_> = self.running.extract_if(.., is_gone).collect();
        end(ended).await;
    }

    /// A scope that the document does not speak of, and in which we own nothing, ends with all of its loops.
    async fn end_missing(&mut self, parts: &[Part], gates: &Gates) {
        let is_missing = |name: &String, running: &mut Running| {
            let is_here =
                |part: &Part| part.scope.name == *name && part.scope.identity == running.identity;
            !parts.iter().any(is_here)
        };
        let ended: Vec<_> = self.running.extract_if(.., is_missing).collect();
        end(ended).await;
        gates.retain(|identity| parts.iter().any(|part| part.scope.identity == identity));
    }

    /// Returns whether the first of all parts, namespaces of our own, has just begun.
    async fn settle(&mut self, parts: Vec<Part>, by: Arrangement<'_>) -> Result<bool> {
        let mut made = false;
        for Part { scope, first, rest, .. } in parts {
            let running = match self.running.entry(scope.name.clone()) {
                Entry::Occupied(running) => running.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(Running {
                    scope: scope.name.clone(),
                    identity: scope.identity.clone(),
                    netns: Arc::clone(&scope.netns),
                    reach: scope.reach,
                    lock: match &self.held {
                        Some((name, lock)) if *name == scope.name => Arc::clone(lock),
                        _ => Arc::new(by.context.lock_to_mark(&scope, &**by.ledger)?),
                    },
                    loops: BTreeMap::new(),
                    checks: ScopeChecks::default(),
                    firewall: Firewall::default(),
                }),
            };
            let ended = running.loops.extract_if(.., |name, _| {
                !first.iter().chain(&rest).any(|planner| loop_name(&**planner) == *name)
            });
            for (_, looping) in ended.collect::<Vec<_>>() {
                looping.end().await;
            }
            running.keep_checks(&first, &rest, by, &mut self.check_thread)?;
            for planner in first {
                if let (_, Put::Begun(pass)) =
                    running.put(planner, by, &mut self.threads, &mut self.started).await?
                {
                    // Whether it could be made is in its report.
                    let _ = pass.await;
                    made = true;
                }
            }
            let gate = by.context.gates.of(&scope.identity);
            running.start(rest, &gate, by, &mut self.threads, &mut self.started).await?;
        }
        Ok(made)
    }
}

/// Ends all loops of some scopes.
async fn end(scopes: Vec<(String, Running)>) {
    for looping in scopes.into_iter().flat_map(|(_, running)| running.loops.into_values()) {
        looping.end().await;
    }
}

impl Running {
    /// Checks what the sources of the scope ask for, from before their first passes on.
    fn keep_checks(
        &mut self,
        first: &[Box<dyn Planner>],
        rest: &[Box<dyn Planner>],
        by: Arrangement<'_>,
        thread: &mut LoopThreads,
    ) -> Result<()> {
        let mut conditions = BTreeSet::new();
        let mut source = "";
        for planner in first.iter().chain(rest) {
            let to_check = planner.to_check();
            if let Some(found) = find(&planner.ledger_key().source).filter(|_| !to_check.is_empty())
            {
                source = found.name();
            }
            conditions.extend(to_check);
        }
        let place = Place {
            source,
            scope: self.scope.as_str().into(),
            netns: Arc::clone(&self.netns),
            board: by.context.caller.memory.of(),
            events: by.events.clone(),
        };
        self.checks.keep(conditions, &place, thread)
    }

    /// Gives loops their desired states, and starts those that are missing in their order.
    async fn start(
        &mut self,
        mut planners: Vec<Box<dyn Planner>>,
        gate: &Gate,
        by: Arrangement<'_>,
        threads: &mut LoopThreads,
        started: &mut Vec<StartedPass>,
    ) -> Result<()> {
        let start = |planner: &dyn Planner| {
            find(&planner.ledger_key().source).map_or(Start::Usual, |source| source.start)
        };
        if planners.iter().all(|planner| start(&**planner) != Start::Firewall) {
            self.firewall.leave(gate);
        }
        planners.sort_by_key(|planner| start(&**planner));
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for planner in planners {
            let start = start(&*planner);
            let (control, put) = self.put(planner, by, threads, started).await?;
            if start == Start::Firewall && !matches!(put, Put::Unchanged) {
                self.firewall.follow(Arc::clone(&control), gate).await;
            }
            let Put::Begun(pass) = put else { continue };
            match start {
                Start::First => _ = pass.await,
                Start::Firewall => first.push(control),
                Start::BeforeLinks => {
                    // Whether it worked is in its report.
                    let _ = pass.await;
                    first.push(control);
                }
                Start::Late => {}
                Start::Usual if is_remote(&control.ledger_key().source) => {}
                Start::Usual => others.push(pass),
            }
        }
        // What waited for a link gets another look once the links are made. It does not wait for targets elsewhere.
        tokio::spawn(async move {
            for pass in others {
                let _ = pass.await;
            }
            for control in first.into_iter().filter(|control| !control.status().is_converged) {
                let _ = control.pass().await;
            }
        });
        Ok(())
    }

    /// Gives a loop its desired state, or starts one.
    async fn put(
        &mut self,
        planner: Box<dyn Planner>,
        by: Arrangement<'_>,
        threads: &mut LoopThreads,
        started: &mut Vec<StartedPass>,
    ) -> Result<(Arc<dyn Control>, Put)> {
        let name = loop_name(&*planner);
        let pace = pace(&*planner, &by.document.settings, &by.context.caller.turns);
        let goes_on = |one: &&Looping| !one.task.is_finished() && one.pace.is_like(&pace);
        if let Some(Looping { control, .. }) = self.loops.get(&name).filter(goes_on) {
            // A loop that has ended meanwhile is started by the next call.
            let is_changed = match by.recipients {
                Recipients::Changed => control.put(planner),
                Recipients::All => control.replace(planner).map(|()| true),
                Recipients::AllForClient => control.apply(planner).map(|pass| {
                    started.push(StartedPass { control: Arc::clone(control), pass });
                    true
                }),
                Recipients::ChangedForClient => {
                    let is_changed = control.put(planner);
                    if let Ok(true) = is_changed {
                        let pass = start_pass(control).boxed();
                        started.push(StartedPass { control: Arc::clone(control), pass });
                    }
                    is_changed
                }
            };
            let put = if matches!(is_changed, Ok(false)) { Put::Unchanged } else { Put::Changed };
            return Ok((Arc::clone(control), put));
        }
        if let Some(former) = self.loops.remove(&name) {
            former.end().await;
        }
        let deps = LoopDeps::new(Arc::clone(&self.lock), Arc::clone(by.ledger))
            .with_events(by.events.clone());
        let LoopTask { control, run, .. } = planner.into_loop(deps, pace.clone());
        // Before the loop runs, so that it is its first pass that is waited for, and no second one.
        let first = start_pass(&control);
        if matches!(by.recipients, Recipients::AllForClient | Recipients::ChangedForClient) {
            started
                .push(StartedPass { control: Arc::clone(&control), pass: first.clone().boxed() });
        }
        // The term of a leader ends for its loop at once, whatever the daemon is doing.
        let turn = by.context.caller.turns.of(&name.0);
        let run = async move {
            let over = async {
                match turn {
                    Turn::Leader(leader) => leader.until_over().await,
                    Turn::Alone | Turn::Standby(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = run => {}
                () = over => {}
            }
        };
        let task = threads.spawn(run).context("cannot start a thread for a loop")?;
        self.loops.insert(name, Looping { pace, control: Arc::clone(&control), task });
        Ok((control, Put::Begun(first)))
    }
}

/// The pace that the document asks for.
fn pace(planner: &dyn Planner, settings: &Settings, turns: &Turns) -> Pace {
    let seed = u64::from(std::process::id());
    let mut pace = planner.pace(seed);
    let name = &planner.ledger_key().source;
    let SourceSettings { resync, min_interval, mode, .. } = settings.source(name);
    let usual = find(name).and_then(|source| source.remote.as_ref()).map(|remote| remote.resync);
    if let Some(period) = resync.as_ref().map(|period| period.get()).or(usual) {
        // The document allows only what a resync can be.
        pace = pace.clone().with_resync(period).unwrap_or(pace);
    }
    if let Some(least) = min_interval {
        pace = pace.with_min_interval(least.get());
    }
    if let Some((quiet, max_wait)) = settings.source(name).debounce() {
        // The document allows only what a quiet period can be.
        pace = pace.clone().with_debounce(quiet, max_wait).unwrap_or(pace);
    }
    if turns.is_standby(name) {
        // It reads, so that it is warm when it is elected, and has no right to write.
        return pace.with_mode(Mode::Observe);
    }
    pace.with_mode(match mode.as_ref().map(|mode| mode.value) {
        Some(homeostat_document::Mode::Observe) => Mode::Observe,
        Some(homeostat_document::Mode::Heal) | None => Mode::Heal,
    })
}
