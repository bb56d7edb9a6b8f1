//! The reading side of an adapted API: lists, looks, watches, and knows which keys the target still works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Agreement, Desired as _, Failure, Focus, Hint, Owner, Reader, Retry, See, Seen, Slot, View,
};
use tokio::time::Instant;

use super::follow_up::{FollowUp, FollowUps};
use super::source::Adapted;
use super::{Api, Listed, Progress, Watch};

/// What an API can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Everything at once.
    Whole,
    /// Nothing: only objects whose names are known can be looked at. What is declared and what the
    /// ledger knows is probed; what is not known is never seen, and so never deleted.
    KnownNames,
    /// So many parts, each by itself. A full look lists some of them, those that waited longest; what
    /// it reports of the others was seen before, and only if that is as declared. Everything else is
    /// looked at, key by key.
    Shards(Shards),
}

/// How an API is listed in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shards {
    /// How many there are.
    pub count: usize,
    /// How old the list of a part may be when it is used. It holds however rarely full looks come.
    pub max_age: Duration,
}

impl Shards {
    /// So many parts, none of whose lists may be older than this when it is used.
    #[must_use]
    pub const fn new(count: usize, max_age: Duration) -> Self {
        Shards { count, max_age }
    }

    /// How many parts a look must list that comes this long after the last one: as many as it takes to
    /// list each within half of the greatest age, so that the other half is left for the time between
    /// two looks.
    #[must_use]
    pub fn due(&self, since_last: Duration) -> usize {
        let half = (self.max_age / 2).as_nanos().max(1);
        let due = (since_last.as_nanos().saturating_mul(self.count as u128)).div_ceil(half);
        usize::try_from(due).unwrap_or(self.count).clamp(1, self.count.max(1))
    }
}

/// A list that came in pages, if it has as many objects as the API says that there are.
///
/// A list that ends early is a failure, and never a short list: the objects of the missing page would
/// be made again, or forgotten.
pub fn whole<T>(list: Vec<T>, total: usize) -> Result<Vec<T>, Failure> {
    if list.len() == total {
        return Ok(list);
    }
    let text = format!("the list is not whole: {} of {total} objects", list.len());
    Err(Failure::new(text, Retry::Soon))
}

/// Lists, looks and watches.
pub struct ApiReader<A: Api> {
    api: Arc<A>,
    follow_ups: Arc<FollowUps<A::Key>>,
    watch: Option<Box<dyn Watch<A::Key>>>,
    /// Of an API that is listed in parts.
    cache: Option<ListCache<A>>,
}

impl<A: Api> ApiReader<A> {
    pub(super) fn new(api: Arc<A>, follow_ups: Arc<FollowUps<A::Key>>) -> Self {
        let cache = match A::LISTING {
            Listing::Shards(shards) => Some(ListCache::new(shards)),
            Listing::Whole | Listing::KnownNames => None,
        };
        ApiReader { api, follow_ups, watch: None, cache }
    }

    async fn watching(&mut self) -> Result<&mut Box<dyn Watch<A::Key>>, Failure> {
        match &mut self.watch {
            Some(watch) => Ok(watch),
            unopened => Ok(unopened.insert(self.api.watch().await?)),
        }
    }

    async fn read(&mut self, view: &View<'_, Adapted<A>>) -> Result<Listed<A>, Failure> {
        match (view.focus, A::LISTING) {
            (Focus::All, Listing::Whole) => self.api.list().await,
            (Focus::All, Listing::Shards(_)) => self.list_some(view).await,
            (focus, _) => {
                let keys = match focus {
                    Focus::Keys(keys) => keys.clone(),
                    Focus::All => declared_or_recorded(view).collect(),
                };
                let found = self.api.look(&keys).await?;
                if let Some(cache) = &mut self.cache {
                    cache.looked(&keys, &found);
                }
                Ok(found)
            }
        }
    }

