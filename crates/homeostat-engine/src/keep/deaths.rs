//! When a subscription that died is opened anew. Pure: `now` is an argument.

use homeostat_core::pacing::{Pauses, Time};

/// Counts the deaths of a subscription.
///
/// 1. The first is followed by a new one at once, each further one by one after a longer pause.
/// 2. A subscription that lived for as long as the longest pause begins the count anew.
#[derive(Clone, Debug)]
pub(super) struct Deaths {
    pauses: Pauses,
    count: u32,
    last: Time,
    due: Option<Time>,
}

impl Deaths {
    pub(super) fn new(pauses: Pauses) -> Self {
        Deaths { pauses, count: 0, last: Time::EPOCH, due: None }
    }

    /// The subscription has died.
    pub(super) fn died(&mut self, now: Time) {
        if now.since(self.last) > self.pauses.longest() * 2 {
            self.count = 0;
        }
        self.due = Some(match self.count {
            0 => now,
            before => now.after(self.pauses.nth(before)),
        });
        (self.count, self.last) = (self.count.saturating_add(1), now);
    }

    /// When another one is opened, if one is needed.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Another one is opened.
    pub(super) fn reopened(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_death_costs_nothing_and_the_next_ones_more_and_more() {
        let second = Duration::from_secs(1);
        let mut deaths = Deaths::new(Pauses::new(second, 4 * second));
        let mut now = at(100);
        let mut waits = Vec::new();
        for _ in 0..6 {
            deaths.died(now);
            let due = deaths.deadline().unwrap();
            waits.push(due.since(now).as_secs());
            assert!(deaths.is_due(due));
            deaths.reopened();
            now = due;
        }
        assert_eq!((waits.as_slice(), deaths.deadline()), ([0, 1, 2, 4, 4, 4].as_slice(), None));
        deaths.died(at(1000));
        assert_eq!(deaths.deadline(), Some(at(1000)), "it lived for long");
    }
}
