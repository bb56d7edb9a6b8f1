//! The loops of every scope, brought in line with a document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Settings, SourceSettings};
use homeostat_engine::{
    Control, Events, Ledger, LedgerKey, LoopDeps, LoopTask, Mode, Pace, Planner, ScopeLock,
};
use homeostat_registry::{Gate, Start};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::firewall::Firewall;
use super::loop_threads::LoopThreads;
use crate::context::Context;
use crate::machine::{Gates, Machine, Part, Waiting};
use crate::registry::{SOURCES, find};

/// Everything that runs, by scope.
#[derive(Default)]
pub(super) struct Scopes {
    running: BTreeMap<String, Running>,
    threads: LoopThreads,
    waiting: Vec<(LedgerKey, Waiting)>,
}

/// What runs in one scope.
struct Running {
    identity: String,
    /// One writer per scope and mark; shared by its loops.
    lock: Arc<ScopeLock>,
    loops: BTreeMap<String, Looping>,
    firewall: Firewall,
}

/// Which of the loops that go on are given their desired states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    /// Those whose desired state or target has changed: the others are not disturbed.
    Changed,
    /// All of them: somebody asks for it.
    All,
}

/// What loops are given.
#[derive(Clone, Copy)]
struct With<'a> {
    document: &'a Document,
    ledger: &'a Arc<dyn Ledger>,
    events: &'a Events,
    recipients: Recipients,
}

/// What became of a desired state.
enum Put {
    /// It is that of a loop that has begun.
    Begun(Arc<dyn Control>),
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

    /// The lock of a scope in which something runs.
    pub(super) fn lock(&self, scope: &str) -> Option<Arc<ScopeLock>> {
        self.running.get(scope).map(|running| Arc::clone(&running.lock))
    }

    /// What waits for a scope that is not there.
    pub(super) fn waiting(&self) -> Vec<(LedgerKey, Waiting)> {
        self.waiting.clone()
    }

    /// The names of namespaces that decide what runs: of those that the document or its links speak of, in
    /// which something runs, or in which we own something.
    pub(super) fn names(
        &self,
        context: &Context,
        document: &Document,
        ledger: &dyn Ledger,
    ) -> BTreeSet<String> {
        let declared = document.namespaces.iter().map(|(name, _)| name.to_string());
        let sections = document.scopes().map(|(_, section)| section);
        let referred = sections
            .flat_map(|section| SOURCES.iter().flat_map(|source| (source.namespaces)(section)));
        // Without a ledger the document cannot be bound either, which is told there.
        let recorded = ledger.places(&context.caller.owner).unwrap_or_default();
        let recorded = recorded.into_iter().map(|place| place.scope);
        let running = self.running.keys().cloned();
        let scopes = recorded.chain(running).map(|scope| name_in_directory(&scope).to_owned());
        declared.chain(referred).chain(scopes).collect()
    }

    /// The names of namespaces that were not there when the document was bound.
    pub(super) fn absent(&self) -> BTreeSet<String> {
        self.waiting.iter().map(|(place, _)| name_in_directory(&place.scope).to_owned()).collect()
    }

    /// Starts what is missing, gives the rest its desired state, and ends what has no business any more.
    pub(super) async fn arrange(
        &mut self,
        context: &Context,
        document: &Document,
        (ledger, events): (&Arc<dyn Ledger>, &Events),
        recipients: Recipients,
    ) -> Result<()> {
        let with = With { document, ledger, events, recipients };
        let parts = self.bind(context, document, ledger).await?;
        self.end_missing(&parts, &context.gates).await;
        let made = self.settle(parts, context, with).await?;
        if made {
            // What is inside the namespaces that were just made can be opened only now.
            let parts = self.bind(context, document, ledger).await?;
            self.settle(parts, context, with).await?;
        }
        Ok(())
    }

    /// Binds the document on a thread of its own: it may take as long as `nft` does, and nothing that runs
    /// waits for that.
    async fn bind(
        &mut self,
        context: &Context,
        document: &Document,
        ledger: &Arc<dyn Ledger>,
    ) -> Result<Vec<Part>> {
        let (context, document) = (context.clone(), document.clone());
        let (ledger, runtime) = (Arc::clone(ledger), tokio::runtime::Handle::current());
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new().name("bind".to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let bound = Machine::bind(&context, &document, &*ledger);
            // The daemon may have been told to stop.
            let _ = tell.send(bound.map(|machine| (machine.waiting(), machine.into_parts())));
        })?;
        let (waiting, parts) =
            told.await.context("binding the document ended without an answer")??;
        self.waiting = waiting;
        Ok(parts)
    }

    /// A scope that is gone, or is another one under the same name, ends with all of its loops.
    async fn end_missing(&mut self, parts: &[Part], gates: &Gates) {
        let here: BTreeSet<(&str, &str)> =
            parts.iter().map(|part| (&*part.scope.name, &*part.scope.identity)).collect();
        let is_missing = |name: &String, scope: &mut Running| {
            !here.contains(&(name.as_str(), &*scope.identity))
        };
        let ended: Vec<Running> =
            self.running.extract_if(.., is_missing).map(|(_, scope)| scope).collect();
        for looping in ended.into_iter().flat_map(|scope| scope.loops.into_values()) {
            looping.end().await;
        }
        gates.retain(|identity| parts.iter().any(|part| part.scope.identity == identity));
    }

    /// Tells whether the first of all parts, namespaces of our own, has just begun.
    async fn settle(
        &mut self,
        parts: Vec<Part>,
        context: &Context,
        with: With<'_>,
    ) -> Result<bool> {
        let mut made = false;
        for part in parts {
            let Part { scope, first, rest } = part;
            if !self.running.contains_key(&scope.name) {
                let (identity, lock) = (scope.identity.clone(), Arc::new(context.lock(&scope)?));
                let running = Running {
                    identity,
                    lock,
                    loops: BTreeMap::new(),
                    firewall: Firewall::default(),
                };
                self.running.insert(scope.name.clone(), running);
            }
            let Some(running) = self.running.get_mut(&scope.name) else { continue };
            let names: BTreeSet<String> =
                first.iter().chain(&rest).map(|one| one.place().source.clone()).collect();
            let ended = running.loops.extract_if(.., |name, _| !names.contains(name));
            for (_, looping) in ended.collect::<Vec<_>>() {
                looping.end().await;
            }
            for planner in first {
                if let Put::Begun(control) = running.put(planner, with, &mut self.threads).await? {
                    // Whether it could be made is in its report.
                    let _ = control.pass().await;
                    made = true;
                }
            }
            let gate = context.gates.of(&scope.identity);
            running.start(rest, &gate, with, &mut self.threads).await?;
        }
        Ok(made)
    }
}

