use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_kit::simple::{Api, Listed, Refusal, Written};
use homeostat_kit::{Failure, Owner, Strategy};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

/// What is declared of a lamp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Lamp {
    percent: u8,
    colour: String,
}

/// What hangs on the wall: each lamp by its name, with the mark of its owner.
type Hanging = BTreeMap<String, (Lamp, String)>;

/// The target. It is in memory here; a real one is reached by a client.
#[derive(Default)]
struct Wall {
    lamps: Mutex<Hanging>,
    /// How many writes it has received: tests compare it.
    writes: AtomicU64,
}

impl Wall {
    async fn read(&self) -> MutexGuard<'_, Hanging> {
        tokio::task::yield_now().await; // As a call does that crosses a network.
        self.lamps.lock().await
    }

    async fn write(&self) -> MutexGuard<'_, Hanging> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.read().await
    }
}

struct Lamps {
    wall: Arc<Wall>,
    strategy: Strategy,
}

impl Lamps {
    /// A lamp that may be written, since it carries our mark.
    fn ours<'a>(&self, lamps: &'a mut Hanging, name: &str) -> Result<&'a mut Lamp, Refusal> {
        match lamps.get_mut(name) {
            None => Err(Refusal::Gone),
            Some((lamp, mark)) if self.strategy.mark().as_ref() == Some(mark) => Ok(lamp),
            Some(_) => Err(Refusal::Conflict(Owner::foreign("another"))),
        }
    }
}

impl Api for Lamps {
    const NAME: &'static str = "lamps";
    type Key = String;
    type Object = Lamp;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let lamps = self.wall.read().await.clone().into_iter();
        Ok(lamps.map(|(name, (lamp, mark))| self.strategy.seen(name, lamp, Some(&mark))).collect())
    }

    async fn create(&self, name: &String, wanted: &Lamp) -> Written<Self> {
        let mark = self.strategy.mark().unwrap_or_default();
        match self.wall.write().await.entry(name.clone()) {
            Entry::Vacant(free) => _ = free.insert((wanted.clone(), mark)),
            Entry::Occupied(_) => return Err(Refusal::Conflict(Owner::foreign("another"))),
        }
        Ok(Some(wanted.clone()))
    }

    async fn update(&self, name: &String, _before: &Lamp, wanted: &Lamp) -> Written<Self> {
        let mut lamps = self.wall.write().await;
        *self.ours(&mut lamps, name)? = wanted.clone();
        Ok(Some(wanted.clone()))
    }

    async fn delete(&self, name: &String, _before: &Lamp) -> Result<(), Refusal> {
        let mut lamps = self.wall.write().await;
        self.ours(&mut lamps, name)?;
        lamps.remove(name);
        Ok(())
    }
}