    /// Lists the parts that are due, recalls the others, and looks at whatever differs from the desired state.
    async fn list_some(&mut self, view: &View<'_, Adapted<A>>) -> Result<Listed<A>, Failure> {
        let Some(cache) = &mut self.cache else { return self.api.list().await };
        let due = cache.due(Instant::now());
        let mut all = Vec::new();
        for shard in due.iter().copied() {
            let began = Instant::now();
            match self.api.list_shard(shard).await {
                Ok(listed) => {
                    cache.listed(shard, &listed, began);
                    all.extend(listed);
                }
                Err(failure) => {
                    cache.forget(shard);
                    return Err(failure);
                }
            }
        }
        let mut written = self.follow_ups.take_written();
        written.retain(|key| !due.contains(&A::shard(key)));
        let (remembered, mut doubts) = cache.recall(&due, view);
        all.extend(remembered.into_iter().filter(|seen| !written.contains(key_of(seen))));
        doubts.extend(written.iter().cloned());
        if doubts.is_empty() {
            return Ok(all);
        }
        let found = self.api.look(&doubts).await.inspect_err(|_| self.follow_ups.wrote(written))?;
        cache.looked(&doubts, &found);
        all.extend(found.into_iter().filter(|seen| doubts.contains(key_of(seen))));
        Ok(all)
    }

    /// Asks for the tasks of the keys that this pass looks at, and names those keys on which the target still works.
    async fn under_way(&mut self, focus: &Focus<A::Key>) -> Vec<(A::Key, String)> {
        let mut busy = Vec::new();
        for (key, follow_up) in self.follow_ups.accepted(|key| focus.covers(key)) {
            match follow_up {
                FollowUp::Task(id) => {
                    let why = self.ask(&key, &id).await;
                    busy.extend(why.map(|why| (key, why)));
                }
                FollowUp::Recheck => busy.push((key, "the target works on it".to_owned())),
                FollowUp::Retry => {}
            }
        }
        busy
    }

    /// Why nothing can be said about the key of a task, if it is not over.
    async fn ask(&mut self, key: &A::Key, id: &str) -> Option<String> {
        match self.api.task(id).await {
            Ok(Progress::Over | Progress::Lost) => self.follow_ups.over(key, None),
            Ok(Progress::Failed(failure)) => self.follow_ups.over(key, Some(failure)),
            Ok(Progress::Running) => {
                self.follow_ups.goes_on(key);
                return Some(format!("task {id} is running"));
            }
            Err(failure) => {
                self.follow_ups.goes_on(key);
                return Some(format!("task {id} cannot be asked for: {failure}"));
            }
        }
        None
    }
}

impl<A: Api> Reader<Adapted<A>> for ApiReader<A> {
    async fn observe(
        &mut self,
        view: &View<'_, Adapted<A>>,
        see: &mut See<'_, A::Key, A::Object>,
    ) -> Result<(), Failure> {
        self.watching().await?;
        // A task that is over by now is seen in the look that follows.
        let busy = self.under_way(view.focus).await;
        let listed = self.read(view).await?.into_iter();
        listed.filter(|seen| view.focus.covers(key_of(seen))).for_each(&mut *see);
        for (key, why) in busy {
            see(Seen::Unknown { key, why });
        }
        Ok(())
    }

    async fn hint(&mut self) -> Result<Hint<A::Key>, Failure> {
        let follow_ups = Arc::clone(&self.follow_ups);
        let watch = self.watching().await?;
        tokio::select! {
            biased;
            keys = follow_ups.due() => Ok(Hint::keys(keys)),
            hint = watch.next() => hint.map(|hint| with_waiting(hint, &follow_ups)),
        }
    }
}

/// The same, about what waits for its keys too.
fn with_waiting<K: Ord + Clone>(hint: Hint<K>, follow_ups: &FollowUps<K>) -> Hint<K> {
    let Hint::Keys(mut keys) = hint else { return hint };
    let waiting: Vec<K> = keys.keys().flat_map(|key| follow_ups.take_waiting(key)).collect();
    for key in waiting {
        keys.add(key, None);
    }
    Hint::Keys(keys)
}

/// Keys that are declared, then keys that the ledger knows.
fn declared_or_recorded<A: Api>(view: &View<'_, Adapted<A>>) -> impl Iterator<Item = A::Key> {
    let declared = (0..view.desired.len()).map(|index| view.desired.key(Slot::at(index)));
    declared.chain(view.records.keys().cloned())
}

type Owned<A> = (<A as Api>::Object, Owner);

/// What was seen of each part, and when. It only saves reading: it is believed where it agrees with the desired state,
/// and every difference is looked at before it is reported, so that nothing is written from memory.
struct ListCache<A: Api> {
    shards: Shards,
    parts: Vec<Part<A>>,
    last_look: Option<Instant>,
}

