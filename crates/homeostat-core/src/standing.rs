//! Declared keys that a condition keeps from being simply there: a diff heeds them.

use std::collections::BTreeMap;

use crate::waits_on::WaitsOn;

/// How a condition lets a declared key stand. A key without one is simply declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is deleted if it is there and ours, and not made. That is as declared.
    Withdrawn(WaitsOn),
    /// It is not known whether it may be there: what is there is kept as declared, what is absent is not made.
    Undecided(WaitsOn),
    /// It may be there since just now: that it is absent is nobody's doing.
    Returned,
}

/// The keys that do not simply stand as declared.
pub type Standings<K> = BTreeMap<K, Standing>;
