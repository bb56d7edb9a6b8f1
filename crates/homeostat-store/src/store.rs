//! The contract of a store.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_kit::store::{Revision, Snapshot, StoreWatch};

use crate::error::Error;

/// A store of values by key, shared by several machines.
///
/// Laws:
/// 1. `list` returns everything as it was at one revision, and nothing older than any answer that was given before it
///    was called.
/// 2. A watch returns every change after the revision that it was opened with, once and in the order of revisions; the
///    changes of one transaction share their revision. If it cannot, it says so (compacted, regressed) or fails: it is
///    never silent for good while the store can be reached.
/// 3. A transaction is made as a whole, at one revision greater than all before, or not at all. It is made only if
///    all its guards hold. If a guard does not hold, the answer has what the guarded keys hold.
/// 4. An entry was created at the revision of the first write since it was absent, and modified at that of the last.
/// 5. The entries of a lease are deleted when it is revoked or has expired, never before its time to live has passed
///    since its last renewal. A lease that is gone does not come back, and nothing can be put under it.
/// 6. [`Error::InDoubt`] is the only error after which a write may have been made, and may still be.
/// 7. Every call ends: with an answer or with an error.
pub trait Store: Send + Sync + 'static {
    /// Everything at these keys.
    fn list(&self, keys: Keys) -> Later<'_, Result<Snapshot<String, Entry>, Error>>;

    /// Watches what changes at these keys after a revision.
    fn watch(&self, keys: Keys, after: Revision) -> Later<'_, Result<Watching, Error>>;

    /// Makes the writes if the guards hold.
    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, Error>>;

    /// A new lease. The store may choose a longer time to live.
    fn grant(&self, time_to_live: Duration) -> Later<'_, Result<Lease, Error>>;

    /// Makes a lease last for its time to live from now on.
    fn renew(&self, lease: LeaseId) -> Later<'_, Result<Renewal, Error>>;

    /// Ends a lease and deletes its entries. One that is gone is no error.
    fn revoke(&self, lease: LeaseId) -> Later<'_, Result<(), Error>>;

    /// What a member says of itself. A member answers without the others: this shows that it can be reached, not that
    /// the store can be written.
    fn status(&self) -> Later<'_, Result<Status, Error>>;
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(String),
    /// All that begin with this text.
    Below(String),
}

impl Keys {
    /// Whether a key is one of them.
    #[must_use]
    pub fn contain(&self, key: &str) -> bool {
        match self {
            Keys::One(one) => one == key,
            Keys::Below(prefix) => key.starts_with(prefix.as_str()),
        }
    }
}

/// What is stored at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// When the key got a value after it had none.
    pub created: Revision,
    /// When it got this value.
    pub modified: Revision,
    /// The lease that it vanishes with.
    pub lease: Option<LeaseId>,
}

impl Entry {
    /// An entry without a lease.
    #[must_use]
    pub fn new(value: Vec<u8>, created: Revision, modified: Revision) -> Self {
        Entry { value, created, modified, lease: None }
    }

    /// The same under a lease.
    #[must_use]
    pub fn with_lease(self, lease: Option<LeaseId>) -> Self {
        Entry { lease, ..self }
    }
}

/// An open watch.
pub type Watching = Box<dyn StoreWatch<String, Entry>>;

/// Writes that are made together, if what they stand on is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Transaction {
    /// All of them must hold.
    pub guards: Vec<Guard>,
    /// Made in one revision; each key at most once.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Without guards and writes.
    pub fn new() -> Self {
        Transaction::default()
    }

    /// The same, only if this holds.
    pub fn only_if(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    /// The same, with a value put at a key.
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Put { key: key.into(), value: value.into(), lease: None });
        self
    }

    /// The same, with a value put at a key that vanishes with a lease.
    pub fn put_leased(
        mut self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        lease: LeaseId,
    ) -> Self {
        let (key, value, lease) = (key.into(), value.into(), Some(lease));
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// The same, with a key deleted.
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }
}

/// What a transaction stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key has no value.
    Absent {
        /// The key.
        key: String,
    },
    /// The key has the value that it got then.
    Unmodified {
        /// The key.
        key: String,
        /// [`Entry::modified`].
        since: Revision,
    },
    /// The key has had values without a break since then: the guard of a term.
    Created {
        /// The key.
        key: String,
        /// [`Entry::created`].
        at: Revision,
    },
}

impl Guard {
    /// The key that it speaks of.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Guard::Absent { key } | Guard::Unmodified { key, .. } | Guard::Created { key, .. } => {
                key
            }
        }
    }

    /// Whether it holds for what the key holds.
    #[must_use]
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        match (self, entry) {
            (Guard::Absent { .. }, entry) => entry.is_none(),
            (Guard::Unmodified { since, .. }, Some(entry)) => entry.modified == *since,
            (Guard::Created { at, .. }, Some(entry)) => entry.created == *at,
            (Guard::Unmodified { .. } | Guard::Created { .. }, None) => false,
        }
    }
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A value is put at a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that it vanishes with.
        lease: Option<LeaseId>,
    },
    /// A key is deleted; one without a value is no error.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// The key that it speaks of.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// It was made.
    Done {
        /// When.
        revision: Revision,
    },
    /// A guard did not hold, and nothing was written.
    Refused {
        /// When that was so.
        revision: Revision,
        /// What the guarded keys held; keys without a value are not in it.
        current: BTreeMap<String, Entry>,
    },
}

/// Which lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Which one.
    pub id: LeaseId,
    /// How long it lasts after the grant and after each renewal. It may last longer: a store that elects a leader of
    /// its own begins all times anew.
    pub time_to_live: Duration,
}

impl Lease {
    /// A lease.
    #[must_use]
    pub fn new(id: LeaseId, time_to_live: Duration) -> Self {
        Lease { id, time_to_live }
    }
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// It lasts for so long from when the store had the request.
    Lasts(Duration),
    /// It has expired or was revoked. It never comes back: get a new one.
    Gone,
}

/// What a member of a store says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Which member, as the configuration names it.
    pub member: String,
    /// The version of its program.
    pub version: String,
    /// The newest revision that it knows.
    pub revision: Revision,
    /// Whether it knows a leader, without whom nothing can be written.
    pub has_leader: bool,
}

impl Status {
    /// What a member with a leader says.
    pub fn new(member: impl Into<String>, version: impl Into<String>, revision: Revision) -> Self {
        Status { member: member.into(), version: version.into(), revision, has_leader: true }
    }

    /// The same, with a leader or without one.
    #[must_use]
    pub fn with_leader(self, has_leader: bool) -> Self {
        Status { has_leader, ..self }
    }
}
