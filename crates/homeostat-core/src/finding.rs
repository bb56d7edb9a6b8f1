//! Why a key is not simply as declared. This is the only list of the reasons: plans, reports, status, events, metrics
//! and JSON derive from it.

use serde::Serialize;
use serde_json::Value;

use crate::change::Reason;
use crate::desired::Desired;
use crate::explain::Action;
use crate::outcome::Failure;
use crate::seen::Owner;
use crate::waits_on::WaitsOn;

/// Why a key is not simply as declared. As JSON it has the fields of its entry in a list of a plan or a report, but for
/// the action, which the entry has in front of its key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub enum Finding {
    /// A step that the target refused, or a desired state that the source refused.
    Failed {
        /// What was tried; nothing if the desired state was refused.
        #[serde(skip)]
        action: Option<Action>,
        /// Why, and the way out.
        #[serde(flatten)]
        failure: Failure,
    },
    /// The target accepted a write, and a look does not show it.
    NotShown {
        /// What was written.
        #[serde(skip)]
        action: Action,
        /// What the look shows instead.
        #[serde(flatten)]
        failure: Failure,
    },
    /// It has to wait.
    Pending {
        /// For this.
        on: WaitsOn,
    },
    /// A declared key that may not be written.
    Conflict {
        /// Whose object sits there.
        owner: Owner,
        /// Why it is in the way.
        reason: Reason,
    },
    /// Not as declared, but the target's settled answer to the desired state.
    Settled {
        /// What is declared.
        wanted: Box<Value>,
        /// What the target keeps for it.
        held: Box<Value>,
    },
    /// As declared, and another owner's: it is left as it is.
    Matched { owner: Owner },
    /// It could not be read, or its write has no known outcome.
    Unknown {
        #[serde(rename = "reason")]
        why: String,
    },
    /// A step is held back.
    Held {
        /// What would be done.
        #[serde(skip)]
        action: Action,
        by: HeldBy,
        /// Why, and what lets it go on.
        #[serde(rename = "reason")]
        why: String,
    },
    /// A step that cannot be undone. It is planned all the same.
    Irreversible {
        /// What is lost.
        #[serde(rename = "reason")]
        why: String,
    },
    /// A step is put off until it is certain that it will not be undone.
    Parked {
        /// What will be done then.
        #[serde(skip)]
        action: Action,
    },
}

/// What holds a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeldBy {
    /// The section that declared the object is missing from the desired state; it does not say that it is empty.
    MissingSection,
    /// More would be deleted than one pass may delete.
    DeleteBudget,
    /// The target would delete foreign objects along with the step.
    Cascade,
    /// A record that the step needs could not be written.
    Ledger,
    /// The key failed, or is undone again and again, and is tried again after a pause.
    Backoff,
    /// The source only observes.
    ObserveOnly,
    /// Its owner protects the key from deletion.
    DeletePolicy,
    /// Another declared object needs it.
    Needed,
    /// It could not be undone.
    Irreversible,
    /// It could be undone only by a restart or a repeat of something else.
    Compensable,
}

/// What a person can do about a finding, in the words of the program that they use: what to write in its document, which
/// of its commands or functions to call. By default it names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaysOut {
    /// For [`Reason::Foreign`].
    pub foreign: &'static str,
    /// For [`Reason::LostMark`].
    pub lost_mark: &'static str,
    /// For [`WaitsOn::Doubt`].
    pub doubt: &'static str,
}

impl Default for WaysOut {
    fn default() -> Self {
        WaysOut {
            foreign: "it is left alone, unless its key may be adopted",
            lost_mark: "it is taken back if its key may be adopted",
            doubt: "nothing is sent until the target shows its result; if it cannot wait, do it by hand",
        }
    }
}

/// The lists of plans and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A planned change.
    Change,
    /// A change that was made and verified.
    Applied,
    /// [`Finding::Failed`] and [`Finding::NotShown`].
    Failed,
    /// [`Finding::Pending`], but on what may be absent and on checks.
    Pending,
    /// [`Finding::Conflict`].
    Conflict,
    /// [`Finding::Settled`].
    Settled,
    /// [`Finding::Matched`].
    Matched,
    /// [`Finding::Unknown`].
    Unknown,
    /// [`Finding::Held`].
    Held,
    /// [`Finding::Irreversible`].
    Irreversible,
    /// [`Finding::Parked`].
    Parked,
    /// [`Finding::Pending`] on [`WaitsOn::OptionalLink`].
    Optional,
    /// [`Finding::Pending`] on [`WaitsOn::Check`].
    Withdrawn,
}

impl Kind {
    /// All of them, the open ones first.
    pub const ALL: [Kind; 13] = [
        Kind::Failed,
        Kind::Pending,
        Kind::Conflict,
        Kind::Unknown,
        Kind::Held,
        Kind::Change,
        Kind::Applied,
        Kind::Settled,
        Kind::Matched,
        Kind::Irreversible,
        Kind::Parked,
        Kind::Optional,
        Kind::Withdrawn,
    ];

