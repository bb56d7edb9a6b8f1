use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use homeostat_kit::simple::{Api, Listed, Refusal, Written};
use homeostat_kit::strategy::Strategy;
use homeostat_kit::{Failure, Owner};
use tokio::sync::Mutex;

/// Lamps by name: how bright each is, and its mark.
pub(crate) type Wall = BTreeMap<String, (u8, String)>;

pub(crate) struct Lamps {
    pub(crate) wall: Mutex<Wall>,
    pub(crate) strategy: Strategy,
}

impl Lamps {
    /// A lamp that may be written, since it carries our mark.
    fn ours<'a>(&self, wall: &'a mut Wall, name: &str) -> Result<&'a mut u8, Refusal> {
        match wall.get_mut(name) {
            None => Err(Refusal::Gone),
            Some((light, mark)) if self.strategy.mark().as_ref() == Some(mark) => Ok(light),
            Some(_) => Err(Refusal::Conflict(Owner::foreign("another"))),
        }
    }
}

impl Api for Lamps {
    const NAME: &'static str = "lamps";
    type Key = String;
    type Object = u8;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let wall = self.wall.lock().await;
        let lamps = wall.iter().map(|(name, (light, mark))| (name.clone(), *light, Some(&**mark)));
        Ok(lamps.map(|(name, light, mark)| self.strategy.seen(name, light, mark)).collect())
    }

    async fn create(&self, name: &String, light: &u8) -> Written<Self> {
        let mark = self.strategy.mark().unwrap_or_default();
        match self.wall.lock().await.entry(name.clone()) {
            Entry::Vacant(free) => _ = free.insert((*light, mark)),
            Entry::Occupied(_) => return Err(Refusal::Conflict(Owner::foreign("another"))),
        }
        Ok(Some(*light))
    }

    async fn update(&self, name: &String, _: &u8, light: &u8) -> Written<Self> {
        let mut wall = self.wall.lock().await;
        *self.ours(&mut wall, name)? = *light;
        Ok(Some(*light))
    }

    async fn delete(&self, name: &String, _: &u8) -> Result<(), Refusal> {
        let mut wall = self.wall.lock().await;
        self.ours(&mut wall, name)?;
        wall.remove(name);
        Ok(())
    }
}
