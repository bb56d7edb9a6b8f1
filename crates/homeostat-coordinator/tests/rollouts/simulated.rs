//! Simulated nodes over any store, and a judge whose only evidence is the history of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_fleet::keys::Keys;
use homeostat_fleet::records::{
    NodePhase, Open, PlanAnswer, PlanResult, Record as _, State, Status, Take, Want,
};
use homeostat_fleet::{Digest, Name, Time};
use homeostat_store::{Entry, Keys as Range, Renewal, Revision, Store, Transaction, WatchEvent};
use tokio::time::timeout;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// splitmix64: the same seed gives the same run.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Lets time pass, virtual or not, while others do their work.
pub(crate) async fn pass_time(time: Duration) {
    _ = timeout(time, std::future::pending::<()>()).await;
}

/// A node: it says that it lives, takes what it shall have, and answers after some time.
pub(crate) struct Simulated {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: Keys,
    pub(crate) name: Name,
    /// It rolls new documents back.
    pub(crate) is_bad: bool,
    /// What it answered last: its own disk knows, whatever the store says.
    pub(crate) last: Option<Status>,
    /// An answer takes up to this long.
    pub(crate) slowest: Duration,
    pub(crate) dice: Dice,
}

impl Simulated {
    pub(crate) async fn live(mut self, wall: impl Fn() -> Time) {
        loop {
            // Whatever the store does, it tries again.
            let _ = timeout(20 * SECOND, self.follow(&wall)).await;
            pass_time(Duration::from_millis(100 + self.dice.roll(900))).await;
        }
    }

    async fn follow(&mut self, wall: &impl Fn() -> Time) -> Option<()> {
        let lease = self.store.grant(60 * SECOND).await.ok()?;
        let alive = Transaction::new().put_leased(self.keys.alive(&self.name), "{}", lease.id);
        let _ = self.store.commit(alive).await.ok()?;
        self.repeat().await?;
        loop {
            let below = Range::Below(self.keys.node(&self.name));
            let listed = self.store.list(below.clone()).await.ok()?;
            if let Some(entry) = listed.values.get(&self.keys.want(&self.name)) {
                self.answer(&Want::read(&entry.value).unwrap(), wall).await?;
            }
            if let Some(entry) = listed.values.get(&self.keys.plan_request(&self.name)) {
                self.plan(&Want::read(&entry.value).unwrap(), entry.modified, wall).await?;
            }
            if self.store.renew(lease.id).await.ok()? == Renewal::Gone {
                return None;
            }
            let mut watch = self.store.watch(below, listed.revision).await.ok()?;
            let change = async {
                loop {
                    match watch.next().await {
                        Ok(WatchEvent::Progress { .. }) => {}
                        Ok(WatchEvent::Changed { .. }) => return Some(()),
                        _ => return None,
                    }
                }
            };
            // It looks by itself from time to time: watches can lose events.
            if let Ok(None) = timeout(10 * SECOND, change).await {
                return None;
            }
        }
    }

    /// A store that was set back has an older answer, or none.
    async fn repeat(&self) -> Option<()> {
        let Some(last) = &self.last else { return Some(()) };
        let key = self.keys.status(&self.name);
        let listed = self.store.list(Range::One(key.clone())).await.ok()?;
        if listed.values.get(&key).is_none_or(|entry| entry.value != last.write()) {
            let _ = self.store.commit(Transaction::new().put(key, last.write())).await.ok()?;
        }
        Some(())
    }

    async fn answer(&mut self, want: &Want, wall: &impl Fn() -> Time) -> Option<()> {
        let key = self.keys.status(&self.name);
        let listed = self.store.list(Range::One(key.clone())).await.ok()?;
        let known = listed.values.get(&key).map(|entry| Status::read(&entry.value).unwrap());
        if known.is_some_and(|it| (it.generation, it.take) == (want.generation, want.take)) {
            return Some(());
        }
        // What is older than what it has accepted is not taken.
        if self.last.as_ref().is_some_and(|last| last.generation > want.generation) {
            return Some(());
        }
        let slowest = u64::try_from(self.slowest.as_millis()).unwrap();
        pass_time(Duration::from_millis(self.dice.roll(slowest))).await;
        let fails = self.is_bad && want.take == Take::Document;
        let status = Status {
            generation: want.generation,
            take: want.take,
            document: if want.take == Take::Document { want.document } else { want.fallback },
            phase: if fails { NodePhase::RolledBack } else { NodePhase::Good },
            why: if fails { "the uplink does not answer".to_owned() } else { String::new() },
            converged: true,
            since: wall(),
            open: Open::default(),
            accepted: want.generation,
            agent: String::new(),
            boot: String::new(),
        };
        self.last = Some(status.clone());
        let _ = self.store.commit(Transaction::new().put(key, status.write())).await.ok()?;
        Some(())
    }

