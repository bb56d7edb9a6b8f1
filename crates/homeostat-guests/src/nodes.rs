//! Asks all nodes for their guests at once, so that a node which does not answer delays its own guests only.
//!
//! A look waits for a node as long as it usually takes. One that is late answers when it can, and whoever
//! waits for hints hears of it ([`Nodes::back`]). One that hangs is asked again after pauses that grow.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::{Listed, Place};
use crate::client::Client;
use crate::error::Error;
use crate::model::{Kind, Vmid};

/// What a look gives a node of which nothing better is known.
const PROMPT: Duration = Duration::from_secs(1);
/// What it gives one configuration.
const GLANCE: Duration = Duration::from_secs(3);
/// The first rest of a node that hangs, and the longest.
const RESTS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// What the nodes say.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) found: BTreeMap<Vmid, (Place, Listed)>,
    /// Nodes that said nothing, and why.
    pub(crate) silent: BTreeMap<String, String>,
}

/// How long nodes are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// As long as they usually take: whoever is late is heard by [`Nodes::back`].
    Prompt,
    /// As long as an answer may take, the first time: nobody would hear them later.
    Patient,
}

/// The nodes, as this reader knows them.
#[derive(Debug)]
pub(crate) struct Nodes {
    habit: Habit,
    /// What an answer may take.
    patience: Duration,
    known: BTreeMap<String, Standing>,
    asked: FuturesUnordered<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    round: u64,
    /// Whether a node has answered that a look went without.
    is_back: bool,
}

#[derive(Debug)]
struct Standing {
    /// The round in which it was asked, if it has still to answer.
    asked: Option<u64>,
    /// How long a look waits for its list, and for one configuration.
    waits: (Duration, Duration),
    hangs: u32,
    rests_until: Option<Instant>,
    why: String,
}

struct Answer {
    node: String,
    round: u64,
    took: Duration,
    told: Result<Vec<Found>, Error>,
}

/// A guest, where it is, and what the list says of it.
type Found = (Vmid, (Place, Listed));

impl Nodes {
    pub(crate) fn new(habit: Habit, patience: Duration) -> Self {
        let (known, asked) = (BTreeMap::new(), FuturesUnordered::new());
        Nodes { habit, patience, known, asked, round: 0, is_back: false }
    }

    /// Asks every node that is there and does not rest.
    pub(crate) async fn ask(&mut self, client: &Client) -> Result<Lists, Error> {
        let nodes = client.nodes().await?;
        self.round += 1;
        self.known.retain(|node, _| nodes.contains_key(node));
        let (mut lists, begun) = (Lists::default(), Instant::now());
        for (node, is_online) in &nodes {
            self.stand(node);
            if *is_online {
                self.begin(node, client);
            } else {
                lists.silent.insert(node.clone(), "it is offline".to_owned());
            }
        }
        while let Some(longest) = self.longest() {
            let Ok(Some(answer)) = timeout_at(begun + longest, self.asked.next()).await else {
                break;
            };
            let is_in_time = answer.round == self.round;
            match self.note(&answer) {
                Ok(()) if is_in_time => lists.found.extend(answer.told.into_iter().flatten()),
                // It may tell what was before this look began: the next one asks again.
                Ok(()) => {
                    self.is_back = true;
                    let why = "it has answered an earlier question only".to_owned();
                    lists.silent.insert(answer.node, why);
                }
                Err(why) => _ = lists.silent.insert(answer.node, why),
            }
        }
        for (node, standing) in &self.known {
            if standing.asked.is_some() || standing.rests_until.is_some() {
                lists.silent.entry(node.clone()).or_insert_with(|| standing.why.clone());
            }
        }
        Ok(lists)
    }

    /// Waits until a node answers that a look went without; one that rested is asked again. Cancel-safe.
    pub(crate) async fn back(&mut self, client: &Client) {
        while !std::mem::take(&mut self.is_back) {
            let known: Vec<_> = self.known.keys().cloned().collect();
            let rested = known.into_iter().filter(|node| self.has_rested(node));
            for node in rested.collect::<Vec<_>>() {
                self.begin(&node, client);
            }
            let due = self.known.values().filter_map(|standing| standing.rests_until).min();
            let due = due.unwrap_or_else(|| Instant::now() + RESTS.1);
            tokio::select! {
                Some(answer) = self.asked.next() => self.is_back = self.note(&answer).is_ok(),
                () = sleep_until(due) => {}
            }
        }
    }

    /// How long one configuration of a node is waited for. What is on no known node is asked of the cluster
    /// itself, which has a limit of its own.
    pub(crate) fn glance(&self, node: &str) -> Duration {
        self.known.get(node).map_or(self.patience * 2, |standing| standing.waits.1)
    }

    /// A node that gave its list kept a configuration back: it rests, and gets more time after it.
    pub(crate) fn hung(&mut self, node: &str) {
        let patience = self.patience;
        if let Some(standing) = self.known.get_mut(node) {
            standing.waits.1 = (standing.waits.1 * 2).min(patience);
            standing.rest("a configuration did not come in time".to_owned());
        }
    }

