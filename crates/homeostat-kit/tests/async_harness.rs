//! The law suite over a service that only an async client reaches: its harness waits for answers, too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use homeostat_engine::{Failure, Owner, Ownership, Retry};
use homeostat_kit::Objects;
use homeostat_kit::Strategy;
use homeostat_kit::simple::{Adapted, Api, DesiredObjects, Listed, Refusal, Written};
use homeostat_testkit::laws::{
    self, Ability, AsyncHarness, DesiredState, Disturbance, Fault, Meter,
};
use tokio::sync::{mpsc, oneshot};

/// Numbers by name, each with its mark.
type Held = BTreeMap<String, (u32, String)>;
type Request = Box<dyn FnOnce(&mut World) + Send>;

#[derive(Default)]
struct World {
    held: Held,
    refused: Option<String>,
    is_blind: bool,
}

/// A client of a service that runs as a task of its own.
#[derive(Clone)]
struct Client {
    requests: mpsc::UnboundedSender<Request>,
    writes: Arc<AtomicU64>,
}

impl Client {
    fn of_new_service() -> Self {
        let (requests, mut received) = mpsc::unbounded_channel::<Request>();
        tokio::spawn(async move {
            let mut world = World::default();
            while let Some(request) = received.recv().await {
                request(&mut world);
            }
        });
        Client { requests, writes: Arc::default() }
    }

    async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        let request = Box::new(move |world: &mut World| _ = answer.send(what(world)));
        self.requests.send(request).ok();
        answered.await.unwrap()
    }

    /// A write to a key that the service may refuse.
    async fn write<T: Send + 'static>(
        &self,
        key: &str,
        what: impl FnOnce(&mut Held, String) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.writes.fetch_add(1, Relaxed);
        let key = key.to_owned();
        self.ask(move |world| match &world.refused {
            Some(refused) if *refused == key => Err(Failure::new("refused", Retry::Soon).into()),
            _ => what(&mut world.held, key),
        })
        .await
    }
}

fn strategy() -> Strategy {
    Strategy::marker("me").unwrap()
}

fn foreign() -> Refusal {
    Refusal::Conflict(Owner::foreign("somebody"))
}

impl Api for Client {
    const NAME: &'static str = "service";
    type Key = String;
    type Object = u32;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let held = self.ask(|world| (!world.is_blind).then(|| world.held.clone())).await;
        let held = held.ok_or_else(|| Failure::new("nobody answers", Retry::Soon))?;
        let seen = |(key, (number, mark)): (String, (u32, String))| {
            strategy().seen(key, number, Some(&mark))
        };
        Ok(held.into_iter().map(seen).collect())
    }

    async fn create(&self, key: &String, wanted: &u32) -> Written<Self> {
        let wanted = *wanted;
        let created = self.write(key, move |held, key| match held.entry(key) {
            Entry::Vacant(free) => Ok(free.insert((wanted, "me".to_owned())).0),
            Entry::Occupied(_) => Err(foreign()),
        });
        created.await.map(Some)
    }

    async fn update(&self, key: &String, _: &u32, wanted: &u32) -> Written<Self> {
        let wanted = *wanted;
        let updated = self.write(key, move |held, key| match held.get_mut(&key) {
            Some((number, mark)) if mark == "me" => {
                *number = wanted;
                Ok(wanted)
            }
            Some(_) => Err(foreign()),
            None => Err(Refusal::Gone),
        });
        updated.await.map(Some)
    }

    async fn delete(&self, key: &String, _: &u32) -> Result<(), Refusal> {
        let deleted = self.write(key, |held, key| match held.entry(key) {
            Entry::Occupied(ours) if ours.get().1 == "me" => {
                ours.remove();
                Ok(())
            }
            Entry::Occupied(_) => Err(foreign()),
            Entry::Vacant(_) => Err(Refusal::Gone),
        });
        deleted.await
    }
}

struct Bench(Client);

impl AsyncHarness for Bench {
    type Source = Adapted<Client>;

    async fn reset(&mut self) {
        self.0 = Client::of_new_service();
    }

    fn source(&self) -> Adapted<Client> {
        Adapted::new(self.0.clone())
    }

    fn ownership(&self) -> Ownership {
        strategy().ownership()
    }

    fn desired(&self, which: DesiredState) -> DesiredObjects<Client> {
        let pairs: &[_] = match which {
            DesiredState::First => &[("a", 1), ("b", 2), ("c", 3)],
            DesiredState::Second => &[("a", 9), ("b", 2)],
            DesiredState::Nothing => &[],
        };
        let objects = pairs.iter().map(|(key, number)| ((*key).to_owned(), *number));
        DesiredObjects::from(objects.collect::<Objects<Client>>())
    }

    async fn snapshot(&self) -> BTreeMap<String, String> {
        let held = self.0.ask(|world| world.held.clone()).await;
        held.into_iter().map(|(key, object)| (key, format!("{object:?}"))).collect()
    }

    fn meter(&self) -> Meter {
        let writes = Arc::clone(&self.0.writes);
        Arc::new(move || writes.load(Relaxed))
    }

    async fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        let theirs = (77, "them".to_owned());
        let key = match how {
            Disturbance::Remove(key) | Disturbance::Alter(key) | Disturbance::Occupy(key) => {
                key.clone()
            }
            Disturbance::Stranger => "stranger".to_owned(),
        };
        let (is_removed, is_altered) =
            (matches!(how, Disturbance::Remove(_)), matches!(how, Disturbance::Alter(_)));
        let disturbed = self.0.ask(move |world| {
            if is_removed {
                world.held.remove(&key);
            } else if is_altered {
                world.held.entry(key).and_modify(|(number, _)| *number = 55);
            } else {
                world.held.insert(key, theirs);
            }
        });
        disturbed.await;
        Ability::Done
    }

    async fn inject(&mut self, fault: Fault<'_, String>) -> Ability {
        let refused = match fault {
            Fault::Blind => None,
            Fault::Refuse(key) => Some(key.clone()),
            Fault::Unreadable(_) => return Ability::Unable,
        };
        let injected = self.0.ask(|world| {
            (world.is_blind, world.refused) = (refused.is_none(), refused);
        });
        injected.await;
        Ability::Done
    }

    async fn mend(&mut self) {
        self.0.ask(|world| (world.is_blind, world.refused) = (false, None)).await;
    }
}

#[tokio::test]
async fn a_service_behind_an_async_client_keeps_all_laws() {
    let mut bench = Bench(Client::of_new_service());
    let verdict = laws::check(&mut bench).await.unwrap();
    assert_eq!(verdict.unchecked, [(1, "an object that cannot be read")]);
}

#[tokio::test]
async fn a_service_behind_an_async_client_survives_every_crash() {
    let points = laws::check_crashes(&mut Bench(Client::of_new_service())).await.unwrap();
    assert!(points >= 5, "{points}");
}
