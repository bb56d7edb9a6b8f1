//! A rollout to 20 nodes over any store, with coordinators of which one leads.

use std::sync::Arc;
use std::time::Duration;

use homeostat_coordinator::Coordinator;
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{
    Leaves, Phase, Record as _, SignedStatement, State, Statement, Wave,
};
use homeostat_fleet::{Digest, Name, Time};
use homeostat_store::{Clock, Keys as Range, Store, Transaction};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::simulated::{Dice, History, Judged, Limits, Simulated, judge, name, pass_time};

pub(crate) const NODES: u64 = 20;
pub(crate) const IN_FLIGHT: u64 = 5;
const WAVES: [u64; 3] = [1, 10, NODES];

pub(crate) fn node(nth: u64) -> Name {
    name(&format!("n{nth:02}"))
}

/// What an operator has written besides the statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Leaves,
    Nothing,
}

pub(crate) fn run(coordinator: Coordinator) -> JoinHandle<()> {
    tokio::spawn(async move { coordinator.run(std::future::pending()).await })
}

/// One fleet in a store.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Keys,
    fleet: Name,
    clock: Arc<dyn Clock>,
    began: Instant,
    /// An answer of a node takes up to this long.
    slowest: Duration,
    soak: &'static str,
    /// Of the coordinators.
    lease: Duration,
}

impl World {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, fleet: &str) -> Self {
        World {
            store,
            keys: Keys::new(&name(fleet)),
            fleet: name(fleet),
            clock,
            began: Instant::now(),
            slowest: Duration::from_secs(3),
            soak: "1s",
            lease: Duration::from_secs(5),
        }
    }

    /// The same in a hurry, for stores in which time is real.
    pub(crate) fn hurried(self) -> Self {
        let (slowest, lease) = (Duration::from_millis(300), Duration::from_secs(3));
        World { slowest, lease, soak: "100ms", ..self }
    }

    pub(crate) fn wall(&self) -> impl Fn() -> Time + Send + Sync + 'static {
        let began = self.began;
        move || Time::of_millis(1_000_000).after(began.elapsed())
    }

    /// The same with a longer pause after each wave.
    pub(crate) fn soaking(self, soak: &'static str) -> Self {
        World { soak, ..self }
    }

    /// What an operator writes, in the order in which it must be there.
    pub(crate) async fn publish(&self) {
        self.publish_as("first", 7, Written::Leaves).await;
    }

    /// The same under another name.
    pub(crate) async fn publish_as(&self, id: &str, generation: u64, written: Written) {
        let leaf = |nth| Leaf {
            node: node(nth),
            document: Digest::of(b"new"),
            fallback: Digest::of(b"old"),
            class: Class::Reversible,
        };
        let leaves: Vec<_> = (0..NODES).map(leaf).collect();
        let statement = Statement {
            fleet: self.fleet.clone(),
            id: name(id),
            generation,
            not_after: Time::of_millis(1_000_000_000),
            root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
            nodes: NODES,
            waves: WAVES.map(Wave::Nodes).to_vec(),
            max_in_flight: IN_FLIGHT,
            max_failed: 0,
            settle: "1s".parse().unwrap(),
            confirm_within: "1m".parse().unwrap(),
            soak: self.soak.parse().unwrap(),
            accept: Vec::new(),
            plan: false,
        };
        let id = &statement.id;
        let leaves = if written == Written::Leaves { leaves } else { Vec::new() };
        let parts = Leaves::parts(&leaves).enumerate();
        let put = parts.fold(Transaction::new(), |all, (nth, part)| {
            all.put(self.keys.leaves(id, nth), part.write())
        });
        let text = String::from_utf8(statement.write()).unwrap();
        let signed = SignedStatement { statement: text, signatures: Vec::new() };
        let put = put.put(self.keys.statement(id), signed.write());
        let _ = self.store.commit(put).await.unwrap();
    }

    /// A coordinator with a client of its own.
    pub(crate) fn coordinate(&self, store: Arc<dyn Store>, name: &str) -> JoinHandle<()> {
        run(self.coordinator(store, name))
    }

    pub(crate) fn coordinator(&self, store: Arc<dyn Store>, name: &str) -> Coordinator {
        let clock = Arc::clone(&self.clock);
        Coordinator::new(store, clock, self.wall(), self.fleet.clone(), name)
            .with_leases(self.lease, Duration::from_mins(1))
    }

    /// Starts all nodes; those in `bad` roll the new document back.
    pub(crate) fn live(
        &self,
        store: impl Fn(u64) -> Arc<dyn Store>,
        bad: &[u64],
        seed: u64,
    ) -> Vec<JoinHandle<()>> {
        let start = |nth: u64| {
            let simulated = Simulated {
                store: store(nth),
                keys: self.keys.clone(),
                name: node(nth),
                is_bad: bad.contains(&nth),
                last: None,
                slowest: self.slowest,
                dice: Dice(seed * 1000 + nth),
            };
            let wall = self.wall();
            tokio::spawn(async move { simulated.live(wall).await })
        };
        (0..NODES).map(start).collect()
    }

    /// Waits until all nodes say that they live.
    pub(crate) async fn until_alive(&self, patience: Duration, look: Duration) {
        let alive = async {
            loop {
                let listed = self.store.list(Range::Below(self.keys.all("alive"))).await;
                if listed.is_ok_and(|listed| listed.values.len() as u64 == NODES) {
                    return;
                }
                pass_time(look).await;
            }
        };
        timeout(patience, alive).await.expect("the nodes live");
    }

    /// Waits until a rollout is in this phase.
    pub(crate) async fn until(
        &self,
        id: &str,
        phase: Phase,
        patience: Duration,
        look: Duration,
    ) -> State {
        let is_it = async {
            loop {
                if let Some(state) = self.state_of(id).await.filter(|state| state.phase == phase) {
                    return state;
                }
                pass_time(look).await;
            }
        };
        timeout(patience, is_it).await.unwrap_or_else(|_| panic!("{id} is never {phase:?}"))
    }

    pub(crate) async fn state(&self) -> Option<State> {
        self.state_of("first").await
    }

    pub(crate) async fn state_of(&self, id: &str) -> Option<State> {
        let key = self.keys.state(&name(id));
        let listed = self.store.list(Range::One(key.clone())).await.ok()?;
        State::read(&listed.values.get(&key)?.value).ok()
    }

    /// How the rollout ended.
    pub(crate) async fn ended(&self, patience: Duration, look: Duration) -> State {
        let over = async {
            loop {
                if let Some(state) = self.state().await
                    && matches!(state.phase, Phase::Done | Phase::Stopped)
                {
                    return state;
                }
                pass_time(look).await;
            }
        };
        timeout(patience, over).await.expect("the rollout ends")
    }

    pub(crate) fn judge(&self, history: &History) -> Judged {
        let nodes: Vec<Name> = (0..NODES).map(node).collect();
        let limits =
            Limits { keys: &self.keys, nodes: &nodes, waves: &WAVES, in_flight: IN_FLIGHT };
        judge(&limits, history)
    }
}
