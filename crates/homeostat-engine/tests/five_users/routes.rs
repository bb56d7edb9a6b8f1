//! Routes: a desired state of any size as two columns, steps as small as a slot, streamed looks, batches.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use homeostat_engine::{
    Action, Agreement, Bound, Change, ChangeList, Coverage, Desired, Draft, Explain as _, Fails,
    Failure, Focus, Kind, Line, Outcome, Outcomes, Owner, Ownership, Reader, Reversibility,
    ScopeLock, See, Seen, Slot, Source, Step, View, Work, Writer, desired::find_near,
};
use serde::{Deserialize, Serialize};

use crate::stage::{Scene, Writes, bind, keys};

const OURS: u8 = 76;
const BATCH: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Prefix {
    to: u32,
    len: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.to), self.len)
    }
}

impl FromStr for Prefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (to, len) = text.split_once('/').ok_or(())?;
        let to: Ipv4Addr = to.parse().map_err(|_| ())?;
        Ok(Prefix { to: to.into(), len: len.parse().map_err(|_| ())? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Via(u32);

/// Two columns, sorted by the first: twelve bytes a route.
#[derive(Clone)]
pub(crate) struct DesiredObjects {
    to: Vec<Prefix>,
    via: Vec<Via>,
}

pub(crate) fn desired_states(count: u32) -> DesiredObjects {
    let to = (0..count).map(|at| Prefix { to: 0x0a00_0000 + (at << 4), len: 28 });
    DesiredObjects { to: to.collect(), via: vec![Via(0xc000_0201); count as usize] }
}

impl Desired for DesiredObjects {
    type Key = Prefix;
    type Object = Via;

    fn len(&self) -> usize {
        self.to.len()
    }

    fn slot(&self, key: &Prefix, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.to, near, |to| to.cmp(key))
    }

    fn key(&self, slot: Slot) -> Prefix {
        self.to[slot.index()]
    }

    fn object(&self, slot: Slot) -> Via {
        self.via[slot.index()]
    }

    fn compare(&self, slot: Slot, seen: &Via) -> Agreement {
        Agreement::when(self.via[slot.index()] == *seen)
    }
}

/// What to do with a route that is declared needs no more than its slot.
pub(crate) enum Msg {
    Create(Slot),
    Replace(Slot),
    Delete(Box<(Prefix, Via)>),
}

impl Step<DesiredObjects> for Msg {
    fn key(&self, desired: &DesiredObjects) -> Prefix {
        match self {
            Msg::Create(slot) | Msg::Replace(slot) => desired.key(*slot),
            Msg::Delete(route) => route.0,
        }
    }

    fn reversibility(&self, _desired: &DesiredObjects) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        match self {
            Msg::Create(_) => Action::Create,
            Msg::Replace(_) => Action::Update,
            Msg::Delete(_) => Action::Delete,
        }
    }

    fn phase(&self) -> u8 {
        u8::from(self.action() == Action::Delete)
    }

    fn explain(&self, desired: &DesiredObjects, emit: &mut dyn FnMut(Line)) {
        let after =
            desired.slot(&self.key(desired), None).map(|slot| desired.object(slot).0.into());
        let key = self.key(desired).to_string();
        emit(Line { after, ..Line::new(self.action(), key) });
    }
}

/// The kernel's table: protocol and nexthop by prefix. It counts what it lists.
#[derive(Clone)]
pub(crate) struct Table {
    routes: Arc<Mutex<BTreeMap<Prefix, (u8, Via)>>>,
    reported: Writes,
    writes: Writes,
}

impl Table {
    pub(crate) fn new(writes: &Writes) -> Self {
        Table { routes: Arc::default(), reported: Writes::default(), writes: writes.clone() }
    }

    fn report(
        &self,
        (key, (protocol, via)): (&Prefix, &(u8, Via)),
        see: &mut See<'_, Prefix, Via>,
    ) {
        self.reported.add();
        see(Seen::Present { key: *key, object: *via, owner: owner(*protocol) });
    }
}

fn owner(protocol: u8) -> Owner {
    if protocol == OURS {
        Owner::Ours
    } else {
        Owner::Foreign(format!("protocol {protocol}").into())
    }
}

pub(crate) struct Routes(Table);

pub(crate) fn bound(table: Table, desired: &DesiredObjects) -> Bound<Routes> {
    bind(Routes(table), desired.clone(), Ownership::Marked)
}

impl Source for Routes {
    const NAME: &'static str = "routes";
    const FAILS: Fails = Fails::Ordered;
    const COVERAGE: Coverage = Coverage::All;
    type Key = Prefix;
    type Object = Via;
    type Desired = DesiredObjects;
    type Step = Msg;
    type Moment = ();
    type Reader = Table;
    type Writer = Table;

    fn reader(&self) -> Result<Table, Failure> {
        Ok(self.0.clone())
    }

    fn writer(&self, _: &ScopeLock) -> Result<Table, Failure> {
        Ok(self.0.clone())
    }

