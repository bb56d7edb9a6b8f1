//! Objects that need others: created after them, deleted before them, and woken when what they need is there.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Control as _, Failure, Finding, Loop, LoopDeps, OnStop, Owner, Ownership, Retry, Seen, WaitsOn,
};
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Written, place};
use homeostat_kit::strategy::Strategy;
use homeostat_kit::{Objects, Reconciler};
use homeostat_testkit::laws::{self, Ability, DesiredState, Disturbance, Fault, Harness, Meter};

/// Folders by path: each needs the one above it. An object is the path of another folder that it links to, or empty.
/// The target itself refuses what would dangle.
#[derive(Default)]
struct Folders {
    held: Mutex<BTreeMap<String, String>>,
    calls: Mutex<Vec<String>>,
    refused: Mutex<BTreeSet<String>>,
}

fn above(path: &str) -> Option<String> {
    path.rsplit_once('/').map(|(above, _)| above.to_owned())
}

fn needs(path: &str, link: &str) -> Vec<String> {
    above(path).into_iter().chain((!link.is_empty()).then(|| link.to_owned())).collect()
}

impl Folders {
    fn call(&self, text: String, key: &str) -> Result<(), Refusal> {
        self.calls.lock().unwrap().push(text);
        if self.refused.lock().unwrap().contains(key) {
            Err(Refusal::Failed(Failure::new("refused", Retry::Soon)))
        } else {
            Ok(())
        }
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn paths(&self) -> Vec<String> {
        self.held.lock().unwrap().keys().cloned().collect()
    }
}

impl Api for Folders {
    const NAME: &'static str = "folders";
    type Key = String;
    type Object = String;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let held = self.held.lock().unwrap().clone();
        let seen = |(key, object)| Seen::Present { key, object, owner: Owner::Unmarked };
        Ok(held.into_iter().map(seen).collect())
    }

    async fn create(&self, key: &String, link: &String) -> Written<Self> {
        self.call(format!("create {key}"), key)?;
        // Others get their turn: what is not ordered would overtake.
        tokio::task::yield_now().await;
        let mut held = self.held.lock().unwrap();
        match needs(key, link).into_iter().find(|need| !held.contains_key(need)) {
            Some(need) => return Err(Refusal::WaitsOn(need)),
            None if held.contains_key(key) => return Err(Refusal::Conflict(Owner::foreign("x"))),
            None => held.insert(key.clone(), link.clone()),
        };
        Ok(Some(link.clone()))
    }

    async fn update(&self, key: &String, _: &String, link: &String) -> Written<Self> {
        self.call(format!("update {key}"), key)?;
        self.held.lock().unwrap().insert(key.clone(), link.clone());
        Ok(Some(link.clone()))
    }

    async fn delete(&self, key: &String, _: &String) -> Result<(), Refusal> {
        self.call(format!("delete {key}"), key)?;
        tokio::task::yield_now().await;
        let mut held = self.held.lock().unwrap();
        let user = held.iter().find(|(path, link)| needs(path, link).contains(key));
        if let Some((user, _)) = user {
            return Err(Failure::new(format!("{user} still needs it"), Retry::Soon).into());
        }
        held.remove(key).map(drop).ok_or(Refusal::Gone)
    }

    fn needs(key: &String, link: &String) -> Vec<String> {
        // Those below `late` are known to the target alone.
        if key.starts_with("late") { Vec::new() } else { needs(key, link) }
    }
}

/// The same target, by an API that does not say what its objects need.
struct Careless(Arc<Folders>);

impl Api for Careless {
    const NAME: &'static str = "careless";
    type Key = String;
    type Object = String;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        self.0.list().await
    }

    async fn create(&self, key: &String, link: &String) -> Written<Self> {
        self.0.create(key, link).await
    }

    async fn update(&self, key: &String, before: &String, link: &String) -> Written<Self> {
        self.0.update(key, before, link).await
    }

    async fn delete(&self, key: &String, before: &String) -> Result<(), Refusal> {
        self.0.delete(key, before).await
    }
}

