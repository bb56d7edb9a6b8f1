//! The commands of a running loop.

use homeostat_engine::{Control as _, OnStop, Pages};
use homeostat_testkit::memory::{Act, Mark, Target};

use crate::stage::{MINUTE, MS, SECOND, Stage, bound, later, pace, place, taking, values_bound};

#[tokio::test(start_paused = true)]
async fn a_new_desired_state_is_applied_and_a_foreign_object_stays() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.target.add("x", "9", Mark::Foreign);
    stage.handle.put(bound(&stage.target, &[("b", "3")])).unwrap();
    let report = stage.handle.pass().await.unwrap().unwrap();
    assert!(report.is_converged());
    assert_eq!(stage.values(), ["b=3", "x=9"]);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_a_person_asks_for_opens_the_source_again_and_a_resync_does_not() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let is_subscription = |line: &String| line == "subscribe";
    let _ = stage.target.take_log();
    later(5 * MINUTE).await;
    assert!(!stage.target.take_log().iter().any(is_subscription));
    stage.handle.pass().await.unwrap().unwrap();
    let log = stage.target.take_log();
    assert_eq!(log.iter().filter(|line| is_subscription(line)).count(), 1, "{log:?}");
    assert!(log.first().is_some_and(is_subscription), "{log:?}");
    assert_eq!(stage.handle.status().counts.resubscribed, 0, "nothing was lost");
}

#[tokio::test(start_paused = true)]
async fn between_a_new_desired_state_and_its_pass_the_loop_is_not_converged() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Observe));
    stage.handle.put(bound(&stage.target, &[("a", "2")])).unwrap();
    later(SECOND).await;
    assert!(!stage.handle.status().is_converged);
    stage.faults(|faults| faults.hangs = None);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=2"]);
}

