//! A ledger that writes into the log of the world what it was asked to record, and that can fail.

use std::collections::BTreeSet;
use std::sync::Mutex;

use homeostat_engine::{Edit, Error, Ledger, LedgerKey, MemoryLedger, Page, Pages};

use super::world::World;

pub(crate) struct Watched {
    world: World,
    ledger: MemoryLedger,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: usize,
    failing: BTreeSet<usize>,
}

impl Watched {
    pub(crate) fn new(world: World) -> Self {
        Watched { world, ledger: MemoryLedger::default(), state: Mutex::default() }
    }

    /// Lets the write with this number, counted from now and from zero, fail.
    pub(crate) fn fails_at(&self, nth: usize) {
        let mut state = self.state.lock().unwrap();
        let at = state.writes + nth;
        state.failing.insert(at);
    }

    fn is_failing(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        state.writes += 1;
        let at = state.writes - 1;
        state.failing.contains(&at)
    }
}

impl Pages for Watched {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        self.ledger.page(place)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.ledger.places(owner)
    }
}

impl Ledger for Watched {
    fn write(&self, place: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        if self.is_failing() {
            self.world.note("ledger is full");
            return Err(Error::WriteLedger("no space left on device".into()));
        }
        let texts: Vec<_> = edits.iter().map(text_of).collect();
        self.world.note(format!("ledger {}", texts.join(", ")));
        self.ledger.write(place, edits)
    }
}

fn text_of(edit: &Edit) -> String {
    match edit {
        Edit::Put { key, record } => {
            let stage = if record.contains("\"intent\"") { "intent" } else { "done" };
            format!("{key} {stage}")
        }
        Edit::Drop { key } => format!("drop {key}"),
        Edit::DesiredState(_) => "desired state".to_owned(),
    }
}
