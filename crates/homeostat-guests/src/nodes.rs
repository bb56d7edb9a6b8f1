//! Requests the guest lists of all nodes at once, so that a node that does not answer delays only its own guests.
//!
//! An observe waits for a node as long as that node usually takes. A later answer is kept for the next observe,
//! and [`Nodes::recovered`] reports it. A node that times out is requested again after a growing backoff.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use homeostat_core::pacing::Pauses;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::Api;
use crate::api::Listed;
use crate::error::Error;
use crate::model::{Kind, Vmid};

/// How long an observe waits for the list of a node at least.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits for one configuration at first.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(3);
/// Between the requests to a node that times out.
const BACKOFF: Pauses = Pauses::new(Duration::from_secs(2), Duration::from_mins(1));

/// The answers of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) found: BTreeMap<Vmid, Listed>,
    /// Nodes without an answer, and why.
    pub(crate) unanswered: BTreeMap<String, String>,
}

/// How long an observe waits for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as the node usually takes: [`Nodes::recovered`] reports a late answer.
    Usual,
    /// As long as a request may take, since a late answer would not be reported.
    Longest,
}

/// The nodes of a cluster, with their usual response times and pending requests.
#[derive(Debug)]
pub(crate) struct Nodes {
    wait: Wait,
    /// The timeout of a request.
    longest: Duration,
    known: BTreeMap<String, NodeState>,
    requests: FuturesUnordered<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Counts the calls of [`Nodes::lists`].
    round: u64,
    /// Whether a node has answered since an observe went without its answer.
    has_recovered: bool,
}

#[derive(Debug)]
struct NodeState {
    /// The round of its pending request, if there is one.
    pending: Option<u64>,
    list_timeout: Duration,
    config_timeout: Duration,
    /// How often in a row it timed out.
    timeouts: u32,
    retry_at: Option<Instant>,
    /// Why it has not answered.
    why: String,
}

struct Answer {
    node: String,
    round: u64,
    took: Duration,
    guests: Result<BTreeMap<Vmid, Listed>, Error>,
}

impl Nodes {
    pub(crate) fn new(wait: Wait, longest: Duration) -> Self {
        let (known, requests) = (BTreeMap::new(), FuturesUnordered::new());
        Nodes { wait, longest, known, requests, round: 0, has_recovered: false }
    }

    /// Requests the lists of all nodes, except of those that are in backoff.
    pub(crate) async fn lists(&mut self, api: &Api) -> Result<Lists, Error> {
        let nodes = api.nodes().await?;
        self.round += 1;
        self.known.retain(|node, _| nodes.contains_key(node));
        let (mut lists, begun) = (Lists::default(), Instant::now());
        for (node, is_online) in &nodes {
            self.add(node);
            if *is_online {
                self.request(node, api);
            } else {
                lists.unanswered.insert(node.clone(), "it is offline".to_owned());
            }
        }
        loop {
            let awaited = self.known.values().filter(|state| state.pending == Some(self.round));
            let Some(timeout) = awaited.map(|state| state.list_timeout).max() else { break };
            let Ok(Some(answer)) = timeout_at(begun + timeout, self.requests.next()).await else {
                break;
            };
            let is_of_round = answer.round == self.round;
            match self.record(&answer) {
                Ok(()) if is_of_round => lists.found.extend(answer.guests.into_iter().flatten()),
                // The answer may be older than this observe: the next one requests the list again.
                Ok(()) => {
                    self.has_recovered = true;
                    let why = "it has answered an earlier question only".to_owned();
                    lists.unanswered.insert(answer.node, why);
                }
                Err(why) => _ = lists.unanswered.insert(answer.node, why),
            }
        }
        for (node, state) in &self.known {
            if state.pending.is_some() || state.retry_at.is_some() {
                lists.unanswered.entry(node.clone()).or_insert_with(|| state.why.clone());
            }
        }
        Ok(lists)
    }

    /// Waits until a node answers without which an observe was made; requests nodes again whose backoff is over.
    /// Cancel-safe.
    pub(crate) async fn recovered(&mut self, api: &Api) {
        while !std::mem::take(&mut self.has_recovered) {
            let due = self.known.iter().filter(|(_, state)| state.is_retry_due());
            for node in due.map(|(node, _)| node.clone()).collect::<Vec<_>>() {
                self.request(&node, api);
            }
            let next = self.known.values().filter_map(|state| state.retry_at).min();
            let next = next.unwrap_or_else(|| Instant::now() + BACKOFF.longest());
            tokio::select! {
                Some(answer) = self.requests.next() => {
                    self.has_recovered = self.record(&answer).is_ok();
                }
                () = sleep_until(next) => {}
            }
        }
    }

    /// How long to wait for one configuration of a node. Without a known node, requests go to the cluster, and
    /// have their own timeout.
    pub(crate) fn config_timeout(&self, node: &str) -> Duration {
        self.known.get(node).map_or(self.longest * 2, |state| state.config_timeout)
    }

