//! What a reader reports of the target: objects, their owners, and hints.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use educe::Educe;
use serde::{Serialize, Serializer};

/// Which keys a pass looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Focus<K> {
    /// Everything in the scope: the truth.
    All,
    /// These keys only: latency.
    Keys(BTreeSet<K>),
}

/// How many keys are worth single looks where so many are declared; beyond, one look at everything is
/// cheaper.
#[must_use]
pub fn most_keys(declared: usize) -> usize {
    (declared / 16).max(4096)
}

impl<K: Ord> Focus<K> {
    /// Whether `key` is looked at.
    pub fn covers(&self, key: &K) -> bool {
        match self {
            Focus::All => true,
            Focus::Keys(keys) => keys.contains(key),
        }
    }
}

/// Who put an object there, as far as the target itself can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The target holds our mark on it.
    Ours,
    /// Another owner's; the text says whose, for people ("protocol bird").
    Foreign(Cow<'static, str>),
    /// The target made it by itself (a connected route).
    Kernel,
    /// The target cannot hold a mark: the ownership strategy decides.
    Unmarked,
    /// A value that always exists and belongs to its last writer (a sysctl): the first apply
    /// claims it and records the original.
    Nobody,
}

impl Owner {
    /// A foreign owner with a constant description.
    #[must_use]
    pub const fn foreign(who: &'static str) -> Self {
        Owner::Foreign(Cow::Borrowed(who))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::Ours => "ours",
            Owner::Foreign(who) => who,
            Owner::Kernel => "kernel",
            Owner::Unmarked => "unmarked",
            Owner::Nobody => "nobody",
        })
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One observed object. A key in focus that is not reported is absent.
#[derive(Clone, Debug)]
pub enum Seen<K, O> {
    /// The object is there.
    Present {
        /// Its identity as the target sees it.
        key: K,
        /// Its normalized, managed part.
        object: O,
        /// Who put it there.
        owner: Owner,
    },
    /// It could not be read: neither present nor absent.
    Unknown {
        /// The key in question.
        key: K,
        /// Why it could not be read, for people.
        why: String,
    },
}

/// Where a reader reports objects, one at a time, so that no list has to be kept.
pub type See<'a, K, O> = dyn FnMut(Seen<K, O>) + Send + 'a;

/// Keys that may have changed, each with who changed it ("protocol bird"), where the target says so.
#[derive(Clone, Debug, PartialEq, Eq, Educe)]
#[educe(Default)]
pub struct HintedKeys<K>(BTreeMap<K, Option<Arc<str>>>);

impl<K: Ord> HintedKeys<K> {
    /// Adds a key. A known name is kept: a later notice about the same key may not say it.
    pub fn add(&mut self, key: K, by: Option<Arc<str>>) {
        let known = self.0.entry(key).or_default();
        *known = by.or(known.take());
    }

    /// Removes the keys that a pass looks at, and returns them.
    #[must_use]
    pub fn take(&mut self, focus: &Focus<K>) -> Self {
        HintedKeys(self.0.extract_if(.., |key, _| focus.covers(key)).collect())
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K> Deref for HintedKeys<K> {
    type Target = BTreeMap<K, Option<Arc<str>>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Ord> FromIterator<K> for HintedKeys<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        HintedKeys(keys.into_iter().map(|key| (key, None)).collect())
    }
}

impl<K> IntoIterator for HintedKeys<K> {
    type Item = (K, Option<Arc<str>>);
    type IntoIter = btree_map::IntoIter<K, Option<Arc<str>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A lossy notice from the target; it carries keys, never state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint<K> {
    /// These keys, and what depends on them, may have changed.
    Keys(HintedKeys<K>),
    /// Notices were lost: look at everything again.
    Lost,
}

impl<K: Ord> Hint<K> {
    /// A notice about keys from a target that does not say who changed them.
    pub fn keys(keys: impl IntoIterator<Item = K>) -> Self {
        Hint::Keys(keys.into_iter().collect())
    }
}