#[tokio::test(start_paused = true)]
async fn who_puts_a_desired_state_and_waits_sees_no_older_state() {
    let stage = Stage::settled(&[("a", "1")]).await;
    for value in ["2", "3"] {
        stage.handle.put(bound(&stage.target, &[("a", value)])).unwrap();
        assert!(!stage.handle.status().is_converged, "before the loop has even woken");
        stage.converged().await;
        assert_eq!(stage.values(), [format!("a={value}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_for_an_older_desired_state_that_ends_late_does_not_count() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Apply));
    stage.handle.put(bound(&stage.target, &[("a", "2")])).unwrap();
    later(10 * MS).await;
    stage.handle.put(bound(&stage.target, &[("a", "3")])).unwrap();
    stage.faults(|faults| faults.hangs = None);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=3"]);
}

#[tokio::test(start_paused = true)]
async fn desired_states_that_come_during_a_pass_end_on_the_newest_then_quiet() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Apply));
    for value in ["2", "3", "4"] {
        stage.handle.put(bound(&stage.target, &[("a", value)])).unwrap();
        later(MS).await;
    }
    stage.faults(|faults| faults.hangs = None);
    stage.converged().await;
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=4"]);
    let writes = stage.target.writes();
    later(5 * MINUTE).await;
    assert_eq!(stage.target.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_paused_loop_does_nothing_until_its_pause_ends_or_it_is_resumed() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.handle.pause(Some(10 * MINUTE)).unwrap();
    stage.handle.wait_for(|status| status.is_paused).await.unwrap();
    stage.target.remove("a");
    later(599 * SECOND).await;
    assert!(stage.values().is_empty() && stage.handle.status().stall.is_none());
    stage.handle.wait_for(|status| !status.is_paused && status.is_converged).await.unwrap();
    later(2 * SECOND).await;
    assert_eq!(stage.values(), ["a=1"], "the pause has ended by itself");
    stage.handle.pause(None).unwrap();
    stage.target.remove("a");
    later(5000 * SECOND).await;
    let status = stage.handle.status();
    assert!(status.is_paused && status.next_due.is_none() && status.stall.is_none());
    assert!(stage.values().is_empty());
    stage.handle.resume().unwrap();
    stage.handle.wait_for(|status| !status.is_paused && status.counts.applied == 3).await.unwrap();
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_short_pause_ends_with_a_look_at_everything() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let full = stage.handle.status().counts.full;
    stage.handle.pause(Some(SECOND)).unwrap();
    later(2 * SECOND).await;
    assert_eq!(stage.handle.status().counts.full, full + 1);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_is_asked_for_runs_in_a_pause() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.handle.pause(None).unwrap();
    stage.target.remove("a");
    assert!(stage.handle.pass().await.unwrap().unwrap().is_converged());
    assert!(stage.handle.status().is_paused);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_once_is_taken_once() {
    let stage = Stage::settled(&[("a", "1")]).await;
    for _ in 0..2 {
        stage.target.remove("a");
        stage.target.add("a", "9", Mark::Foreign);
        later(SECOND).await;
        assert_eq!(stage.values(), ["a=9"], "a conflict");
        let report = stage.handle.adopt("a").await.unwrap().unwrap();
        assert!(report.is_converged());
        assert_eq!(stage.values(), ["a=1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn adopting_and_looking_work_before_the_first_pass_succeeded() {
    let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.blind = true);
    stage.target.add("a", "9", Mark::Foreign);
    stage.handle.wait_for(|status| status.counts.broken > 3).await.unwrap();
    stage.faults(|faults| faults.blind = false);
    let report = stage.handle.look("a").await.unwrap().unwrap();
    assert!(!report.is_converged());
    let report = stage.handle.adopt("a").await.unwrap().unwrap();
    assert!(report.is_converged());
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn stopping_leaves_releases_or_reverts() {
    let cases =
        [(OnStop::Leave, "1", 1), (OnStop::Release, "1", 0), (OnStop::Revert, "original", 0)];
    for (policy, value, records) in cases {
        let target = Target::default();
        target.add("a", "original", Mark::Foreign);
        let stage = Stage::over(target.clone(), values_bound(&target, &[("a", "1")]), pace());
        stage.converged().await;
        let ledger = stage.ledger.clone();
        stage.stop(policy).await;
        assert_eq!(target.objects()[0].value, value, "{policy:?}");
        assert_eq!(ledger.page(&place()).unwrap().records.len(), records, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revert_takes_back_what_we_made_also_what_is_fought_over_and_nothing_else() {
    let stage = Stage::settled_at(&[("a", "1"), ("b", "2")], pace().with_min_interval(MS)).await;
    stage.target.add("x", "9", Mark::Foreign);
    for _ in 0..8 {
        stage.target.alter("a", "theirs");
        later(10 * MS).await;
    }
    assert_eq!(stage.handle.status().contended.len(), 1);
    let target = stage.stop(OnStop::Revert).await;
    assert_eq!(target.snapshot().into_keys().collect::<Vec<_>>(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_handles_ends_and_lets_go_of_everything() {
    let Stage { target, handle, running, .. } = Stage::settled(&[("a", "1")]).await;
    drop(handle);
    let ((), took) = taking(async { running.await.unwrap() }).await;
    assert!(took < MS);
    target.remove("a");
    later(MINUTE).await;
    assert!(target.objects().is_empty(), "nothing is made again");
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_handles_ends_also_in_the_middle_of_a_pass() {
    let Stage { target, handle, running, .. } = Stage::settled(&[("a", "1")]).await;
    target.faults(|faults| faults.hangs = Some(Act::Apply));
    target.remove("a");
    later(MS).await;
    drop(handle);
    let ((), took) = taking(async { running.await.unwrap() }).await;
    assert!(took < SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_overtakes_what_else_was_asked_for() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Observe));
    let mut asked = Vec::new();
    for _ in 0..5 {
        let handle = stage.handle.clone();
        asked.push(tokio::spawn(async move { handle.pass().await.is_err() }));
        later(MS).await;
    }
    let ((), took) = taking(stage.handle.stop(OnStop::Leave)).await;
    assert!(took < SECOND, "{took:?}");
    for one in asked {
        let _ = one.await.unwrap();
    }
    assert!(stage.handle.pass().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_desired_state_that_comes_with_another_source_is_read_and_written_through_that_one() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let other = Target::default();
    stage.handle.put(bound(&other, &[("a", "2")])).unwrap();
    assert!(stage.handle.pass().await.unwrap().unwrap().is_converged());
    assert_eq!(other.snapshot()["a"], "2 (Ours)");
    other.remove("a");
    later(SECOND).await;
    assert_eq!(other.snapshot()["a"], "2 (Ours)", "and its hints are received");
    assert_eq!(stage.values(), ["a=1"]);
}
