//! One call over a bound source: runs the loop until it is done. Sources that are no
//! [`Api`](crate::simple::Api) build their own one-call interfaces on it; for an `Api` there is
//! [`Reconciler`](crate::Reconciler).

use std::time::Duration;

use homeostat_engine::outcome::Later;
use homeostat_engine::{
    Bound, Control as _, Failure, Loop, LoopDeps, OnStop, Pace, Pages, PassSeries, Patience,
    Planner as _, Retry, Source,
};

use crate::Error;
use crate::report::{Plan, Report};

/// How long one call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// For one pass.
    Passed,
    /// Until everything is as declared, until only findings remain that time cannot cure, or for this long.
    Converged(Duration),
}

/// What would be done. It has no writer, so it cannot write.
pub async fn plan<S: Source>(bound: &Bound<S>, pages: &dyn Pages) -> Result<Plan<S::Key>, Error> {
    Ok(Plan::of(&*bound.plan(pages).await?, bound.config.ways_out))
}

/// Makes the target as declared. The future starts nothing behind its caller's back, and may be dropped: nothing is
/// written after that.
pub async fn reconcile<S: Source>(bound: Bound<S>, deps: LoopDeps, until: Until) -> Report<S::Key> {
    let usual = pace::<S>();
    let pace = match until {
        Until::Passed => usual.once(),
        // The subscription also says when the target is ready for what it put off.
        Until::Converged(within) => usual.with_deadline(within),
    };
    let ways_out = bound.config.ways_out;
    let (looped, handle) = Loop::new(bound, deps, pace);
    let mut recording = handle.record();
    let working = async {
        match until {
            Until::Passed => _ = handle.pass().await,
            Until::Converged(within) => {
                let converged = async {
                    handle.pass().await?.ok();
                    handle.settle(Patience::lasting(within)).await
                };
                // The report lists the keys that are open then.
                _ = tokio::time::timeout(within, converged).await;
            }
        }
        let trouble = handle.status().last_error;
        handle.stop(OnStop::Leave).await;
        trouble
    };
    // Boxed: with the futures of a client in it, its type would be too deep for the compiler.
    let (trouble, ()) = tokio::join!(working, Box::pin(looped.run()) as Later<'_, ()>);
    let mut passes = PassSeries::default();
    recording.take().into_iter().for_each(|pass| passes.push(pass));
    let unfinished = passes.is_empty().then(|| Failure::new("no pass ended in time", Retry::Soon));
    Report::of(&passes, trouble.or(unfinished), ways_out)
}

/// The usual pace of a source. Pauses differ from process to process, so that many machines do not move in step.
pub(crate) fn pace<S: Source>() -> Pace {
    Pace::of::<S>(u64::from(std::process::id()))
}
