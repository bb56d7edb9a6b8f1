//! A service that takes its time: tasks, refusals for now, limits.

use std::time::Duration;

use homeostat_engine::Control as _;
use homeostat_kit::simple::Limit;

use crate::stage::{DOOR, Stage, TWO, in_time, marker, until};

const RARELY: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_task_is_waited_for_and_nothing_is_sent_twice() {
    let stage = Stage::new(marker());
    stage.service.state().faults.tasks = true;
    let handle = stage.keep(DOOR, RARELY);
    until("the call", || !stage.service.state().calls.is_empty()).await;
    for _ in 0..3 {
        // A pass that is asked for meanwhile reports the key as unknown.
        let report = handle.pass().await.unwrap().unwrap();
        assert!(!report.is_converged());
    }
    assert_eq!(stage.service.state().calls.len(), 1, "the task is running");
    stage.service.state().finish("t1", Ok(()));
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    assert_eq!(stage.service.shown(), "green my-door");
    assert_eq!(stage.calls().len(), 1);
}

#[tokio::test]
async fn a_task_that_fails_is_reported_and_tried_again_after_a_pause() {
    let stage = Stage::new(marker());
    stage.service.state().faults.tasks = true;
    let handle = stage.keep(DOOR, RARELY);
    until("the call", || !stage.service.state().calls.is_empty()).await;
    stage.service.state().finish("t1", Err("out of paint"));
    let failed = handle.wait_for(|status| status.counts.failed > 0);
    in_time("the failure", failed).await.unwrap();
    stage.service.state().faults.tasks = false;
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    assert_eq!(stage.service.shown(), "green my-door");
}

#[tokio::test]
async fn a_service_with_too_many_requests_is_asked_again_when_it_says_and_nothing_failed() {
    let stage = Stage::new(marker());
    stage.service.state().faults.busy = 3;
    let handle = stage.keep(TWO, RARELY);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    let counts = handle.status().counts;
    assert_eq!((counts.failed, counts.full), (0, 1), "{counts:?}");
    assert_eq!(stage.service.shown(), "green my-door, blue my-window");
}

#[tokio::test]
async fn writes_are_limited_and_what_is_over_the_limit_comes_later() {
    let mut stage = Stage::new(marker());
    // The second token takes longer than a pass is willing to wait.
    stage.source = stage.source.clone().limited(Limit::new(1, 0.4));
    let report = stage.life().pass(TWO).await;
    assert_eq!(report.applied.len(), 1, "{report:?}");
    assert_eq!(report.open["my-window"], "pending: the rate limit", "{report:?}");
    let handle = stage.keep(TWO, RARELY);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    assert_eq!(stage.calls().len(), 2);
}
