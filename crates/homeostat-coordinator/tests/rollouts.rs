//! Whole rollouts over a store in memory: coordinators that are killed, a store with faults, and simulated nodes. The
//! history of the store is the judge's only evidence.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_coordinator::Coordinator;
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{
    Leaves, NodePhase, Open, Phase, Record as _, SignedStatement, State, Statement, Status, Take,
    Want, Wave,
};
use homeostat_fleet::{Digest, Name, Time};
use homeostat_store::{
    Call, Fault, Keys as Range, MemoryStore, Renewal, RuntimeTime, Store as _, Transaction,
    WatchEvent,
};
use tokio::time::{Instant, timeout};

const NODES: u64 = 20;
const IN_FLIGHT: u64 = 5;
const SECOND: Duration = Duration::from_secs(1);

/// splitmix64: the same seed gives the same run.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn node(nth: u64) -> Name {
    name(&format!("n{nth:02}"))
}

fn keys() -> Keys {
    Keys::new(&name("edge"))
}

/// Lets virtual time pass.
async fn pass_time(time: Duration) {
    _ = timeout(time, std::future::pending::<()>()).await;
}

struct World {
    store: MemoryStore,
    began: Instant,
}

impl World {
    async fn new() -> Self {
        let world = World { store: MemoryStore::new(), began: Instant::now() };
        world.publish().await;
        world
    }

    fn wall(&self) -> impl Fn() -> Time + Send + Sync + 'static {
        let began = self.began;
        move || Time::of_millis(1_000_000).after(began.elapsed())
    }

    /// What an operator writes, in the order in which it must be there.
    async fn publish(&self) {
        let leaf = |nth| Leaf {
            node: node(nth),
            document: Digest::of(b"new"),
            fallback: Digest::of(b"old"),
            class: Class::Reversible,
        };
        let leaves: Vec<_> = (0..NODES).map(leaf).collect();
        let second = || "1s".parse().unwrap();
        let statement = Statement {
            fleet: name("edge"),
            id: name("first"),
            generation: 7,
            not_after: Time::of_millis(1_000_000_000),
            root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
            nodes: NODES,
            waves: vec![Wave::Nodes(1), Wave::Nodes(10), Wave::Percent(100)],
            max_in_flight: IN_FLIGHT,
            max_failed: 0,
            settle: second(),
            confirm_within: "1m".parse().unwrap(),
            soak: second(),
            accept: Vec::new(),
            plan: false,
        };
        let id = &statement.id;
        let parts = Leaves::parts(&leaves).enumerate();
        let put = parts.fold(Transaction::new(), |all, (nth, part)| {
            all.put(keys().leaves(id, nth), part.write())
        });
        let text = String::from_utf8(statement.write()).unwrap();
        let signed = SignedStatement { statement: text, signatures: Vec::new() };
        let _ = self.store.commit(put.put(keys().statement(id), signed.write())).await.unwrap();
    }

    fn coordinate(&self, name: &str) -> tokio::task::JoinHandle<()> {
        let store = Arc::new(self.store.clone());
        let clock = Arc::new(RuntimeTime::new());
        let coordinator =
            Coordinator::new(store, clock, self.wall(), "edge".parse().unwrap(), name);
        tokio::spawn(async move { coordinator.run(std::future::pending()).await })
    }

    /// Starts all nodes; those in `bad` roll the new document back.
    fn live(&self, bad: &[u64], seed: u64) {
        for nth in 0..NODES {
            let simulated = Simulated {
                store: self.store.clone(),
                name: node(nth),
                is_bad: bad.contains(&nth),
                dice: Dice(seed * 1000 + nth),
            };
            let wall = self.wall();
            tokio::spawn(async move { simulated.live(wall).await });
        }
    }

    /// How the rollout ended.
    async fn ended(&self) -> State {
        let over = async {
            loop {
                let key = keys().state(&name("first"));
                let state = self.store.history().into_iter().rfind(|(_, at, _)| *at == key);
                let state = state.and_then(|(_, _, entry)| State::read(&entry?.value).ok());
                if let Some(state) = state
                    && matches!(state.phase, Phase::Done | Phase::Stopped)
                {
                    return state;
                }
                pass_time(SECOND).await;
            }
        };
        timeout(3600 * SECOND, over).await.unwrap()
    }
}

