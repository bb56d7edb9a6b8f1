//! The target of a schedule, the desired states of its owner, and what other owners put there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Handle, LedgerKey, Loop, LoopDeps, MemoryLedger, Ownership, Pace, Pages as _,
    Table,
};
use homeostat_testkit::memory::{Faults, Mark, Memory, Ordered, Target};
use tokio::task::JoinHandle;

pub(crate) type Source = Memory<Ordered>;

/// What may be declared. A child needs its parent.
pub(crate) const KEYS: [&str; 6] = ["a", "a/x", "a/y", "b", "c", "d"];
/// What only strangers use.
pub(crate) const STRANGE: [&str; 3] = ["s", "t", "a/s"];

pub(crate) struct World {
    pub(crate) target: Target,
    ownership: Ownership,
    ledger: Arc<MemoryLedger>,
    pub(crate) desired: BTreeMap<&'static str, String>,
    /// What strangers put there; nobody else may touch it.
    pub(crate) foreign: BTreeMap<&'static str, String>,
    pub(crate) running: Option<Running>,
}

pub(crate) struct Running {
    pub(crate) handle: Handle<Source>,
    pub(crate) task: JoinHandle<()>,
}

/// Lets virtual time pass.
pub(crate) async fn later(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

fn place() -> LedgerKey {
    LedgerKey::new("default", "memory-ordered", "test")
}

impl World {
    pub(crate) fn new(ownership: Ownership) -> Self {
        World {
            target: Target::default(),
            ownership,
            ledger: Arc::default(),
            desired: BTreeMap::new(),
            foreign: BTreeMap::new(),
            running: None,
        }
    }

    /// Whether the target itself can tell who made an object.
    pub(crate) fn has_marks(&self) -> bool {
        matches!(self.ownership, Ownership::Marked)
    }

    /// Whether an altered object on this key can be known as ours. Where only the ledger knows,
    /// an intent that was never confirmed proves nothing about another value than its own.
    pub(crate) fn is_provable(&self, key: &str) -> bool {
        let page = self.ledger.page(&place()).unwrap();
        let record = page.records.iter().find(|(known, _)| known == key);
        self.has_marks() || record.is_none_or(|(_, record)| !record.contains("\"intent\""))
    }

    fn bound(&self) -> Bound<Source> {
        let desired = self.desired.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let target = self.target.clone();
        let source =
            if self.has_marks() { Memory::marked(target) } else { Memory::unmarked(target) };
        Bound::new(source, Table::new(desired).unwrap(), self.ownership.clone(), place())
            .with_nothing(Table::default())
    }

    pub(crate) fn start(&mut self, seed: u64) {
        let deps = LoopDeps::new(Alone::i_am_the_only_writer(), self.ledger.clone());
        let (looped, handle) = Loop::new(self.bound(), deps, Pace::of::<Source>(seed));
        let task = tokio::spawn(looped.run());
        self.running = Some(Running { handle, task });
    }

    pub(crate) fn put(&self) {
        if let Some(running) = &self.running {
            running.handle.put(self.bound()).unwrap();
        }
    }

    /// Everything works again from here on.
    pub(crate) fn mend(&self) {
        self.target.faults(|faults| *faults = Faults::default());
    }

    /// What is there, of all owners.
    pub(crate) fn held(&self, mark: Mark) -> Vec<(String, String)> {
        let objects = self.target.objects().into_iter().filter(|held| held.mark == mark);
        let mut held: Vec<_> = objects.map(|held| (held.key, held.value)).collect();
        held.sort();
        held
    }

    /// What must be there of ours: the desired state, but for keys that a stranger sits on.
    pub(crate) fn owed(&self) -> Vec<(String, String)> {
        let free = self.desired.iter().filter(|(key, _)| !self.foreign.contains_key(*key));
        free.map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }
}
