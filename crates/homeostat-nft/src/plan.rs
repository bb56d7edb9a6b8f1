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
    let steps = changes.into_iter().filter_map(|change| step(wish, change)).collect();
    Draft { steps, ..Draft::default() }
}

fn step(wish: &Wish, change: Change<Key, Object>) -> Option<Step> {
    let key = change.key(wish);
    Some(match change {
        Change::Create { slot } => {
            let table = Arc::clone(wish.table(slot)?);
            let ops = diff::table(&table, None);
            let (action, wish) = (Action::Create, Some(table));
            Step { key, slot: Some(slot), action, ops, wish, seen: None, adopts: None }
        }
        Change::Update { slot, before, adopts } => {
            let (table, seen) = (Arc::clone(wish.table(slot)?), before.table?);
            let ops = diff::table(&table, Some((&seen, &before.former)));
            let (action, slot) = (Action::Update, Some(slot));
            Step { key, slot, action, ops, wish: Some(table), seen: Some(seen), adopts }
        }
        Change::Delete { before, .. } => {
            let (action, ops) = (Action::Delete, vec![Op::DropTable]);
            Step { key, slot: None, action, ops, wish: None, seen: before.table, adopts: None }
        }
        // Tables are made and deleted, never claimed.
        Change::Release { .. } => return None,
    })
}
