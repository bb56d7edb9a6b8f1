//! Rulesets: one change of a table becomes many steps of one transaction, guarded by a generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use homeostat_engine::{
    Action, Bound, Change, ChangeList, Coverage, Desired as _, Draft, Explain as _, Fails, Failure,
    Kind, Line, Outcome, Outcomes, Owner, Ownership, Reader, Retry, Reversibility, ScopeLock, See,
    Seen, Source, Step, Table, View, Work, Writer,
};

use crate::stage::{Scene, Writes, bind, keys};

type Rules = Vec<String>;
type DesiredState = Table<String, Rules>;

pub(crate) const FIREWALL: &[(&str, &[&str])] =
    &[("inet filter", &["ct state established accept", "tcp dport 22 accept", "drop"])];

/// One message of the transaction.
enum Msg {
    NewTable,
    DropTable,
    /// Before the rule that now stands at this place.
    Insert(usize, String),
    Remove(usize),
}

pub(crate) struct Part {
    table: String,
    msg: Msg,
}

impl Step<DesiredState> for Part {
    fn key(&self, _: &DesiredState) -> String {
        self.table.clone()
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        match self.msg {
            Msg::NewTable => Action::Create,
            Msg::DropTable => Action::Delete,
            Msg::Insert(..) | Msg::Remove(_) => Action::Update,
        }
    }

    fn explain(&self, _: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (before, after) = match &self.msg {
            Msg::Insert(_, rule) => (None, Some(rule.as_str().into())),
            Msg::Remove(at) => (Some((*at).into()), None),
            Msg::NewTable | Msg::DropTable => (None, None),
        };
        let (action, key) = (self.action(), self.table.clone());
        emit(Line { before, after, ..Line::new(action, key) });
    }
}

/// The generation that a look was about.
pub(crate) struct Generation(u64);

#[derive(Default)]
struct Kernel {
    generation: u64,
    tables: BTreeMap<String, (Maker, Rules)>,
}

/// Whether a table carries our mark.
#[derive(Clone, Copy, Default, PartialEq)]
enum Maker {
    #[default]
    Ours,
    Theirs,
}

#[derive(Clone)]
pub(crate) struct Ruleset {
    kernel: Arc<Mutex<Kernel>>,
    writes: Writes,
}

impl Ruleset {
    pub(crate) fn new(writes: &Writes) -> Self {
        Ruleset { kernel: Arc::default(), writes: writes.clone() }
    }
}

pub(crate) struct Nft(Ruleset);

pub(crate) fn bound(ruleset: Ruleset, tables: &[(&str, &[&str])]) -> Bound<Nft> {
    bind(Nft(ruleset), desired(tables), Ownership::Marked)
}

fn desired(tables: &[(&str, &[&str])]) -> DesiredState {
    let rules = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
    Table::new(tables.iter().map(|(name, list)| ((*name).to_owned(), rules(list)))).unwrap()
}

impl Source for Nft {
    const NAME: &'static str = "nft";
    const FAILS: Fails = Fails::Atomic;
    const COVERAGE: Coverage = Coverage::All;
    type Key = String;
    type Object = Rules;
    type Desired = DesiredState;
    type Step = Part;
    type Moment = Generation;
    type Reader = Ruleset;
    type Writer = Ruleset;

    fn reader(&self) -> Result<Ruleset, Failure> {
        Ok(self.0.clone())
    }

    fn writer(&self, _: &ScopeLock) -> Result<Ruleset, Failure> {
        Ok(self.0.clone())
    }

    fn plan(
        &self,
        desired: &DesiredState,
        _: &Generation,
        changes: ChangeList<String, Rules>,
    ) -> Draft<Self> {
        let mut draft = Draft::default();
        for change in changes {
            let table = change.key(desired);
            let msgs = match change {
                Change::Create { slot } => {
                    let mut msgs = vec![Msg::NewTable];
                    msgs.extend(delta(&[], &desired.object(slot)));
                    msgs
                }
                Change::Update { slot, before, .. } => delta(&before, &desired.object(slot)),
                Change::Delete { .. } | Change::GiveBack { .. } => vec![Msg::DropTable],
                Change::Release { .. } => vec![],
            };
            draft.steps.extend(msgs.into_iter().map(|msg| Part { table: table.clone(), msg }));
        }
        draft
    }
}