/// A node: it says that it lives, takes what it shall have, and answers after some time.
struct Simulated {
    store: MemoryStore,
    name: Name,
    is_bad: bool,
    dice: Dice,
}

impl Simulated {
    async fn live(mut self, wall: impl Fn() -> Time) {
        loop {
            // Whatever the store does, it tries again.
            let _ = timeout(20 * SECOND, self.follow(&wall)).await;
            pass_time(Duration::from_millis(100 + self.dice.roll(900))).await;
        }
    }

    async fn follow(&mut self, wall: &impl Fn() -> Time) -> Option<()> {
        let lease = self.store.grant(60 * SECOND).await.ok()?;
        let alive = Transaction::new().put_leased(keys().alive(&self.name), "", lease.id);
        let _ = self.store.commit(alive).await.ok()?;
        loop {
            let key = keys().want(&self.name);
            let listed = self.store.list(Range::One(key.clone())).await.ok()?;
            if let Some(entry) = listed.values.get(&key) {
                self.answer(&Want::read(&entry.value).unwrap(), wall).await?;
            }
            if self.store.renew(lease.id).await.ok()? == Renewal::Gone {
                return None;
            }
            let mut watch = self.store.watch(Range::One(key), listed.revision).await.ok()?;
            match timeout(10 * SECOND, watch.next()).await {
                Ok(Ok(WatchEvent::Changed { .. })) | Err(_) => {}
                _ => return None,
            }
        }
    }

    async fn answer(&mut self, want: &Want, wall: &impl Fn() -> Time) -> Option<()> {
        let key = keys().status(&self.name);
        let listed = self.store.list(Range::One(key.clone())).await.ok()?;
        let known = listed.values.get(&key).map(|entry| Status::read(&entry.value).unwrap());
        if known.is_some_and(|it| (it.generation, it.take) == (want.generation, want.take)) {
            return Some(());
        }
        pass_time(Duration::from_millis(self.dice.roll(3000))).await;
        let fails = self.is_bad && want.take == Take::Document;
        let status = Status {
            generation: want.generation,
            take: want.take,
            document: if want.take == Take::Document { want.document } else { want.fallback },
            phase: if fails { NodePhase::RolledBack } else { NodePhase::Good },
            why: String::new(),
            converged: true,
            since: wall(),
            open: Open::default(),
            accepted: want.generation,
            agent: String::new(),
            boot: String::new(),
        };
        let _ = self.store.commit(Transaction::new().put(key, status.write())).await.ok()?;
        Some(())
    }
}

/// What the history of the store says of the rollout.
#[derive(Default)]
struct Judged {
    wants: BTreeMap<Name, Vec<Take>>,
    answers: BTreeMap<Name, (Take, NodePhase)>,
}

/// Reads the whole history. Waves come one after the other, never more nodes are in flight than allowed, and nothing is
/// assigned twice.
fn judge(store: &MemoryStore) -> Judged {
    let mut judged = Judged::default();
    for (revision, key, entry) in store.history() {
        let Some(node) = keys().node_of(&key) else { continue };
        let Some(entry) = entry else { continue };
        if key == keys().status(&node) {
            let status = Status::read(&entry.value).unwrap();
            judged.answers.insert(node, (status.take, status.phase));
        } else if key == keys().want(&node) {
            let want = Want::read(&entry.value).unwrap();
            let takes = judged.wants.entry(node.clone()).or_default();
            takes.push(want.take);
            let is_new = takes.iter().collect::<BTreeSet<_>>().len() == takes.len();
            assert!(is_new && takes.is_sorted(), "revision {revision}: {node} has {takes:?}");
            if want.take == Take::Document {
                judged.assigned(want.index, &format!("revision {revision}: {node}"));
            }
        }
    }
    judged
}

