//! A store is followed by list-watch, and its declarations vanish after what was created for them. All in virtual time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Owner, Prefixes, Retry, Seen};
use homeostat_kit::Reconciler;
use homeostat_kit::lifecycle::{Declaration, Finalizers, Lifecycle};
use homeostat_kit::provider::Provider;
use homeostat_kit::simple::{Api, Listed, Refusal, Written};
use homeostat_kit::store::{Reflector, Revision, Snapshot, Store, StoreWatch, WatchEvent};
use homeostat_kit::strategy::Strategy;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

type Declared = Declaration<u32>;

/// A store in memory that can misbehave.
#[derive(Clone)]
struct Shelf {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    revision: Revision,
    declarations: BTreeMap<String, Declared>,
    history: Vec<(Revision, String, Option<Declared>)>,
    /// Changes up to here are no longer known.
    compacted: Revision,
    is_down: bool,
    /// Whether changes are not announced.
    is_mute: bool,
    /// Ends all watches, by counting up.
    hang_ups: u32,
    lists: u32,
    watches: u32,
    /// What was done, in order.
    log: Vec<String>,
}

impl Shelf {
    fn new() -> Self {
        Shelf { inner: Arc::default(), changed: watch::channel(()).0 }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn reachable(&self) -> Result<MutexGuard<'_, Inner>, Failure> {
        let inner = self.inner();
        if inner.is_down { Err(Failure::new("no leader", Retry::Soon)) } else { Ok(inner) }
    }

    fn edit(&self, key: &str, edit: impl FnOnce(Option<Declared>) -> Option<Declared>) {
        let mut inner = self.inner();
        let after = edit(inner.declarations.remove(key));
        // What is being deleted and has no finalizer is gone.
        let after = after.filter(|one| one.has_finalizer || !one.is_deleting);
        inner.revision += 1;
        if let Some(one) = &after {
            inner.declarations.insert(key.to_owned(), one.clone());
        }
        if !inner.is_mute {
            let revision = inner.revision;
            inner.history.push((revision, key.to_owned(), after));
        }
        drop(inner);
        self.changed.send_replace(());
    }

    /// What a user does.
    fn declare(&self, key: &str, object: u32) {
        self.edit(key, |before| {
            let has_finalizer = before.is_some_and(|one| one.has_finalizer);
            Some(Declaration { object, has_finalizer, is_deleting: false })
        });
    }

    fn delete(&self, key: &str) {
        self.edit(key, |before| before.map(|one| Declaration { is_deleting: true, ..one }));
    }

    fn hang_up(&self) {
        self.inner().hang_ups += 1;
        self.changed.send_replace(());
    }

    /// How often it was listed, and watched.
    fn counts(&self) -> (u32, u32) {
        let inner = self.inner();
        (inner.lists, inner.watches)
    }

    fn log(&self, what: String) {
        self.inner().log.push(what);
    }
}

impl Store for Shelf {
    type Key = String;
    type Value = Declared;

    async fn list(&self) -> Result<Snapshot<String, Declared>, Failure> {
        self.inner().lists += 1;
        let inner = self.reachable()?;
        Ok(Snapshot { revision: inner.revision, values: inner.declarations.clone() })
    }

    async fn watch(
        &self,
        after: Revision,
    ) -> Result<Box<dyn StoreWatch<String, Declared>>, Failure> {
        let mut inner = self.reachable()?;
        inner.watches += 1;
        let changed = self.changed.subscribe();
        Ok(Box::new(Watching { shelf: self.clone(), changed, hang_ups: inner.hang_ups, after }))
    }
}

struct Watching {
    shelf: Shelf,
    changed: watch::Receiver<()>,
    hang_ups: u32,
    after: Revision,
}

