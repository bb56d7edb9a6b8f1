//! Finalizers: the two-phase life of a declaration that lives in a store.
//!
//! Where a declaration can be deleted while nobody looks, and the ledger may be lost with the machine
//! that wrote it, the store itself has to remember that something must be cleaned up. So a *finalizer*
//! is set on the declaration before anything is made for it, durably; who deletes it only marks it as
//! going; and it vanishes when the finalizer is taken off, after the cleanup was seen to be complete.
//!
//! The order is in the types. [`Lifecycle::begin`] is the only way to a [`Round`], and a round holds
//! nothing but declarations whose finalizer is set: what it declares may be applied. A declaration that
//! is going is not declared, so that the pass removes what was made for it, if anything was: there is no
//! hook to forget, and a cleanup that runs twice, or where nothing was ever applied, is the same pass.
//! [`Round::judged`] asks the report of that pass what is left, and [`Lifecycle::finish`] takes the
//! finalizer off only where nothing is.
//!
//! ```text
//!  declared ──begin──▶ finalizer set ──pass──▶ applied
//!                          │ deleted by somebody
//!                          ▼
//!                        going ──begin──▶ not declared ──pass──▶ seen to be gone ──finish──▶ vanished
//! ```
//!
//! A crash between any two steps is made good by the next round, since each begins with a look at the
//! store. When the owner will never come back, an operator takes its finalizer off with
//! [`Lifecycle::release`]; what was made stays.

use std::collections::BTreeSet;
use std::future::Future;

use homeostat_engine::{Explain, Failure, Key, Kind};

/// One declaration in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared<K, O> {
    /// What it is about.
    pub key: K,
    /// What is declared.
    pub object: O,
    /// Whether our finalizer is on it.
    pub is_held: bool,
    /// Whether somebody asked for it to go.
    pub is_going: bool,
}

/// A store of declarations that knows finalizers.
///
/// Laws: `list` tells every declaration, or fails. What `hold` and `release` did is durable when they
/// return. `hold` refuses a declaration that is going; `release` of one that is gone is a success.
pub trait Store: Send + Sync {
    /// What a declaration is about.
    type Key: Key;
    /// What is declared.
    type Object: Send;

    /// Every declaration.
    fn list(&self) -> impl Future<Output = Result<Listed<Self>, Failure>> + Send;

    /// Sets our finalizer. False if the declaration is going or gone.
    fn hold(&self, key: &Self::Key) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Takes our finalizer off.
    fn release(&self, key: &Self::Key) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Every declaration of a store.
pub type Listed<S> = Vec<Declared<<S as Store>::Key, <S as Store>::Object>>;

/// The declarations of a store, and the finalizers on them.
#[derive(Debug)]
pub struct Lifecycle<S> {
    store: S,
}

/// What may be applied, and what has to be cleaned up. Only [`Lifecycle::begin`] makes one.
#[derive(Debug)]
pub struct Round<K, O> {
    declared: Vec<(K, O)>,
    going: Vec<K>,
}

impl<K, O> Round<K, O> {
    /// The declarations that are declared: each has its finalizer, durably.
    #[must_use]
    pub fn declared(&self) -> &[(K, O)] {
        &self.declared
    }

    /// The declarations that are going: what was made for them is to be removed.
    #[must_use]
    pub fn going(&self) -> &[K] {
        &self.going
    }
}

impl<K: Key, O> Round<K, O> {
    /// Tells what is cleaned up, as the report of a full pass over the desired state of this very round says.
    #[must_use]
    pub fn judged(self, report: &dyn Explain) -> Cleaned<K> {
        let open = left_over(report);
        let (left, gone) = self.going.into_iter().partition(|key| open.contains(&key.to_string()));
        Cleaned { gone, left }
    }
}

/// What is going and of which nothing is left, and what has to stay. Only [`Round::judged`] makes one.
#[derive(Debug)]
pub struct Cleaned<K> {
    gone: Vec<K>,
    left: Vec<K>,
}

impl<S: Store> Lifecycle<S> {
    /// Begins with the next round.
    pub fn new(store: S) -> Self {
        Lifecycle { store }
    }

    /// Looks at the store and sets our finalizer wherever it is missing. A declaration that went
    /// meanwhile is not declared.
    pub async fn begin(&self) -> Result<Round<S::Key, S::Object>, Failure> {
        let mut round = Round { declared: Vec::new(), going: Vec::new() };
        for declared in self.store.list().await? {
            let Declared { key, object, is_held, is_going } = declared;
            if is_going {
                // Without our finalizer nothing was ever applied for it, or it was cleaned up.
                round.going.extend(is_held.then_some(key));
            } else if is_held || self.store.hold(&key).await? {
                round.declared.push((key, object));
            }
        }
        Ok(round)
    }

    /// Takes the finalizer off what was seen to be gone. Names what has to stay.
    pub async fn finish(&self, cleaned: Cleaned<S::Key>) -> Result<Vec<S::Key>, Failure> {
        for key in &cleaned.gone {
            self.store.release(key).await?;
        }
        Ok(cleaned.left)
    }

    /// Takes the finalizer off by force, for an operator whose owner of finalizers is gone for good.
    /// What was made for the declaration stays, and is nobody's.
    pub async fn release(&self, key: &S::Key) -> Result<(), Failure> {
        self.store.release(key).await
    }
}

/// The keys of which a pass left something undone.
fn left_over(report: &dyn Explain) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for kind in Kind::open() {
        report.explain(kind, &mut |entry| _ = left.insert(entry.key().to_owned()));
    }
    left
}
