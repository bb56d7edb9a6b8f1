//! How a loop stands, for people and probes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_core::pacing::{Bounds, Health, Reasons, Stall, Time};
use homeostat_core::{Failure, Kind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::Instant;

use super::event::{PassId, display, micros};
use super::pace::{Mode, Pace};

/// How one loop stands at one moment. It is never "converged" while passes fail. As JSON: moments are microseconds since
/// the loop began.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts, not a state")]
pub struct Status {
    /// What is done about drift.
    pub mode: Mode,
    /// Whether passes are held off.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// Whether a full pass has seen everything once.
    #[serde(rename = "ready")]
    pub is_ready: bool,
    /// Whether the last full pass, and all focused ones since, left everything as declared. Not so
    /// between another desired state and the pass for it.
    #[serde(rename = "converged")]
    pub is_converged: bool,
    /// Whether a full pass has been made for the newest desired state.
    #[serde(rename = "passed")]
    pub has_passed: bool,
    /// The number of the desired state that this is about.
    #[serde(skip)]
    pub(crate) generation: u64,
    /// The last pass.
    pub pass: PassId,
    /// When the last pass began.
    #[serde(rename = "last_attempt_us", serialize_with = "moment")]
    pub last_attempt: Option<Time>,
    /// When the last pass ended in which nothing failed.
    #[serde(rename = "last_success_us", serialize_with = "moment")]
    pub last_success: Option<Time>,
    /// Why the last pass could not be made, if it could not.
    pub last_error: Option<Failure>,
    /// How many passes in a row could not be made.
    pub failures: u32,
    /// When something is due, if nothing else happens.
    #[serde(rename = "next_due_us", serialize_with = "moment")]
    pub next_due: Option<Time>,
    /// Why something is due then.
    #[serde(serialize_with = "display")]
    pub next_why: Reasons,
    /// What is stuck, if anything is; computed when the status is read, as a loop that is stuck
    /// cannot say so itself.
    #[serde(serialize_with = "text")]
    pub stall: Option<Stall>,
    /// What the last passes left open.
    pub open: OpenCounts,
    /// What was counted since the start.
    pub counts: Counts,
    /// Keys that another program keeps undoing.
    pub contended: Vec<ContendedKey>,
    /// Keys whose writes never show.
    pub not_converging: Vec<String>,
}

/// A key that another program keeps undoing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct ContendedKey {
    pub key: String,
    /// Who it may be.
    pub culprit: String,
    /// How long it is left alone.
    #[serde(rename = "pause_us", serialize_with = "micros")]
    pub pause: Duration,
}

/// A moment, as microseconds since the loop began.
pub(super) fn moment<S: Serializer>(
    time: &(impl Copy + Into<Option<Time>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    let time: Option<Time> = (*time).into();
    micros(&time.map(Time::since_epoch), to)
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn text<S: Serializer>(value: &Option<impl ToString>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// How many keys are not as declared, by kind; those that wait for an optional link are counted, too. As JSON: a field
/// for each kind, by the name of its list; planned changes of a loop that only observes are `drifted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCounts([usize; Kind::ALL.len()]);

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Full passes.
    pub full: u64,
    /// Focused passes.
    pub focused: u64,
    /// Passes that could not be made.
    pub broken: u64,
    /// Steps that were applied.
    pub applied: u64,
    /// Steps that failed.
    pub failed: u64,
    /// Drift that a hint named.
    pub drift_by_hint: u64,
    /// Drift that only a full pass found.
    pub drift_by_resync: u64,
    /// How often hints were lost.
    pub lost: u64,
    /// How often the subscription was opened anew.
    pub resubscribed: u64,
}

impl OpenCounts {
    /// Counts keys by their kinds.
    pub fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut counts = OpenCounts::default();
        for kind in kinds {
            if let Some(count) = counts.0.get_mut(kind as usize) {
                *count += 1;
            }
        }
        counts
    }

    /// How many keys are of this kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// The name of a kind where one key is spoken of.
    #[must_use]
    pub fn kind_name(kind: Kind) -> &'static str {
        if kind == Kind::Conflict { "conflict" } else { OpenCounts::name(kind) }
    }

    /// The name of a kind among the counts.
    #[must_use]
    pub fn name(kind: Kind) -> &'static str {
        if kind == Kind::Change { "drifted" } else { kind.list() }
    }
}

impl Serialize for OpenCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(Kind::listed().map(|kind| (OpenCounts::name(kind), self.count(kind))))
    }
}

impl<'de> Deserialize<'de> for OpenCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, usize>::deserialize(deserializer)?;
        let mut counts = OpenCounts::default();
        for kind in Kind::listed() {
            if let (Some(count), Some(named)) =
                (counts.0.get_mut(kind as usize), named.get(OpenCounts::name(kind)))
            {
                *count = *named;
            }
        }
        Ok(counts)
    }
}

/// The clock of a loop, and whether the loop is stuck. Shared with its handles, so that it answers also while a pass
/// blocks.
pub(super) struct Watchdog {
    epoch: Instant,
    health: Mutex<Health>,
}

impl Watchdog {
    pub(super) fn new(pace: &Pace, epoch: Instant) -> Self {
        let bounds = Bounds {
            pass: pace.deadline,
            ready: pace.deadline + pace.deadline / 2,
            resync: pace.resync.period(),
        };
        Watchdog { epoch, health: Mutex::new(Health::new(bounds, Time::EPOCH)) }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_epoch(self.epoch.elapsed())
    }

    pub(super) fn at(&self, time: Time) -> Instant {
        self.epoch + time.since_epoch()
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stalled(&self) -> Option<Stall> {
        self.health().stalled(self.now())
    }
}
