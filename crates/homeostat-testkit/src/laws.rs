//! The law suite: one call that runs the laws of the contract over a source.
//!
//! An author writes a [`Harness`] (how to create, read and disturb a target) and calls [`check`]. The result names the
//! law that is broken, or lists what the harness could not check. The suite never sleeps and needs no particular
//! runtime.
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

mod failing;
mod fixture;
mod harness;
mod hints;
mod owning;
mod reading;
mod verdict;
mod writing;

pub use harness::{Ability, DesiredState, Disturbance, Fault, Harness, Meter};
pub use verdict::{Broken, LAWS, Law, Verdict};

/// Checks all laws, each over fresh targets, and stops at the first that is broken.
///
/// Laws on which others rely are checked first: reading, then ownership, writing, failing, hints.
pub async fn check<H: Harness>(harness: &mut H) -> Result<Verdict, Broken> {
    let mut verdict = Verdict::default();
    harness::check(harness)?;
    reading::observe_only_reads(harness, &mut verdict).await?;
    reading::objects_are_normalized(harness).await?;
    reading::plans_are_pure(harness).await?;
    owning::intents_are_durable(harness).await?;
    writing::steps_touch_what_they_name(harness, &mut verdict).await?;
    owning::only_owned_objects_go(harness, &mut verdict).await?;
    writing::a_second_pass_writes_nothing(harness).await?;
    failing::failures_stay_where_they_belong(harness, &mut verdict).await?;
    hints::hints_only_save_time(harness, &mut verdict).await?;
    hints::coverage_is_true(harness, &mut verdict).await?;
    Ok(verdict)
}
