//! The one place that reads the time.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The moment of the call.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> Instant {
    Instant::now()
}

/// Does `work` and returns how long it took.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let made = work();
    (made, start.elapsed())
}

/// Does `work` and returns the CPU time of the calling thread.
pub fn time_at_work<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = at_work();
    let made = work();
    (made, at_work().saturating_sub(start))
}

fn at_work() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_rest_is_not() {
        let rest = Duration::from_millis(20);
        let ((), work) = time_at_work(|| std::thread::park_timeout(rest));
        assert!(work < rest, "{work:?}");
        let enough = at_work() + rest;
        let ((), work) = time_at_work(|| while at_work() < enough {});
        assert!(work > rest / 2, "{work:?}");
    }
}
