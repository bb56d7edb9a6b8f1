//! Turns changes of tables into steps. Pure.

use std::sync::Arc;

use homeostat_core::{Action, Change, ChangeList, Draft};

use crate::diff;
use crate::key::Key;
use crate::object::Object;
use crate::op::Op;
use crate::source::Nft;
use crate::step::Step;
use crate::wish::Wish;

/// A step for each table; all of them become one transaction.
pub(crate) fn draft(wish: &Wish, changes: ChangeList<Key, Object>) -> Draft<Nft> {
    let mut steps: Vec<_> = changes.into_iter().filter_map(|change| step(wish, change)).collect();
    // The first step speaks for the text that all of them come from.
    if let Some(first) = steps.iter_mut().find(|step| step.wish.is_some()) {
        first.notes = wish.notes().to_vec();
    }
    Draft { steps, ..Draft::default() }
}

fn step(wish: &Wish, change: Change<Key, Object>) -> Option<Step> {
    let key = change.key(wish);
    Some(match change {
        Change::Create { slot } => {
            let table = Arc::clone(wish.table(slot)?);
            let ops = diff::table(&table, None);
            let (slot, wish) = (Some(slot), Some(table));
            Step { slot, ops, wish, ..Step::new(key, Action::Create) }
        }
        Change::Update { slot, before, adopts } => {
            let (table, seen) = (Arc::clone(wish.table(slot)?), before.table?);
            let ops = diff::table(&table, Some((&seen, &before.former)));
            let (slot, wish, seen) = (Some(slot), Some(table), Some(seen));
            Step { slot, ops, wish, seen, adopts, ..Step::new(key, Action::Update) }
        }
        Change::Delete { before, .. } => {
            let (ops, seen) = (vec![Op::DropTable], before.table);
            Step { ops, seen, ..Step::new(key, Action::Delete) }
        }
        // Tables are made and deleted, never claimed.
        Change::Release { .. } => return None,
    })
}
