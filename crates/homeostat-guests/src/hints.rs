//! Hints: polls one list of the cluster and compares it with the last observe.
//!
//! Quirk `resources-are-old` (Proxmox VE 8): `/cluster/resources` is cached for ten seconds. It may still show the
//! state before our own write, so it is a reason to observe, and never an observation. It does not contain most
//! options: their drift is found by the resync.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use homeostat_core::Focus;
use homeostat_core::pacing::Pauses;
use tokio::time::{Instant, sleep_until};

use crate::api::Api;
use crate::api::Listed;
use crate::error::Error;
use crate::model::Vmid;

/// How old an answer may be.
const MAX_AGE: Duration = Duration::from_secs(10);
/// After failures the pause between polls grows up to this many times the usual one.
const LONGEST_PAUSE: u32 = 16;

type Resources = BTreeMap<Vmid, Listed>;
type Poll = Pin<Box<dyn Future<Output = Result<Resources, Error>> + Send>>;

/// A guest, as the last observe saw it.
#[derive(Debug)]
pub(crate) enum Watched {
    /// Since when, and in the list of its node, unless it was absent.
    Known(Instant, Option<Listed>),
    /// It may have been on a node that did not answer. Any change of it is a reason to look.
    Unknown,
}

impl Watched {
    pub(crate) fn known(row: Option<Listed>) -> Self {
        Watched::Known(Instant::now(), row)
    }
}

/// The last observe of the watched guests, and the last answer of the cluster.
pub(crate) struct Watch {
    every: Duration,
    due: Instant,
    poll: Option<Poll>,
    failures: u32,
    seen: BTreeMap<Vmid, Watched>,
    last_answer: Option<Resources>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(every: Duration) -> Self {
        let (due, seen) = (Instant::now() + every, BTreeMap::new());
        Watch { every, due, poll: None, failures: 0, seen, last_answer: None }
    }

    /// Takes over the result of an observe; a full one decides which guests are watched.
    pub(crate) fn observed(&mut self, focus: &Focus<Vmid>, seen: BTreeMap<Vmid, Watched>) {
        if *focus == Focus::All {
            self.seen.clear();
        }
        self.seen.extend(seen);
    }

    /// Waits for guests that differ from the last observe. None, if a poll failed: whether any does is not known.
    /// Cancel-safe: a poll in progress is kept.
    pub(crate) async fn changed(&mut self, api: &Api) -> Option<BTreeSet<Vmid>> {
        if self.seen.is_empty() {
            return std::future::pending().await;
        }
        loop {
            if self.poll.is_none() {
                sleep_until(self.due).await;
            }
            let api = api.clone();
            let poll =
                self.poll.get_or_insert_with(|| Box::pin(async move { api.resources().await }));
            let answer = poll.await;
            self.poll = None;
            let changed = self.take_answer(answer.ok());
            if changed.as_ref().is_none_or(|changed| !changed.is_empty()) {
                return changed;
            }
        }
    }

    /// Returns the guests that changed. Without an answer the next poll is delayed.
    fn take_answer(&mut self, answer: Option<Resources>) -> Option<BTreeSet<Vmid>> {
        self.failures = if answer.is_some() { 0 } else { self.failures + 1 };
        let pauses = Pauses::new(self.every, self.every.saturating_mul(LONGEST_PAUSE));
        self.due = Instant::now() + pauses.nth(self.failures + 1);
        let answer = answer?;
        let before = self.last_answer.as_ref();
        let changed = self.seen.iter().filter(|(key, seen)| {
            let listed = answer.get(key);
            let is_fresh = before.is_none_or(|before| before.get(key) != listed);
            match seen {
                // The first answer has nothing to differ from.
                Watched::Unknown => is_fresh && before.is_some(),
                // An answer that is older than the observe differs from it too.
                Watched::Known(since, seen) => {
                    let is_old = since.elapsed() <= MAX_AGE + self.every;
                    seen.as_ref() != listed && (is_fresh || !is_old)
                }
            }
        });
        let changed = changed.map(|(key, _)| *key).collect();
        self.last_answer = Some(answer);
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{HaState, Place};
    use crate::model::{Kind, Run};

    const KEY: Vmid = Vmid(101);

    fn row(run: Run) -> Listed {
        Listed {
            place: Place { node: "pve1".to_owned(), kind: Kind::Lxc, vmid: KEY },
            run: Some(run),
            tags: BTreeSet::new(),
            name: String::new(),
            lock: None,
            ha: HaState::NotListed,
        }
    }

    fn resources(run: Run) -> Resources {
        BTreeMap::from([(KEY, row(run))])
    }

    fn watch(run: Run) -> Watch {
        let mut watch = Watch::new(Duration::from_secs(5));
        observe(&mut watch, Watched::known(Some(row(run))));
        watch
    }

    fn observe(watch: &mut Watch, seen: Watched) {
        watch.observed(&Focus::Keys([KEY].into()), BTreeMap::from([(KEY, seen)]));
    }

    /// Whether this answer says that the guest has changed.
    fn is_changed(watch: &mut Watch, answer: Resources) -> bool {
        let changed = watch.take_answer(Some(answer)).unwrap();
        assert!(changed.is_empty() || changed == [KEY].into());
        !changed.is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_differs_from_the_last_observe_is_reported_once() {
        let mut watch = watch(Run::Running);
        assert!(!is_changed(&mut watch, resources(Run::Running)));
        assert!(is_changed(&mut watch, resources(Run::Stopped)));
        assert!(!is_changed(&mut watch, resources(Run::Stopped)), "it was reported");
        assert!(is_changed(&mut watch, Resources::new()), "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn quirk_resources_are_old() {
        let mut watch = watch(Run::Stopped);
        assert!(!is_changed(&mut watch, resources(Run::Stopped)));
        // We start it, and observe it running; the answer still shows the state before.
        observe(&mut watch, Watched::known(Some(row(Run::Running))));
        assert!(!is_changed(&mut watch, resources(Run::Stopped)));
        assert!(!is_changed(&mut watch, resources(Run::Running)));
        // An answer that much later is no longer a cached one: the guest was stopped again.
        observe(&mut watch, Watched::known(Some(row(Run::Running))));
        watch.last_answer = Some(resources(Run::Stopped));
        tokio::time::advance(Duration::from_secs(16)).await;
        assert!(is_changed(&mut watch, resources(Run::Stopped)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_fails_says_that_nothing_is_known_and_delays_the_next() {
        let mut watch = watch(Run::Running);
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            assert_eq!(watch.take_answer(None), None);
            (watch.due - Instant::now()).as_secs()
        })
        .take(6)
        .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 80, 80]);
        watch.take_answer(Some(resources(Run::Running)));
        assert_eq!(watch.due - Instant::now(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_guest_is_reported_with_each_change_of_it_also_to_another_node() {
        let mut watch = watch(Run::Running);
        assert!(!is_changed(&mut watch, resources(Run::Running)));
        observe(&mut watch, Watched::Unknown);
        assert!(!is_changed(&mut watch, resources(Run::Running)));
        let mut moved = resources(Run::Running);
        for guest in moved.values_mut() {
            guest.place.node = "pve2".to_owned();
        }
        assert!(is_changed(&mut watch, moved));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_is_not_declared_is_not_reported() {
        let mut watch = watch(Run::Running);
        watch.observed(&Focus::All, BTreeMap::new());
        assert!(!is_changed(&mut watch, resources(Run::Running)));
        assert!(!is_changed(&mut watch, resources(Run::Stopped)));
    }
}