    fn stand(&mut self, node: &str) {
        if self.known.contains_key(node) {
            return;
        }
        let waits = match self.habit {
            Habit::Prompt => (PROMPT.min(self.patience), GLANCE.min(self.patience)),
            Habit::Patient => (self.patience, self.patience),
        };
        let why = "it has not answered yet".to_owned();
        let standing = Standing { asked: None, waits, hangs: 0, rests_until: None, why };
        self.known.insert(node.to_owned(), standing);
    }

    fn has_rested(&self, node: &str) -> bool {
        let rest = self.known.get(node).and_then(|standing| standing.rests_until);
        rest.is_some_and(|until| until <= Instant::now())
    }

    /// Asks a node, unless it rests or has still to answer.
    fn begin(&mut self, node: &str, client: &Client) {
        let (round, patience) = (self.round, self.patience);
        let is_resting = !self.has_rested(node);
        let Some(standing) = self.known.get_mut(node) else { return };
        if standing.asked.is_some() || (standing.rests_until.is_some() && is_resting) {
            return;
        }
        (standing.asked, standing.rests_until) = (Some(round), None);
        self.asked.push(Box::pin(list(node.to_owned(), round, client.within(patience))));
    }

    /// The longest that a node of this round is waited for.
    fn longest(&self) -> Option<Duration> {
        let awaited = self.known.values().filter(|standing| standing.asked == Some(self.round));
        awaited.map(|standing| standing.waits.0).max()
    }

    /// Takes over what an answer says about its node; tells why it is none.
    fn note(&mut self, answer: &Answer) -> Result<(), String> {
        let (habit, patience) = (self.habit, self.patience);
        let Some(standing) = self.known.get_mut(&answer.node) else {
            return Err("it has left the cluster".to_owned());
        };
        standing.asked = None;
        match &answer.told {
            Ok(_) => {
                standing.hangs = 0;
                if habit == Habit::Prompt || answer.round != self.round {
                    standing.waits.0 = (answer.took * 2).clamp(PROMPT.min(patience), patience);
                }
                Ok(())
            }
            Err(error) => {
                // Whoever fails at once delays nobody, and may be asked again at once.
                if answer.took >= PROMPT.min(patience) {
                    standing.waits.0 = PROMPT.min(patience);
                    standing.rest(error.to_string());
                }
                Err(error.to_string())
            }
        }
    }
}

impl Standing {
    fn rest(&mut self, why: String) {
        self.hangs += 1;
        self.why = why;
        self.rests_until = Some(Instant::now() + rest(self.hangs));
    }
}

/// How long a node rests that has hung so often in a row.
fn rest(hangs: u32) -> Duration {
    RESTS.0.saturating_mul(1 << hangs.saturating_sub(1).min(6)).min(RESTS.1)
}

/// The guests of both kinds on a node.
async fn list(node: String, round: u64, client: Client) -> Answer {
    let begun = Instant::now();
    let ask = async |kind| {
        let listed = client.guests(&node, kind).await?;
        let placed = |(vmid, listed)| (vmid, (Place { node: node.clone(), kind, vmid }, listed));
        Ok::<Vec<Found>, Error>(listed.into_iter().map(placed).collect())
    };
    let told = tokio::try_join!(ask(Kind::Lxc), ask(Kind::Qemu));
    let told = told.map(|(containers, machines)| [containers, machines].concat());
    Answer { node, round, took: begun.elapsed(), told }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(took: Duration, is_good: bool) -> Answer {
        let lost = || Error::Lost { request: "GET /".to_owned(), why: "no answer".to_owned() };
        let told = if is_good { Ok(Vec::new()) } else { Err(lost()) };
        Answer { node: "pve1".to_owned(), round: 0, took, told }
    }

    fn nodes() -> Nodes {
        let mut nodes = Nodes::new(Habit::Prompt, Duration::from_secs(10));
        nodes.stand("pve1");
        nodes
    }

    #[test]
    fn a_node_that_hangs_rests_longer_each_time_up_to_a_minute() {
        let rests: Vec<u64> = (1..=7).map(|hangs| rest(hangs).as_secs()).collect();
        assert_eq!(rests, [2, 4, 8, 16, 32, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_fails_at_once_does_not_rest_and_one_that_hangs_does() {
        let mut nodes = nodes();
        assert!(nodes.note(&answer(Duration::from_millis(20), false)).is_err());
        assert_eq!(nodes.known["pve1"].rests_until, None);
        assert!(nodes.note(&answer(Duration::from_secs(10), false)).is_err());
        assert!(!nodes.has_rested("pve1"));
        tokio::time::advance(RESTS.0).await;
        assert!(nodes.has_rested("pve1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_node_gets_twice_what_it_took_and_a_quick_one_a_second() {
        let mut nodes = nodes();
        for (took, waits) in [(3000, 6000), (9000, 10_000), (20, 1000)] {
            assert!(nodes.note(&answer(Duration::from_millis(took), true)).is_ok());
            assert_eq!(nodes.known["pve1"].waits.0, Duration::from_millis(waits), "took {took}");
        }
        nodes.hung("pve1");
        assert_eq!(nodes.glance("pve1"), 2 * GLANCE, "a configuration gets more time, too");
        assert_eq!(nodes.known["pve1"].hangs, 1);
        assert!(nodes.note(&answer(PROMPT, true)).is_ok());
        assert_eq!(nodes.known["pve1"].hangs, 0, "an answer ends the row");
    }
}
