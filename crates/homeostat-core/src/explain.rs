//! What plans and reports have to tell, one line at a time.

use serde::Serialize;
use serde_json::Value;

use crate::change::Reason;
use crate::outcome::Failure;
use crate::seen::Owner;
use crate::waits_on::WaitsOn;

/// What a step does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It was absent.
    Create,
    /// It changes in place.
    Update,
    /// It cannot change in place: gone and made again in one step.
    Replace,
    /// It goes; a claimed value is given up.
    Delete,
}

impl Action {
    /// The sign in front of a line of a plan.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Action::Create => "+",
            Action::Update => "~",
            Action::Replace => "-/+",
            Action::Delete => "-",
        }
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Update => "update",
            Action::Replace => "replace",
            Action::Delete => "delete",
        }
    }
}

/// Why something has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The desired state is new or changed.
    Config,
    /// The target left the desired state, and we did not do it.
    Drift,
}

/// One change in words: what a step says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What is done.
    pub action: Action,
    /// To what; one line of text.
    pub key: String,
    /// What is there.
    pub before: Option<Value>,
    /// What will be there.
    pub after: Option<Value>,
    /// What a reader should know beside it ("released, the value stays").
    pub note: Option<String>,
}

/// One thing that a plan or a report has to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A change that is planned.
    Change(Line, Cause),
    /// A change that was made and verified.
    Applied(Line, Cause),
    /// A desired state or a step that was refused.
    Failed {
        /// What was tried; nothing, if the desired state was refused before.
        action: Option<Action>,
        /// The key.
        key: String,
        /// Why, and the way out.
        failure: Failure,
    },
    /// Something that waits.
    Pending {
        /// The key.
        key: String,
        /// What it waits on.
        on: WaitsOn,
    },
    /// A wanted key that may not be written.
    Conflict {
        /// The key.
        key: String,
        /// Whose it is.
        owner: Owner,
        /// Why it is in the way.
        reason: Reason,
    },
    /// Not as declared, but the target's settled answer.
    Settled {
        /// The key.
        key: String,
        /// The desired state.
        wanted: Value,
        /// The answer.
        held: Value,
    },
    /// As declared, and somebody else's.
    Matched {
        /// The key.
        key: String,
        /// Whose it is.
        owner: Owner,
    },
    /// Could not be read, or its write has no known outcome.
    Unknown {
        /// The key.
        key: String,
        /// Why.
        why: String,
    },
    /// Held back by a guard.
    Held {
        /// What would be done.
        action: Action,
        /// The key.
        key: String,
        /// Which guard, and how to lift it.
        why: String,
    },
}

impl Entry {
    /// The key that it speaks of.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Entry::Change(line, _) | Entry::Applied(line, _) => &line.key,
            Entry::Failed { key, .. }
            | Entry::Pending { key, .. }
            | Entry::Conflict { key, .. }
            | Entry::Settled { key, .. }
            | Entry::Matched { key, .. }
            | Entry::Unknown { key, .. }
            | Entry::Held { key, .. } => key,
        }
    }

    /// The kind of the entry.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Entry::Change(..) => Kind::Change,
            Entry::Applied(..) => Kind::Applied,
            Entry::Failed { .. } => Kind::Failed,
            Entry::Pending { .. } => Kind::Pending,
            Entry::Conflict { .. } => Kind::Conflict,
            Entry::Settled { .. } => Kind::Settled,
            Entry::Matched { .. } => Kind::Matched,
            Entry::Unknown { .. } => Kind::Unknown,
            Entry::Held { .. } => Kind::Held,
        }
    }
}

/// The kinds of entries, in the order in which people read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Entry::Change`].
    Change,
    /// [`Entry::Applied`].
    Applied,
    /// [`Entry::Failed`].
    Failed,
    /// [`Entry::Pending`].
    Pending,
    /// [`Entry::Conflict`].
    Conflict,
    /// [`Entry::Settled`].
    Settled,
    /// [`Entry::Matched`].
    Matched,
    /// [`Entry::Unknown`].
    Unknown,
    /// [`Entry::Held`].
    Held,
}

impl Kind {
    /// The kinds of what is not as declared.
    pub const OPEN: [Kind; 6] =
        [Kind::Change, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Unknown, Kind::Held];
}

/// How many changes of each action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Created.
    pub create: usize,
    /// Updated in place.
    pub update: usize,
    /// Replaced.
    pub replace: usize,
    /// Deleted.
    pub delete: usize,
}

impl Summary {
    /// Counts one more.
    pub fn count(&mut self, action: Action) {
        match action {
            Action::Create => self.create += 1,
            Action::Update => self.update += 1,
            Action::Replace => self.replace += 1,
            Action::Delete => self.delete += 1,
        }
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.create + self.update + self.replace + self.delete
    }
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.create += other.create;
        self.update += other.update;
        self.replace += other.replace;
        self.delete += other.delete;
    }
}

/// A key and the declare it.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The key, as entries have it.
    pub key: String,
    /// What is declared; nothing, if the key is not declared.
    pub wanted: Option<Value>,
}

/// Somebody who hears a part of a long list and only counts the rest.
pub trait Audience {
    /// Whether to put the next change into words: doing so for a million that nobody reads takes seconds.
    fn wants(&mut self, cause: Cause) -> bool;

    /// Hears of a change.
    fn hear(&mut self, entry: Entry);
}

/// A plan or a report, told entry by entry, so that a million lines are never kept at once.
pub trait Explain: Send {
    /// Tells every entry of one kind, in order.
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry));

    /// Tells the changes, planned or applied, that an audience wants to hear of.
    fn sample(&self, kind: Kind, audience: &mut dyn Audience) {
        self.explain(kind, &mut |entry| match &entry {
            Entry::Change(_, cause) | Entry::Applied(_, cause) if !audience.wants(*cause) => {}
            _ => audience.hear(entry),
        });
    }

    /// How many changes are planned, or were applied.
    fn summary(&self) -> Summary;

    /// Nothing failed, pending, unknown, held or in conflict, and nothing left to change.
    fn is_converged(&self) -> bool;

    /// A key, and what is declared of it; nothing, if the text is no key of the source.
    fn about(&self, key: &str) -> Option<About> {
        let _ = key;
        None
    }
}
