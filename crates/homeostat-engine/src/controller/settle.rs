//! Whether more passes could still bring a loop closer to the desired state. Pure: `now` is an argument.
//!
//! A caller that applies a desired state once runs a pass and then waits here until the loop is converged, or
//! until only findings remain that time cannot cure: a conflict, a refusal, a link that is absent.

use std::time::Duration;

use homeostat_core::pacing::Time;
use homeostat_core::{Covers, PassReport};
use tokio::sync::oneshot;

/// How long to wait for what may still change by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patience {
    /// For steps that failed and may work in a moment: an IPv6 address is probed for a second before a
    /// route may use it.
    pub retries: Duration,
    /// For the same where no pass could write anything, and for passes that could not be made at all. By default
    /// they are not waited for: nothing was set moving that could need a moment.
    pub first_retries: Duration,
    /// For work that the target does by itself.
    pub tasks: Duration,
}

impl Patience {
    /// Waits this long for everything that time may cure.
    #[must_use]
    pub fn lasting(time: Duration) -> Self {
        Patience { retries: time, first_retries: time, tasks: time }
    }

    /// The same with so much time for work that the target does by itself.
    #[must_use]
    pub fn with_tasks(self, tasks: Duration) -> Self {
        Patience { tasks, ..self }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            retries: Duration::from_secs(3),
            first_retries: Duration::ZERO,
            tasks: Duration::from_mins(10),
        }
    }
}

/// A pass can uncover what only the next one can mend: a value that another step rewrote.
const FULL_PASSES: usize = 3;

/// How often a step is tried whose work fails after the pass that sent it.
pub(super) const TRIES: u32 = 3;

/// A caller that waits until nothing is left to wait for.
pub(super) struct Settling {
    answer: oneshot::Sender<()>,
    patience: Patience,
    since: Time,
    full_passes: usize,
    /// Whether any pass wrote something: what was set moving may need a moment.
    has_written: bool,
}

/// What a loop looks like to a caller that waits, after its last pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Nothing more will happen: converged or paused.
    pub(super) is_final: bool,
    /// The last pass could not be made or recorded.
    pub(super) is_broken: bool,
    /// The last pass wrote something, or the target moved under its plan.
    pub(super) has_moved: bool,
    /// Keys wait for something that ends by itself: a task, a free place, an answer.
    pub(super) has_tasks: bool,
    /// When the first of the failed keys, or the pass that could not be made, is tried again.
    pub(super) next_retry: Option<Time>,
    /// Work of the target failed, and was not tried often enough.
    pub(super) has_failed_tasks: bool,
}

/// What a caller that waits needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Another full pass, now.
    Pass,
    /// The next pass of the loop, but not longer than this.
    Wait(Time),
    /// Nothing: it gets its answer.
    Nothing,
}

impl Settling {
    pub(super) fn new(
        answer: oneshot::Sender<()>,
        patience: Patience,
        has_written: bool,
        since: Time,
    ) -> Self {
        Settling { answer, patience, since, full_passes: 1, has_written }
    }

    /// Takes in a pass that has ended.
    pub(super) fn record(&mut self, pass: &PassReport) {
        self.has_written |= pass.report.summary().total() > 0;
        self.full_passes += usize::from(!matches!(pass.covers, Covers::Keys(_)));
    }

    pub(super) fn need(&self, outlook: Outlook, now: Time) -> Need {
        if outlook.is_final {
            return Need::Nothing;
        }
        let Patience { retries, first_retries, tasks } = self.patience;
        if outlook.is_broken {
            return self.wait_for_retry(first_retries, outlook, now);
        }
        if outlook.has_moved && self.full_passes < FULL_PASSES {
            return Need::Pass;
        }
        let tasks = self.since.after(tasks);
        if (outlook.has_tasks || outlook.has_failed_tasks) && now < tasks {
            return Need::Wait(tasks);
        }
        let patience = if self.has_written { retries } else { first_retries };
        self.wait_for_retry(patience, outlook, now)
    }

    fn wait_for_retry(&self, patience: Duration, outlook: Outlook, now: Time) -> Need {
        let end = self.since.after(patience);
        let is_worth_it = outlook.next_retry.is_some_and(|retry| retry <= end);
        if is_worth_it && now < end { Need::Wait(end) } else { Need::Nothing }
    }

    /// Answers. The caller may be gone.
    pub(super) fn finish(self) {
        let _ = self.answer.send(());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::entries::Entries;

    const OUTLOOK: Outlook = Outlook {
        is_final: false,
        is_broken: false,
        has_moved: false,
        has_tasks: false,
        next_retry: None,
        has_failed_tasks: false,
    };

    fn at(seconds: u64) -> Time {
        Time::from_epoch(Duration::from_secs(seconds))
    }

    fn settling(has_written: bool) -> Settling {
        Settling::new(oneshot::channel().0, Patience::default(), has_written, at(0))
    }

    #[test]
    fn what_time_cannot_cure_is_not_waited_for() {
        assert_eq!(settling(true).need(OUTLOOK, at(0)), Need::Nothing);
        let converged = Outlook { is_final: true, has_moved: true, has_tasks: true, ..OUTLOOK };
        assert_eq!(settling(true).need(converged, at(0)), Need::Nothing);
    }

    #[test]
    fn a_pass_that_moved_something_is_followed_by_at_most_two_more() {
        let moved = Outlook { has_moved: true, ..OUTLOOK };
        let mut settling = settling(true);
        for _ in 0..2 {
            assert_eq!(settling.need(moved, at(0)), Need::Pass);
            settling.record(&PassReport::new(Covers::All, Arc::new(Entries::default())));
        }
        assert_eq!(settling.need(moved, at(0)), Need::Nothing);
    }

    #[test]
    fn a_retry_is_waited_for_only_after_something_was_written_and_not_for_long() {
        let retry = |seconds| Outlook { next_retry: Some(at(seconds)), ..OUTLOOK };
        assert_eq!(settling(true).need(retry(1), at(0)), Need::Wait(at(3)));
        assert_eq!(settling(false).need(retry(1), at(0)), Need::Nothing);
        assert_eq!(settling(true).need(retry(4), at(0)), Need::Nothing);
        assert_eq!(settling(true).need(retry(4), at(3)), Need::Nothing);
    }

    #[test]
    fn a_pass_that_could_not_be_made_is_waited_for_only_by_who_asks_for_it() {
        let broken = Outlook { is_broken: true, next_retry: Some(at(1)), ..OUTLOOK };
        assert_eq!(settling(true).need(broken, at(0)), Need::Nothing);
        let patience = Patience::lasting(Duration::from_secs(9));
        let patient = Settling { patience, ..settling(false) };
        assert_eq!(patient.need(broken, at(0)), Need::Wait(at(9)));
        assert_eq!(patient.need(broken, at(9)), Need::Nothing);
        let failed = Outlook { next_retry: Some(at(1)), ..OUTLOOK };
        assert_eq!(patient.need(failed, at(0)), Need::Wait(at(9)));
    }

    #[test]
    fn tasks_are_waited_for_until_their_deadline() {
        let tasks = Outlook { has_tasks: true, ..OUTLOOK };
        assert_eq!(settling(false).need(tasks, at(599)), Need::Wait(at(600)));
        assert_eq!(settling(false).need(tasks, at(600)), Need::Nothing);
        let failed = Outlook { has_failed_tasks: true, ..OUTLOOK };
        assert_eq!(settling(false).need(failed, at(5)), Need::Wait(at(600)));
    }
}
