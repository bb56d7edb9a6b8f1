//! APIs that cannot list, and APIs that are too expensive to list at once.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Alone, Config, Explain as _, Failure, Focus, LedgerPage, MemoryLedger, Observer, Owner,
    PassInput, Report, Retry, Seen, Source as _, pass,
};
use homeostat_kit::Strategy;
use homeostat_kit::simple::{
    Adapted, Api, BindRefused, DesiredObjects, Listed, Listing, Refusal, Shards, Written, place,
};

/// What can be listed.
trait Kind: Send + Sync + 'static {
    const LISTING: Listing;
}

struct Nameless;
struct Parts;

impl Kind for Nameless {
    const LISTING: Listing = Listing::KnownNames;
}

const MAX_AGE: Duration = Duration::from_secs(20);

impl Kind for Parts {
    const LISTING: Listing = Listing::Shards(Shards::new(10, MAX_AGE));
}

/// Numbers by number; the part of a key is its last digit. Negative values are a stranger's.
struct Numbers<T> {
    held: Mutex<BTreeMap<u32, i32>>,
    calls: Mutex<Vec<String>>,
    broken: Mutex<BTreeSet<usize>>,
    marks: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T> Numbers<T> {
    fn of(held: impl IntoIterator<Item = (u32, i32)>, marks: bool) -> Arc<Self> {
        let held = Mutex::new(held.into_iter().collect());
        let (calls, broken) = (Mutex::default(), Mutex::default());
        Arc::new(Numbers { held, calls, broken, marks, kind: PhantomData })
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn put(&self, key: u32, value: i32) {
        self.held.lock().unwrap().insert(key, value);
    }

    fn seen(&self, covers: impl Fn(&u32) -> bool) -> Vec<Seen<u32, i32>> {
        let owner = |value: i32| match value {
            _ if !self.marks => Owner::Unmarked,
            0.. => Owner::Ours,
            _ => Owner::foreign("a stranger"),
        };
        let held = self.held.lock().unwrap();
        let found = held.iter().filter(|(key, _)| covers(key));
        found
            .map(|(key, object)| (*key, *object, owner(*object)))
            .map(|(key, object, owner)| Seen::Present { key, object, owner })
            .collect()
    }
}

impl<T: Kind> Api for Numbers<T> {
    const NAME: &'static str = "numbers";
    const LISTING: Listing = T::LISTING;
    type Key = u32;
    type Object = i32;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        panic!("it cannot be listed at once")
    }

    async fn list_shard(&self, shard: usize) -> Result<Listed<Self>, Failure> {
        self.calls.lock().unwrap().push(format!("list {shard}"));
        if self.broken.lock().unwrap().contains(&shard) {
            return Err(Failure::new("out of order", Retry::Soon));
        }
        Ok(self.seen(|key| Self::shard(key) == shard))
    }

    fn shard(key: &u32) -> usize {
        *key as usize % 10
    }

    async fn look(&self, keys: &BTreeSet<u32>) -> Result<Listed<Self>, Failure> {
        self.calls.lock().unwrap().push(format!("look {keys:?}"));
        Ok(self.seen(|key| keys.contains(key)))
    }

    async fn create(&self, key: &u32, wanted: &i32) -> Written<Self> {
        self.calls.lock().unwrap().push(format!("create {key}"));
        self.put(*key, *wanted);
        Ok(Some(*wanted))
    }

    async fn update(&self, key: &u32, _: &i32, wanted: &i32) -> Written<Self> {
        self.calls.lock().unwrap().push(format!("update {key}"));
        self.put(*key, *wanted);
        Ok(Some(*wanted))
    }

    async fn delete(&self, key: &u32, _: &i32) -> Result<(), Refusal> {
        self.calls.lock().unwrap().push(format!("delete {key}"));
        self.held.lock().unwrap().remove(key).map(|_| ()).ok_or(Refusal::Gone)
    }
}

struct Life<T: Kind> {
    source: Adapted<Numbers<T>>,
    observer: Observer<Adapted<Numbers<T>>>,
    ledger_page: LedgerPage<Adapted<Numbers<T>>>,
    strategy: Strategy,
}

impl<T: Kind> Life<T> {
    fn begin(api: &Arc<Numbers<T>>, strategy: Strategy, ledger: &Arc<MemoryLedger>) -> Self {
        let source = Adapted::shared(Arc::clone(api));
        let observer = Observer::open(&source, "here").unwrap();
        let ledger_page =
            LedgerPage::open(ledger.clone(), place::<Numbers<T>>("me", "here")).unwrap();
        Life { source, observer, ledger_page, strategy }
    }

    async fn try_pass(&mut self, desired: &[(u32, i32)]) -> Option<Report<Adapted<Numbers<T>>>> {
        let Life { source, observer, ledger_page, strategy } = self;
        let (ownership, config) = (&strategy.ownership(), &Config::default());
        let desired = Arc::new(DesiredObjects::new(desired.iter().copied()).unwrap());
        let order = PassInput { source, desired, ownership, focus: Focus::All, config };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        pass(&order, observer, &writer, ledger_page).await.ok()
    }

