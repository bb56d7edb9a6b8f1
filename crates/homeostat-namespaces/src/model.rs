//! What a namespace is to us, and the desired state: a sorted list of names.

use homeostat_core::{Agreement, Desired, Slot};
use homeostat_netns::Identity;
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// A namespace. All are alike as far as a desired state goes; only the identity says which one it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Namespace {
    /// Which one was seen; a desired state is for any.
    #[serde(skip)]
    pub identity: Option<Identity>,
}

impl PartialEq for Namespace {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// The namespaces that should exist.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    /// Sorted, each name once.
    names: Vec<(Key, Policy)>,
}

/// What homeostat does about a declared name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Create it if it is absent.
    Create,
    /// Keep it while it exists; do not create it.
    Keep,
}

impl DesiredState {
    /// These namespaces; one that is named twice is declared once.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        DesiredState::default().and(keys, Policy::Create)
    }

    /// The same, and these namespaces are not removed if we made them.
    #[must_use]
    pub fn keeping(self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.and(keys, Policy::Keep)
    }

    /// The first declaration of a name counts.
    fn and(mut self, keys: impl IntoIterator<Item = Key>, policy: Policy) -> Self {
        self.names.extend(keys.into_iter().map(|key| (key, policy)));
        self.names.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.names.dedup_by(|(later, _), (first, _)| later == first);
        self
    }

    /// The names, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.names.iter().map(|(key, _)| key)
    }

    /// How much a namespace is declared, if at all.
    pub(crate) fn policy(&self, key: &Key) -> Option<Policy> {
        let slot = self.slot(key, None)?;
        self.names.get(slot.index()).map(|(_, policy)| *policy)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Namespace;

    fn len(&self) -> usize {
        self.names.len()
    }

    fn slot(&self, key: &Key, _near: Option<Slot>) -> Option<Slot> {
        self.names.binary_search_by(|(name, _)| name.cmp(key)).ok().map(Slot::at)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "core asks only for slots that this desired state gave out"
    )]
    fn key(&self, slot: Slot) -> Key {
        self.names[slot.index()].0.clone()
    }

    fn object(&self, _slot: Slot) -> Namespace {
        Namespace::default()
    }

    fn compare(&self, _slot: Slot, _seen: &Namespace) -> Agreement {
        Agreement::Agrees
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.policy(&self.key(slot)) == other.policy(&other.key(there))
    }

    fn identity(&self, seen: &Namespace) -> Option<String> {
        seen.identity.as_ref().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desired_state_is_sorted_and_knows_each_name_once() {
        let key = |text: &str| text.parse::<Key>().unwrap();
        let desired =
            DesiredState::new(["namespace red", "namespace blue", "namespace red"].map(key));
        assert_eq!(desired.len(), 2);
        assert_eq!(desired.key(Slot(0)), key("namespace blue"));
        assert_eq!(desired.slot(&key("namespace red"), None), Some(Slot(1)));
        assert_eq!(desired.policy(&key("namespace green")), None);
        let desired = desired.keeping(["namespace green", "namespace red"].map(key));
        assert_eq!(desired.policy(&key("namespace green")), Some(Policy::Keep));
        assert_eq!(desired.policy(&key("namespace red")), Some(Policy::Create));
        assert_eq!(desired.slot(&key("namespace red"), None), Some(Slot(2)));
    }

    #[test]
    fn what_a_record_holds_of_a_declared_namespace_reads_back() {
        let text = serde_json::to_string(&Namespace::default()).unwrap();
        assert_eq!(text, "{}");
        assert_eq!(serde_json::from_str::<Namespace>(&text).unwrap(), Namespace::default());
    }
}