    /// Records that a configuration of a node did not come in time: the node is in backoff, and gets more time
    /// after it.
    pub(crate) fn config_timed_out(&mut self, node: &str) {
        if let Some(state) = self.known.get_mut(node) {
            state.config_timeout = (state.config_timeout * 2).min(self.longest);
            state.back_off("a configuration did not come in time".to_owned());
        }
    }

    fn add(&mut self, node: &str) {
        let (list_timeout, config_timeout) = match self.wait {
            Wait::Usual => (LIST_TIMEOUT.min(self.longest), CONFIG_TIMEOUT.min(self.longest)),
            Wait::Longest => (self.longest, self.longest),
        };
        self.known.entry(node.to_owned()).or_insert_with(|| NodeState {
            pending: None,
            list_timeout,
            config_timeout,
            timeouts: 0,
            retry_at: None,
            why: "it has not answered yet".to_owned(),
        });
    }

    /// Requests the list of a node, unless it is in backoff or a request is pending.
    fn request(&mut self, node: &str, api: &Api) {
        let Some(state) = self.known.get_mut(node) else { return };
        if state.pending.is_some() || (state.retry_at.is_some() && !state.is_retry_due()) {
            return;
        }
        (state.pending, state.retry_at) = (Some(self.round), None);
        let request = list(node.to_owned(), self.round, api.within(self.longest));
        self.requests.push(Box::pin(request));
    }

    /// Updates the state of a node by its answer. The error says why the list of the node is not known.
    fn record(&mut self, answer: &Answer) -> Result<(), String> {
        let shortest = LIST_TIMEOUT.min(self.longest);
        let Some(state) = self.known.get_mut(&answer.node) else {
            return Err("it has left the cluster".to_owned());
        };
        state.pending = None;
        match &answer.guests {
            Ok(_) => {
                state.timeouts = 0;
                if self.wait == Wait::Usual || answer.round != self.round {
                    state.list_timeout = (answer.took * 2).clamp(shortest, self.longest);
                }
                Ok(())
            }
            Err(error) => {
                // A node that fails at once delays no observe, so it needs no backoff.
                if answer.took >= shortest {
                    state.list_timeout = shortest;
                    state.back_off(error.to_string());
                }
                Err(error.to_string())
            }
        }
    }
}

impl NodeState {
    fn back_off(&mut self, why: String) {
        self.timeouts += 1;
        self.why = why;
        self.retry_at = Some(Instant::now() + BACKOFF.nth(self.timeouts));
    }

    fn is_retry_due(&self) -> bool {
        self.retry_at.is_some_and(|at| at <= Instant::now())
    }
}

/// Lists the guests of both kinds on a node.
async fn list(node: String, round: u64, api: Api) -> Answer {
    let begun = Instant::now();
    let lists = tokio::try_join!(api.guests(&node, Kind::Lxc), api.guests(&node, Kind::Qemu));
    let guests =
        lists.map(|(containers, machines)| containers.into_iter().chain(machines).collect());
    Answer { node, round, took: begun.elapsed(), guests }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(took: Duration, is_good: bool) -> Answer {
        let lost = || Error::Lost { request: "GET /".to_owned(), why: "no answer".to_owned() };
        let guests = if is_good { Ok(BTreeMap::new()) } else { Err(lost()) };
        Answer { node: "pve1".to_owned(), round: 0, took, guests }
    }

    fn nodes() -> Nodes {
        let mut nodes = Nodes::new(Wait::Usual, Duration::from_secs(10));
        nodes.add("pve1");
        nodes
    }

    #[test]
    fn the_backoff_of_a_node_grows_up_to_a_minute() {
        let pauses: Vec<u64> = (1..=7).map(|timeouts| BACKOFF.nth(timeouts).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_fails_at_once_has_no_backoff_and_one_that_times_out_has_one() {
        let mut nodes = nodes();
        assert!(nodes.record(&answer(Duration::from_millis(20), false)).is_err());
        assert_eq!(nodes.known["pve1"].retry_at, None);
        assert!(nodes.record(&answer(Duration::from_secs(10), false)).is_err());
        assert!(!nodes.known["pve1"].is_retry_due());
        tokio::time::advance(BACKOFF.nth(1)).await;
        assert!(nodes.known["pve1"].is_retry_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_node_gets_twice_what_it_took_and_a_quick_one_a_second() {
        let mut nodes = nodes();
        for (took, timeout) in [(3000, 6000), (9000, 10_000), (20, 1000)] {
            assert!(nodes.record(&answer(Duration::from_millis(took), true)).is_ok());
            let timeout = Duration::from_millis(timeout);
            assert_eq!(nodes.known["pve1"].list_timeout, timeout, "took {took}");
        }
        nodes.config_timed_out("pve1");
        assert_eq!(nodes.config_timeout("pve1"), 2 * CONFIG_TIMEOUT);
        assert_eq!(nodes.known["pve1"].timeouts, 1);
        assert!(nodes.record(&answer(LIST_TIMEOUT, true)).is_ok());
        assert_eq!(nodes.known["pve1"].timeouts, 0, "an answer resets the count");
    }
}
