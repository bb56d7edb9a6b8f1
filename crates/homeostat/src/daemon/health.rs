//! Runs the checks of what is there only while they are good, and writes down what they find. All of them run on one
//! thread of their own, so that none delays a loop or an answer; loops follow the [`HealthBoard`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_engine::health::State;
use homeostat_engine::pacing::Time;
use homeostat_engine::{Condition, Event, EventKind, Events, Health, HealthBoard, PassId, Verdict};
use homeostat_netns::Netns;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::loop_threads::LoopThreads;
use crate::checks;

/// The checks of one scope. Each condition is checked once, however many keys name it.
#[derive(Default)]
pub(super) struct ScopeChecks(BTreeMap<Condition, RunningCheck>);

/// A check that runs until this is dropped.
struct RunningCheck {
    place: Place,
    condition: Condition,
    task: JoinHandle<()>,
}

/// Where a check runs, and where its results go.
#[derive(Clone)]
pub(super) struct Place {
    /// The name of the source whose keys depend on it.
    pub(super) source: &'static str,
    pub(super) scope: Arc<str>,
    pub(super) netns: Arc<Netns>,
    pub(super) board: HealthBoard,
    pub(super) events: Events,
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.task.abort();
        self.place.board.remove(&self.place.scope, &self.condition);
    }
}

impl ScopeChecks {
    /// Runs these and no others. What runs already goes on with what it knows.
    pub(super) fn keep(
        &mut self,
        conditions: BTreeSet<Condition>,
        place: &Place,
        threads: &mut LoopThreads,
    ) -> Result<()> {
        self.0.retain(|condition, _| conditions.contains(condition));
        for condition in conditions {
            if self.0.contains_key(&condition) {
                continue;
            }
            place.board.set(&place.scope, &condition, Verdict::undecided());
            let run = run(condition.clone(), place.clone());
            let task = threads.spawn_on_first(run).context("cannot start a thread for checks")?;
            let running = RunningCheck { place: place.clone(), condition: condition.clone(), task };
            self.0.insert(condition, running);
        }
        Ok(())
    }
}

/// Checks again and again.
async fn run(condition: Condition, place: Place) {
    let (began, mut health, mut failures) = (Instant::now(), Health::default(), 0);
    loop {
        let next = Instant::now() + condition.every;
        let result = checks::run(&condition.check, &place.netns).await;
        let now = Time::from_epoch(began.elapsed());
        let has_changed = health.record(&condition, result.error.map_or(Ok(()), Err), now);
        let moment = |time: Time| began + time.since_epoch();
        let state = health.state();
        failures += u64::from(has_changed && state == State::Failing);
        let verdict = Verdict {
            state,
            since: health.since().map(moment),
            reason: health.reason().map(str::to_owned),
            held_until: health.held_until(now).map(moment),
            failures,
        };
        place.board.set(&place.scope, &condition, verdict);
        if has_changed {
            let kind = EventKind::Health {
                check: condition.check.to_string(),
                state,
                reason: health.reason().filter(|_| state == State::Failing).map(str::to_owned),
                held: health.held_until(now).map(|until| until.since(now)),
            };
            let Place { source, scope, events, .. } = &place;
            events.publish(Event::new(PassId::default(), source, Arc::clone(scope), kind));
        }
        tokio::time::sleep_until(next).await;
    }
}
