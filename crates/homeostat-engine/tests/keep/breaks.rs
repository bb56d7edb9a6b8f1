//! Passes that hang or panic, and subscriptions that die.

use homeostat_engine::{CommandRefused, Control as _, EventKind, OnStop};
use homeostat_testkit::memory::{Act, HintFault};
use tokio::task::JoinHandle;

use crate::stage::{MINUTE, MS, SECOND, Stage, later, pace, taking};

#[tokio::test(start_paused = true)]
async fn a_pass_that_takes_too_long_is_given_up_and_begun_anew() {
    for act in [Act::Observe, Act::Apply] {
        let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.hangs = Some(act));
        later(59 * SECOND).await;
        assert_eq!(stage.handle.status().counts.broken, 0);
        later(2 * SECOND).await;
        let status = stage.handle.status();
        assert_eq!((status.counts.broken, status.failures), (1, 1));
        let error = status.last_error.unwrap().error;
        assert!(error.contains("did not end within 60s"), "{error}");
        stage.faults(|faults| faults.hangs = None);
        stage.converged().await;
        assert_eq!(stage.values(), ["a=1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_and_reported_and_the_source_reopened_with_backoff() {
    for act in [Act::Observe, Act::Plan, Act::Apply] {
        let mut stage = Stage::settled(&[("a", "1")]).await;
        let other = Stage::settled(&[("a", "1")]).await;
        stage.faults(|faults| faults.panics = Some(act));
        stage.target.remove("a");
        later(10 * SECOND).await;
        let status = stage.handle.status();
        let error = status.last_error.unwrap().error;
        assert!(error.contains("panicked") && error.contains("stumbles in"), "{error}");
        assert!((4..=8).contains(&status.counts.broken), "{:?}", status.counts);
        assert!(stage.event_kinds().iter().any(|what| matches!(what, EventKind::Failed { .. })));
        other.target.remove("a");
        later(SECOND).await;
        assert_eq!(other.values(), ["a=1"], "the others go on");
        stage.faults(|faults| faults.panics = None);
        stage.converged().await;
        assert_eq!(stage.values(), ["a=1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_cannot_be_opened_is_reported_and_retried_with_growing_pauses() {
    let closed = HintFault::Closed;
    let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.hints = closed);
    later(MINUTE).await;
    let status = stage.handle.status();
    assert!(!status.is_ready && !status.is_converged);
    assert!((5..=20).contains(&status.counts.broken), "no hot loop: {:?}", status.counts);
    let error = status.last_error.unwrap().error;
    assert!(error.contains("the target has no subscriptions"), "{error}");
    assert_eq!(stage.target.writes(), 0, "nothing is written unheard");
    stage.faults(|faults| faults.hints = HintFault::None);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_dies_or_panics_is_opened_anew_and_a_full_pass_follows() {
    for panics in [None, Some(Act::Hint)] {
        let mut stage = Stage::settled(&[("a", "1")]).await;
        stage.faults(|faults| {
            faults.panics = panics;
            faults.hints = HintFault::Dead;
        });
        stage.target.remove("a");
        stage.handle.wait_for(|status| status.counts.resubscribed == 1).await.unwrap();
        stage.faults(|faults| {
            faults.panics = None;
            faults.hints = HintFault::None;
        });
        stage.converged().await;
        assert_eq!(stage.values(), ["a=1"]);
        let log = stage.target.take_log();
        assert_eq!(log[..3], ["subscribe", "look at all", "write a"]);
        assert!(stage.event_kinds().contains(&EventKind::Resubscribed));
        stage.target.remove("a");
        later(SECOND).await;
        assert_eq!(stage.values(), ["a=1"], "hints are received again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_keeps_dying_does_not_run_hot_and_passes_go_on() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hints = HintFault::Dead);
    later(MINUTE).await;
    let status = stage.handle.status();
    assert!((6..=14).contains(&status.counts.full), "{:?}", status.counts);
    stage.target.remove("a");
    later(40 * SECOND).await;
    assert_eq!(stage.values(), ["a=1"]);
}

/// A caller waits for a pass.
fn ask(stage: &Stage) -> JoinHandle<Result<bool, CommandRefused>> {
    let handle = stage.handle.clone();
    tokio::spawn(async move { handle.pass().await.map(|answer| answer.is_ok()) })
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_pass_ends_in_time_and_nothing_is_written_after_it() {
    for act in [Act::Observe, Act::Apply] {
        for policy in [OnStop::Leave, OnStop::Release] {
            let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
            stage.faults(|faults| faults.hangs = Some(act));
            stage.target.remove("a");
            stage.target.remove("b");
            later(MS).await;
            let asked = ask(&stage);
            later(MS).await;
            let ((), took) = taking(stage.handle.stop(policy)).await;
            assert!(took < SECOND, "{act:?} {took:?}");
            assert!(asked.await.unwrap().is_err(), "a waiting caller learns that it ended");
            stage.faults(|faults| faults.hangs = None);
            let writes = stage.target.writes();
            later(MINUTE).await;
            assert_eq!((stage.target.writes(), stage.values().len()), (writes, 0));
            stage.running.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_ends_with_the_deadline_or_the_stop() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Observe));
    let (answer, took) = taking(stage.handle.look("a")).await;
    assert!(answer.unwrap().is_err() && took <= MINUTE);
    let ((), took) = taking(stage.handle.stop(OnStop::Leave)).await;
    assert!(took < SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_may_panic() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.panics = Some(Act::Observe));
    assert!(stage.handle.look("a").await.unwrap().is_err());
    stage.faults(|faults| faults.panics = None);
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_not_driven_is_stalled_and_an_idle_one_is_not() {
    let stage = Stage::settled(&[("a", "1")]).await;
    later(10 * MINUTE).await;
    assert_eq!(stage.handle.status().stall, None);
    stage.running.abort();
    later(44 * SECOND).await;
    let stall = stage.handle.status().stall;
    assert!(stall.is_none() || stall.unwrap().to_string().contains("ago"));
    later(MINUTE).await;
    assert!(stage.handle.status().stall.is_some());
}
