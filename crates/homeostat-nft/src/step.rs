//! One table of a transaction, and how it explains itself: line by line, in nft's own words.

mod words;

use std::sync::Arc;

use homeostat_core::{Action, Line, Owner, Slot, Summary};

use crate::key::Key;
use crate::model::Table;
use crate::op::Op;
use crate::wish::Wish;

/// Everything that a transaction does to one table.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) key: Key,
    pub(crate) slot: Option<Slot>,
    pub(crate) action: Action,
    pub(crate) ops: Vec<Op>,
    pub(crate) wish: Option<Arc<Table>>,
    pub(crate) seen: Option<Arc<Table>>,
    pub(crate) adopts: Option<Owner>,
}

impl homeostat_core::Step<Wish> for Step {
    fn key(&self, _wish: &Wish) -> Key {
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
        let sets = self.wish.iter().flat_map(|wish| wish.sets.values());
        sets.into_iter().any(|set| !set.elements.is_empty())
    }

    fn count(&self, summary: &mut Summary) {
        self.lines(&mut |line| summary.count(line.action));
    }

    fn explain(&self, wish: &Wish, tell: &mut dyn FnMut(Line)) {
        // The first table speaks for the text that all of them come from.
        let mut notes = wish.notes().join("; ");
        let is_first = self.slot == Some(Slot(0));
        self.lines(&mut |mut line| {
            if is_first && !notes.is_empty() {
                let said = line.note.take().into_iter().chain([std::mem::take(&mut notes)]);
                line.note = Some(said.collect::<Vec<_>>().join("; "));
            }
            tell(line);
        });
    }
}
