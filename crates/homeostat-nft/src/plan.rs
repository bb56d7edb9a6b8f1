//! Turns changes of tables into steps, each a list of ops. Pure.

use std::sync::Arc;

use homeostat_core::{Action, Change, ChangeList, Draft, WaitsOn};

use crate::desired::{Compiled, DesiredState};
use crate::diff;
use crate::elements::UnitAt;
use crate::expression::counts;
use crate::key::Key;
use crate::model::{Handle, Part, Table};
use crate::object::Object;
use crate::source::Nft;
use crate::step::Step;

/// A step for each table, in the order of the text: tables are created in that order, and so are their hooks. A table
/// that names a link that is not there waits for it.
pub(crate) fn draft(desired: &DesiredState, changes: ChangeList<Key, Object>) -> Draft<Nft> {
    let compiled = desired.compiled();
    let mut draft = Draft::default();
    for change in changes {
        let key = change.key(desired);
        match compiled.waiting.get(&key) {
            Some(link) => draft.wait(key, WaitsOn::Link(link.clone())),
            None => draft.steps.extend(step(&compiled, key, change)),
        }
    }
    draft.steps.sort_by_key(|step: &Step| step.desired.as_ref().map(|desired| desired.handle));
    // The first step carries the notes on the text that all of them come from.
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
            let ops = Arc::unwrap_or_clone(before.ops(&table));
            let Object { table: seen, declared_before, .. } = before;
            let (slot, desired, seen) = (Some(slot), Some(table), Some(seen?));
            let step = Step::new(key, Action::Update);
            Step { slot, ops, desired, seen, declared_before, adopts, ..step }
        }
        Change::Delete { before, .. } => {
            let (ops, seen) = (vec![Op::DeleteTable], before.table);
            Step { ops, seen, ..Step::new(key, Action::Delete) }
        }
        // Tables are created and deleted, never released.
        Change::Release { .. } => return None,
    })
}

/// One part of a transaction. The order of the variants is their order in a transaction: what uses a thing goes
/// before the thing, and comes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    DeleteTable,
    SetFlags,
    /// All rules of a chain that goes.
    FlushChain(String),
    /// A rule, by its place in the chain that was seen.
    DeleteRule {
        chain: String,
        at: usize,
    },
    DeleteElements {
        set: String,
        units: Vec<UnitAt>,
    },
    Delete(Part),
    CreateTable,
    /// An object takes over the counters of the one that it replaces. A set is empty.
    Create(Part),
    AddElements {
        set: String,
        units: Vec<ElementFrom>,
    },
    SetPolicy(String),
    /// A rule of the desired state, before one that stays or at the end. It takes over the counters of the one
    /// that it replaces, by its place in the chain that was seen.
    AddRule {
        chain: String,
        at: usize,
        before: Option<Handle>,
        replaces: Option<usize>,
    },
}

/// Where an element comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementFrom {
    Desired(UnitAt),
    /// What was seen, with its counters and the time that it has left.
    Seen(UnitAt),
}

impl Op {
    /// Whether it takes over what packets and time have changed of something that was seen.
    pub(crate) fn carries_counters(&self, seen: &Table) -> bool {
        match self {
            Op::AddRule { chain, replaces: Some(at), .. } => {
                let former = seen.rules(chain).get(*at);
                former.is_some_and(|rule| counts(rule.whole()).is_ok_and(|all| !all.is_empty()))
            }
            Op::AddElements { units, .. } => {
                units.iter().any(|from| matches!(from, ElementFrom::Seen(_)))
            }
            Op::Create(Part::Object(id)) => seen.objects.contains_key(id),
            _ => false,
        }
    }
}
