//! Notices about guests: one small question now and then, and a comparison with what was seen.
//!
//! Quirk `resources-are-old` (Proxmox VE 8): `/cluster/resources` is gathered every ten seconds and told from
//! memory. It may still show what was before our own write, so it is a reason to look, and never the truth.
//! It tells nothing of most options: those are for the resync.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use homeostat_core::Focus;
use tokio::time::{Instant, sleep_until};

use crate::api::Resource;
use crate::client::Client;
use crate::error::Error;
use crate::model::Key;

/// How old an answer may be.
const OLD: Duration = Duration::from_secs(10);
/// A question that fails is asked again after up to so many times the usual pause.
const MOST_PAUSES: u32 = 16;

type Told = BTreeMap<Key, Resource>;
type Asked = Pin<Box<dyn Future<Output = Result<Told, Error>> + Send>>;

/// What was seen of the watched guests, and what was told of them.
pub(crate) struct Watch {
    every: Duration,
    due: Instant,
    asked: Option<Asked>,
    failures: u32,
    seen: BTreeMap<Key, (Instant, Option<Resource>)>,
    told: Option<Told>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(every: Duration) -> Self {
        let (due, seen) = (Instant::now() + every, BTreeMap::new());
        Watch { every, due, asked: None, failures: 0, seen, told: None }
    }

    /// Takes over what a look saw; a full one says which guests are watched.
    pub(crate) fn saw(&mut self, focus: &Focus<Key>, rows: BTreeMap<Key, Option<Resource>>) {
        if *focus == Focus::All {
            self.seen.clear();
        }
        let now = Instant::now();
        self.seen.extend(rows.into_iter().map(|(key, row)| (key, (now, row))));
    }

    /// The guests that are not as they were seen. Cancel-safe: a question that was asked stays asked.
    pub(crate) async fn changed(&mut self, client: &Client) -> BTreeSet<Key> {
        if self.seen.is_empty() {
            return std::future::pending().await;
        }
        loop {
            if self.asked.is_none() {
                sleep_until(self.due).await;
            }
            let client = client.clone();
            let asked =
                self.asked.get_or_insert_with(|| Box::pin(async move { client.resources().await }));
            let answer = asked.await;
            self.asked = None;
            let changed = self.hear(answer.ok());
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// Takes an answer, or that there was none: then the next question comes later, and nobody is told, for
    /// the next look finds out by itself what is wrong.
    fn hear(&mut self, answer: Option<Told>) -> BTreeSet<Key> {
        self.failures = if answer.is_some() { 0 } else { self.failures + 1 };
        let pauses = (1_u32 << self.failures.min(8)).min(MOST_PAUSES);
        self.due = Instant::now() + self.every.saturating_mul(pauses);
        let Some(told) = answer else { return BTreeSet::new() };
        let changed = self.seen.keys().copied();
        let changed = changed.filter(|key| self.is_news(*key, told.get(key))).collect();
        self.told = Some(told);
        changed
    }

    /// What differs from the last look is news, unless it is only what was told before that look.
    fn is_news(&self, key: Key, told: Option<&Resource>) -> bool {
        let Some((since, seen)) = self.seen.get(&key) else { return false };
        let is_fresh = self.told.as_ref().is_none_or(|before| before.get(&key) != told);
        seen.as_ref() != told && (is_fresh || since.elapsed() > OLD + self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Listed;
    use crate::model::{Run, Vmid};

    const KEY: Key = Key(Vmid(101));

    fn row(run: Run) -> Resource {
        let listed = Listed { run: Some(run), ..Listed::default() };
        Resource { node: "pve1".to_owned(), listed }
    }

    fn told(run: Run) -> Told {
        BTreeMap::from([(KEY, row(run))])
    }

    fn watch(run: Run) -> Watch {
        let mut watch = Watch::new(Duration::from_secs(5));
        watch.saw(&Focus::All, BTreeMap::from([(KEY, Some(row(run)))]));
        watch
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_is_not_as_it_was_seen_is_news_once() {
        let mut watch = watch(Run::Running);
        assert!(watch.hear(Some(told(Run::Running))).is_empty());
        assert_eq!(watch.hear(Some(told(Run::Stopped))), [KEY].into());
        assert!(watch.hear(Some(told(Run::Stopped))).is_empty(), "it was told");
        assert_eq!(watch.hear(Some(Told::new())), [KEY].into(), "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn quirk_resources_are_old() {
        let mut watch = watch(Run::Stopped);
        assert!(watch.hear(Some(told(Run::Stopped))).is_empty());
        // We start it, and see it run; the target still tells what was before.
        watch.saw(&Focus::Keys([KEY].into()), BTreeMap::from([(KEY, Some(row(Run::Running)))]));
        assert!(watch.hear(Some(told(Run::Stopped))).is_empty());
        assert!(watch.hear(Some(told(Run::Running))).is_empty());
        // What it still tells much later is no memory: it was stopped again at once.
        watch.saw(&Focus::Keys([KEY].into()), BTreeMap::from([(KEY, Some(row(Run::Running)))]));
        watch.told = Some(told(Run::Stopped));
        tokio::time::advance(Duration::from_secs(16)).await;
        assert_eq!(watch.hear(Some(told(Run::Stopped))), [KEY].into());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_fails_is_asked_less_often_and_no_news() {
        let mut watch = watch(Run::Running);
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            assert!(watch.hear(None).is_empty());
            (watch.due - Instant::now()).as_secs()
        })
        .take(6)
        .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 80, 80]);
        watch.hear(Some(told(Run::Running)));
        assert_eq!(watch.due - Instant::now(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_could_not_be_seen_or_is_not_declared_is_no_news() {
        let mut watch = watch(Run::Running);
        watch.saw(&Focus::All, BTreeMap::new());
        assert!(watch.hear(Some(told(Run::Running))).is_empty());
        assert!(watch.hear(Some(told(Run::Stopped))).is_empty());
    }
}
