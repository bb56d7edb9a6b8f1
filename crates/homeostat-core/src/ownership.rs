//! Who owns what: the strategy that a caller must choose, and the records of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use educe::Educe;
use serde::{Deserialize, Serialize};

use crate::last_applied::LastApplied;

/// How a source distinguishes its own objects from others'. There is no default: a caller says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The target holds a mark; records exist only where it cannot, or as a second witness.
    Marked,
    /// Names that begin with this prefix are ours.
    Prefix(NamePrefix),
    /// The ledger says what is ours; the intent is durable before the object is made.
    Checkpoint,
    /// Everything in the scope is ours, as the caller stated.
    Exclusive(Exclusive),
}

/// A name prefix that overlaps no other of its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePrefix(String);

impl NamePrefix {
    /// Whether a name begins with the prefix.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        name.starts_with(&self.0)
    }
}

/// Why a prefix was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixRefused {
    /// Every name begins with the empty prefix.
    #[error("an empty name prefix would own everything")]
    Empty,
    /// One of two prefixes begins with the other.
    #[error("the name prefix `{wanted}` overlaps `{taken}`")]
    Overlaps {
        /// The refused prefix.
        wanted: String,
        /// The one that was there before.
        taken: String,
    },
}

/// The prefixes in use in one target; the only way to get one, so that overlaps cannot go unseen. By default none is in
/// use.
#[derive(Debug, Default)]
pub struct Prefixes {
    taken: Vec<String>,
}

impl Prefixes {
    /// Takes a prefix, unless it is empty or overlaps one that is taken.
    pub fn claim(&mut self, prefix: &str) -> Result<NamePrefix, PrefixRefused> {
        if prefix.is_empty() {
            return Err(PrefixRefused::Empty);
        }
        let overlapping =
            self.taken.iter().find(|taken| taken.starts_with(prefix) || prefix.starts_with(*taken));
        if let Some(taken) = overlapping {
            let (wanted, taken) = (prefix.to_owned(), taken.clone());
            return Err(PrefixRefused::Overlaps { wanted, taken });
        }
        self.taken.push(prefix.to_owned());
        Ok(NamePrefix(prefix.to_owned()))
    }
}

/// The statement that no other owner has objects in the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusive(());

impl Exclusive {
    /// States it: every object in the scope that is not declared will be deleted.
    #[must_use]
    pub fn everything_in_this_scope_is_mine() -> Self {
        Exclusive(())
    }
}

/// What the ledger knows of one owned key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "O: Deserialize<'de>"))]
pub struct Record<O> {
    /// What we wrote last, or were about to write.
    pub wrote: O,
    /// What was there before our first write; captured once.
    pub original: Original<O>,
    /// What the target holds instead of `wrote`: its own rewriting of that value or, under an intent
    /// to update, what our former write left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<O>,
    /// Whether the write is known to have happened.
    pub stage: Stage,
    /// Which object of this key it is about, where the target distinguishes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The object in full before it was taken over from another owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// An object of another owner in full, in the words of its source: with its owner's mark, and with what the source does
/// not manage. The source can make the object again from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snapshot(pub String);

/// What was there before our first write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Original<O> {
    /// Nothing: we made it.
    Absent,
    /// This.
    Was(O),
}

/// How far a recorded write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Recorded before the write; a crash may have come between.
    Intent,
    /// The target confirmed it.
    Done,
}

impl<O> Record<O> {
    /// A record with nothing more to say.
    pub fn new(wrote: O, original: Original<O>, stage: Stage) -> Self {
        Record { wrote, original, settled: None, stage, identity: None, snapshot: None }
    }

    /// Whether the record may be about the object with this identity.
    pub fn is_about(&self, identity: Option<&str>) -> bool {
        self.identity.is_none() || self.identity.as_deref() == identity
    }
}

impl<O: PartialEq> Record<O> {
    /// Whether `seen` is what our last write left in the target.
    pub fn still_holds(&self, seen: &O) -> bool {
        self.wrote == *seen || self.settled.as_ref() == Some(seen)
    }

    /// Whether `seen` is the settled answer of the target to the desired state `wanted`.
    pub fn is_settled(&self, wanted: &O, seen: &O) -> bool {
        let is_answer = self.stage == Stage::Done && self.wrote == *wanted;
        is_answer && self.settled.as_ref() == Some(seen)
    }

