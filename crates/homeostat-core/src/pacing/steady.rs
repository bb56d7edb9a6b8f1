//! A clock that never goes back, made of one that may.

use core::time::Duration;

use super::time::Time;

/// Reads the driver's clock as time that only grows: what the clock loses in a jump back is added.
///
/// So a jump back costs the time since the last reading, and shortens nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steady {
    lost: Duration,
    latest: Time,
}

impl Steady {
    /// The steady moment of `now`; remembered, so that no later one lies before it.
    pub(super) fn read(&mut self, now: Time) -> Time {
        self.lost = self.lost.max(self.latest.since(now));
        self.latest = self.peek(now);
        self.latest
    }

    /// The steady moment of `now`.
    pub(super) fn peek(&self, now: Time) -> Time {
        self.past(now).max(self.latest)
    }

    /// The steady moment of one that may lie before the last reading, but not before a jump.
    pub(super) fn past(&self, moment: Time) -> Time {
        moment.after(self.lost)
    }

    /// A steady moment on the driver's own clock.
    pub(super) fn told(&self, steady: Time) -> Time {
        Time::from_epoch(steady.since_epoch().saturating_sub(self.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_epoch(Duration::from_millis(ms))
    }

    #[test]
    fn a_jump_back_stands_still_and_then_goes_on() {
        let mut clock = Steady::default();
        let readings = [(500, 500), (600, 600), (50, 600), (70, 620), (20, 620), (21, 621)];
        for (now, steady) in readings {
            assert_eq!((clock.peek(at(now)), clock.read(at(now))), (at(steady), at(steady)));
            assert_eq!(clock.told(at(steady)), at(now));
        }
        assert_eq!(clock.told(at(700)), at(100), "a deadline is told on the driver's clock");
    }

    #[test]
    fn a_clock_that_catches_up_loses_nothing_more() {
        let mut clock = Steady::default();
        for (now, steady) in [(100, 100), (40, 100), (300, 360)] {
            assert_eq!(clock.read(at(now)), at(steady));
        }
    }
}
