//! What a transaction does to one table, in the order in which the kernel takes it.

use crate::elements::UnitAt;
use crate::expression::counts;
use crate::model::{Handle, ObjectId, Table};

/// One act. The order of the variants is the order of a transaction: what uses a thing goes before
/// the thing, and comes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    DropTable,
    SetFlags,
    /// All rules of a chain that goes.
    FlushChain(String),
    /// A rule, by its place in the chain that was seen.
    DropRule {
        chain: String,
        at: usize,
    },
    DropElements {
        set: String,
        units: Vec<UnitAt>,
    },
    DropSet(String),
    DropChain(String),
    DropObject(ObjectId),
    DropFlowtable(String),
    MakeTable,
    /// An object, with the counts of the one that it replaces.
    MakeObject(ObjectId),
    MakeFlowtable(String),
    MakeChain(String),
    MakeSet(String),
    AddElements {
        set: String,
        units: Vec<From>,
    },
    SetPolicy(String),
    /// A rule of the desired state, before one that stays or at the end.
    AddRule {
        chain: String,
        at: usize,
        before: Option<Handle>,
        replaces: Option<usize>,
    },
}

/// Where an element comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The desired state.
    DesiredState(UnitAt),
    /// What was seen, with its counts and the time that it has left.
    Seen(UnitAt),
}

/// Whether an act takes over what packets and time have made of something that was seen.
pub(crate) fn carries(op: &Op, seen: &Table) -> bool {
    match op {
        Op::AddRule { chain, replaces: Some(at), .. } => {
            let former = seen.chains.get(chain).and_then(|chain| chain.rules.get(*at));
            former.is_some_and(|rule| counts(rule.whole()).is_ok_and(|counts| !counts.is_empty()))
        }
        Op::AddElements { units, .. } => units.iter().any(|from| matches!(from, From::Seen(_))),
        Op::MakeObject(id) => seen.objects.contains_key(id),
        _ => false,
    }
}