    fn plan(&self, _: &DesiredObjects, (): &(), changes: ChangeList<Prefix, Via>) -> Draft<Self> {
        let steps = changes.into_iter().filter_map(|change| match change {
            Change::Create { slot } => Some(Msg::Create(slot)),
            Change::Update { slot, .. } => Some(Msg::Replace(slot)),
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                Some(Msg::Delete(Box::new((key, before))))
            }
            Change::Release { .. } => None,
        });
        Draft { steps: steps.collect(), ..Draft::default() }
    }
}

impl Reader<Routes> for Table {
    async fn observe(
        &mut self,
        view: &View<'_, Routes>,
        see: &mut See<'_, Prefix, Via>,
    ) -> Result<(), Failure> {
        let routes = self.routes.lock().unwrap();
        match view.focus {
            Focus::All => routes.iter().for_each(|route| self.report(route, see)),
            Focus::Keys(keys) => {
                for route in keys.iter().filter_map(|key| routes.get_key_value(key)) {
                    self.report(route, see);
                }
            }
        }
        Ok(())
    }
}

impl Writer<Routes> for Table {
    /// One message for many steps; runs of good answers are reported at once.
    async fn apply(&self, work: Work<'_, Routes>, out: &dyn Outcomes<Via>) {
        for (number, batch) in work.steps.chunks(BATCH).enumerate() {
            let mut routes = self.routes.lock().unwrap();
            self.writes.add();
            let first = work.first + number * BATCH;
            let mut good = first;
            for (at, step) in (first..).zip(batch) {
                if let Some(owner) = send(&mut routes, work.desired, step) {
                    out.put(good..at, Outcome::Applied { now: None });
                    out.put(at..at + 1, Outcome::Conflict { owner });
                    good = at + 1;
                }
            }
            out.put(good..first + batch.len(), Outcome::Applied { now: None });
        }
    }
}

/// Create only where nothing is, replace and delete only what is ours; else returns the other owner.
fn send(
    routes: &mut BTreeMap<Prefix, (u8, Via)>,
    desired: &DesiredObjects,
    step: &Msg,
) -> Option<Owner> {
    let key = step.key(desired);
    let there = routes.get(&key).map(|(protocol, _)| *protocol);
    match (step, there) {
        (Msg::Create(_), Some(protocol)) => return Some(owner(protocol)),
        (_, Some(protocol)) if protocol != OURS => return Some(owner(protocol)),
        (Msg::Create(slot) | Msg::Replace(slot), _) => {
            routes.insert(key, (OURS, desired.object(*slot)));
        }
        (Msg::Delete(_), _) => {
            routes.remove(&key);
        }
    }
    None
}

#[test]
fn a_step_is_no_larger_than_two_words() {
    assert!(size_of::<Msg>() <= 16);
    assert_eq!("10.0.0.16/28".parse(), Ok(desired_states(2).key(Slot(1))));
}

#[tokio::test]
async fn healing_one_route_looks_at_one_route() {
    let table = Table::new(&Writes::default());
    let desired = desired_states(50_000);
    let mut scene = Scene::open(bound(table.clone(), &desired));
    assert!(scene.pass().await.is_converged());
    let lost = desired.key(Slot(31_415));
    table.routes.lock().unwrap().remove(&lost);
    table.reported.take();
    let report = scene.heal([lost]).await;
    assert_eq!(keys(&report, Kind::Applied), [lost.to_string()]);
    assert!(report.is_converged());
    assert_eq!(table.reported.count(), 1, "absent at first, and the second look reports one");
}

#[tokio::test]
async fn a_foreign_route_is_never_replaced_even_if_it_came_after_the_look() {
    let table = Table::new(&Writes::default());
    let desired = desired_states(3);
    let mut scene = Scene::open(bound(table.clone(), &desired));
    let plan = scene.plan().await.unwrap();
    table.routes.lock().unwrap().insert(desired.key(Slot(1)), (12, Via(7)));
    let report = scene.apply(plan).await;
    assert_eq!(keys(&report, Kind::Conflict), [desired.key(Slot(1)).to_string()]);
    assert_eq!(keys(&report, Kind::Applied).len(), 2);
    assert_eq!(table.routes.lock().unwrap()[&desired.key(Slot(1))], (12, Via(7)));
}

#[tokio::test]
async fn foreign_routes_that_are_not_declared_cost_nothing_and_stay() {
    let table = Table::new(&Writes::default());
    let theirs = Prefix { to: 0, len: 0 };
    table.routes.lock().unwrap().insert(theirs, (2, Via(1)));
    let mut scene = Scene::open(bound(table.clone(), &desired_states(2)));
    assert!(scene.pass().await.is_converged());
    scene.bound.desired = Arc::new(desired_states(0));
    assert!(scene.pass().await.is_converged());
    assert_eq!(table.routes.lock().unwrap().keys().collect::<Vec<_>>(), [&theirs]);
}
