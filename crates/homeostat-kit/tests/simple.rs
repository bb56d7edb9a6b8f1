//! What the adapter makes of an API: preconditions, adoption, focused looks, subscriptions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use homeostat_engine::outcome::Later;
use homeostat_engine::{
    Agreement, Alone, Config, Coverage, Entry, Explain as _, Failure, Finding, Focus, Hint, Kind,
    LedgerKey, LedgerPage, MemoryLedger, Observer, Owner, Ownership, PassInput, Report, Seen,
    Source as _, pass,
};
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Watch, Written};

/// Remembers its calls; objects by key, with whether they are ours. A desired state of 0 is open.
#[derive(Default)]
struct Numbers {
    held: Mutex<BTreeMap<String, (u32, bool)>>,
    calls: Mutex<Vec<String>>,
    /// What happens between a look and the write that follows it.
    meanwhile: Mutex<Option<Meanwhile>>,
}

#[derive(Clone, Copy)]
enum Meanwhile {
    Vanishes,
    SomebodyElse,
}

impl Numbers {
    fn of(held: &[(&str, u32, bool)]) -> Arc<Self> {
        let held = held.iter().map(|(key, value, ours)| ((*key).to_owned(), (*value, *ours)));
        Arc::new(Numbers { held: Mutex::new(held.collect()), ..Numbers::default() })
    }

    fn call(&self, text: String) {
        self.calls.lock().unwrap().push(text);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn seen(&self, covers: impl Fn(&String) -> bool) -> Listed<Self> {
        let held = self.held.lock().unwrap();
        let found = held.iter().filter(|(key, _)| covers(key));
        let owner = |ours| if ours { Owner::Ours } else { Owner::foreign("a stranger") };
        found
            .map(|(key, (object, ours))| (key.clone(), *object, owner(*ours)))
            .map(|(key, object, owner)| Seen::Present { key, object, owner })
            .collect()
    }

    fn write(&self, call: String, key: &str, value: u32) -> Written<Self> {
        self.call(call);
        match *self.meanwhile.lock().unwrap() {
            Some(Meanwhile::Vanishes) => return Err(Refusal::Gone),
            Some(Meanwhile::SomebodyElse) => {
                return Err(Refusal::Conflict(Owner::foreign("another owner")));
            }
            None => {}
        }
        self.held.lock().unwrap().insert(key.to_owned(), (value, true));
        Ok(Some(value))
    }
}

impl Api for Numbers {
    const NAME: &'static str = "numbers";
    const COVERAGE: Coverage = Coverage::Some;
    type Key = String;
    type Object = u32;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        self.call("list".to_owned());
        Ok(self.seen(|_| true))
    }

    async fn look(&self, keys: &BTreeSet<String>) -> Result<Listed<Self>, Failure> {
        self.call(format!("look {keys:?}"));
        Ok(self.seen(|key| keys.contains(key)))
    }

    async fn create(&self, key: &String, wanted: &u32) -> Written<Self> {
        self.write(format!("create {key} {wanted}"), key, *wanted)
    }

    async fn update(&self, key: &String, before: &u32, wanted: &u32) -> Written<Self> {
        self.write(format!("update {key} {before} {wanted}"), key, *wanted)
    }

    async fn adopt(&self, key: &String, before: &u32, wanted: &u32) -> Written<Self> {
        self.write(format!("adopt {key} {before} {wanted}"), key, *wanted)
    }

    async fn delete(&self, key: &String, before: &u32) -> Result<(), Refusal> {
        self.call(format!("delete {key} {before}"));
        self.held.lock().unwrap().remove(key);
        match *self.meanwhile.lock().unwrap() {
            Some(Meanwhile::Vanishes) => Err(Refusal::Gone),
            _ => Ok(()),
        }
    }

    fn compare(wanted: &u32, seen: &u32) -> Agreement {
        Agreement::when(*wanted == 0 || wanted == seen)
    }

    async fn watch(&self) -> Result<Box<dyn Watch<String>>, Failure> {
        self.call("watch".to_owned());
        Ok(Box::new(Once(Some("a".to_owned()))))
    }
}

struct Once(Option<String>);

impl Watch<String> for Once {
    fn next(&mut self) -> Later<'_, Result<Hint<String>, Failure>> {
        let hint = self.0.take().map_or(Hint::Lost, |key| Hint::keys([key]));
        Box::pin(std::future::ready(Ok(hint)))
    }
}

struct Scene {
    source: Adapted<Numbers>,
    observer: Observer<Adapted<Numbers>>,
    ledger_page: LedgerPage<Adapted<Numbers>>,
}

