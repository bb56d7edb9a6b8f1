//! A loop over the network of a test, judged by `ip` between its passes.
//!
//! The loop and the test share a thread, so that the loop moves only while the test waits.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Event, EventKind, Events, Handle, LedgerKey, Loop, LoopDeps,
    MemoryLedger, Ownership, Pace, Source, Status,
};
use homeostat_rtnl::{DesiredState, Rtnl};
use homeostat_testkit::namespace::Namespace;
use tokio::runtime::Runtime;
use tokio::sync::broadcast::Receiver;

use crate::bench::{listed, runtime};

/// However busy the machine is, what takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// A resync that no test lives to see.
pub(crate) const NEVER: Duration = Duration::from_hours(24);

/// A running loop.
pub(crate) struct Kept<S: Source = Rtnl> {
    pub(crate) handle: Handle<S>,
    events: Receiver<Event>,
    runtime: Runtime,
}

/// A pace at which everything is healed by hints, or not at all.
pub(crate) fn by_hints() -> Pace {
    Pace::of::<Rtnl>(1).with_resync(NEVER).unwrap()
}

fn bound<S: Source<Desired = DesiredState>>(source: S, desired: DesiredState) -> Bound<S> {
    Bound::new(source, desired, Ownership::Marked, LedgerKey::new("test", "rtnl", "test"))
}

impl<S: Source<Desired = DesiredState>> Kept<S> {
    /// Starts a loop that has not done anything yet.
    pub(crate) fn start(source: S, desired: DesiredState, pace: Pace) -> Self {
        let events = Events::default();
        let received = events.subscribe();
        let lock = Arc::new(Alone::i_am_the_only_writer());
        let means = LoopDeps::new(lock, Arc::new(MemoryLedger::default())).with_events(events);
        let (looped, handle) = Loop::new(bound(source, desired), means, pace);
        let runtime = runtime();
        runtime.spawn(looped.run());
        Kept { handle, events: received, runtime }
    }

    /// Starts a loop, and waits until everything is as declared.
    pub(crate) fn converged(source: S, desired: DesiredState, pace: Pace) -> Self {
        let kept = Self::start(source, desired, pace);
        kept.until("converged", |status| status.is_converged);
        kept
    }

    /// Gives the loop another desired state.
    pub(crate) fn put(&self, source: S, desired: DesiredState) {
        self.handle.put(bound(source, desired)).unwrap();
    }

    /// Waits until the loop stands so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, so: impl FnMut(&Status) -> bool) -> Status {
        let waited = async { tokio::time::timeout(PATIENCE, self.handle.wait_for(so)).await };
        let Ok(found) = self.runtime.block_on(waited) else {
            panic!("it is never {what}: {:#?}", self.handle.status())
        };
        found.unwrap()
    }

    /// Lets the loop move until a check from outside succeeds.
    #[track_caller]
    pub(crate) fn until_seen(&self, what: &str, so: impl Fn() -> bool) {
        let waited = async { self.handle.wait_for(|_| so()).await.unwrap() };
        let waited = async { tokio::time::timeout(PATIENCE, waited).await };
        let seen = self.runtime.block_on(waited);
        assert!(seen.is_ok(), "{what} is never seen: {:#?}", self.handle.status());
    }

    /// How the loop stands.
    pub(crate) fn status(&self) -> Status {
        self.handle.status()
    }

    /// The events since the last call.
    pub(crate) fn received(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|event| event.kind).collect()
    }
}

/// Whether `ip` shows exactly one route to there.
pub(crate) fn has_route(namespace: &Namespace, to: &str) -> bool {
    listed(namespace, &format!("route show {to}")).len() == 1
}
