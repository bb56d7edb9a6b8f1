//! The toy target: numbers by name, each with an owner, and a log of all that happened to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use homeostat_engine::Owner;

/// What the target does with a write to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Refuse,
    /// Somebody else's object turns out to be there.
    Taken,
    /// Does it, and the answer is lost.
    LoseAnswer,
    /// Works on it, and has not done it yet.
    Postpone,
    /// Neither does it nor answers.
    Ignore,
    /// Says that it did it, and did not.
    Pretend,
    /// Does it, and somebody else is quick to put the same there.
    Overtake,
    /// Holds this number in its place, and the source knows it.
    Settle(u32),
    /// Holds this number in its place, and the source does not notice.
    Rewrite(u32),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, (u32, Owner)>,
    /// What goes wrong with a key, after how many good writes.
    pub(crate) faults: BTreeMap<String, (usize, Fault)>,
    /// Writing the first key sets the second one to the number.
    pub(crate) couplings: BTreeMap<String, (String, u32)>,
    /// Keys that cannot be read.
    pub(crate) unreadable: BTreeSet<String>,
    /// How many looks succeed before the target cannot be observed.
    pub(crate) looks_left: Option<usize>,
    /// How many looks the target tears after everything was reported.
    pub(crate) torn_looks: usize,
    /// Everything that happened, ledger writes included, in order.
    pub(crate) log: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<State>>);

impl World {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Fills the target: `KEY=NUMBER@OWNER`.
    pub(crate) fn holds(&self, rows: &str) {
        for row in rows.split_whitespace() {
            let (pair, owner) = row.split_once('@').unwrap();
            let (key, number) = pair.split_once('=').unwrap();
            let owner = match owner {
                "ours" => Owner::Ours,
                "kernel" => Owner::Kernel,
                "unmarked" => Owner::Unmarked,
                "nobody" => Owner::Nobody,
                who => Owner::Foreign(who.to_owned().into()),
            };
            self.state().objects.insert(key.to_owned(), (number.parse().unwrap(), owner));
        }
    }

    pub(crate) fn breaks(&self, key: &str, fault: Fault) {
        self.breaks_after(key, 0, fault);
    }

    pub(crate) fn breaks_after(&self, key: &str, writes: usize, fault: Fault) {
        self.state().faults.insert(key.to_owned(), (writes, fault));
    }

    /// The fault that a write to the key runs into.
    pub(crate) fn fault(&self, key: &str) -> Option<Fault> {
        let mut state = self.state();
        let (left, fault) = state.faults.get_mut(key)?;
        let is_due = *left == 0;
        *left = left.saturating_sub(1);
        is_due.then_some(*fault)
    }

    pub(crate) fn works(&self) {
        self.state().faults.clear();
    }

    pub(crate) fn loses(&self, key: &str) {
        self.state().objects.remove(key);
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.state().log.push(line.into());
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    /// What is there, as text in key order.
    pub(crate) fn text(&self) -> String {
        let state = self.state();
        let rows: Vec<_> = state
            .objects
            .iter()
            .map(|(key, (number, owner))| format!("{key}={number}@{owner}"))
            .collect();
        rows.join(" ")
    }
}
