//! The desired state, in whatever layout its source likes, addressed by slots in key order.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use educe::Educe;

use crate::last_applied::Fingerprint;
use crate::source::{Key, Object};

/// The place of one desired state in its sorted list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The slot for an index; desired states are limited to four billion.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Slot(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// How an observed object compares with its desired state. Only declared attributes count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every declared attribute is as declared.
    Agrees,
    /// At least one declared attribute is not.
    Differs,
    /// Some declared attributes could not be read: those are never written.
    Unsure {
        /// Whether any of the attributes that could be read is not as declared.
        differs: bool,
        /// What could not be read, for people.
        why: String,
    },
}

impl Agreement {
    /// `Agrees` or `Differs`.
    #[must_use]
    pub fn when(agrees: bool) -> Self {
        if agrees { Agreement::Agrees } else { Agreement::Differs }
    }
}

/// What should exist, normalized.
///
/// Laws: keys are unique and sorted by slot; `slot(&key(s), _) == Some(s)` whatever `near` says;
/// `compare(s, &object(s))` agrees.
pub trait Desired: Send + Sync + 'static {
    /// Identity as the target sees it.
    type Key: Key;
    /// The managed part of one object.
    type Object: Object;

    /// How many desired states there are.
    fn len(&self) -> usize;

    /// Whether nothing is declared.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of `key`. `near` is the slot of the last answer, so that a stream in key order
    /// costs one comparison a lookup.
    fn slot(&self, key: &Self::Key, near: Option<Slot>) -> Option<Slot>;

    /// The key in `slot`.
    fn key(&self, slot: Slot) -> Self::Key;

    /// The object declared in `slot`.
    fn object(&self, slot: Slot) -> Self::Object;

    /// Compares declared attributes only.
    fn compare(&self, slot: Slot, seen: &Self::Object) -> Agreement;

    /// Whether the desired state allows to take this key from any owner, as often as needed.
    fn may_adopt(&self, slot: Slot) -> bool {
        let _ = slot;
        false
    }

    /// What distinguishes this very object from a later one with the same key, where the target knows it (the
    /// cookie of a namespace). A record is about one of them only; it learns which by a look, so the
    /// writer of such an object leaves its answer to the second look.
    fn identity(&self, seen: &Self::Object) -> Option<String> {
        let _ = seen;
        None
    }

    /// What a [name prefix](crate::NamePrefix) is compared with; by default the whole text of the key.
    fn name(&self, key: &Self::Key) -> String {
        key.to_string()
    }

    /// Names the keys whose declaration is not known, each with the reason, such as broken input. Such a key
    /// has no slot; whatever the target holds there is neither changed nor deleted, and nothing is created.
    fn unknown(&self, emit: &mut dyn FnMut(&Self::Key, &str)) {
        let _ = emit;
    }

    /// An object as plans and reports show it; what the ledger stores of it may say more.
    fn shown(&self, object: &Self::Object) -> serde_json::Value {
        serde_json::to_value(object).unwrap_or_default()
    }

    /// Names the declared keys that may be lost, or may become possible, when something happens to
    /// `key`, declared or not: the routes over an address. What depends on those in turn is asked for
    /// by the caller.
    fn dependants(&self, key: &Self::Key, emit: &mut dyn FnMut(Self::Key)) {
        let _ = (key, emit);
    }

    /// The declared keys that a person may mean by some characters, the best ones first: at most `limit`, and how many
    /// there are. By default, those whose text has these characters, among the first ten thousand. A source with very
    /// many desired states overrides it with what it can look up.
    fn find(&self, text: &str, limit: usize) -> FoundKeys<Self::Key> {
        FoundKeys::with_text(text, limit, (0..self.len()).map(|at| self.key(Slot::at(at))))
    }

    /// Whether `slot` declares the same as slot `there` of another desired state: a loop that is given the other
    /// desired state keeps what it learned about such a key, such as its backoff. By default nothing is the same.
    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        let _ = (slot, other, there);
        false
    }

    /// Whether another desired state declares the same as a whole. A loop that is given the same desired state again does
    /// nothing, so whatever a desired state holds beside its slots has to be compared here.
    fn is_same_desired(&self, other: &Self) -> bool {
        let mut slots = (0..self.len()).map(Slot::at);
        self.len() == other.len()
            && slots.all(|at| self.key(at) == other.key(at) && self.is_same(at, other, at))
    }

    /// A digest of a key, stable across versions of the program. Sources with very many desired states
    /// override it with something cheaper than the digest of its text.
    fn key_print(&self, key: &Self::Key) -> u64 {
        Fingerprint::of_text(key)
    }

    /// A digest of the object declared in `slot`, as stable; overridden likewise.
    fn object_print(&self, slot: Slot) -> u64 {
        Fingerprint::of_object(&self.object(slot))
    }
}

