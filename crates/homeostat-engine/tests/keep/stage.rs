//! A loop over a target in memory, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Event, EventKind, Events, Handle, LedgerKey, Loop, LoopDeps,
    MemoryLedger, OnStop, Ownership, Pace, Status, Table,
};
use homeostat_testkit::memory::{Echoes, Faults, Independent, Memory, Target};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) type Source = Memory<Independent>;
pub(crate) type DesiredState<'a> = &'a [(&'a str, &'a str)];

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) handle: Handle<Source>,
    pub(crate) running: JoinHandle<()>,
    pub(crate) events: broadcast::Receiver<Event>,
    pub(crate) ledger: Arc<MemoryLedger>,
}

pub(crate) fn desired(entries: DesiredState<'_>) -> Table<String, String> {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Table::new(entries).unwrap()
}

pub(crate) fn place() -> LedgerKey {
    LedgerKey::new("default", "memory-independent", "test")
}

pub(crate) fn bound(target: &Target, entries: DesiredState<'_>) -> Bound<Source> {
    let source = Memory::marked(target.clone());
    Bound::new(source, desired(entries), Ownership::Marked, place()).with_nothing(desired(&[]))
}

/// The same over values that always exist and belong to nobody.
pub(crate) fn values_bound(target: &Target, entries: DesiredState<'_>) -> Bound<Source> {
    let source = Memory::values(target.clone());
    Bound::new(source, desired(entries), Ownership::Checkpoint, place()).with_nothing(desired(&[]))
}

/// Lets virtual time pass.
pub(crate) async fn later(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// How long something takes.
pub(crate) async fn taking<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (work.await, began.elapsed())
}

pub(crate) fn pace() -> Pace {
    Pace::of::<Source>(7)
}

impl Stage {
    pub(crate) fn start(entries: DesiredState<'_>) -> Self {
        Self::with(entries, pace(), |_| {})
    }

    /// Starts with faults from the beginning on.
    pub(crate) fn with(
        entries: DesiredState<'_>,
        pace: Pace,
        faults: impl FnOnce(&mut Faults),
    ) -> Self {
        let target = Target::default();
        target.faults(|all| all.echoes = Echoes::Suppressed);
        target.faults(faults);
        let order = bound(&target, entries);
        Self::over(target, order, pace)
    }

    pub(crate) fn over(target: Target, order: Bound<Source>, pace: Pace) -> Self {
        let (ledger, events) = (Arc::new(MemoryLedger::default()), Events::default());
        let subscription = events.subscribe();
        let deps = LoopDeps::new(Alone::i_am_the_only_writer(), ledger.clone()).with_events(events);
        let (looped, handle) = Loop::new(order, deps, pace);
        let running = tokio::spawn(looped.run());
        Stage { target, handle, running, events: subscription, ledger }
    }

    /// Starts, and lets it converge and every window end.
    pub(crate) async fn settled(entries: DesiredState<'_>) -> Self {
        Self::settled_at(entries, pace()).await
    }

    pub(crate) async fn settled_at(entries: DesiredState<'_>, pace: Pace) -> Self {
        let mut stage = Self::with(entries, pace, |_| {});
        stage.converged().await;
        later(SECOND).await;
        let _ = (stage.target.take_log(), stage.events());
        stage
    }

    pub(crate) async fn converged(&self) -> Status {
        self.handle.wait_for(|status| status.is_converged).await.unwrap()
    }

    pub(crate) async fn ready(&self) -> Status {
        self.handle.wait_for(|status| status.is_ready).await.unwrap()
    }

    pub(crate) fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.target.faults(change);
    }

    /// What is there, but for marks.
    pub(crate) fn values(&self) -> Vec<String> {
        let objects = self.target.objects().into_iter();
        let mut values: Vec<_> =
            objects.map(|held| format!("{}={}", held.key, held.value)).collect();
        values.sort();
        values
    }

    /// What was published since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    pub(crate) fn event_kinds(&mut self) -> Vec<EventKind> {
        self.events().into_iter().map(|event| event.kind).collect()
    }

    pub(crate) async fn stop(self, policy: OnStop) -> Target {
        self.handle.stop(policy).await;
        self.running.await.unwrap();
        self.target
    }
}
