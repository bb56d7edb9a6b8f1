//! The time of day, for people and logs: nothing is decided by it. And the clock of deadlines.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// A moment of the day; as text, `2026-03-01T12:00:00.250Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Duration);

impl Stamp {
    /// This moment.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub(crate) fn now() -> Self {
        // A clock that stands before 1970 stands at 1970.
        Stamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// This long ago.
    pub(crate) fn ago(time: Duration) -> Self {
        Stamp(Stamp::now().0.saturating_sub(time))
    }

    /// This long from now.
    pub(crate) fn after(time: Duration) -> Self {
        Stamp(Stamp::now().0.saturating_add(time))
    }

    /// This many milliseconds after 1970.
    pub(crate) fn of_millis(millis: u64) -> Self {
        Stamp(Duration::from_millis(millis))
    }

    /// How long ago it was; nothing for a moment in the future.
    pub(crate) fn age(self) -> Duration {
        Stamp::now().0.saturating_sub(self.0)
    }

    /// Milliseconds since 1970, as the journal has them.
    pub(crate) fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The time of day, in UTC: `20:14:03`.
    pub(crate) fn clock(self) -> String {
        let seconds = self.0.as_secs();
        format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
    }

    /// Seconds since 1970, as metrics have them.
    pub(crate) fn as_seconds(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl std::str::FromStr for Stamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time: jiff::Timestamp = text.parse()?;
        Ok(Stamp(SystemTime::from(time).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::try_from(SystemTime::UNIX_EPOCH + self.0).unwrap_or_default();
        write!(f, "{time:.3}")
    }
}

/// A moment on the clock that counts from the boot. It goes on while the machine sleeps, and cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        BootTime(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default()))
    }

    /// This long after now.
    pub(crate) fn after(time: Duration) -> Self {
        BootTime(BootTime::now().0 + time)
    }

    /// How long it takes until then.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(BootTime::now().0)
    }

    /// Waits until then.
    pub(crate) async fn wait(self) {
        while !self.left().is_zero() {
            // The timer of the runtime stands still while the machine sleeps.
            tokio::time::sleep(self.left().min(LOOK)).await;
        }
    }
}

/// How often it is looked at the clock that goes on while the machine sleeps.
const LOOK: Duration = Duration::from_secs(1);

/// The kernel's id of this boot.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That clock cannot be set: a change of the wall clock moves no deadline.
    #[test]
    fn deadlines_are_on_the_clock_that_counts_from_the_boot() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        // The kernel prints hundredths.
        let earlier = uptime();
        let now = BootTime::after(Duration::ZERO);
        let later = uptime() + Duration::from_millis(10);
        assert!(
            BootTime(earlier) <= now && now <= BootTime(later),
            "{earlier:?} {now:?} {later:?}"
        );
        assert!(BootTime(Duration::ZERO).left().is_zero());
    }

    #[test]
    fn a_moment_reads_as_a_person_writes_it() {
        let check = |seconds: u64, expected: &str| {
            assert_eq!(Stamp(Duration::from_millis(seconds * 1000 + 7)).to_string(), expected);
        };
        check(0, "1970-01-01T00:00:00.007Z");
        check(951_782_399, "2000-02-28T23:59:59.007Z");
        check(951_782_400, "2000-02-29T00:00:00.007Z");
        check(1_709_251_199, "2024-02-29T23:59:59.007Z");
        check(1_735_689_599, "2024-12-31T23:59:59.007Z");
        check(4_107_542_400, "2100-03-01T00:00:00.007Z");
    }
}
