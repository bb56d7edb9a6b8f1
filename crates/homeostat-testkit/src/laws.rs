//! The law suite: one call that runs the laws of the contract over a source.
//!
//! An author writes a [`Harness`] (how to create, read and disturb a target; an [`AsyncHarness`], if that takes an async
//! client) and calls [`check`]. The result names the law that is broken and what to do about it, or lists what the harness
//! could not check. [`LAWS`] has the laws in short. The suite never sleeps and needs no particular runtime.
//!
//! # A test of an `Api`
//!
//! An `Api` of `homeostat-kit` is under test as the source that its `Adapted` makes of it. Ownership comes from its
//! `Strategy`, the desired states from maps. This is the whole test of the lamps, to be pasted below the program on that
//! crate's front page:
//!
#![doc = concat!("```\n", include_str!("../examples/lamps/laws.rs"), "```")]
//!
//! # A test of any source
//!
//! [`memory`](crate::memory) has a source of its own, with a harness that knows all faults:
//!
//! ```
//! use homeostat_engine::Ownership;
//! use homeostat_testkit::laws;
//! use homeostat_testkit::memory::{Bench, Lanes};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let verdict = laws::check(&mut Bench::<Lanes>::new(Ownership::Marked)).await.unwrap();
//! assert!(verdict.unchecked.is_empty());
//! # });
//! ```

/// Breaks off the check of a law unless a condition holds: what was seen, and what an author can do about it.
macro_rules! demand {
    ($fixture:expr, $holds:expr, $how:literal, $help:expr $(,)?) => {
        if !$holds {
            return Err($fixture.broken(&format!($how), $help));
        }
    };
}

mod crashing;
mod failing;
mod fixture;
mod harness;
mod hints;
mod owning;
mod reading;
mod verdict;
mod writing;

use fixture::Suite;
pub use harness::{Ability, AsyncHarness, DesiredState, Disturbance, Fault, Harness, Meter};
pub use verdict::{Broken, LAWS, Verdict};

/// Kills a process at every point of the way to the first desired state, to the second and to nothing, and lets the
/// next one go on: everything must be made, nothing may be left behind, and nothing foreign may be touched. Returns how
/// many points there were.
///
/// A point is every write of the ledger (where the engine records what is ours), before and after it, and every moment
/// at which the source waits: a pending `await`. Run it besides [`check`].
///
/// **Assert the number.** A source that never waits, such as an `Api` over blocking `std::fs`, cannot be killed between
/// its calls: it has the points of the ledger only, and passes with next to nothing checked. The lamps above have 5
/// points; if their wall never waited, they would have 2. Let each call of an `Api` wait, by the `spawn_blocking` that
/// blocking calls need anyway, or by `tokio::task::yield_now` before and after its write. A closure in `spawn_blocking`
/// goes on when its call is dropped, as a request does that a dead process has sent: it may write while the next
/// process looks, or later than the suite looks.
pub async fn check_crashes<H: AsyncHarness>(harness: &mut H) -> Result<usize, Broken> {
    harness::check(harness).await?;
    let mut suite = Suite { harness, verdict: Verdict::default() };
    harness::check_snapshot(&mut suite, 8).await?;
    crashing::every_crash_is_made_good(&mut suite).await
}

/// Checks all laws, each over fresh targets, and stops at the first that is broken.
///
/// Laws on which others rely are checked first: reading, the order of steps, then ownership, writing, failing, hints.
pub async fn check<H: AsyncHarness>(harness: &mut H) -> Result<Verdict, Broken> {
    harness::check(harness).await?;
    let mut suite = Suite { harness, verdict: Verdict::default() };
    harness::check_snapshot(&mut suite, 1).await?;
    reading::observe_only_reads(&mut suite).await?;
    reading::objects_are_normalized(&mut suite).await?;
    reading::plans_are_pure(&mut suite).await?;
    failing::needs_are_in_order(&mut suite).await?;
    owning::intents_are_durable(&mut suite).await?;
    writing::steps_touch_what_they_name(&mut suite).await?;
    writing::writes_have_preconditions(&mut suite).await?;
    owning::only_owned_objects_go(&mut suite).await?;
    writing::a_second_pass_writes_nothing(&mut suite).await?;
    failing::failures_stay_where_they_belong(&mut suite).await?;
    hints::hints_only_save_time(&mut suite).await?;
    hints::coverage_is_true(&mut suite).await?;
    Ok(suite.verdict)
}
