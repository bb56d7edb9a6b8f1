//! One table of a transaction, and how it explains itself: line by line, in nft's own words.

mod element;
mod words;

use std::sync::Arc;

use homeostat_core::{Action, Line, Owner, Slot, Summary};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::model::{Script, Table};
use crate::op::Op;

/// Everything that a transaction does to one table.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) key: Key,
    pub(crate) slot: Option<Slot>,
    pub(crate) action: Action,
    pub(crate) ops: Vec<Op>,
    pub(crate) desired: Option<Arc<Table>>,
    pub(crate) seen: Option<Arc<Table>>,
    pub(crate) adopts: Option<Owner>,
    /// What a reader of the plan should know of how the text was understood.
    pub(crate) notes: Vec<String>,
}

impl Step {
    /// The text that is loaded in place of its acts.
    pub(crate) fn script(&self) -> Option<&Script> {
        self.desired.as_ref().and_then(|desired| desired.script.as_deref())
    }

    /// One that does nothing yet.
    pub(crate) fn new(key: Key, action: Action) -> Self {
        let (slot, ops, desired, seen, adopts, notes) = (None, vec![], None, None, None, vec![]);
        Step { key, slot, action, ops, desired, seen, adopts, notes }
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, _desired: &DesiredState) -> Key {
        self.key.clone()
    }

    fn slot(&self) -> Option<Slot> {
        self.slot
    }

    fn action(&self) -> Action {
        self.action
    }

    /// Which elements were declared must be known when they no longer are.
    fn is_recorded(&self) -> bool {
        let sets = self.desired.iter().flat_map(|desired| desired.sets.values());
        sets.into_iter().any(|set| !set.elements.is_empty())
    }

    fn count(&self, summary: &mut Summary) {
        self.lines(&mut |line| summary.count(line.action));
    }

    fn explain(&self, _desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        let mut notes = self.notes.join("; ");
        self.lines(&mut |mut line| {
            if !notes.is_empty() {
                let said = line.note.take().into_iter().chain([std::mem::take(&mut notes)]);
                line.note = Some(said.collect::<Vec<_>>().join("; "));
            }
            tell(line);
        });
    }
}
