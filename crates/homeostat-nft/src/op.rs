//! What a transaction does to one table, in the order in which the kernel takes it.

use crate::elements::UnitAt;
use crate::model::{Handle, ObjectId};

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
    /// A rule of the wish, before one that stays or at the end.
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
    /// The wish.
    Wish(UnitAt),
    /// What was seen, with its counts and the time that it has left.
    Seen(UnitAt),
}
