//! A source like a routing table, over a target in memory that costs next to nothing: what is left is
//! the engine.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::desired::find_near;
use homeostat_engine::{
    Action, Agreement, Change, ChangeList, Coverage, Desired, Draft, Fails, Failure, Focus, Line,
    Outcome, Outcomes, Owner, Reader, ScopeLock, See, Seen, Slot, Source, Step, View, Work, Writer,
};

/// A destination of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(pub(super) u32);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}", self.0)
    }
}

impl FromStr for Key {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim_start_matches("route ").parse().map(Key)
    }
}

/// Destinations and gateways side by side, in key order.
pub(super) struct DesiredState {
    keys: Vec<Key>,
    gateways: Vec<u32>,
}

impl DesiredState {
    /// A desired state of this many routes.
    pub(super) fn new(size: usize) -> Self {
        let numbers = 0..u32::try_from(size).unwrap_or(u32::MAX);
        DesiredState {
            keys: numbers.clone().map(Key).collect(),
            gateways: numbers.map(|n| n % 7).collect(),
        }
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = u32;

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.keys, near, |known| known.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.keys[slot.index()]
    }

    fn object(&self, slot: Slot) -> u32 {
        self.gateways[slot.index()]
    }

    fn compare(&self, slot: Slot, seen: &u32) -> Agreement {
        Agreement::when(self.gateways[slot.index()] == *seen)
    }

    fn key_print(&self, key: &Key) -> u64 {
        u64::from(key.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn object_print(&self, slot: Slot) -> u64 {
        u64::from(self.gateways[slot.index()])
    }
}

/// The table: a gateway for each destination that has a route.
#[derive(Clone)]
pub(super) struct Table(Arc<Mutex<Vec<Option<u32>>>>);

impl Table {
    /// A table with room for this many routes.
    pub(super) fn new(size: usize) -> Self {
        Table(Arc::new(Mutex::new(vec![None; size])))
    }

    /// The routes.
    pub(super) fn routes(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One write: as small as a slot.
pub(super) enum Write {
    /// Puts a desired state there.
    Put(Slot),
    /// Takes a route away.
    Remove(Key),
}

impl Step<DesiredState> for Write {
    fn key(&self, desired: &DesiredState) -> Key {
        match self {
            Write::Put(slot) => desired.key(*slot),
            Write::Remove(key) => *key,
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Write::Put(slot) => Some(*slot),
            Write::Remove(_) => None,
        }
    }

    fn action(&self) -> Action {
        match self {
            Write::Put(_) => Action::Create,
            Write::Remove(_) => Action::Delete,
        }
    }

    fn phase(&self) -> u8 {
        u8::from(matches!(self, Write::Remove(_)))
    }

    fn explain(&self, desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let (action, key) = (self.action(), self.key(desired).to_string());
        tell(Line { action, key, before: None, after: None, note: None, text: None });
    }
}

/// The table as a source.
pub(super) struct Routes(pub(super) Table);

impl Source for Routes {
    const NAME: &'static str = "routes";
    const FAILS: Fails = Fails::Ordered;
    const COVERAGE: Coverage = Coverage::None;

    type Key = Key;
    type Object = u32;
    type Desired = DesiredState;
    type Step = Write;
    type Moment = ();
    type Reader = Table;
    type Writer = Table;

    fn reader(&self) -> Result<Table, Failure> {
        Ok(self.0.clone())
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Table, Failure> {
        Ok(self.0.clone())
    }

    fn plan(
        &self,
        _desired: &DesiredState,
        _moment: &(),
        changes: ChangeList<Key, u32>,
    ) -> Draft<Self> {
        let step = |change| match change {
            Change::Create { slot } | Change::Update { slot, .. } => Write::Put(slot),
            Change::Delete { key, .. } | Change::Release { key, .. } => Write::Remove(key),
        };
        Draft { steps: changes.into_iter().map(step).collect(), ..Draft::default() }
    }
}

impl Reader<Routes> for Table {
    async fn observe(
        &mut self,
        view: &View<'_, Routes>,
        see: &mut See<'_, Key, u32>,
    ) -> Result<(), Failure> {
        let routes = self.routes();
        let mut tell = |key: Key| {
            if let Some(Some(object)) = routes.get(key.0 as usize) {
                see(Seen::Present { key, object: *object, owner: Owner::Ours });
            }
        };
        match view.focus {
            Focus::All => (0..).take(routes.len()).map(Key).for_each(tell),
            Focus::Keys(keys) => keys.iter().copied().for_each(&mut tell),
        }
        Ok(())
    }
}

impl Writer<Routes> for Table {
    async fn apply(&self, work: Work<'_, Routes>, out: &dyn Outcomes<u32>) {
        let mut routes = self.routes();
        for (_, step) in work.iter() {
            let (key, value) = match step {
                Write::Put(slot) => (work.desired.key(*slot), Some(work.desired.object(*slot))),
                Write::Remove(key) => (*key, None),
            };
            if let Some(route) = routes.get_mut(key.0 as usize) {
                *route = value;
            }
        }
        let all = work.first..work.first + work.steps.len();
        out.put(all, Outcome::Applied { now: None });
    }
}
