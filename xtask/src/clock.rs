//! The one place that reads the time, for the "took 3.2 s" behind each step.

use std::time::Instant;

/// The moment of the call.
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
