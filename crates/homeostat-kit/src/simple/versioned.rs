//! An object beside the version that the target gave it: what a write takes as its precondition.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An object as it was seen, with the target's version, digest or entity tag of it.
///
/// Where the target also gives an id that a later object of the same name does not have, that is its
/// *identity*: a record in the ledger is about that very object.
///
/// Neither is a part of the object: two are equal if their objects are, plans do not show them.
/// The version travels with what a pass saw to the call that changes it
/// (`before` of [`update`](super::Api::update) and [`delete`](super::Api::delete)), so that the write
/// is refused ([`Refusal::Moved`](super::Refusal::Moved)) if another writer came between.
#[derive(Clone, Debug)]
pub struct Versioned<O> {
    object: O,
    version: Option<String>,
    identity: Option<String>,
}

impl<O> Versioned<O> {
    /// An object that is declared: it has no version yet.
    pub fn declared(object: O) -> Self {
        Versioned { object, version: None, identity: None }
    }

    /// An object that was seen.
    pub fn seen(object: O, version: impl Into<String>) -> Self {
        Versioned { object, version: Some(version.into()), identity: None }
    }

    /// Adds what distinguishes it from a later object of the same name.
    #[must_use]
    pub fn identified(self, identity: impl Into<String>) -> Self {
        Versioned { identity: Some(identity.into()), ..self }
    }

    /// What distinguishes it from a later object of the same name; for [`Api::identity`](super::Api::identity).
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// The version under which it was seen.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

impl<O> Deref for Versioned<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.object
    }
}

impl<O: PartialEq> PartialEq for Versioned<O> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<O: Eq> Eq for Versioned<O> {}

impl<O: Serialize> Serialize for Versioned<O> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

impl<'de, O: Deserialize<'de>> Deserialize<'de> for Versioned<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        O::deserialize(deserializer).map(Self::declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_part_of_the_object() {
        let (declared, seen) = (Versioned::declared(1), Versioned::seen(1, "abc"));
        assert_eq!(declared, seen);
        assert_eq!(serde_json::to_string(&seen).unwrap(), "1");
        let read: Versioned<i32> = serde_json::from_str("1").unwrap();
        assert_eq!((read.version(), seen.version()), (None, Some("abc")));
    }
}
