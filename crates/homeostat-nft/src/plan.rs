//! Turns changes of tables into steps. Pure.

use std::sync::Arc;

use homeostat_core::{Action, Change, ChangeList, Draft, Pending, WaitsOn};

use crate::desired::{Compiled, DesiredState};
use crate::diff;
use crate::key::Key;
use crate::object::Object;
use crate::op::Op;
use crate::source::Nft;
use crate::step::Step;

/// A step for each table; all of them become one transaction. A table that speaks of a link that is not
/// there waits for it.
pub(crate) fn draft(desired: &DesiredState, changes: ChangeList<Key, Object>) -> Draft<Nft> {
    let compiled = desired.compiled();
    let mut draft = Draft::default();
    for change in changes {
        let key = change.key(desired);
        match compiled.waiting.get(&key) {
            Some(link) => draft.pending.push(Pending { key, on: WaitsOn::Link(link.clone()) }),
            None => draft.steps.extend(step(&compiled, key, change)),
        }
    }
    // The first step speaks for the text that all of them come from.
    if let Some(first) = draft.steps.iter_mut().find(|step: &&mut Step| step.desired.is_some()) {
        first.notes.clone_from(&compiled.notes);
    }
    draft
}

fn step(compiled: &Compiled, key: Key, change: Change<Key, Object>) -> Option<Step> {
    Some(match change {
        Change::Create { slot } => {
            let table = Arc::clone(compiled.table(slot)?);
            let ops = diff::table(&table, None);
            let (slot, desired) = (Some(slot), Some(table));
            Step { slot, ops, desired, ..Step::new(key, Action::Create) }
        }
        Change::Update { slot, before, adopts } => {
            let table = Arc::clone(compiled.table(slot)?);
            let ops = Arc::unwrap_or_clone(before.acts(&table));
            let seen = before.table?;
            let (slot, desired, seen) = (Some(slot), Some(table), Some(seen));
            Step { slot, ops, desired, seen, adopts, ..Step::new(key, Action::Update) }
        }
        Change::Delete { before, .. } => {
            let (ops, seen) = (vec![Op::DropTable], before.table);
            Step { ops, seen, ..Step::new(key, Action::Delete) }
        }
        // Tables are made and deleted, never claimed.
        Change::Release { .. } => return None,
    })
}
