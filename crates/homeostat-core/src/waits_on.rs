//! What a key waits for before it can be written or called done.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a key waits for. Programs match on it; its [`Display`](fmt::Display) is the text of plans, reports
/// and JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitsOn {
    /// A network link that is absent.
    Link {
        /// As `ip link` shows it.
        name: String,
        /// The namespace that it is missing in; nothing, if that is the namespace of the key.
        namespace: Option<String>,
    },
    /// A network link that is absent and may be: what waits on it alone counts as converged.
    OptionalLink {
        /// As `ip link` shows it.
        name: String,
        /// The namespace that it is missing in; nothing, if that is the namespace of the key.
        namespace: Option<String>,
    },
    /// A check that decides whether the key may be there: what waits on it alone counts as converged.
    Check {
        /// As it is written.
        check: String,
        /// Why it does not let the key be there.
        why: String,
    },
    /// A network namespace that is absent.
    Namespace(String),
    /// A value that the desired state is made of.
    Input {
        /// Its name.
        name: String,
        /// Why it is not there, where that is known.
        why: Option<String>,
    },
    /// A key whose step was not applied.
    Key(String),
    /// A step that failed while nothing may be started after the first failure.
    FailedInStrictMode(String),
    /// An earlier step of the same key, which was not applied.
    EarlierStep(String),
    /// Work that the target does by itself, by the target's name for it.
    Task(String),
    /// The same, if it has our name, and this machine has not begun it.
    UnknownTask(String),
    /// A free place: as many operations run as the limits allow.
    Slot,
    /// Another operation on the same key, of a command or of an earlier pass.
    Operation,
    /// The answer to a request of this pass, which has not come yet.
    Answer,
    /// The result of an earlier step whose answer was lost.
    Doubt,
    /// Another look: the key changed after the look that this pass planned with.
    Look,
    /// The next pass: the key changed along with a step of this one.
    NextPass,
    /// The target, which is busy with this and asked to be tried again later.
    Later(String),
    /// Anything else, in the source's own words.
    Condition(String),
}

impl WaitsOn {
    /// A link in the namespace of the key that waits.
    pub fn link(name: impl Into<String>) -> Self {
        WaitsOn::Link { name: name.into(), namespace: None }
    }

    /// The same for a link that may be absent; any other wait stays what it is.
    #[must_use]
    pub fn optional(self) -> Self {
        match self {
            WaitsOn::Link { name, namespace } => WaitsOn::OptionalLink { name, namespace },
            other => other,
        }
    }

    /// Whether the wait ends by itself: without another pass, another desired state or other programs.
    #[must_use]
    pub fn ends_by_itself(&self) -> bool {
        match self {
            WaitsOn::Task(_)
            | WaitsOn::UnknownTask(_)
            | WaitsOn::Slot
            | WaitsOn::Operation
            | WaitsOn::Answer
            | WaitsOn::Doubt
            | WaitsOn::Look
            | WaitsOn::Later(_) => true,
            WaitsOn::NextPass
            | WaitsOn::Link { .. }
            | WaitsOn::OptionalLink { .. }
            | WaitsOn::Check { .. }
            | WaitsOn::Namespace(_)
            | WaitsOn::Input { .. }
            | WaitsOn::Key(_)
            | WaitsOn::FailedInStrictMode(_)
            | WaitsOn::EarlierStep(_)
            | WaitsOn::Condition(_) => false,
        }
    }
}

impl fmt::Display for WaitsOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsOn::Link { name, namespace: None } => write!(f, "link {name}"),
            WaitsOn::Link { name, namespace: Some(namespace) } => {
                write!(f, "link {name} in namespace {namespace}")
            }
            WaitsOn::OptionalLink { name, namespace: None } => write!(f, "optional link {name}"),
            WaitsOn::OptionalLink { name, namespace: Some(namespace) } => {
                write!(f, "optional link {name} in namespace {namespace}")
            }
            WaitsOn::Check { check, why } => write!(f, "check {check}: {why}"),
            WaitsOn::Namespace(name) => write!(f, "namespace {name}"),
            WaitsOn::Input { name, why: None } => write!(f, "input {name}"),
            WaitsOn::Input { name, why: Some(why) } => write!(f, "input {name}: {why}"),
            WaitsOn::Key(key) => f.write_str(key),
            WaitsOn::FailedInStrictMode(key) => write!(f, "`{key}`, which failed in strict mode"),
            WaitsOn::EarlierStep(key) => write!(f, "an earlier step of `{key}`"),
            WaitsOn::Task(task) => write!(f, "task {task}"),
            WaitsOn::UnknownTask(task) => {
                write!(f, "task {task}, which was not begun here: another machine may use our name")
            }
            WaitsOn::Slot => f.write_str("a free place on its node"),
            WaitsOn::Operation => f.write_str("another operation on it"),
            WaitsOn::Answer => f.write_str("the answer to a request"),
            WaitsOn::Doubt => f.write_str("the result of an earlier step"),
            WaitsOn::Look => f.write_str("another look: it moved after this one"),
            WaitsOn::NextPass => f.write_str("the next pass: it changed along with another step"),
            WaitsOn::Later(text) | WaitsOn::Condition(text) => f.write_str(text),
        }
    }
}

impl Serialize for WaitsOn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