    async fn pass(&mut self, desired: &[(u32, i32)]) {
        assert!(self.try_pass(desired).await.unwrap().is_converged());
    }
}

fn marker() -> Strategy {
    Strategy::marker("me").unwrap()
}

#[tokio::test]
async fn what_cannot_be_listed_is_probed_by_known_names_and_strangers_are_never_deleted() {
    let api = Numbers::<Nameless>::of([(7, 70)], false);
    let ledger = Arc::default();
    let mut life = Life::begin(&api, Strategy::Checkpoint, &ledger);
    life.pass(&[(1, 10), (2, 20)]).await;
    assert_eq!(api.calls(), ["look {1, 2}", "create 1", "create 2"]);
    // The desired state forgets one while nobody is there: the ledger knows its name.
    let mut life = Life::begin(&api, Strategy::Checkpoint, &ledger);
    life.pass(&[(1, 10)]).await;
    assert_eq!(api.calls(), ["look {1, 2}", "delete 2", "look {2}"]);
    life.pass(&[]).await;
    assert_eq!(*api.held.lock().unwrap(), BTreeMap::from([(7, 70)]), "nobody knew of it");
}

#[test]
fn what_cannot_be_listed_needs_a_ledger_that_knows_the_names() {
    let api = Adapted::shared(Numbers::<Nameless>::of([], true));
    let desired = || DesiredObjects::new([(1, 10)]).unwrap();
    let here = || place::<Numbers<Nameless>>("me", "here");
    let refused = api.bind(&marker(), desired(), here()).err();
    assert_eq!(refused, Some(BindRefused::CannotList { name: "numbers" }));
    assert!(api.clone().witnessed().bind(&marker(), desired(), here()).is_ok());
    assert!(api.bind(&Strategy::Checkpoint, desired(), here()).is_ok());
}

const DESIRED: [(u32, i32); 4] = [(10, 1), (21, 1), (32, 1), (43, 1)];

async fn converged() -> (Arc<Numbers<Parts>>, Life<Parts>) {
    let api = Numbers::<Parts>::of([(5, -1)], true);
    let mut life = Life::begin(&api, marker(), &Arc::default());
    life.pass(&DESIRED).await;
    let calls = api.calls();
    let listed = calls.iter().filter(|call| call.starts_with("list")).count();
    assert_eq!(listed, 10, "the first look lists every part: {calls:?}");
    life.pass(&DESIRED).await;
    assert_eq!(api.calls(), ["list 0", "look {21, 32, 43}"], "what was written is looked at once");
    (api, life)
}

#[tokio::test(start_paused = true)]
async fn every_part_is_listed_within_the_stated_age_and_few_at_a_time() {
    let (api, mut life) = converged().await;
    let mut ages = [Duration::ZERO; 10];
    for _ in 0..100 {
        let period = Duration::from_secs(2);
        tokio::time::advance(period).await;
        for age in &mut ages {
            *age += period;
        }
        life.pass(&DESIRED).await;
        let calls = api.calls();
        assert_eq!(calls.len(), 2, "a fifth of the parts, and nothing else: {calls:?}");
        for call in calls {
            let shard: usize = call.strip_prefix("list ").unwrap().parse().unwrap();
            ages[shard] = Duration::ZERO;
        }
        assert!(ages.iter().all(|age| *age <= MAX_AGE), "{ages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_all_parts_are_listed() {
    let (api, mut life) = converged().await;
    tokio::time::advance(MAX_AGE).await;
    life.pass(&DESIRED).await;
    assert_eq!(api.calls().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn drift_in_any_part_is_found_within_the_stated_age() {
    let (api, mut life) = converged().await;
    api.held.lock().unwrap().remove(&32);
    api.put(43, 9);
    api.put(66, 1);
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        life.pass(&DESIRED).await;
    }
    let expected = BTreeMap::from([(5, -1), (10, 1), (21, 1), (32, 1), (43, 1)]);
    assert_eq!(*api.held.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_by_memory() {
    let (api, mut life) = converged().await;
    // Another desired state makes what is remembered differ; it is looked at before it is reported.
    let desired = [(10, 2), (21, 1), (54, 1)];
    life.pass(&desired).await;
    let calls = api.calls();
    let looked = calls.iter().find(|call| call.starts_with("look")).unwrap();
    let first_write = calls.iter().position(|call| !call.starts_with('l')).unwrap();
    assert!(calls[..first_write].contains(looked), "{calls:?}");
    for key in ["10", "32", "43", "54"] {
        let is_listed = calls.iter().any(|call| *call == format!("list {}", &key[1..]));
        assert!(looked.contains(key) || is_listed, "{key}: {calls:?}");
    }
    assert!(!looked.contains("21"), "that is as declared: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_cannot_be_listed_deletes_nothing_and_is_listed_next() {
    let (api, mut life) = converged().await;
    api.broken.lock().unwrap().extend(0..10);
    tokio::time::advance(Duration::from_secs(4)).await;
    assert!(life.try_pass(&[]).await.is_none());
    assert!(api.calls().iter().all(|call| call.starts_with("list")));
    api.broken.lock().unwrap().clear();
    life.pass(&[]).await;
    assert_eq!(*api.held.lock().unwrap(), BTreeMap::from([(5, -1)]));
}