impl Judged {
    fn assigned(&self, index: u64, what: &str) {
        let is_good =
            |nth: u64| self.answers.get(&node(nth)) == Some(&(Take::Document, NodePhase::Good));
        let wave = if index == 0 {
            0
        } else if index < 10 {
            1
        } else {
            10
        };
        assert!((0..wave).all(is_good), "{what} was assigned before its wave");
        let in_flight = self.wants.keys().filter(|node| !self.answers.contains_key(*node)).count();
        assert!(in_flight as u64 <= IN_FLIGHT, "{what}: {in_flight} are in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_reaches_every_node_in_waves() {
    let world = World::new().await;
    world.live(&[], 1);
    let _leader = world.coordinate("a");
    let _standby = world.coordinate("b");
    assert_eq!(world.ended().await.phase, Phase::Done);
    let judged = judge(&world.store);
    assert_eq!(judged.wants.len() as u64, NODES);
    let is_good = |answer: &(Take, NodePhase)| *answer == (Take::Document, NodePhase::Good);
    assert!(judged.answers.values().all(is_good));
}

#[tokio::test(start_paused = true)]
async fn a_bad_node_stops_it_and_every_touched_node_goes_to_its_fallback() {
    for bad in [0, 4, 15] {
        let world = World::new().await;
        world.live(&[bad], 2);
        let _leader = world.coordinate("a");
        let state = world.ended().await;
        assert_eq!(state.phase, Phase::Stopped, "{bad}");
        let judged = judge(&world.store);
        let untouched = if bad == 0 {
            1
        } else if bad < 10 {
            10
        } else {
            NODES
        };
        assert!(
            judged.wants.len() as u64 <= untouched,
            "{bad}: {} are touched",
            judged.wants.len()
        );
        for (node, takes) in &judged.wants {
            assert_eq!(takes, &[Take::Document, Take::Fallback], "{node}");
            assert_eq!(judged.answers[node], (Take::Fallback, NodePhase::Good), "{node}");
        }
    }
}

/// The leader is killed, answers of the store are lost or late, watches break or fall silent, and history is compacted.
#[tokio::test(start_paused = true)]
async fn thirty_disturbed_rollouts_break_no_rule() {
    let seeds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 10_000 } else { 30 };
    for seed in 0..seeds {
        let world = World::new().await;
        let bad: &[u64] = if seed % 3 == 0 { &[12] } else { &[] };
        world.live(bad, seed);
        let mut dice = Dice(seed);
        let mut fault_dice = Dice(seed + 77);
        world.store.set_faults(move |call| match fault_dice.roll(60) {
            0 => Fault::Unreachable,
            1 if call != Call::Grant => Fault::LostAnswer,
            2 if call == Call::Commit => {
                Fault::LateRequest(Duration::from_millis(fault_dice.roll(2000)))
            }
            3 => Fault::NoLeader,
            4 => Fault::Delay(Duration::from_millis(fault_dice.roll(1500))),
            _ => Fault::None,
        });
        let mut coordinators: Vec<_> = ["a", "b", "c"].map(|name| world.coordinate(name)).into();
        for nth in 0..20 {
            pass_time(Duration::from_millis(dice.roll(4000))).await;
            match dice.roll(5) {
                0 => world.store.compact(),
                1 => world.store.break_watches(),
                2 => world.store.mute_watches(),
                3 => {
                    let which = usize::try_from(dice.roll(3)).unwrap();
                    coordinators[which].abort();
                    coordinators[which] = world.coordinate(&format!("again{nth}"));
                }
                _ => {}
            }
        }
        world.store.clear_faults();
        let state = world.ended().await;
        let expected = if bad.is_empty() { Phase::Done } else { Phase::Stopped };
        assert_eq!(state.phase, expected, "seed {seed}: {state:?}");
        judge(&world.store);
    }
}