    /// The kinds of keys that are not as declared.
    pub fn open() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| kind.is_open())
    }

    /// The kinds of keys that a status lists: the open ones, and those that wait for what may be absent or for a check.
    pub fn listed() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| kind.is_listed())
    }

    /// All of them: these first, then the others.
    pub fn in_order(first: &[Kind]) -> impl Iterator<Item = Kind> {
        let others = Kind::ALL.into_iter().filter(|kind| !first.contains(kind));
        first.iter().copied().chain(others)
    }

    /// The name of its list in JSON.
    #[must_use]
    pub fn list(self) -> &'static str {
        match self {
            Kind::Change => "changes",
            Kind::Applied => "applied",
            Kind::Failed => "failed",
            Kind::Pending => "pending",
            Kind::Conflict => "conflicts",
            Kind::Settled => "settled",
            Kind::Matched => "matched",
            Kind::Unknown => "unknown",
            Kind::Held => "held",
            Kind::Irreversible => "irreversible",
            Kind::Parked => "parked",
            Kind::Optional => "optional",
            Kind::Withdrawn => "withdrawn",
        }
    }

    /// What people call the list.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Kind::Held => "held back",
            Kind::Pending => "waiting",
            Kind::Matched => "already there, not ours",
            Kind::Irreversible => "cannot be undone",
            Kind::Parked => "waiting for the confirmation",
            Kind::Optional => "waiting for an optional link",
            Kind::Withdrawn => "withdrawn until a check is good",
            other => other.list(),
        }
    }

    /// Whether plans have the list. The lists of reports are those of [`Kind::is_in_reports`].
    #[must_use]
    pub fn is_in_plans(self) -> bool {
        !matches!(self, Kind::Applied | Kind::Parked)
    }

    /// Whether reports have the list.
    #[must_use]
    pub fn is_in_reports(self) -> bool {
        !matches!(self, Kind::Change | Kind::Irreversible)
    }

    /// Whether people are shown it without asking for details.
    #[must_use]
    pub fn is_worth_knowing(self) -> bool {
        self.is_listed() || matches!(self, Kind::Irreversible | Kind::Parked)
    }

    /// Whether a status lists keys of this kind.
    #[must_use]
    pub fn is_listed(self) -> bool {
        self.is_open() || matches!(self, Kind::Optional | Kind::Withdrawn)
    }

    /// Whether a key of this kind is not as declared.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self {
            Kind::Applied
            | Kind::Settled
            | Kind::Matched
            | Kind::Irreversible
            | Kind::Parked
            | Kind::Optional
            | Kind::Withdrawn => false,
            Kind::Change
            | Kind::Failed
            | Kind::Pending
            | Kind::Conflict
            | Kind::Unknown
            | Kind::Held => true,
        }
    }
}

impl Finding {
    /// The list that it belongs to.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Finding::Failed { .. } | Finding::NotShown { .. } => Kind::Failed,
            Finding::Pending { on: WaitsOn::OptionalLink { .. } } => Kind::Optional,
            Finding::Pending { on: WaitsOn::Check { .. } } => Kind::Withdrawn,
            Finding::Pending { .. } => Kind::Pending,
            Finding::Conflict { .. } => Kind::Conflict,
            Finding::Settled { .. } => Kind::Settled,
            Finding::Matched { .. } => Kind::Matched,
            Finding::Unknown { .. } => Kind::Unknown,
            Finding::Held { .. } => Kind::Held,
            Finding::Irreversible { .. } => Kind::Irreversible,
            Finding::Parked { .. } => Kind::Parked,
        }
    }

    /// Whether the key is not as declared.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.kind().is_open()
    }

    /// The action of the step that it is about.
    #[must_use]
    pub fn action(&self) -> Option<Action> {
        match self {
            Finding::Failed { action, .. } => *action,
            Finding::NotShown { action, .. }
            | Finding::Held { action, .. }
            | Finding::Parked { action } => Some(*action),
            _ => None,
        }
    }

    /// A desired state that cannot be fulfilled as it is.
    #[must_use]
    pub fn refused(failure: Failure) -> Self {
        Finding::Failed { action: None, failure }
    }

    /// An object that is not as declared, but the target's settled answer to it.
    pub fn settled<D: Desired>(desired: &D, wanted: &D::Object, held: &D::Object) -> Self {
        let [wanted, held] = [wanted, held].map(|object| Box::new(desired.shown(object)));
        Finding::Settled { wanted, held }
    }

    /// The reason in one line; empty where the finding says it all.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
                failure.error.clone()
            }
            Finding::Pending { on } => format!("waits on {on}"),
            Finding::Conflict { reason, .. } => reason.to_string(),
            Finding::Unknown { why }
            | Finding::Held { why, .. }
            | Finding::Irreversible { why } => why.clone(),
            Finding::Parked { .. } => "waits for the confirmation".to_owned(),
            Finding::Settled { .. } | Finding::Matched { .. } => String::new(),
        }
    }

    /// Whose object is on the key, where that is the reason.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Finding::Conflict { owner, .. } | Finding::Matched { owner } => Some(owner),
            _ => None,
        }
    }

    /// What a person can do about it, where something is known.
    #[must_use]
    pub fn help(&self, ways_out: &WaysOut) -> Option<String> {
        let help = match self {
            Finding::Failed { failure, .. } | Finding::NotShown { failure, .. } => {
                return failure.help.clone();
            }
            Finding::Conflict { reason: Reason::Foreign, .. } => ways_out.foreign,
            Finding::Conflict { reason: Reason::LostMark, .. } => ways_out.lost_mark,
            Finding::Pending { on: WaitsOn::Doubt } => ways_out.doubt,
            _ => return None,
        };
        Some(help.to_owned())
    }
}
