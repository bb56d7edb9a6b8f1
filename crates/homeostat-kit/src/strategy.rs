//! How our objects are distinguished from others': one value for writes and for reads.
//!
//! A [`Strategy`] is a required argument: it gives the mark that a create must write, judges what is
//! seen, and is the [`Ownership`] of every pass. Since both sides come from one value, they cannot
//! disagree; what a source wrote is what its owner finds again.
//!
//! The *ledger* is the record of what we made, which the engine keeps: in a directory
//! ([`Reconciler::state`](crate::Reconciler)), in a value ([`Applied`](crate::Applied)), or where the caller likes
//! ([`Reconciler::ledger`](crate::Reconciler::ledger)).
//!
//! | strategy | the target must be able to | survives a crash between call and record by |
//! |---|---|---|
//! | [`Marker`] | hold a text, set in the creating call | the mark itself |
//! | [`NamePrefix`], from [`Strategy::prefix`] or [`Prefixes::claim`] | nothing | the name itself |
//! | `Checkpoint` | nothing | an intent in the ledger before the call |
//! | [`Exclusive`] | have no other owner | everything being ours; deletes are guarded |

mod marker;

use homeostat_engine::{Owner, Ownership, Seen};

pub use homeostat_engine::{Exclusive, NamePrefix, PrefixRefused, Prefixes};
pub use marker::{Copies, Marker, MarkerRefused};

/// How our objects are distinguished from others'. There is no default.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// The target holds our mark, written in the creating call.
    Marker(Marker),
    /// Names that begin with a prefix are ours.
    Prefix(NamePrefix),
    /// The [ledger](crate::Reconciler::ledger), which is the durable record of what we made, says what is ours; the
    /// intent is durable before the object is made.
    Checkpoint,
    /// Everything in the scope is ours, as the caller stated.
    Exclusive(Exclusive),
}

impl Strategy {
    /// The target holds the owner's name as the mark. [`Marker`] has more to it, for owners of which there are copies.
    pub fn marker(owner: &str) -> Result<Self, MarkerRefused> {
        Marker::new(owner).map(Strategy::Marker)
    }

    /// Names that begin with this are ours, even if another program made them. A program with several prefixes in one target takes them
    /// from one [`Prefixes`], so that they cannot overlap.
    pub fn prefix(prefix: &str) -> Result<Self, PrefixRefused> {
        Prefixes::default().claim(prefix).map(Strategy::Prefix)
    }

    /// The same, as a pass takes it.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        match self {
            Strategy::Marker(_) => Ownership::Marked,
            Strategy::Prefix(prefix) => Ownership::Prefix(prefix.clone()),
            Strategy::Checkpoint => Ownership::Checkpoint,
            Strategy::Exclusive(exclusive) => Ownership::Exclusive(*exclusive),
        }
    }

    /// The owner's name, if it stands in the marks.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        match self {
            Strategy::Marker(marker) => Some(marker.owner()),
            Strategy::Prefix(_) | Strategy::Checkpoint | Strategy::Exclusive(_) => None,
        }
    }

    /// The mark that the creating call must write, if objects are marked.
    #[must_use]
    pub fn mark(&self) -> Option<String> {
        match self {
            Strategy::Marker(marker) => Some(marker.to_string()),
            Strategy::Prefix(_) | Strategy::Checkpoint | Strategy::Exclusive(_) => None,
        }
    }

    /// The mark that an object must carry for a write to touch it. Nothing where objects have no mark,
    /// or where the marks of copies count as ours: the version that was seen guards those.
    #[must_use]
    pub fn condition(&self) -> Option<String> {
        match self {
            Strategy::Marker(marker) if marker.is_alone() => Some(marker.to_string()),
            _ => None,
        }
    }

    /// Judges an object by the mark that the target shows.
    pub fn seen<K, O>(&self, key: K, object: O, mark: Option<&str>) -> Seen<K, O> {
        match self {
            Strategy::Marker(marker) => marker.seen(key, object, mark),
            _ => Seen::Present { key, object, owner: Owner::Unmarked },
        }
    }

    /// Whether an object of this name would be known as ours again once it is made.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        match self {
            Strategy::Prefix(prefix) => prefix.matches(name),
            Strategy::Marker(_) | Strategy::Checkpoint | Strategy::Exclusive(_) => true,
        }
    }
}
