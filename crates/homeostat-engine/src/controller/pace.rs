//! How often a loop looks and writes.

use std::time::Duration;

use homeostat_core::pacing::{PeriodRefused, Policy, PolicyError, Resync};
use homeostat_core::{Coverage, Source};

use serde::{Deserialize, Serialize};

use crate::session::Hints;

/// What a loop does about drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It is put right.
    #[default]
    Heal,
    /// It is reported, and nothing is written.
    Observe,
}

/// How often a loop looks and writes. The resync can be made longer, never switched off.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pace {
    /// How new desired states and lost hints are gathered into full passes.
    pub policy: Policy,
    /// The least time between two focused passes that write the same key.
    pub min_interval: Duration,
    /// When everything is looked at again.
    pub resync: Resync,
    /// How long a pass may take.
    pub deadline: Duration,
    /// What is done about drift.
    pub mode: Mode,
    /// Whether the target is listened to between passes.
    pub hints: Hints,
    /// What pauses are spread by, so that many machines do not move in step.
    pub seed: u64,
}

impl Pace {
    const WITH_HINTS: Duration = Duration::from_secs(30);
    const WITHOUT: Duration = Duration::from_secs(5);
    const LONGEST_PASS: Duration = Duration::from_hours(24);

    /// The usual pace of a source: everything every 30 seconds where its hints cover all of it,
    /// every 5 seconds else.
    #[must_use]
    pub fn of<S: Source>(seed: u64) -> Self {
        let period = match S::COVERAGE {
            Coverage::All => Self::WITH_HINTS,
            Coverage::Some | Coverage::None => Self::WITHOUT,
        };
        Pace {
            policy: Policy::default(),
            min_interval: Duration::from_millis(100),
            resync: Resync::nearest(period, seed),
            deadline: Duration::from_mins(1),
            mode: Mode::Heal,
            hints: Hints::Subscribe,
            seed,
        }
    }

    /// The same with another period of the resync.
    pub fn with_resync(mut self, period: Duration) -> Result<Self, PeriodRefused> {
        self.resync = Resync::new(period, self.seed)?;
        Ok(self)
    }

    /// The same with another least time between two passes, full or over one key.
    #[must_use]
    pub fn with_min_interval(mut self, min_interval: Duration) -> Self {
        (self.policy, self.min_interval) = (Policy::refractory(min_interval), min_interval);
        self
    }

    /// The same with a quiet period for new desired states and lost hints: their full pass waits until none
    /// has come for `quiet`, but not longer than `max_wait`.
    pub fn with_debounce(
        mut self,
        quiet: Duration,
        max_wait: Duration,
    ) -> Result<Self, PolicyError> {
        if !quiet.is_zero() {
            self.policy = Policy::quiet(quiet, max_wait)?;
        }
        Ok(self)
    }

    /// Whether a loop at this pace behaves as one at another.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let parts = |pace: &Self| {
            (pace.policy, pace.min_interval, pace.resync.period(), pace.deadline, pace.mode)
        };
        parts(self) == parts(other)
    }

    /// The same for a run that ends once it is converged: without a subscription, and with all the time
    /// that a pass needs.
    #[must_use]
    pub fn once(mut self) -> Self {
        (self.hints, self.deadline) = (Hints::Ignore, Self::LONGEST_PASS);
        self
    }

    /// The same with so much time for a pass.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same in another mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }
}