/// How many keys a search for characters looks at.
const SEARCHED: usize = 10_000;

/// Keys that a search found.
#[derive(Clone, Debug, Educe, PartialEq, Eq)]
#[educe(Default)]
#[non_exhaustive]
pub struct FoundKeys<K> {
    /// The first ones.
    pub keys: Vec<K>,
    /// How many were found; the others are not in `keys`.
    pub total: usize,
}

impl<K: Key> FoundKeys<K> {
    /// Those of the first ten thousand keys whose text has these characters.
    pub fn with_text(text: &str, limit: usize, keys: impl Iterator<Item = K>) -> Self {
        let mut found = FoundKeys::default();
        for key in keys.take(SEARCHED).filter(|key| key.to_string().contains(text)) {
            found.add(key, limit);
        }
        found
    }

    /// Adds a key, if there is room; counts it in any case.
    pub fn add(&mut self, key: K, limit: usize) {
        self.total += 1;
        if self.keys.len() < limit {
            self.keys.push(key);
        }
    }
}

/// Two desired states with one key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is declared twice")]
#[non_exhaustive]
pub struct DuplicateKey {
    /// The key, as text.
    pub key: String,
}

impl DuplicateKey {
    /// A key, as text, that is declared twice.
    pub fn new(key: impl Into<String>) -> Self {
        DuplicateKey { key: key.into() }
    }
}

/// The ready-made desired state: a sorted list of keys and objects that are compared whole.
#[derive(Clone, Debug, Educe)]
#[educe(Default)]
pub struct Table<K, O> {
    desired_states: Vec<(K, O)>,
}

impl<K: Key, O: Object> Table<K, O> {
    /// Sorts the desired states; refuses a key that occurs twice.
    pub fn new(desired_states: impl IntoIterator<Item = (K, O)>) -> Result<Self, DuplicateKey> {
        let mut desired_states: Vec<_> = desired_states.into_iter().collect();
        desired_states.sort_by(|a, b| a.0.cmp(&b.0));
        match desired_states.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(DuplicateKey { key: pair[0].0.to_string() }),
            None => Ok(Table { desired_states }),
        }
    }

    /// The desired states in key order.
    pub fn iter(&self) -> impl Iterator<Item = &(K, O)> {
        self.desired_states.iter()
    }
}

/// A map has each key once, and in order.
impl<K: Key, O: Object> From<BTreeMap<K, O>> for Table<K, O> {
    fn from(desired_states: BTreeMap<K, O>) -> Self {
        Table { desired_states: desired_states.into_iter().collect() }
    }
}

impl<K: Key, O: Object> Desired for Table<K, O> {
    type Key = K;
    type Object = O;

    fn len(&self) -> usize {
        self.desired_states.len()
    }

    fn slot(&self, key: &K, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.desired_states, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> K {
        self.desired_states[slot.index()].0.clone()
    }

    fn object(&self, slot: Slot) -> O {
        self.desired_states[slot.index()].1.clone()
    }

    fn compare(&self, slot: Slot, seen: &O) -> Agreement {
        Agreement::when(self.desired_states[slot.index()].1 == *seen)
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.desired_states[slot.index()].1 == other.desired_states[there.index()].1
    }
}

/// Looks a key up in a sorted slice. The search widens from the last answer, so that a sorted stream
/// costs a comparison or two an object, also for keys that are not declared. For sources that bring
/// their own layout of [`Desired`].
pub fn find_near<T>(
    sorted: &[T],
    near: Option<Slot>,
    compare: impl Fn(&T) -> Ordering,
) -> Option<Slot> {
    let next = near.map_or(0, |slot| slot.index() + 1);
    if sorted.get(next).is_some_and(|entry| compare(entry).is_eq()) {
        return Some(Slot::at(next));
    }
    let from = near.map_or(0, Slot::index).min(sorted.len());
    let is_before = |at: usize| sorted.get(at).is_some_and(|entry| compare(entry).is_lt());
    let (mut low, mut high) = (0, from);
    if near.is_none() || is_before(from) {
        let mut reach = 1;
        (low, high) = (from, from + reach);
        while is_before(high) {
            reach *= 2;
            (low, high) = (high, high + reach);
        }
    }
    let window = sorted.get(low..(high + 1).min(sorted.len()))?;
    window.binary_search_by(compare).ok().map(|at| Slot::at(low + at))
}