struct Part<A: Api> {
    listed: Option<Instant>,
    known: BTreeMap<A::Key, Owned<A>>,
}

impl<A: Api> ListCache<A> {
    fn new(shards: Shards) -> Self {
        let part = || Part { listed: None, known: BTreeMap::new() };
        let parts = (0..shards.count.max(1)).map(|_| part()).collect();
        ListCache { shards, parts, last_look: None }
    }

    /// The parts that the look that begins now must list. The first look lists all of them.
    fn due(&mut self, now: Instant) -> Vec<usize> {
        let count = match self.last_look.replace(now) {
            None => self.parts.len(),
            Some(last) => self.shards.due(now.duration_since(last)),
        };
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_by_key(|shard| self.parts.get(*shard).and_then(|part| part.listed));
        let never = self.parts.iter().filter(|part| part.listed.is_none()).count();
        order.truncate(count.max(never));
        order
    }

    /// A part was listed.
    fn listed(&mut self, shard: usize, listed: &Listed<A>, now: Instant) {
        let Some(part) = self.parts.get_mut(shard) else { return };
        part.listed = Some(now);
        part.known = listed.iter().filter_map(known::<A>).collect();
    }

    /// Single keys were looked at.
    fn looked(&mut self, keys: &BTreeSet<A::Key>, found: &Listed<A>) {
        for key in keys {
            if let Some(part) = self.parts.get_mut(A::shard(key)) {
                part.known.remove(key);
            }
        }
        for (key, seen) in found.iter().filter_map(known::<A>) {
            if let Some(part) = self.parts.get_mut(A::shard(&key)) {
                part.known.insert(key, seen);
            }
        }
    }

    /// A part could not be listed: what is known of it is too old for the next look.
    fn forget(&mut self, shard: usize) {
        if let Some(part) = self.parts.get_mut(shard) {
            part.listed = None;
        }
    }

    /// What is known of the parts that were not `listed`: objects that are as declared, and keys to look at.
    fn recall(
        &self,
        listed: &[usize],
        view: &View<'_, Adapted<A>>,
    ) -> (Listed<A>, BTreeSet<A::Key>) {
        let (mut remembered, mut doubts) = (Vec::new(), BTreeSet::new());
        let recalled = |key: &A::Key| !listed.contains(&A::shard(key));
        for (key, (object, owner)) in self.parts.iter().flat_map(|part| &part.known) {
            if !recalled(key) {
                continue;
            }
            let slot = view.desired.slot(key, None);
            let agrees = slot.map(|slot| view.desired.compare(slot, object) == Agreement::Agrees);
            match agrees {
                Some(true) => {
                    let (key, object, owner) = (key.clone(), object.clone(), owner.clone());
                    remembered.push(Seen::Present { key, object, owner });
                }
                // A foreign object that is not declared is reported when its part is listed.
                None if matches!(owner, Owner::Foreign(_) | Owner::Kernel) => {}
                Some(false) | None => _ = doubts.insert(key.clone()),
            }
        }
        let knows = |key: &A::Key| {
            self.parts.get(A::shard(key)).is_some_and(|part| part.known.contains_key(key))
        };
        doubts.extend(declared_or_recorded(view).filter(|key| recalled(key) && !knows(key)));
        (remembered, doubts)
    }
}

fn known<A: Api>(seen: &Seen<A::Key, A::Object>) -> Option<(A::Key, Owned<A>)> {
    match seen {
        Seen::Present { key, object, owner } => {
            Some((key.clone(), (object.clone(), owner.clone())))
        }
        Seen::Unknown { .. } => None,
    }
}

fn key_of<K, O>(seen: &Seen<K, O>) -> &K {
    match seen {
        Seen::Present { key, .. } | Seen::Unknown { key, .. } => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_part_is_listed_within_half_of_the_greatest_age() {
        let shards = Shards { count: 10, max_age: 20 * SECOND };
        for (since, expected) in [(0, 1), (1, 1), (2, 2), (5, 5), (10, 10), (99, 10)] {
            assert_eq!(shards.due(since * SECOND), expected, "{since} s");
        }
    }

    #[test]
    fn a_list_that_is_not_whole_is_a_failure() {
        assert_eq!(whole(vec![1, 2, 3], 3), Ok(vec![1, 2, 3]));
        let failure = whole(vec![1], 2).unwrap_err();
        assert_eq!(failure.error, "the list is not whole: 1 of 2 objects");
    }
}