impl Scene {
    fn open(api: &Arc<Numbers>) -> Self {
        let source = Adapted::shared(api.clone());
        let observer = Observer::open(&source, "test").unwrap();
        let place = LedgerKey::new("me", "numbers", "test");
        let ledger_page = LedgerPage::open(Arc::new(MemoryLedger::default()), place).unwrap();
        Scene { source, observer, ledger_page }
    }

    async fn pass(
        &mut self,
        desired: DesiredObjects<Numbers>,
        focus: Focus<String>,
    ) -> Report<Adapted<Numbers>> {
        let Scene { source, observer, ledger_page } = self;
        let (ownership, config) = (&Ownership::Marked, &Config::default());
        let order = PassInput { source, desired: Arc::new(desired), ownership, focus, config };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        pass(&order, observer, &writer, ledger_page).await.unwrap()
    }
}

fn desired(pairs: &[(&str, u32)]) -> DesiredObjects<Numbers> {
    DesiredObjects::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), *value))).unwrap()
}

fn kinds(report: &Report<Adapted<Numbers>>, kind: Kind) -> Vec<Entry> {
    let mut entries = Vec::new();
    report.explain(kind, &mut |entry| entries.push(entry));
    entries
}

#[tokio::test]
async fn the_subscription_stands_before_the_first_list() {
    let api = Numbers::of(&[("a", 1, true)]);
    let mut scene = Scene::open(&api);
    scene.pass(desired(&[("a", 1)]), Focus::All).await;
    scene.pass(desired(&[("a", 1)]), Focus::All).await;
    assert_eq!(api.calls(), ["watch", "list", "list"]);
    assert_eq!(scene.observer.hint().await, Ok(Hint::keys(["a".to_owned()])));
    assert_eq!(scene.observer.hint().await, Ok(Hint::Lost));
}

#[tokio::test]
async fn a_focused_pass_looks_at_its_keys_only() {
    let api = Numbers::of(&[("a", 1, true), ("b", 9, true)]);
    let mut scene = Scene::open(&api);
    scene.pass(desired(&[("a", 1), ("b", 9)]), Focus::All).await;
    api.calls();
    let focus = Focus::Keys(BTreeSet::from(["b".to_owned()]));
    scene.pass(desired(&[("a", 2), ("b", 3)]), focus).await;
    assert_eq!(api.calls(), [r#"look {"b"}"#, "update b 9 3"]);
}

#[tokio::test]
async fn a_foreign_object_is_adopted_by_leave_of_the_desired_state_only() {
    let api = Numbers::of(&[("a", 1, false), ("b", 1, false)]);
    let leave = desired(&[("a", 2), ("b", 2)]).adopting(["b".to_owned()]);
    let report = Scene::open(&api).pass(leave, Focus::All).await;
    assert_eq!(api.calls(), ["watch", "list", "adopt b 1 2"]);
    let conflicts = kinds(&report, Kind::Conflict);
    assert!(
        matches!(&conflicts[..], [Entry::Finding { key, finding: Finding::Conflict { .. } }] if key == "a")
    );
}

#[tokio::test]
async fn an_attribute_that_the_desired_state_leaves_open_agrees_with_anything() {
    let api = Numbers::of(&[("a", 7, true)]);
    let report = Scene::open(&api).pass(desired(&[("a", 0)]), Focus::All).await;
    assert!(report.is_converged());
    assert_eq!(api.calls(), ["watch", "list"]);
}

#[tokio::test]
async fn deleting_what_is_already_gone_is_a_success() {
    let api = Numbers::of(&[("a", 1, true)]);
    *api.meanwhile.lock().unwrap() = Some(Meanwhile::Vanishes);
    assert!(Scene::open(&api).pass(desired(&[]), Focus::All).await.is_converged());
}

#[tokio::test]
async fn updating_what_is_gone_is_a_failure_that_is_tried_again() {
    let api = Numbers::of(&[("a", 1, true)]);
    *api.meanwhile.lock().unwrap() = Some(Meanwhile::Vanishes);
    let report = Scene::open(&api).pass(desired(&[("a", 2)]), Focus::All).await;
    let failed = kinds(&report, Kind::Failed);
    assert!(
        matches!(&failed[..], [Entry::Finding { key, finding: Finding::Failed { .. } | Finding::NotShown { .. } }] if key == "a"),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_precondition_that_does_not_hold_is_a_conflict() {
    let api = Numbers::of(&[]);
    *api.meanwhile.lock().unwrap() = Some(Meanwhile::SomebodyElse);
    let report = Scene::open(&api).pass(desired(&[("a", 2)]), Focus::All).await;
    let conflicts = kinds(&report, Kind::Conflict);
    assert!(
        matches!(&conflicts[..], [Entry::Finding { key, finding: Finding::Conflict { .. } }] if key == "a")
    );
}