impl StoreWatch<String, Declared> for Watching {
    fn next(&mut self) -> Later<'_, Result<WatchEvent<String, Declared>, Failure>> {
        Box::pin(async {
            loop {
                {
                    let inner = self.shelf.reachable()?;
                    if inner.hang_ups != self.hang_ups {
                        return Err(Failure::new("the store hung up", Retry::Soon));
                    }
                    if self.after < inner.compacted {
                        return Ok(WatchEvent::Compacted);
                    }
                    if self.after > inner.revision {
                        return Ok(WatchEvent::Regressed);
                    }
                    let next = inner.history.iter().find(|(revision, ..)| *revision > self.after);
                    if let Some((revision, key, value)) = next.cloned() {
                        self.after = revision;
                        return Ok(WatchEvent::Changed { revision, key, value });
                    }
                }
                self.changed.changed().await.unwrap();
            }
        })
    }
}

impl Finalizers for Shelf {
    type Object = u32;

    async fn set_finalizer(&self, key: &String) -> Result<bool, Failure> {
        let known = self.reachable()?.declarations.get(key).cloned();
        let is_set = known.is_some_and(|one| !one.is_deleting);
        if is_set {
            self.edit(key, |one| one.map(|one| Declaration { has_finalizer: true, ..one }));
            self.log(format!("finalizer {key}"));
        }
        Ok(is_set)
    }

    async fn remove_finalizer(&self, key: &String) -> Result<(), Failure> {
        drop(self.reachable()?);
        self.edit(key, |one| one.map(|one| Declaration { has_finalizer: false, ..one }));
        self.log(format!("vanish {key}"));
        Ok(())
    }
}

/// Numbers by name, which can be frozen.
#[derive(Clone)]
struct Numbers {
    held: Arc<Mutex<BTreeMap<String, u32>>>,
    is_frozen: Arc<Mutex<bool>>,
    shelf: Shelf,
}

impl Numbers {
    fn shown(&self) -> String {
        let held = self.held.lock().unwrap();
        let shown: Vec<String> = held.iter().map(|(key, value)| format!("{key}={value}")).collect();
        shown.join(" ")
    }
}

impl Api for Numbers {
    const NAME: &'static str = "numbers";
    type Key = String;
    type Object = u32;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let held = self.held.lock().unwrap().clone().into_iter();
        Ok(held
            .map(|(key, object)| Seen::Present { key, object, owner: Owner::Unmarked })
            .collect())
    }

    async fn create(&self, key: &String, wanted: &u32) -> Written<Self> {
        self.shelf.log(format!("create {key}"));
        match self.held.lock().unwrap().entry(key.clone()) {
            Entry::Vacant(free) => Ok(Some(*free.insert(*wanted))),
            Entry::Occupied(_) => Err(Refusal::Conflict(Owner::foreign("somebody"))),
        }
    }

    async fn update(&self, key: &String, _: &u32, wanted: &u32) -> Written<Self> {
        self.held.lock().unwrap().insert(key.clone(), *wanted);
        Ok(Some(*wanted))
    }

    async fn delete(&self, key: &String, _: &u32) -> Result<(), Refusal> {
        if *self.is_frozen.lock().unwrap() {
            return Err(Failure::new("it is frozen", Retry::Soon).into());
        }
        self.shelf.log(format!("delete {key}"));
        self.held.lock().unwrap().remove(key).map(drop).ok_or(Refusal::Gone)
    }
}

/// A store, an API, and a program that runs.
struct Stage {
    shelf: Shelf,
    numbers: Numbers,
    program: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Stage {
    fn new() -> Self {
        let shelf = Shelf::new();
        let (held, is_frozen) = (Arc::default(), Arc::default());
        let numbers = Numbers { held, is_frozen, shelf: shelf.clone() };
        Stage { shelf, numbers, program: None }
    }

    fn run(
        &mut self,
        strategy: Strategy,
        provider: impl Provider<DesiredState = BTreeMap<String, u32>> + 'static,
    ) {
        let reconciler = Reconciler::new(self.numbers.clone(), strategy);
        let (stop, stopped) = oneshot::channel::<()>();
        let running =
            async move { reconciler.run(provider, async { _ = stopped.await }).await.unwrap() };
        self.program = Some((stop, tokio::spawn(running)));
    }

    fn keep(&mut self) {
        self.run(Strategy::Checkpoint, Lifecycle::new(self.shelf.clone()));
    }

    async fn stop(&mut self) {
        let (stop, running) = self.program.take().unwrap();
        stop.send(()).unwrap();
        running.await.unwrap();
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.shelf.inner().log)
    }
}