    /// Answers a request once, also one that is about the same document as a former one.
    async fn plan(&mut self, want: &Want, asked: Revision, wall: &impl Fn() -> Time) -> Option<()> {
        let key = self.keys.plan(&self.name);
        let listed = self.store.list(Range::One(key.clone())).await.ok()?;
        if listed.values.get(&key).is_some_and(|entry| entry.modified > asked) {
            return Some(());
        }
        let result = if self.is_bad {
            PlanResult::Refused { why: "unknown section `later`".to_owned() }
        } else {
            let lines = vec!["+ route 198.51.100.0/24".to_owned()];
            let digest = Digest::of(lines[0].as_bytes());
            PlanResult::Planned { digest, create: 1, update: 0, delete: 0, open: 0, lines }
        };
        let answer = PlanAnswer {
            rollout: want.rollout.clone(),
            generation: want.generation,
            document: want.document,
            result,
            at: wall(),
            agent: String::new(),
        };
        let _ = self.store.commit(Transaction::new().put(key, answer.write())).await.ok()?;
        Some(())
    }
}

/// What is judged: each change with its revision, in order.
pub(crate) type History = Vec<(Revision, String, Option<Entry>)>;

/// The limits that a rollout had.
pub(crate) struct Limits<'a> {
    pub(crate) keys: &'a Keys,
    /// The nodes in the order of the leaves.
    pub(crate) nodes: &'a [Name],
    /// How many nodes each wave reaches.
    pub(crate) waves: &'a [u64],
    pub(crate) in_flight: u64,
}

/// What the history says of the rollout.
#[derive(Default)]
pub(crate) struct Judged {
    pub(crate) wants: BTreeMap<Name, Vec<Take>>,
    pub(crate) answers: BTreeMap<Name, (Take, NodePhase)>,
    state: Option<State>,
    /// Who was ever absent when its turn came.
    set_aside: BTreeSet<Name>,
}

/// Waves come one after the other, never more nodes are in flight than allowed, nothing is assigned twice, and every act was
/// decided on the state before it. At the end every touched node is good, as the rollout ended. Nodes that were absent, and so
/// set aside, are not waited for and take no place.
pub(crate) fn judge(limits: &Limits, history: &History) -> Judged {
    let Limits { keys, .. } = limits;
    let mut judged = Judged::default();
    // An act writes wants and the state in one revision, in any order.
    let by_revision: BTreeMap<Revision, State> = history
        .iter()
        .filter(|(_, key, _)| key.ends_with("/state"))
        .map(|(at, _, entry)| (*at, State::read(&entry.as_ref().unwrap().value).unwrap()))
        .collect();
    for (revision, key, entry) in history {
        let Some(entry) = entry else { continue };
        if key.ends_with("/state") {
            let state = by_revision[revision].clone();
            let acts = judged.state.as_ref().map_or(0, |former| former.acts);
            assert_eq!(state.acts, acts + 1, "revision {revision}: decided on an older state");
            let wave = judged.state.as_ref().map_or(0, |former| former.wave);
            assert!(state.wave <= wave + 1, "revision {revision}: a wave was left out");
            judged.state = Some(state);
        }
        let Some(node) = keys.node_of(key) else { continue };
        if *key == keys.status(&node) {
            let status = Status::read(&entry.value).unwrap();
            judged.answers.insert(node, (status.take, status.phase));
        } else if *key == keys.want(&node) {
            let want = Want::read(&entry.value).unwrap();
            let takes = judged.wants.entry(node.clone()).or_default();
            takes.push(want.take);
            let is_new = takes.iter().collect::<BTreeSet<_>>().len() == takes.len();
            assert!(is_new && takes.is_sorted(), "revision {revision}: {node} has {takes:?}");
            if want.take == Take::Document {
                judged.set_aside.extend(by_revision[revision].set_aside.iter().cloned());
                judged.assigned(limits, want.index, &format!("revision {revision}: {node}"));
            }
        }
    }
    judged.ended();
    judged
}

impl Judged {
    fn assigned(&self, limits: &Limits, index: u64, what: &str) {
        let is_done = |node: &Name| {
            let answer = self.answers.get(node);
            answer == Some(&(Take::Document, NodePhase::Good)) || self.set_aside.contains(node)
        };
        let earlier = limits.waves.iter().filter(|end| **end <= index).max().copied();
        let earlier = usize::try_from(earlier.unwrap_or_default()).unwrap();
        let aside = &self.set_aside;
        assert!(
            limits.nodes[..earlier].iter().all(is_done),
            "{what} was assigned before its wave; set aside: {aside:?}"
        );
        let is_in_flight =
            |node: &&Name| !self.answers.contains_key(*node) && !aside.contains(*node);
        let in_flight = self.wants.keys().filter(is_in_flight).count();
        assert!(
            in_flight as u64 <= limits.in_flight,
            "{what}: {in_flight} are in flight; set aside: {aside:?}"
        );
    }

    fn ended(&self) {
        use homeostat_fleet::records::Phase;
        let phase = self.state.as_ref().map(|state| state.phase);
        let take = match phase {
            Some(Phase::Done) => Take::Document,
            Some(Phase::Stopped) => Take::Fallback,
            other => panic!("it has not ended: {other:?}"),
        };
        for (node, takes) in &self.wants {
            assert_eq!(takes.last(), Some(&take), "{node} was left behind");
            let is_good = self.answers.get(node) == Some(&(take, NodePhase::Good));
            assert!(
                is_good || self.set_aside.contains(node),
                "{node}: {:?}",
                self.answers.get(node)
            );
        }
    }
}
