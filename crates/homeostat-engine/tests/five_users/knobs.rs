//! Knobs: values that always exist, belong to nobody, and are each written on their own. They
//! cannot be listed, so a look is about what is declared or recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use homeostat_engine::{
    Action, Bound, Change, ChangeList, Coverage, Desired as _, Draft, Explain as _, Fails, Failure,
    Kind, Line, OnRelease, Original, Outcome, Outcomes, Owner, Ownership, Reader, Retry,
    Reversibility, ScopeLock, See, Seen, Source, Step, Table, View, Work, Writer,
};

use crate::stage::{Scene, Writes, bind, keys};

type DesiredState = Table<String, String>;

/// Write this value, or, without one, only let go.
pub(crate) struct Set {
    key: String,
    value: Option<String>,
    action: Action,
}

impl Step<DesiredState> for Set {
    fn key(&self, _: &DesiredState) -> String {
        self.key.clone()
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        self.action
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn explain(&self, _: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let after = self.value.clone().map(Into::into);
        emit(Line { after, ..Line::new(self.action, self.key.clone()) });
    }
}

/// The files below `/proc/sys`, so to speak. `None` cannot be read or written.
#[derive(Clone)]
pub(crate) struct Tree {
    files: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    writes: Writes,
}

impl Tree {
    pub(crate) fn new(writes: &Writes) -> Self {
        let files = [("forward", Some("0")), ("ttl", Some("64")), ("secret", None)];
        let files = files.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
        Tree { files: Arc::new(Mutex::new(files.into())), writes: writes.clone() }
    }

    fn read(&self, key: &str) -> Option<String> {
        self.files.lock().unwrap().get(key).cloned().flatten()
    }
}

pub(crate) struct Knobs(Tree);

pub(crate) fn bound(tree: Tree, values: &[(&str, &str)]) -> Bound<Knobs> {
    bind(Knobs(tree), desired(values), Ownership::Checkpoint)
}

fn desired(values: &[(&str, &str)]) -> DesiredState {
    Table::new(values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))).unwrap()
}

impl Source for Knobs {
    const NAME: &'static str = "knobs";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::Some;
    type Key = String;
    type Object = String;
    type Desired = DesiredState;
    type Step = Set;
    type Moment = ();
    type Reader = Tree;
    type Writer = Tree;

    fn reader(&self) -> Result<Tree, Failure> {
        Ok(self.0.clone())
    }

    fn writer(&self, _: &ScopeLock) -> Result<Tree, Failure> {
        Ok(self.0.clone())
    }

    fn plan(
        &self,
        desired: &DesiredState,
        (): &(),
        changes: ChangeList<String, String>,
    ) -> Draft<Self> {
        let mut draft = Draft::default();
        for change in changes {
            let key = change.key(desired);
            let (value, action) = match change {
                Change::Update { slot, .. } => (Some(desired.object(slot)), Action::Update),
                Change::Release { restore, .. } => (restore, Action::Delete),
                // A knob that is not there cannot be made: its module or link must come first.
                Change::Create { .. } | Change::Delete { .. } | Change::GiveBack { .. } => {
                    let on = format!("`{key}` to exist");
                    draft.wait(key, homeostat_engine::WaitsOn::Condition(on));
                    continue;
                }
            };
            draft.steps.push(Set { key, value, action });
        }
        draft
    }
}

impl Reader<Knobs> for Tree {
    async fn observe(
        &mut self,
        view: &View<'_, Knobs>,
        see: &mut See<'_, String, String>,
    ) -> Result<(), Failure> {
        let declared = view.desired.iter().map(|(key, _)| key);
        let keys: BTreeSet<&String> = declared.chain(view.records.keys()).collect();
        let files = self.files.lock().unwrap();
        for key in keys.into_iter().filter(|key| view.focus.covers(key)).cloned() {
            match files.get(&key) {
                Some(Some(value)) => {
                    see(Seen::Present { key, object: value.clone(), owner: Owner::Nobody });
                }
                Some(None) => see(Seen::Unknown { key, why: "permission denied".to_owned() }),
                None => {}
            }
        }
        Ok(())
    }
}

impl Writer<Knobs> for Tree {
    async fn apply(&self, work: Work<'_, Knobs>, out: &dyn Outcomes<String>) {
        for (at, set) in work.iter() {
            let mut files = self.files.lock().unwrap();
            let outcome = match (&set.value, files.get_mut(&set.key)) {
                (Some(value), Some(Some(held))) => {
                    self.writes.add();
                    held.clone_from(value);
                    Outcome::Applied { now: Some(value.clone()) }
                }
                (None, _) => Outcome::Applied { now: None },
                _ => Outcome::Failed(Failure::new("no such knob", Retry::OnChange)),
            };
            drop(files);
            out.put(at..at + 1, outcome);
        }
    }
}

#[tokio::test]
async fn originals_are_captured_once_and_come_back() {
    let tree = Tree::new(&Writes::default());
    let mut scene = Scene::open(bound(tree.clone(), &[("forward", "1"), ("ttl", "64")]));
    assert!(scene.pass().await.is_converged());
    scene.bound.desired = Arc::new(desired(&[("forward", "2")]));
    assert!(scene.pass().await.is_converged());
    let original = scene.ledger_page.holdings().records["forward"].original.clone();
    assert_eq!(original, Original::Was("0".to_owned()));

    scene.bound.config.on_release = OnRelease::Restore;
    scene.bound.desired = Arc::new(desired(&[]));
    assert!(scene.pass().await.is_converged());
    assert_eq!(tree.read("forward").as_deref(), Some("0"));
    assert!(scene.ledger_page.holdings().records.is_empty());
}

#[tokio::test]
async fn what_cannot_be_read_is_unknown_and_what_is_not_there_is_pending() {
    let writes = Writes::default();
    let mut scene = Scene::open(bound(Tree::new(&writes), &[("absent", "1"), ("secret", "1")]));
    let report = scene.pass().await;
    assert_eq!(keys(&report, Kind::Unknown), ["secret"]);
    assert_eq!(keys(&report, Kind::Pending), ["absent"]);
    assert_eq!(writes.count(), 0);
}
