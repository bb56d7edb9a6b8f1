//! Keeps the agent of a node running: one that panics is reported and started again.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::pacing::Pauses;
use homeostat_engine::{Failure, Retry};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::agent::Report;

/// Between starts of an agent that panics.
const PAUSES: Pauses = Pauses::new(Duration::from_secs(1), Duration::from_mins(5));

/// Runs the agent until it ends by itself.
pub(super) async fn supervise<F: Future<Output = ()> + Send + 'static>(
    run: impl Fn() -> F,
    report: Arc<watch::Sender<Report>>,
) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let Err(error) = tokio::spawn(run()).await else { return };
        if error.is_cancelled() {
            return;
        }
        // One that ran for long begins anew.
        failures = if began.elapsed() > PAUSES.longest() { 1 } else { failures + 1 };
        let pause = PAUSES.nth(failures);
        tracing::error!(%error, failures, "the agent of the fleet panicked");
        let text = format!("the part of the daemon that follows the fleet has failed: {error}");
        let help = "it is started again by itself; please report this with the log of the daemon";
        let trouble = Failure::new(text, Retry::Soon).with_help(help);
        report.send_modify(|report| report.trouble = Some(trouble));
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_panics_is_reported_and_started_again() {
        let (report, mut seen) = watch::channel(Report::default());
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        let run = move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(nth >= 3, "panic {nth}") }
        };
        let began = Instant::now();
        supervise(run, Arc::new(report)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 4);
        assert_eq!(began.elapsed().as_secs(), 1 + 2 + 4);
        let trouble = seen.borrow_and_update().trouble.clone().unwrap();
        assert!(trouble.error.contains("panic 2"), "{}", trouble.error);
    }
}
