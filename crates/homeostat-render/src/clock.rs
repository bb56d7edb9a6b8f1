//! The clock of the machine. Nothing else in this crate reads it.

use std::time::SystemTime;

#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
