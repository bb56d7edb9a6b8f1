//! Turns changes of tables into steps, each a list of ops. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{Action, Change, ChangeList, Draft, Slot, WaitsOn};

use crate::desired::{Compiled, DesiredState};
use crate::diff;
use crate::elements::UnitAt;
use crate::key::Key;
use crate::model::{Handle, Hook, Part, Rule, Script, Table};
use crate::object::Object;
use crate::observe::Moment;
use crate::source::Nft;
use crate::step::{GiveBack, Step};

/// A step for each table, in the order of the text: tables are created in that order, and so are their hooks. A table
/// that names a link that is not there waits for it.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Object>,
) -> Draft<Nft> {
    let compiled = desired.compiled();
    let mut draft = Draft::default();
    for change in changes {
        let key = change.key(desired);
        match compiled.waiting.get(&key) {
            Some(link) => draft.wait(key, WaitsOn::link(link.clone())),
            None => draft.steps.extend(step(&compiled, key, change)),
        }
    }
    draft.steps.sort_by_key(|step: &Step| step.desired.as_ref().map(|desired| desired.handle));
    keep_order_of_hooks(&compiled, moment, &mut draft.steps);
    // The first step carries the notes on the text that all of them come from.
    if let Some(first) = draft.steps.iter_mut().find(|step: &&mut Step| step.desired.is_some()) {
        first.notes.clone_from(&compiled.notes);
    }
    draft
}

/// Chains of one hook and priority are created in the order of the text, as `nft -f` does: packets run through them by
/// that. So a table behind one that creates such chains creates its own again, although it may be as declared.
fn keep_order_of_hooks(compiled: &Compiled, moment: &Moment, steps: &mut Vec<Step>) {
    let mut tables: Vec<_> = compiled.tables.iter().enumerate().collect();
    tables.sort_by_key(|(_, (_, object))| object.table.as_ref().map(|table| table.handle));
    for (index, (key, object)) in tables {
        let seen = moment.ours.get(key).filter(|_| !compiled.waiting.contains_key(key));
        let (Some(table), Some(seen)) = (&object.table, seen) else { continue };
        let handle = |step: &Step| step.desired.as_ref().map(|desired| desired.handle);
        let at = steps.partition_point(|step| handle(step) < Some(table.handle));
        let (before, rest) = steps.split_at_mut(at);
        let hooks: BTreeSet<Hook> = before
            .iter()
            .filter_map(|step| Some((step, step.desired.as_deref()?)))
            .filter(|(_, desired)| desired.shares_hooks(table))
            .flat_map(|(step, desired)| created_hooks(&step.ops, desired))
            .collect();
        let Some(former) = seen.table.as_ref().filter(|_| !hooks.is_empty()) else { continue };
        let ops = diff::update(table, former, &seen.declared_before, &hooks);
        match rest.first_mut().filter(|step| step.key == *key) {
            Some(step) => step.ops = ops,
            None if ops.is_empty() => {}
            None => {
                let step = Step::new(key.clone(), Action::Update);
                let (desired, former) = (Some(Arc::clone(table)), Some(Arc::clone(former)));
                let declared_before = seen.declared_before.clone();
                let slot = Some(Slot::at(index));
                steps
                    .insert(at, Step { slot, ops, desired, seen: former, declared_before, ..step });
            }
        }
    }
}

/// The hooks of the chains that these ops create.
pub(crate) fn created_hooks(ops: &[Op], desired: &Table) -> impl Iterator<Item = Hook> {
    ops.iter().filter_map(|op| match op {
        Op::Create(Part::Chain(name)) => desired.chains.get(name)?.hook(),
        _ => None,
    })
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
        Change::GiveBack { before, taken, .. } => {
            let is_unchanged = taken.wrote == before;
            let script = Script { program: "nft".into(), text: taken.snapshot.0 };
            let (ops, gives_back) = if is_unchanged {
                (vec![Op::DeleteTable], GiveBack::Whole(Arc::new(script)))
            } else {
                (vec![], GiveBack::AsItIs)
            };
            let (seen, gives_back) = (before.table, Some(gives_back));
            Step { ops, seen, gives_back, ..Step::new(key, Action::Delete) }
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
    pub(crate) fn is_about_elements(&self) -> bool {
        matches!(self, Op::AddElements { .. } | Op::DeleteElements { .. })
    }

    /// Whether it takes over what packets and time have changed of something that was seen.
    pub(crate) fn carries_counters(&self, desired: &Table, seen: &Table) -> bool {
        match self {
            Op::AddRule { chain, at, replaces: Some(former), .. } => {
                let rules = [desired.rules(chain).get(*at), seen.rules(chain).get(*former)];
                rules.iter().all(|rule| rule.is_some_and(Rule::counts))
            }
            Op::AddElements { units, .. } => {
                units.iter().any(|from| matches!(from, ElementFrom::Seen(_)))
            }
            Op::Create(Part::Object(id)) => seen.objects.contains_key(id),
            _ => false,
        }
    }
}
