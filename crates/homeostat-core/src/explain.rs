//! What plans and reports contain, one line at a time.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::finding::{Finding, Kind};
use crate::outcome::Failure;
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
    /// A check has come to another result: what depends on it goes or returns.
    Check,
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
    /// How `before` and `after` read to people, if a list of their fields would not do. Lines after the first are shown
    /// below: how a text changes.
    pub text: Option<String>,
    /// What keys of any source may wait for and have once this is done.
    pub provides: Vec<WaitsOn>,
}

impl Line {
    /// A change of which no more is known than its key.
    pub fn new(action: Action, key: impl Into<String>) -> Self {
        let key = key.into();
        Line {
            action,
            key,
            before: None,
            after: None,
            note: None,
            text: None,
            provides: Vec::new(),
        }
    }
}

/// One entry of a plan or a report.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub enum Entry {
    /// A change that is planned.
    Change(Line, Cause),
    /// A change that was made and verified.
    Applied(Line, Cause),
    /// Why a key is not simply as declared.
    Finding { key: String, finding: Finding },
    /// Why a pass failed as a whole, whatever its keys are.
    Pass { about: PassTrouble, failure: Failure },
}

/// What made a pass fail as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassTrouble {
    /// The source of this name could not be looked at or written to.
    Source(String),
    /// What was written could not be recorded in the ledger.
    Ledger,
    /// The ledger has a record that cannot be read, and whose key is not known.
    BrokenRecord,
    /// A step was done that the journal could not record.
    Journal,
}

impl PassTrouble {
    /// What stands for the key in the lists of reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            PassTrouble::Source(name) => name,
            PassTrouble::Ledger | PassTrouble::BrokenRecord => "ledger",
            PassTrouble::Journal => "journal",
        }
    }
}

impl Entry {
    /// The key that it is about, or the name of what made its pass fail.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Entry::Change(line, _) | Entry::Applied(line, _) => &line.key,
            Entry::Finding { key, .. } => key,
            Entry::Pass { about, .. } => about.name(),
        }
    }

    /// Why it is not as declared, in one line; empty for a change.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Entry::Change(..) | Entry::Applied(..) => String::new(),
            Entry::Finding { finding, .. } => finding.reason(),
            Entry::Pass { failure, .. } => failure.error.clone(),
        }
    }

    /// The list that it belongs to.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Entry::Change(..) => Kind::Change,
            Entry::Applied(..) => Kind::Applied,
            Entry::Finding { finding, .. } => finding.kind(),
            Entry::Pass { .. } => Kind::Failed,
        }
    }
}

/// As it stands in a list of a plan or a report, the action before the key.
impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Change<'a> {
            action: Action,
            key: &'a str,
            before: Option<&'a Value>,
            after: Option<&'a Value>,
            cause: Cause,
            note: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Applied<'a> {
            action: Action,
            key: &'a str,
            cause: Cause,
        }
        #[derive(Serialize)]
        struct AboutStep<'a> {
            action: Option<Action>,
            #[serde(flatten)]
            about: AboutKey<'a>,
        }
        #[derive(Serialize)]
        struct AboutKey<'a> {
            key: &'a str,
            #[serde(flatten)]
            finding: &'a Finding,
        }
        match self {
            Entry::Change(line, cause) => {
                let Line { action, key, before, after, note, .. } = line;
                let (before, after) = (before.as_ref(), after.as_ref());
                let (action, cause, note) = (*action, *cause, note.as_deref());
                Change { action, key, before, after, cause, note }.serialize(serializer)
            }
            Entry::Applied(Line { action, key, .. }, cause) => {
                Applied { action: *action, key, cause: *cause }.serialize(serializer)
            }
            Entry::Finding { key, finding } => {
                let about = AboutKey { key, finding };
                match finding.kind() {
                    Kind::Failed | Kind::Held => {
                        AboutStep { action: finding.action(), about }.serialize(serializer)
                    }
                    _ => about.serialize(serializer),
                }
            }
            Entry::Pass { about, failure } => {
                let finding = &Finding::refused(failure.clone());
                let about = AboutKey { key: about.name(), finding };
                AboutStep { action: None, about }.serialize(serializer)
            }
        }
    }
}

/// How many changes of each action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
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

impl FromIterator<Action> for Summary {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        let mut summary = Summary::default();
        actions.into_iter().for_each(|action| summary.count(action));
        summary
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

/// A key and what is declared of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct About {
    /// The key, as entries have it.
    pub key: String,
    /// What is declared; nothing, if the key is not declared.
    pub wanted: Option<Value>,
}

/// Receives a part of a long list and only counts the rest.
pub trait Sampler {
    /// Whether to put the next change into words: doing so for a million that are never read takes seconds.
    fn wants(&mut self, cause: Cause) -> bool;

    /// Receives a change.
    fn take(&mut self, entry: Entry);
}

/// A plan or a report, handed out entry by entry, so that a million lines are never kept at once.
pub trait Explain: Send {
    /// Hands out every entry of one kind, in order.
    fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry));

    /// Hands out the changes, planned or applied, that an audience wants.
    fn sample(&self, kind: Kind, sampler: &mut dyn Sampler) {
        self.explain(kind, &mut |entry| match &entry {
            Entry::Change(_, cause) | Entry::Applied(_, cause) if !sampler.wants(*cause) => {}
            _ => sampler.take(entry),
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