/// Lets everybody else work for so long, in virtual time.
async fn pass_time(time: Duration) {
    _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn changes_come_by_the_watch_and_are_not_listed() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    stage.keep();
    pass_time(SECOND).await;
    assert_eq!(stage.numbers.shown(), "a=1");
    stage.shelf.declare("a", 2);
    stage.shelf.declare("b", 3);
    pass_time(SECOND).await;
    assert_eq!(stage.numbers.shown(), "a=2 b=3");
    assert_eq!(stage.shelf.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_is_continued_after_its_last_event() {
    let mut stage = Stage::new();
    stage.keep();
    pass_time(SECOND).await;
    stage.shelf.declare("a", 1);
    pass_time(SECOND).await;
    stage.shelf.hang_up();
    stage.shelf.declare("b", 2);
    pass_time(SECOND).await;
    assert_eq!(stage.numbers.shown(), "a=1 b=2");
    assert_eq!(stage.shelf.counts(), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_compacted_or_restored_is_listed_again() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    stage.keep();
    pass_time(SECOND).await;
    {
        // The program is away while things change, and their history is dropped.
        let mut inner = stage.shelf.inner();
        inner.hang_ups += 1;
        inner.is_mute = true;
    }
    stage.shelf.declare("b", 2);
    {
        let mut inner = stage.shelf.inner();
        (inner.compacted, inner.is_mute) = (inner.revision, false);
    }
    pass_time(SECOND).await;
    assert_eq!((stage.numbers.shown(), stage.shelf.inner().lists), ("a=1 b=2".to_owned(), 2));
    {
        // A backup is restored: fewer changes have ever happened.
        let mut inner = stage.shelf.inner();
        (inner.revision, inner.compacted) = (1, 0);
        inner.history.clear();
        inner.declarations.remove("b");
    }
    stage.shelf.changed.send_replace(());
    pass_time(SECOND).await;
    assert_eq!((stage.numbers.shown(), stage.shelf.inner().lists), ("a=1".to_owned(), 3));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_watch_loses_is_made_good_by_the_resync() {
    let mut stage = Stage::new();
    let resync = Duration::from_mins(5);
    stage.run(Strategy::Checkpoint, Lifecycle::new(stage.shelf.clone()).with_resync(resync));
    pass_time(SECOND).await;
    stage.shelf.inner().is_mute = true;
    stage.shelf.declare("a", 1);
    pass_time(Duration::from_mins(4)).await;
    assert_eq!(stage.numbers.shown(), "");
    pass_time(Duration::from_mins(1)).await;
    assert_eq!(stage.numbers.shown(), "a=1");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_an_hour_deletes_nothing_and_is_asked_rarely() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    stage.keep();
    pass_time(SECOND).await;
    stage.shelf.inner().is_down = true;
    stage.shelf.hang_up();
    pass_time(Duration::from_hours(1)).await;
    assert_eq!(stage.numbers.shown(), "a=1");
    let lists = stage.shelf.inner().lists;
    assert!((2..60).contains(&lists), "{lists} tries in an hour");
    stage.shelf.inner().is_down = false;
    stage.shelf.declare("a", 2);
    pass_time(Duration::from_mins(3)).await;
    assert_eq!(stage.numbers.shown(), "a=2");
}

#[tokio::test(start_paused = true)]
async fn a_store_without_finalizers_is_a_provider_too() {
    let shelf = Shelf::new();
    shelf.declare("a", 1);
    let mut reflector = Reflector::new(shelf.clone()).with_resync(Duration::MAX);
    let held = async |reflector: &mut Reflector<Shelf>| match reflector.answer().await {
        homeostat_kit::provider::Answer::DesiredState(held) => held.keys().cloned().collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!(held(&mut reflector).await, ["a"]);
    shelf.declare("b", 2);
    shelf.edit("a", |_| None);
    reflector.changed().await;
    assert_eq!(held(&mut reflector).await, ["b"], "both events are taken at once");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_set_before_the_create_and_removed_after_the_delete() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    stage.keep();
    pass_time(SECOND).await;
    assert_eq!(stage.log(), ["finalizer a", "create a"]);

    *stage.numbers.is_frozen.lock().unwrap() = true;
    stage.shelf.delete("a");
    pass_time(Duration::from_mins(1)).await;
    assert!(stage.shelf.inner().declarations["a"].is_deleting, "the delete has failed so far");
    *stage.numbers.is_frozen.lock().unwrap() = false;
    pass_time(Duration::from_mins(3)).await;
    assert_eq!(stage.log(), ["delete a", "vanish a"]);
    assert!(stage.shelf.inner().declarations.is_empty());

    // The name is free again.
    stage.shelf.declare("a", 2);
    pass_time(SECOND).await;
    assert_eq!((stage.log().len(), stage.numbers.shown()), (2, "a=2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_while_no_loop_ran_is_cleaned_up_at_the_start() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    // In the ledger's place: the next program has a ledger of its own, and knows its objects by their names.
    let prefix = || Strategy::Prefix(Prefixes::default().claim("a").unwrap());
    stage.run(prefix(), Lifecycle::new(stage.shelf.clone()));
    pass_time(SECOND).await;
    stage.stop().await;
    stage.shelf.delete("a");
    assert!(stage.shelf.inner().declarations["a"].is_deleting);
    stage.log();
    stage.run(prefix(), Lifecycle::new(stage.shelf.clone()));
    pass_time(SECOND).await;
    assert_eq!(stage.log(), ["delete a", "vanish a"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_stays_while_the_desired_state_without_its_object_is_refused() {
    let mut stage = Stage::new();
    stage.shelf.declare("my-a", 1);
    let prefix = Strategy::Prefix(Prefixes::default().claim("my-").unwrap());
    stage.run(prefix, Lifecycle::new(stage.shelf.clone()));
    pass_time(SECOND).await;
    stage.log();
    // One declaration outside of the prefix: nothing of this desired state is applied.
    stage.shelf.declare("cloud", 1);
    stage.shelf.delete("my-a");
    pass_time(Duration::from_hours(1)).await;
    assert_eq!(stage.numbers.shown(), "my-a=1");
    assert!(stage.shelf.inner().declarations["my-a"].has_finalizer);
    stage.shelf.delete("cloud");
    pass_time(SECOND).await;
    assert_eq!(stage.numbers.shown(), "");
    assert!(stage.shelf.inner().declarations.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_before_it_was_ever_applied_vanishes() {
    let mut stage = Stage::new();
    stage.keep();
    pass_time(SECOND).await;
    // Another process of ours had set the finalizer, and died.
    let (object, has_finalizer, is_deleting) = (1, true, true);
    stage.shelf.edit("a", |_| Some(Declaration { object, has_finalizer, is_deleting }));
    pass_time(SECOND).await;
    assert_eq!(stage.log(), ["vanish a"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_somebody_removed_is_set_again_and_nothing_is_deleted() {
    let mut stage = Stage::new();
    stage.shelf.declare("a", 1);
    stage.keep();
    pass_time(SECOND).await;
    stage.log();
    stage.shelf.edit("a", |one| one.map(|one| Declaration { has_finalizer: false, ..one }));
    pass_time(SECOND).await;
    assert_eq!(stage.log(), ["finalizer a"]);
    assert_eq!(stage.numbers.shown(), "a=1");
}
