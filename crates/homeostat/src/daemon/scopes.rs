//! The loops of every scope, brought in line with a document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Settings, SourceSettings};
use homeostat_engine::{
    Control, Events, Kept, Ledger, Means, Mode, Pace, Place, Planner, ScopeLock,
};
use homeostat_knobs::Gate;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::firewall::Firewall;
use crate::context::Context;
use crate::machine::{Machine, Part, Waiting};
use crate::registry::known;
use crate::sources::nft;

/// Everything that runs, by scope.
#[derive(Default)]
pub(super) struct Scopes {
    running: BTreeMap<String, Running>,
    waiting: Vec<(Place, Waiting)>,
}

/// What runs in one scope.
struct Running {
    identity: String,
    /// One writer per scope and mark; shared by its loops.
    lock: Arc<ScopeLock>,
    loops: BTreeMap<String, Looping>,
    firewall: Firewall,
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
    pub(super) fn waiting(&self) -> Vec<(Place, Waiting)> {
        self.waiting.clone()
    }

    /// Starts what is missing, gives the rest its new wish, and ends what has no business any more.
    pub(super) async fn arrange(
        &mut self,
        context: &Context,
        document: &Document,
        (ledger, events): (&Arc<dyn Ledger>, &Events),
    ) -> Result<()> {
        let parts = self.bind(context, document, ledger).await?;
        self.end_missing(&parts);
        let made = self.settle(parts, (context, document), (ledger, events)).await?;
        if made {
            // What is inside the namespaces that were just made can be opened only now.
            let parts = self.bind(context, document, ledger).await?;
            self.settle(parts, (context, document), (ledger, events)).await?;
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
    fn end_missing(&mut self, parts: &[Part]) {
        let here: BTreeSet<(&str, &str)> =
            parts.iter().map(|part| (&*part.scope.name, &*part.scope.identity)).collect();
        self.running.retain(|name, scope| here.contains(&(name.as_str(), &*scope.identity)));
    }

    /// Tells whether the first of all parts, namespaces of our own, has just begun.
    async fn settle(
        &mut self,
        parts: Vec<Part>,
        (context, document): (&Context, &Document),
        (ledger, events): (&Arc<dyn Ledger>, &Events),
    ) -> Result<bool> {
        let mut made = false;
        for part in parts {
            let Part { scope, first, rest } = part;
            if !self.running.contains_key(&scope.name) {
                let (identity, lock) = (scope.identity.clone(), Arc::new(scope.lock(context)?));
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
            running.loops.retain(|name, _| names.contains(name));
            for planner in first {
                let begun = running.put(planner, document, (ledger, events));
                if let Some(control) = begun {
                    // Whether it could be made is in its report.
                    let _ = control.pass().await;
                    made = true;
                }
            }
            running.start((rest, &scope.gate), document, (ledger, events)).await;
        }
        Ok(made)
    }
}

/// What begins first, and is waited for: no host forwards before its firewall is there, and links that are
/// made take over what `default` says. The knobs of those links come after them.
const BEFORE_ALL: [&str; 2] = ["nft", "knobs"];

impl Running {
    /// Gives loops their wishes, and starts those that are missing in their order.
    async fn start(
        &mut self,
        (planners, gate): (Vec<Box<dyn Planner>>, &Gate),
        document: &Document,
        (ledger, events): (&Arc<dyn Ledger>, &Events),
    ) {
        let rank = |planner: &dyn Planner| {
            let source = &planner.place().source;
            BEFORE_ALL.iter().position(|name| name == source).unwrap_or(BEFORE_ALL.len())
        };
        let mut planners = planners;
        planners.sort_by_key(|planner| rank(&**planner));
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for planner in planners {
            let comes_first = rank(&*planner) < BEFORE_ALL.len();
            let source = planner.place().source.clone();
            let begun = self.put(planner, document, (ledger, events));
            if source == nft::REGISTERED.name {
                self.follow_firewall(gate).await;
            } else if let Some(control) = begun.as_ref().filter(|_| comes_first) {
                // Whether it worked is in its report.
                let _ = control.pass().await;
            }
            if comes_first { &mut first } else { &mut others }.extend(begun);
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
    }

    async fn follow_firewall(&mut self, gate: &Gate) {
        if let Some(looping) = self.loops.get(nft::REGISTERED.name) {
            self.firewall.follow(Arc::clone(&looping.control), gate).await;
        }
    }

    /// Gives a loop its wish, or starts one and hands it out.
    fn put(
        &mut self,
        planner: Box<dyn Planner>,
        document: &Document,
        (ledger, events): (&Arc<dyn Ledger>, &Events),
    ) -> Option<Arc<dyn Control>> {
        let name = planner.place().source.clone();
        let pace = pace(&*planner, &document.settings);
        let goes_on = |one: &&Looping| !one.task.is_finished() && one.pace.is_like(&pace);
        if let Some(looping) = self.loops.get(&name).filter(goes_on) {
            // A loop that has ended meanwhile is started by the next call.
            let _ = looping.control.put(planner);
            return None;
        }
        let means = Means {
            lock: Arc::clone(&self.lock),
            ledger: Arc::clone(ledger),
            events: events.clone(),
        };
        let Kept { control, run } = planner.keep(means, pace.clone());
        let looping = Looping { pace, control: Arc::clone(&control), task: tokio::spawn(run) };
        self.loops.insert(name, looping);
        Some(control)
    }
}

/// The pace that the document asks for.
fn pace(planner: &dyn Planner, settings: &Settings) -> Pace {
    let seed = u64::from(std::process::id());
    let mut pace = planner.pace(seed);
    let source = known(&planner.place().source);
    let SourceSettings { resync, min_interval, mode, .. } = (source.settings)(settings);
    let usual = source.remote.as_ref().map(|remote| remote.resync);
    let resync = resync.as_ref().map(|period| period.get()).or(usual);
    if let Some(period) = resync {
        // The document allows only what a resync can be.
        pace = pace.clone().with_resync(period).unwrap_or(pace);
    }
    if let Some(least) = min_interval {
        pace = pace.with_min_interval(least.get());
    }
    let mode = mode.as_ref().map(|mode| mode.value);
    pace.with_mode(match mode {
        Some(homeostat_document::Mode::Observe) => Mode::Observe,
        Some(homeostat_document::Mode::Heal) | None => Mode::Heal,
    })
}
