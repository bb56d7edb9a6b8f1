//! Events of a loop: one typed enum, on one bounded broadcast.
//!
//! Nothing that must be right depends on an event being received.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::health::State;
use homeostat_core::pacing::Reasons;
use homeostat_core::{Action, Cause, Failure, Phase, Summary, WaitsOn};
use serde::{Serialize, Serializer};
use tokio::sync::broadcast;

/// The number of a pass; unique within one run of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PassId(pub u64);

/// One thing that happened in a loop. As JSON: one object, with the fields of its kind behind its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Event {
    /// The pass that it belongs to.
    pub pass: PassId,
    pub source: &'static str,
    #[serde(serialize_with = "display")]
    pub scope: Arc<str>,
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Something that happened in a pass over `source` in `scope`.
    #[must_use]
    pub fn new(pass: PassId, source: &'static str, scope: Arc<str>, kind: EventKind) -> Self {
        Event { pass, source, scope, kind }
    }
}

/// What happened. As JSON: an object whose `event` names the variant; times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub enum EventKind {
    /// Something asked for a pass.
    Woken {
        #[serde(serialize_with = "display")]
        reasons: Reasons,
        /// The keys that were named, the first hundred of them; empty for everything.
        keys: Vec<String>,
        /// How many more were named.
        more: usize,
        /// Who gave cause for it, where the target says so.
        #[serde(serialize_with = "shared_text")]
        by: Option<Arc<str>>,
    },
    /// A pass began.
    Started {
        #[serde(serialize_with = "display")]
        reasons: Reasons,
        /// How many keys it looks at; nothing for all.
        keys: Option<usize>,
        /// How long the oldest wakeup had waited, be it for the least interval of its key.
        #[serde(rename = "waited_us", serialize_with = "micros")]
        waited: Duration,
    },
    /// The inputs of a desired state were rendered.
    Rendered {
        /// How long the text is.
        bytes: usize,
        /// A digest of it.
        print: u64,
    },
    /// The rendered text is valid: it is a desired state.
    Validated,
    /// It is in place.
    Deployed {
        /// So many objects were written.
        objects: usize,
    },
    /// The program that reads it has taken it over.
    Reloaded,
    /// What was in place before is back.
    RolledBack {
        /// Why.
        #[serde(flatten)]
        failure: Failure,
    },
    /// What differs is known.
    Planned { summary: Summary },
    /// A step was made and verified.
    StepApplied {
        action: Action,
        key: String,
        /// Why it was needed.
        cause: Cause,
        /// Who caused the drift that it heals, where the target says so.
        #[serde(serialize_with = "shared_text")]
        by: Option<Arc<str>>,
    },
    /// A step did not work.
    StepFailed {
        /// What was tried.
        action: Option<Action>,
        key: String,
        #[serde(flatten)]
        failure: Failure,
    },
    /// More steps had an outcome than become events of their own.
    More {
        /// How many steps more.
        steps: usize,
    },
    /// A foreign object sits on a wanted key.
    Conflict { key: String, owner: String },
    /// A key has to wait.
    Pending {
        key: String,
        #[serde(rename = "waits_on")]
        on: WaitsOn,
    },
    /// Another program keeps undoing our step.
    Contention {
        key: String,
        /// Who it may be.
        culprit: String,
        /// How long the key is left alone.
        #[serde(rename = "pause_us", serialize_with = "micros")]
        pause: Duration,
    },
    /// A check has come to another result: what is there only while it is good goes or returns.
    Health {
        check: String,
        state: State,
        /// Why it fails, if it does.
        reason: Option<String>,
        /// How long it will not count as good, because it failed soon after it had come back.
        #[serde(rename = "held_us", serialize_with = "micros")]
        held: Option<Duration>,
    },
    /// A step works, and the target never shows it.
    NotConverging { key: String },
    /// Hints were lost, so everything is looked at again.
    Lost,
    /// The subscription was opened anew.
    Resubscribed,
    /// A pass ended.
    Completed {
        summary: Summary,
        /// Whether all is as declared.
        converged: bool,
        /// How long it took.
        #[serde(rename = "took_us", serialize_with = "micros")]
        took: Duration,
    },
    /// A pass could not be made.
    Failed {
        #[serde(flatten)]
        failure: Failure,
    },
    /// Passes are held off.
    Paused {
        /// For how long; nothing for until further notice.
        #[serde(rename = "for_us", serialize_with = "micros")]
        during: Option<Duration>,
    },
    /// Passes go on.
    Resumed,
    /// The loop has ended.
    Stopped,
}

impl From<Phase> for EventKind {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Rendered { bytes, print } => EventKind::Rendered { bytes, print },
            Phase::Deployed { objects } => EventKind::Deployed { objects },
            Phase::Reloaded => EventKind::Reloaded,
            Phase::RolledBack { failure } => EventKind::RolledBack { failure },
            _ => EventKind::Validated,
        }
    }
}

pub(super) fn display<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn shared_text<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

pub(super) fn micros<S: Serializer>(
    time: &(impl Copy + Into<Option<Duration>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    let time: Option<Duration> = (*time).into();
    time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)).serialize(to)
}

/// How many events a slow listener may fall behind before it loses the oldest.
const CAPACITY: usize = 4096;

/// The channel on which all loops of a program publish.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Events(broadcast::channel(CAPACITY).0)
    }
}

impl Events {
    /// Listens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    /// Publishes an event; also for what makes desired states, outside of a loop.
    pub fn publish(&self, event: Event) {
        // There may be no listener.
        let _ = self.0.send(event);
    }

    pub(crate) fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }
}
