//! What starts a pass, the pass that follows from it, and what that one found out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use homeostat_core::pacing::{Reason, Reasons};
use homeostat_core::{Focus, Retry};

/// Everything that starts a pass. It carries keys for the look and reasons for the log, never state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakeup<K> {
    /// The loop has just begun.
    Start,
    /// The desired state changed.
    Desired,
    /// A desired state was put that must not wait for the pace of others.
    Replaced,
    /// The target said that these keys may have changed.
    Hint(Vec<K>),
    /// Hints were lost.
    Lost,
    /// A person asked for it.
    Operator,
}

impl<K> Wakeup<K> {
    /// The reason that goes to the log.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Wakeup::Start => Reason::Start,
            Wakeup::Desired | Wakeup::Replaced => Reason::Desired,
            Wakeup::Hint(_) => Reason::Hint,
            Wakeup::Lost => Reason::Resync,
            Wakeup::Operator => Reason::Operator,
        }
    }

    /// The keys that it names; none for everything.
    #[must_use]
    pub fn keys(&self) -> &[K] {
        match self {
            Wakeup::Hint(keys) => keys,
            _ => &[],
        }
    }
}

/// A pass that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn<K> {
    pub(crate) focus: Focus<K>,
    pub(crate) reasons: Reasons,
    pub(crate) waited: Duration,
}

impl<K: Ord + Clone> Turn<K> {
    /// The keys that it names; none for everything.
    pub(crate) fn keys(&self) -> BTreeSet<K> {
        match &self.focus {
            Focus::All => BTreeSet::new(),
            Focus::Keys(keys) => keys.clone(),
        }
    }
}

/// What a pass found out that decides about the next one.
#[derive(Clone, Debug)]
pub(crate) struct Facts<K> {
    /// What could not be done.
    pub(crate) failed: BTreeMap<K, Retry>,
    /// What was done and does not show, with a print of it.
    pub(crate) missed: BTreeMap<K, u64>,
    /// What was written to, or tried to be.
    pub(crate) written: BTreeSet<K>,
    /// What was left alone, and stands as before.
    pub(crate) held: BTreeSet<K>,
    /// What the target works on, or will: whether it fails is not known yet.
    pub(crate) waiting: BTreeSet<K>,
    /// Why the pass could not be made at all.
    pub(crate) broken: Option<Retry>,
}

impl<K> Default for Facts<K> {
    fn default() -> Self {
        let (failed, missed) = (BTreeMap::new(), BTreeMap::new());
        let (written, held, waiting) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Facts { failed, missed, written, held, waiting, broken: None }
    }
}
