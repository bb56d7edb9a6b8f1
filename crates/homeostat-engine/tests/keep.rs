//! The loop in virtual time, over a target in memory: every rule of it is a test here.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "keep/breaks.rs"]
mod breaks;
#[path = "keep/failures.rs"]
mod failures;
#[path = "keep/fights.rs"]
mod fights;
#[path = "keep/guards.rs"]
mod guards;
#[path = "keep/lessons.rs"]
mod lessons;
#[path = "keep/publishing.rs"]
mod publishing;
#[path = "keep/settle.rs"]
mod settle;
#[path = "keep/stage.rs"]
mod stage;
#[path = "keep/verbs.rs"]
mod verbs;
#[path = "keep/wakeups.rs"]
mod wakeups;
