//! The differences between desired state and target, and everything else that a diff found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use educe::Educe;
use serde::{Serialize, Serializer};

use crate::change_list::ChangeList;
use crate::desired::{Desired, Slot};
use crate::explain::{Action, Line};
use crate::finding::Finding;
use crate::ownership::Snapshot;
use crate::seen::Owner;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Change<K, O> {
    /// Declared and absent.
    Create { slot: Slot },
    /// There, but not as declared.
    Update {
        slot: Slot,
        /// What is there.
        before: O,
        /// Whose it was, if it is taken over by leave of the desired state.
        adopts: Option<Owner>,
    },
    /// Ours, and no longer declared; or declared, and withdrawn by a check.
    Delete {
        key: K,
        /// What is there.
        before: O,
    },
    /// A claimed value that is no longer declared: it stays, or goes back to its original.
    Release {
        key: K,
        /// What is there.
        before: O,
        /// What to put back, if that was asked for and the value still is what we wrote. It may be
        /// what is there: another step may be about to change it.
        restore: Option<O>,
        /// What the target rewrote along with it, where the source recorded that: it is put back with the original.
        snapshot: Option<Snapshot>,
    },
    /// Ours, taken over from another owner, and no longer declared: it goes back to that owner if it still is what we
    /// wrote, which the source judges.
    GiveBack {
        key: K,
        /// What is there.
        before: O,
        /// How it was taken over.
        taken: Box<TakenOver<O>>,
    },
}

/// How an object was taken over from another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver<O> {
    /// What we wrote last.
    pub wrote: O,
    /// What its former owner had there.
    pub original: O,
    /// The same in full.
    pub snapshot: Snapshot,
}

/// Why a conflict is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A foreign object sits on the key.
    Foreign,
    /// The target has two objects with this key.
    Twin,
    /// It was ours; our mark was taken off.
    LostMark,
    /// Another desired state of the same document undoes this one.
    Fights {
        /// The other desired state, as text.
        with: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Foreign => f.write_str("belongs to another owner"),
            Reason::Twin => f.write_str("the target holds this key twice"),
            Reason::LostMark => f.write_str("our mark was taken off"),
            Reason::Fights { with } => write!(f, "fights with `{with}`, which undoes it"),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Everything that a diff found, in key order.
#[derive(Clone, Debug, Educe)]
#[educe(Default)]
pub struct Changes<K, O> {
    /// What has to be written.
    pub list: ChangeList<K, O>,
    /// Values that are as declared and become ours, so that their original is known.
    pub claims: Vec<Slot>,
    /// What stood there before we claimed or took it.
    pub originals: BTreeMap<K, O>,
    /// Why keys are not simply as declared: conflicts, matches, settled answers, what could not be read.
    pub findings: Vec<(K, Finding)>,
    /// Keys whose change follows from the result of a check.
    pub by_check: BTreeSet<K>,
    /// Records of keys that are neither declared nor there.
    pub pruned: Vec<K>,
    /// Records that a crash left as intents, and that the target now confirms.
    pub confirmed: Vec<K>,
    /// What the target calls objects of ours whose records do not know it yet.
    pub identities: BTreeMap<K, String>,
    /// How many objects in focus are ours.
    pub owned: usize,
}

impl<K: Clone + fmt::Display, O> Change<K, O> {
    /// The key that the change is about.
    pub fn key<D: Desired<Key = K, Object = O>>(&self, desired: &D) -> K {
        match self {
            Change::Create { slot } | Change::Update { slot, .. } => desired.key(*slot),
            Change::Delete { key, .. }
            | Change::Release { key, .. }
            | Change::GiveBack { key, .. } => key.clone(),
        }
    }

    /// What one step does that makes the change.
    pub fn action(&self) -> Action {
        match self {
            Change::Create { .. } => Action::Create,
            Change::Update { .. } => Action::Update,
            Change::Delete { .. } | Change::Release { .. } | Change::GiveBack { .. } => {
                Action::Delete
            }
        }
    }

    /// What such a step says of itself.
    pub fn line<D: Desired<Key = K, Object = O>>(&self, desired: &D) -> Line {
        let wanted = |slot: Slot| Some(desired.shown(&desired.object(slot)));
        let (before, after, note) = match self {
            Change::Create { slot } => (None, wanted(*slot), None),
            Change::Update { slot, before, adopts } => {
                let note = adopts.as_ref().map(|owner| format!("taken over from {owner}"));
                (Some(before), wanted(*slot), note)
            }
            Change::Delete { before, .. } => (Some(before), None, None),
            Change::GiveBack { before, taken, .. } => {
                let note = "given back to its former owner".to_owned();
                (Some(before), Some(desired.shown(&taken.original)), Some(note))
            }
            Change::Release { before, restore: None, .. } => {
                (Some(before), None, Some("released, the value stays".to_owned()))
            }
            Change::Release { before, restore: Some(original), .. } => {
                let note = "released, the original returns".to_owned();
                (Some(before), Some(desired.shown(original)), Some(note))
            }
        };
        let (action, key) = (self.action(), self.key(desired).to_string());
        let before = before.map(|before| desired.shown(before));
        Line { before, after, note, ..Line::new(action, key) }
    }
}

impl<K: Ord, O> Changes<K, O> {
    /// The order of the findings does not depend on the order in which the target reported them.
    pub(crate) fn sort(&mut self) {
        self.list.sort();
        self.claims.sort_unstable();
        self.findings.sort_by(|(key, one), (other_key, other)| {
            let by_key = key.cmp(other_key).then_with(|| one.kind().cmp(&other.kind()));
            by_key.then_with(|| one.reason().cmp(&other.reason()))
        });
        self.confirmed.sort();
    }
}

/// Slots are in key order, so declared changes need no key to be sorted.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank<'a, K> {
    Declared(Slot),
    Undeclared(&'a K),
}

impl<K: Ord, O> Change<K, O> {
    /// Whether an object of ours goes, because it is not declared any more.
    pub(crate) fn is_removal(&self) -> bool {
        matches!(self.rank(), Rank::Undeclared(_))
    }

    pub(crate) fn rank(&self) -> Rank<'_, K> {
        match self {
            Change::Create { slot } | Change::Update { slot, .. } => Rank::Declared(*slot),
            Change::Delete { key, .. }
            | Change::Release { key, .. }
            | Change::GiveBack { key, .. } => Rank::Undeclared(key),
        }
    }
}
