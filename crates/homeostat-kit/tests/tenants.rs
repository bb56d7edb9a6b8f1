//! A name prefix over keys of several parts: one tenant owns everything below its name.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use homeostat_engine::{Failure, Owner, Ownership, Prefixes, Retry, Seen};
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Written};
use homeostat_kit::strategy::Strategy;
use homeostat_kit::{Error, Objects, Reconciler};
use homeostat_testkit::laws::{self, Ability, DesiredState, Disturbance, Fault, Harness, Meter};

#[derive(Clone, Default)]
struct Server(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    held: BTreeMap<String, u32>,
    writes: u64,
    refused: Option<String>,
    is_blind: bool,
}

impl Server {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn write(&self, key: &str) -> Result<MutexGuard<'_, World>, Refusal> {
        let mut world = self.world();
        world.writes += 1;
        if world.refused.as_deref() == Some(key) {
            return Err(Failure::new("refused", Retry::Soon).into());
        }
        Ok(world)
    }
}

/// Keys are `KIND TENANT/NAME`.
impl Api for Server {
    const NAME: &'static str = "server";
    type Key = String;
    type Object = u32;

    fn name(key: &String) -> String {
        key.split_once(' ').map_or(key.as_str(), |(_, name)| name).to_owned()
    }

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let world = self.world();
        if world.is_blind {
            return Err(Failure::new("blind", Retry::Soon));
        }
        let held = world.held.clone().into_iter();
        Ok(held
            .map(|(key, object)| Seen::Present { key, object, owner: Owner::Unmarked })
            .collect())
    }

    async fn create(&self, key: &String, wanted: &u32) -> Written<Self> {
        match self.write(key)?.held.entry(key.clone()) {
            Entry::Vacant(free) => Ok(Some(*free.insert(*wanted))),
            Entry::Occupied(_) => Err(Refusal::Moved),
        }
    }

    async fn update(&self, key: &String, before: &u32, wanted: &u32) -> Written<Self> {
        match self.write(key)?.held.get_mut(key) {
            Some(held) if held == before => *held = *wanted,
            Some(_) => return Err(Refusal::Moved),
            None => return Err(Refusal::Gone),
        }
        Ok(Some(*wanted))
    }

    async fn delete(&self, key: &String, _: &u32) -> Result<(), Refusal> {
        self.write(key)?.held.remove(key).map(drop).ok_or(Refusal::Gone)
    }
}

fn tenant_a() -> Strategy {
    Strategy::Prefix(Prefixes::default().claim("tenant-a/").unwrap())
}

fn objects(pairs: &[(&str, u32)]) -> Objects<Server> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

#[tokio::test]
async fn everything_below_the_tenant_is_ours_whatever_its_kind_and_nothing_else() {
    let server = Server::default();
    let others = [("role tenant-ab/app", 1), ("role tenant-b/app", 2), ("tenant-a/x plain", 3)];
    server.world().held = objects(&others);
    server.world().held.extend(objects(&[("role tenant-a/old", 1), ("db tenant-a/old", 1)]));
    let reconciler = Reconciler::new(server.clone(), tenant_a());
    let report = reconciler.reconcile(&objects(&[("db tenant-a/app", 7)])).await.unwrap();
    assert_eq!((report.summary().create, report.summary().delete), (1, 2), "{report}");
    let mut expected = objects(&others);
    expected.extend(objects(&[("db tenant-a/app", 7)]));
    assert_eq!(server.world().held, expected);
    let refused = reconciler.plan(&objects(&[("db tenant-b/app", 7)])).await.unwrap_err();
    assert!(matches!(refused, Error::Bind(_)), "{refused}");
}

#[derive(Default)]
struct Bench(Server);

impl Harness for Bench {
    type Source = Adapted<Server>;

    fn reset(&mut self) {
        self.0 = Server::default();
    }

    fn source(&self) -> Adapted<Server> {
        Adapted::new(self.0.clone())
    }

    fn ownership(&self) -> Ownership {
        tenant_a().ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<Server> {
        DesiredObjects::from(objects(match which {
            DesiredState::First => &[("db tenant-a/app", 1), ("role tenant-a/app", 2)],
            DesiredState::Second => &[("db tenant-a/app", 9)],
            DesiredState::Nothing => &[],
        }))
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let world = self.0.world();
        world.held.iter().map(|(key, object)| (key.clone(), object.to_string())).collect()
    }

    fn meter(&self) -> Meter {
        let server = self.0.clone();
        Arc::new(move || server.world().writes)
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        let mut world = self.0.world();
        match how {
            Disturbance::Remove(key) => _ = world.held.remove(key),
            Disturbance::Alter(key) => _ = world.held.insert(key.clone(), 55),
            Disturbance::Stranger => _ = world.held.insert("role tenant-ab/app".to_owned(), 77),
            // What is below the prefix is ours, no matter who made it.
            Disturbance::Occupy(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let mut world = self.0.world();
        match fault {
            Fault::Blind => world.is_blind = true,
            Fault::Refuse(key) => world.refused = Some(key.clone()),
            Fault::Unreadable(_) => return Ability::Unable,
        }
        Ability::Done
    }

    fn mend(&mut self) {
        let mut world = self.0.world();
        (world.is_blind, world.refused) = (false, None);
    }
}

#[tokio::test]
async fn it_keeps_all_laws_and_survives_every_crash() {
    let verdict = laws::check(&mut Bench::default()).await.unwrap();
    let laws: Vec<u8> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [1, 4], "{verdict:?}");
    laws::check_crashes(&mut Bench::default()).await.unwrap();
}
