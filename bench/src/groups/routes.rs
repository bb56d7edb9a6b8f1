//! A source like a routing table, over a target in memory that costs next to nothing: what is left is
//! the engine. A key is the number of a destination, an object that of a gateway; nothing is ever deleted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::desired::find_near;
use homeostat_engine::{
    Action, Agreement, Change, ChangeList, Coverage, Desired, Draft, Fails, Failure, Focus, Line,
    Outcome, Outcomes, Owner, Reader, Reversibility, ScopeLock, See, Seen, Slot, Source, Step,
    View, Work, Writer,
};

/// Destinations and gateways side by side, in key order.
pub(super) struct DesiredState {
    keys: Vec<u32>,
    gateways: Vec<u32>,
}

impl DesiredState {
    /// A desired state of this many routes.
    pub(super) fn new(size: usize) -> Self {
        let keys: Vec<u32> = (0..).take(size).collect();
        DesiredState { gateways: keys.iter().map(|key| key % 7).collect(), keys }
    }
}

impl Desired for DesiredState {
    type Key = u32;
    type Object = u32;

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn slot(&self, key: &u32, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.keys, near, |known| known.cmp(key))
    }

    fn key(&self, slot: Slot) -> u32 {
        self.keys[slot.index()]
    }

    fn object(&self, slot: Slot) -> u32 {
        self.gateways[slot.index()]
    }

    fn compare(&self, slot: Slot, seen: &u32) -> Agreement {
        Agreement::when(self.gateways[slot.index()] == *seen)
    }

    fn key_print(&self, key: &u32) -> u64 {
        u64::from(*key).wrapping_mul(0x9E37_79B9_7F4A_7C15)
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

    pub(super) fn routes(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what a slot declares.
pub(super) struct Put(Slot);

impl Step<DesiredState> for Put {
    fn key(&self, desired: &DesiredState) -> u32 {
        desired.key(self.0)
    }

    fn slot(&self) -> Option<Slot> {
        Some(self.0)
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        Reversibility::Reversible
    }

    fn action(&self) -> Action {
        Action::Create
    }

    fn explain(&self, desired: &DesiredState, emit: &mut dyn FnMut(Line)) {
        let (action, key) = (self.action(), self.key(desired).to_string());
        emit(Line::new(action, key));
    }
}

impl Source for Table {
    const NAME: &'static str = "routes";
    const FAILS: Fails = Fails::Ordered;
    const COVERAGE: Coverage = Coverage::None;

    type Key = u32;
    type Object = u32;
    type Desired = DesiredState;
    type Step = Put;
    type Moment = ();
    type Reader = Table;
    type Writer = Table;

    fn reader(&self) -> Result<Table, Failure> {
        Ok(self.clone())
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Table, Failure> {
        Ok(self.clone())
    }

    fn plan(
        &self,
        _desired: &DesiredState,
        _moment: &(),
        changes: ChangeList<u32, u32>,
    ) -> Draft<Self> {
        let step = |change| match change {
            Change::Create { slot } | Change::Update { slot, .. } => Some(Put(slot)),
            Change::Delete { .. } | Change::Release { .. } | Change::GiveBack { .. } => None,
        };
        Draft { steps: changes.into_iter().filter_map(step).collect(), ..Draft::default() }
    }
}

impl Reader<Table> for Table {
    async fn observe(
        &mut self,
        view: &View<'_, Table>,
        see: &mut See<'_, u32, u32>,
    ) -> Result<(), Failure> {
        let routes = self.routes();
        let mut emit = |key: u32| {
            if let Some(Some(object)) = routes.get(key as usize) {
                see(Seen::Present { key, object: *object, owner: Owner::Ours });
            }
        };
        match view.focus {
            Focus::All => (0..).take(routes.len()).for_each(emit),
            Focus::Keys(keys) => keys.iter().copied().for_each(&mut emit),
        }
        Ok(())
    }
}

impl Writer<Table> for Table {
    async fn apply(&self, work: Work<'_, Table>, out: &dyn Outcomes<u32>) {
        let mut routes = self.routes();
        for (_, Put(slot)) in work.iter() {
            if let Some(route) = routes.get_mut(work.desired.key(*slot) as usize) {
                *route = Some(work.desired.object(*slot));
            }
        }
        let all = work.first..work.first + work.steps.len();
        out.put(all, Outcome::Applied { now: None });
    }
}