    /// Whether the record proves that `seen` is ours. An intent to create, followed by a crash,
    /// proves it only if what is there is what we were about to make: another writer may have come first.
    pub fn proves(&self, seen: &O) -> bool {
        let made_by_us = matches!(self.original, Original::Absent);
        let is_update = self.stage == Stage::Done || self.settled.is_some();
        !made_by_us || is_update || self.wrote == *seen
    }
}

/// The records of one source in one scope.
pub type Records<K, O> = BTreeMap<K, Record<O>>;

/// What the caller knows from earlier passes.
#[derive(Clone, Educe)]
#[educe(Default)]
#[non_exhaustive]
pub struct Holdings<K, O> {
    /// What the ledger says is ours.
    pub records: Records<K, O>,
    /// The desired state that was last applied.
    pub last: LastApplied,
    /// What the ledger holds beside the records, and what cannot be read.
    pub broken: BrokenRecords<K>,
}

impl<K, O> Holdings<K, O> {
    /// Whether the ledger holds no record at all, not even one that cannot be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.broken.is_empty()
    }
}

impl<K: Ord, O> Holdings<K, O> {
    /// The keys of all records, also of those that cannot be read.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<&K> {
        self.records.keys().chain(self.broken.keys.keys()).collect()
    }
}

/// Records that cannot be read. It is not known what is ours there and what was there before, so nothing is written
/// that such a record may be about, and the record stays.
#[derive(Clone, Debug, Educe)]
#[educe(Default)]
#[non_exhaustive]
pub struct BrokenRecords<K> {
    /// Those whose key is known.
    pub keys: BTreeMap<K, BrokenRecord>,
    /// Those whose key cannot be read either: they may be about any key of their source.
    pub unkeyed: Vec<BrokenRecord>,
}

impl<K> BrokenRecords<K> {
    /// Whether all records could be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.unkeyed.is_empty()
    }
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenRecord {
    /// Its key, as the ledger has it.
    pub stored: String,
    /// Why it cannot be read, and the way out.
    pub why: String,
}

impl BrokenRecord {
    /// A record, by its key as the ledger has it, and why it cannot be read.
    pub fn new(stored: impl Into<String>, why: impl Into<String>) -> Self {
        BrokenRecord { stored: stored.into(), why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_prefix_is_refused() {
        assert_eq!(Prefixes::default().claim(""), Err(PrefixRefused::Empty));
    }

    #[test]
    fn overlapping_prefixes_are_refused_both_ways() {
        let mut taken = Prefixes::default();
        taken.claim("web-").unwrap();
        assert!(matches!(taken.claim("web-blue-"), Err(PrefixRefused::Overlaps { .. })));
        assert!(matches!(taken.claim("we"), Err(PrefixRefused::Overlaps { .. })));
        assert!(matches!(taken.claim("web-"), Err(PrefixRefused::Overlaps { .. })));
        assert!(taken.claim("db-").is_ok());
    }

    #[test]
    fn a_prefix_matches_the_beginning_of_the_text_only() {
        let prefix = Prefixes::default().claim("web-").unwrap();
        for (key, expected) in
            [("web-1", true), ("web-", true), ("web", false), ("a web-1", false), ("", false)]
        {
            assert_eq!(prefix.matches(key), expected, "{key:?}");
        }
    }

    fn made(wrote: i32, stage: Stage) -> Record<i32> {
        Record::new(wrote, Original::Absent, stage)
    }

    #[test]
    fn an_intent_to_create_proves_nothing_about_another_object() {
        let mut record = made(1, Stage::Intent);
        assert!(record.proves(&1));
        assert!(!record.proves(&2));
        record.stage = Stage::Done;
        assert!(record.proves(&2));
    }

    #[test]
    fn an_intent_to_update_keeps_what_was_proven_before() {
        let wrote = made(1, Stage::Done);
        let intent = Record { wrote: 2, settled: Some(1), stage: Stage::Intent, ..wrote };
        assert!(intent.proves(&1) && intent.proves(&2) && intent.proves(&3));
        assert!(intent.still_holds(&1) && intent.still_holds(&2) && !intent.still_holds(&3));
        assert!(!intent.is_settled(&2, &1), "the update is still to be made");
    }
}