/// What both lists begin and end with stays; the rest is removed from its end and inserted.
fn delta(before: &[String], after: &[String]) -> Vec<Msg> {
    let shortest = before.len().min(after.len());
    let head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let ends = before.iter().rev().zip(after.iter().rev());
    let tail = ends.take(shortest - head).take_while(|(old, new)| old == new).count();
    let removed = (head..before.len() - tail).rev().map(Msg::Remove);
    let inserted = (head..after.len() - tail).map(|at| Msg::Insert(at, after[at].clone()));
    removed.chain(inserted).collect()
}

impl Reader<Nft> for Ruleset {
    async fn observe(
        &mut self,
        view: &View<'_, Nft>,
        see: &mut See<'_, String, Rules>,
    ) -> Result<Generation, Failure> {
        let kernel = self.kernel.lock().unwrap();
        for (key, (mark, object)) in &kernel.tables {
            let ours = *mark == Maker::Ours;
            let owner = if ours { Owner::Ours } else { Owner::foreign("another program") };
            if view.focus.covers(key) {
                see(Seen::Present { key: key.clone(), object: object.clone(), owner });
            }
        }
        Ok(Generation(kernel.generation))
    }
}

impl Writer<Nft> for Ruleset {
    async fn apply(&self, work: Work<'_, Nft>, out: &dyn Outcomes<Rules>) {
        let mut kernel = self.kernel.lock().unwrap();
        let all = work.first..work.first + work.steps.len();
        if kernel.generation != work.moment.0 {
            let error = "the ruleset has changed since it was read";
            return out.put(all, Outcome::Failed(Failure::new(error, Retry::Soon)));
        }
        self.writes.add();
        let mut next = kernel.tables.clone();
        for part in work.steps {
            let entry = next.entry(part.table.clone()).or_default();
            match &part.msg {
                Msg::NewTable => {}
                Msg::Insert(at, rule) => entry.1.insert(*at, rule.clone()),
                Msg::Remove(at) => _ = entry.1.remove(*at),
                Msg::DropTable => _ = next.remove(&part.table),
            }
        }
        kernel.tables = next;
        kernel.generation += 1;
        out.put(all, Outcome::Applied { now: None });
    }
}

#[tokio::test]
async fn an_edit_sends_only_the_rules_that_differ_in_one_transaction() {
    let writes = Writes::default();
    let ruleset = Ruleset::new(&writes);
    let mut scene = Scene::open(bound(ruleset.clone(), FIREWALL));
    assert!(scene.pass().await.is_converged());
    writes.take();
    let edited: &[&str] =
        &["ct state established accept", "tcp dport 80 accept", "tcp dport 443 accept", "drop"];
    scene.bound.desired = Arc::new(desired(&[("inet filter", edited)]));
    let report = scene.pass().await;
    assert!(report.is_converged());
    assert_eq!(keys(&report, Kind::Applied).len(), 3, "one rule out, two in");
    assert_eq!(writes.count(), 1);
    assert_eq!(ruleset.kernel.lock().unwrap().tables["inet filter"].1, edited);
}

#[tokio::test]
async fn a_ruleset_that_moved_since_the_look_is_not_written_at_all() {
    let ruleset = Ruleset::new(&Writes::default());
    let mut scene = Scene::open(bound(ruleset.clone(), FIREWALL));
    let plan = scene.plan().await.unwrap();
    {
        let mut kernel = ruleset.kernel.lock().unwrap();
        kernel.tables.insert("ip theirs".to_owned(), (Maker::Theirs, vec![]));
        kernel.generation += 1;
    }
    let report = scene.apply(plan).await;
    assert_eq!(keys(&report, Kind::Failed).len(), 4, "every step of the transaction");
    assert_eq!(ruleset.kernel.lock().unwrap().tables.len(), 1);
    assert!(scene.pass().await.is_converged());
    assert_eq!(ruleset.kernel.lock().unwrap().tables.len(), 2, "theirs is still there");
}