impl Running {
    /// Gives loops their desired states, and starts those that are missing in their order.
    async fn start(
        &mut self,
        planners: Vec<Box<dyn Planner>>,
        gate: &Gate,
        with: With<'_>,
        threads: &mut LoopThreads,
    ) -> Result<()> {
        let start = |planner: &dyn Planner| {
            find(&planner.place().source).map_or(Start::Usual, |source| source.start)
        };
        if planners.iter().all(|planner| start(&**planner) != Start::Firewall) {
            self.firewall.leave(gate);
        }
        let mut planners = planners;
        planners.sort_by_key(|planner| start(&**planner));
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for planner in planners {
            let (start, source) = (start(&*planner), planner.place().source.clone());
            let comes_first = start != Start::Usual;
            let put = self.put(planner, with, threads).await?;
            if start == Start::Firewall && !matches!(put, Put::Unchanged) {
                self.follow_firewall(&source, gate).await;
            }
            let Put::Begun(control) = put else { continue };
            if comes_first && start != Start::Firewall {
                // Whether it worked is in its report.
                let _ = control.pass().await;
            }
            if comes_first { &mut first } else { &mut others }.push(control);
        }
        // What waited for a link gets another look once the links are made.
        tokio::spawn(async move {
            for control in others {
                let _ = control.pass().await;
            }
            for control in first.into_iter().filter(|control| !control.status().is_converged) {
                let _ = control.pass().await;
            }
        });
        Ok(())
    }

    async fn follow_firewall(&mut self, source: &str, gate: &Gate) {
        if let Some(looping) = self.loops.get(source) {
            self.firewall.follow(Arc::clone(&looping.control), gate).await;
        }
    }

    /// Gives a loop its desired state, or starts one.
    async fn put(
        &mut self,
        planner: Box<dyn Planner>,
        with: With<'_>,
        threads: &mut LoopThreads,
    ) -> Result<Put> {
        let With { document, ledger, events, recipients } = with;
        let name = planner.place().source.clone();
        let pace = pace(&*planner, &document.settings);
        let goes_on = |one: &&Looping| !one.task.is_finished() && one.pace.is_like(&pace);
        if let Some(looping) = self.loops.get(&name).filter(goes_on) {
            // A loop that has ended meanwhile is started by the next call.
            let is_changed = match recipients {
                Recipients::Changed => looping.control.put(planner),
                Recipients::All => looping.control.replace(planner).map(|()| true),
            };
            return Ok(if matches!(is_changed, Ok(false)) { Put::Unchanged } else { Put::Changed });
        }
        if let Some(former) = self.loops.remove(&name) {
            former.end().await;
        }
        let deps = LoopDeps {
            lock: Arc::clone(&self.lock),
            ledger: Arc::clone(ledger),
            events: events.clone(),
        };
        let LoopTask { control, run } = planner.into_loop(deps, pace.clone());
        let task = threads.spawn(run).context("cannot start a thread for a loop")?;
        self.loops.insert(name, Looping { pace, control: Arc::clone(&control), task });
        Ok(Put::Begun(control))
    }
}

/// The name of a scope in the directory of names: some are called by their path.
fn name_in_directory(scope: &str) -> &str {
    scope.strip_prefix("/run/netns/").unwrap_or(scope)
}

/// The pace that the document asks for.
fn pace(planner: &dyn Planner, settings: &Settings) -> Pace {
    let seed = u64::from(std::process::id());
    let mut pace = planner.pace(seed);
    let name = &planner.place().source;
    let SourceSettings { resync, min_interval, mode, .. } = settings.source(name);
    let remote = find(name).and_then(|source| source.remote.as_ref());
    let usual = remote.map(|remote| remote.resync);
    let resync = resync.as_ref().map(|period| period.get()).or(usual);
    if let Some(period) = resync {
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
    let mode = mode.as_ref().map(|mode| mode.value);
    pace.with_mode(match mode {
        Some(homeostat_document::Mode::Observe) => Mode::Observe,
        Some(homeostat_document::Mode::Heal) | None => Mode::Heal,
    })
}
