//! For targets that cannot take the mark in the creating call: a database is created first, and gets its comment by a
//! second statement.
//!
//! Between the two calls the process may die, and the object would have no owner. So an API whose
//! [`Api::MARKING`](super::Api::MARKING) is [`Marking::AfterCreate`] has the ledger record the intent before the first
//! call, and wraps its objects in [`TwoStep`]: an object without a mark that the ledger intended to make is ours, and
//! differs from what is declared until an update has set the mark. In `create`, end with [`TwoStep::marked`]:
//!
//! ```
//! # use homeostat_kit::simple::{Refusal, TwoStep};
//! # async fn make() -> Result<(), Refusal> { Ok(()) }
//! # async fn mark() -> Result<(), Refusal> { Ok(()) }
//! # async fn create(wanted: &TwoStep<u32>) -> Result<Option<TwoStep<u32>>, Refusal> {
//! make().await?; // Refuses if it is there.
//! wanted.marked(mark().await)
//! # }
//! ```
//!
//! It needs a ledger that outlives the process. `update` sets the mark if [`TwoStep::is_marked`] of what it was seen
//! as is false.

use std::ops::Deref;

use homeostat_engine::{Owner, Seen};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Refusal;
use crate::strategy::Strategy;

/// When an object gets its mark.
#[derive(Clone, Copy, Debug)]
pub enum Marking<O> {
    /// In the creating call.
    InCreate,
    /// By a later call.
    AfterCreate {
        /// Whether an object was seen with its mark, which is [`TwoStep::is_marked`]. One without differs from what is
        /// declared, whatever [`Api::compare`](super::Api::compare) says.
        is_marked: fn(&O) -> bool,
    },
}

/// An object, and whether it carries a mark. As with a version, that is no part of the object: two are equal if their
/// objects are.
#[derive(Clone, Debug)]
pub struct TwoStep<O> {
    object: O,
    is_marked: bool,
}

impl<O> TwoStep<O> {
    /// Judges an object by the mark that the target shows. One without a mark is ours only if the ledger says that we
    /// were about to make it.
    pub fn seen<K>(strategy: &Strategy, key: K, object: O, mark: Option<&str>) -> Seen<K, Self> {
        if mark.is_some() {
            return strategy.seen(key, TwoStep { object, is_marked: true }, mark);
        }
        let object = TwoStep { object, is_marked: strategy.mark().is_none() };
        Seen::Present { key, object, owner: Owner::Unmarked }
    }

    /// Whether it was seen with its mark.
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }
}

impl<O: Clone> TwoStep<O> {
    /// What the create of this object came to: done if the mark is set too. If not, the intent in the ledger stands, and
    /// the next look decides.
    pub fn marked(&self, mark: Result<(), Refusal>) -> Result<Option<Self>, Refusal> {
        match mark {
            Ok(()) => Ok(Some(self.clone())),
            Err(refusal) => {
                Err(Refusal::Unknown(format!("it was created, and not marked: {refusal}")))
            }
        }
    }
}

/// An object that is declared.
impl<O> From<O> for TwoStep<O> {
    fn from(object: O) -> Self {
        TwoStep { object, is_marked: true }
    }
}

impl<O> Deref for TwoStep<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.object
    }
}

impl<O: PartialEq> PartialEq for TwoStep<O> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<O: Eq> Eq for TwoStep<O> {}

impl<O: Serialize> Serialize for TwoStep<O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl<'de, O: Deserialize<'de>> Deserialize<'de> for TwoStep<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        O::deserialize(deserializer).map(Self::from)
    }
}