/// A harness for both APIs.
struct Bench<A: Api> {
    target: Arc<Folders>,
    source: fn(Arc<Folders>) -> Adapted<A>,
}

impl<A: Api<Key = String, Object = String>> Harness for Bench<A> {
    type Source = Adapted<A>;

    fn reset(&mut self) {
        self.target = Arc::default();
    }

    fn source(&self) -> Adapted<A> {
        (self.source)(Arc::clone(&self.target))
    }

    fn ownership(&self) -> Ownership {
        Strategy::Checkpoint.ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<A> {
        let folders: &[_] = match which {
            DesiredState::First => &TREE,
            DesiredState::Second => &[("a", ""), ("a/b", ""), ("z", ""), ("z/y", "z")],
            DesiredState::Nothing => &[],
        };
        let owned = folders.iter().map(|(key, link)| ((*key).to_owned(), (*link).to_owned()));
        DesiredObjects::from(owned.collect::<Objects<A>>())
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        self.target.held.lock().unwrap().clone()
    }

    fn meter(&self) -> Meter {
        let target = Arc::clone(&self.target);
        Arc::new(move || u64::try_from(target.calls.lock().unwrap().len()).unwrap())
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        let mut held = self.target.held.lock().unwrap();
        match how {
            Disturbance::Remove(key) => _ = held.remove(key),
            Disturbance::Alter(key) => _ = held.insert(key.clone(), "altered".to_owned()),
            Disturbance::Stranger => _ = held.insert("stranger".to_owned(), String::new()),
            Disturbance::Occupy(key) => _ = held.insert(key.clone(), "theirs".to_owned()),
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let Fault::Refuse(key) = fault else { return Ability::Unable };
        self.target.refused.lock().unwrap().insert(key.clone());
        Ability::Done
    }

    fn mend(&mut self) {
        self.target.refused.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn an_api_that_names_its_needs_keeps_the_laws() {
    let mut bench = Bench { target: Arc::default(), source: Adapted::<Folders>::shared };
    let verdict = laws::check(&mut bench).await.unwrap();
    assert!(verdict.unchecked.iter().all(|(law, _)| *law == 1), "{verdict:?}");
}

#[tokio::test]
async fn an_api_that_names_no_needs_is_told_to_name_them() {
    let source = |target| Adapted::new(Careless(target));
    let broken = laws::check(&mut Bench { target: Arc::default(), source }).await.unwrap_err();
    assert_eq!(broken.number(), Some(9), "{broken}");
    assert!(broken.help().contains("name the other key in `Api::needs`"), "{broken}");
}

fn folders(pairs: &[(&str, &str)]) -> Objects<Folders> {
    pairs.iter().map(|(key, link)| ((*key).to_owned(), (*link).to_owned())).collect()
}

fn open() -> (Arc<Folders>, Reconciler<Folders>) {
    let api = Arc::<Folders>::default();
    (Arc::clone(&api), Reconciler::shared(api, Strategy::Checkpoint))
}

/// The link leads against the order of names.
const TREE: [(&str, &str); 5] = [("a", "z"), ("a/b", ""), ("a/b/c", "z/y"), ("z", ""), ("z/y", "")];

#[tokio::test]
async fn one_pass_creates_what_is_needed_first_and_deletes_it_last() {
    let (api, reconciler) = open();
    let report = reconciler.reconcile(&folders(&TREE)).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!(api.calls().len(), 5, "each is sent once");
    let report = reconciler.reconcile(&folders(&[])).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!((api.calls().len(), api.paths().len()), (5, 0), "each is sent once");
}

#[tokio::test]
async fn in_strict_mode_the_order_is_the_same() {
    let (api, reconciler) = open();
    let report = reconciler.strict().reconcile(&folders(&TREE)).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!(api.calls(), ["create z", "create a", "create z/y", "create a/b", "create a/b/c"]);
}

#[tokio::test]
async fn what_needs_a_refused_key_waits_for_it_and_the_rest_goes_on() {
    let (api, reconciler) = open();
    api.refused.lock().unwrap().insert("a/b".to_owned());
    let report = reconciler.reconcile(&folders(&TREE)).await.unwrap();
    assert_eq!(api.paths(), ["a", "z", "z/y"]);
    let waits = Finding::Pending { on: WaitsOn::Key("a/b".to_owned()) };
    assert_eq!(report.finding(&"a/b/c".to_owned()), Some(&waits));
    assert!(!api.calls().contains(&"create a/b/c".to_owned()), "it is not even tried");
}

#[tokio::test]
async fn what_is_needed_is_deleted_after_the_change_that_no_longer_needs_it() {
    let (api, reconciler) = open();
    reconciler.reconcile(&folders(&[("a", "z"), ("z", "")])).await.unwrap();
    api.calls();
    let report = reconciler.reconcile(&folders(&[("a", "")])).await.unwrap();
    assert!(report.is_converged(), "{report}");
    assert_eq!(api.calls(), ["update a", "delete z"]);
}

#[tokio::test]
async fn what_a_declared_object_needs_is_not_deleted() {
    let (api, reconciler) = open();
    reconciler.reconcile(&folders(&[("a", ""), ("a/b", "")])).await.unwrap();
    let report = reconciler.reconcile(&folders(&[("a/b", "")])).await.unwrap();
    assert!(matches!(report.finding(&"a".to_owned()), Some(Finding::Held { .. })), "{report}");
    assert_eq!(api.paths(), ["a", "a/b"]);
}

#[tokio::test]
async fn keys_that_need_each_other_are_refused_with_their_name() {
    let (api, reconciler) = open();
    let desired = folders(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]);
    let refused = reconciler.reconcile(&desired).await.unwrap_err();
    assert_eq!(refused.to_string(), "`a` needs itself, directly or through other keys");
    assert!(api.calls().is_empty());
}

/// A loop over folders, with nothing but its own timers and follow-ups.
fn keep(
    api: &Arc<Folders>,
    desired: &[(&str, &str)],
) -> homeostat_engine::Handle<Adapted<Folders>> {
    let source = Adapted::shared(Arc::clone(api));
    let desired = DesiredObjects::from(folders(desired));
    let bound =
        source.bind(&Strategy::Checkpoint, desired, place::<Folders>("me", "disk")).unwrap();
    let deps = LoopDeps::new(
        homeostat_engine::Alone::i_am_the_only_writer(),
        Arc::new(homeostat_engine::MemoryLedger::default()),
    );
    // No resync within the test.
    let pace = homeostat_engine::Pace::of::<Adapted<Folders>>(1);
    let pace = pace.with_resync(Duration::from_hours(1)).unwrap();
    let (looped, handle) = Loop::new(bound, deps, pace);
    tokio::spawn(looped.run());
    handle
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_is_tried_in_the_pass_in_which_its_need_is_met() {
    let api = Arc::<Folders>::default();
    api.refused.lock().unwrap().insert("z".to_owned());
    let handle = keep(&api, &TREE);
    handle.wait_for(|status| status.is_ready).await.unwrap();
    assert_eq!(api.paths(), <[&str; 0]>::default());
    api.refused.lock().unwrap().clear();
    handle.wait_for(|status| status.is_converged).await.unwrap();
    assert_eq!(handle.status().counts.full, 1, "the retry of `z` brought the others along");
    handle.stop(OnStop::Leave).await;
}

#[tokio::test(start_paused = true)]
async fn a_need_that_only_the_target_knows_is_met_without_a_timer() {
    let api = Arc::<Folders>::default();
    let handle = keep(&api, &[("late", "zz"), ("zz", "")]);
    let began = tokio::time::Instant::now();
    handle.wait_for(|status| status.is_converged).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let tries = api.calls().iter().filter(|call| *call == "create late").count();
    assert!(tries <= 2, "{tries} tries");
    handle.stop(OnStop::Leave).await;
}
