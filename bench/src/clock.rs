//! The one place that reads the time.

use std::time::{Duration, Instant};

/// The moment of the call.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> Instant {
    Instant::now()
}

/// Does `work` and tells how long it took.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let made = work();
    (made, start.elapsed())
}
