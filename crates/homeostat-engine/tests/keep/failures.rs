//! What fails is tried again, and when.

use homeostat_engine::Retry;
use homeostat_testkit::memory::Mark;

use crate::stage::{MINUTE, MS, SECOND, Stage, bound, later, pace};

async fn refusing(until: Option<Retry>) -> Stage {
    let stage = Stage::with(&[("a", "1"), ("b", "2")], pace(), |faults| {
        faults.refused.insert("a".into());
        faults.refused_until = until;
    });
    let status = stage.ready().await;
    assert!(!status.is_converged && status.open.failed == 1);
    stage
}

fn writes_of(stage: &Stage, key: &str) -> usize {
    let line = format!("write {key}");
    stage.target.take_log().into_iter().filter(|told| *told == line).count()
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_with_growing_pauses() {
    let stage = refusing(None).await;
    assert_eq!(stage.values(), ["b=2"], "others do not wait");
    later(MINUTE).await;
    let tries = writes_of(&stage, "a");
    assert!((8..=14).contains(&tries), "{tries}");
    later(10 * MINUTE).await;
    let tries = writes_of(&stage, "a");
    assert!((20..=32).contains(&tries), "each resync tries, too: {tries}");
    stage.faults(|faults| faults.refused.clear());
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1", "b=2"]);
}

#[tokio::test(start_paused = true)]
async fn hints_try_again_but_neither_inflate_the_backoff_nor_break_the_interval() {
    let stage = refusing(None).await;
    let _ = stage.target.take_log();
    for _ in 0..200 {
        stage.target.alter("a", "hint");
        later(10 * MS).await;
    }
    let tries = writes_of(&stage, "a");
    assert!((18..=26).contains(&tries), "one an interval: {tries}");
    stage.faults(|faults| faults.refused.clear());
    later(3 * SECOND).await;
    assert_eq!(stage.values(), ["a=1", "b=2"], "its pause is still short");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_new_wish_is_not_tried_before() {
    let stage = refusing(Some(Retry::Never)).await;
    let _ = stage.target.take_log();
    stage.target.alter("a", "hint");
    later(10 * MINUTE).await;
    stage.handle.pass().await.unwrap().unwrap();
    assert_eq!(writes_of(&stage, "a"), 0);
    let status = stage.handle.status();
    assert_eq!((status.is_converged, status.open.failed), (false, 1), "it still counts as failed");
    stage.handle.put(bound(&stage.target, &[("a", "1"), ("b", "2")])).unwrap();
    later(SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_change_is_tried_on_a_hint_and_at_a_resync_only() {
    let stage = refusing(Some(Retry::OnChange)).await;
    let _ = stage.target.take_log();
    later(20 * SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 0);
    stage.target.alter("a", "hint");
    later(SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 1);
    later(5 * MINUTE).await;
    let tries = writes_of(&stage, "a");
    assert!((9..=11).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn a_new_wish_begins_the_backoff_anew() {
    let stage = refusing(None).await;
    later(2 * MINUTE).await;
    stage.faults(|faults| faults.refused.clear());
    stage.handle.put(bound(&stage.target, &[("a", "1")])).unwrap();
    stage.handle.wait_for(|status| status.is_converged).await.unwrap();
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_keeps_its_backoff_through_passes_for_other_reasons() {
    let stage = refusing(None).await;
    later(20 * SECOND).await;
    let _ = stage.target.take_log();
    for _ in 0..100 {
        stage.target.add("x", "9", Mark::Foreign);
        later(10 * MS).await;
    }
    assert!(writes_of(&stage, "a") <= 1, "hints about others do not try it");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_seen_backs_off_is_never_converged_and_recovers() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.blind = true);
    assert!(stage.handle.pass().await.unwrap().is_err());
    let status = stage.handle.status();
    assert!(!status.is_converged && status.failures == 1 && status.last_error.is_some());
    let before = status.counts.broken;
    for _ in 0..60 {
        stage.target.add("x", "9", Mark::Foreign);
        later(SECOND).await;
        assert!(!stage.handle.status().is_converged);
    }
    let status = stage.handle.status();
    let tries = status.counts.broken - before;
    assert!((8..=14).contains(&tries), "{tries}");
    assert_eq!(u64::from(status.failures), status.counts.broken);
    assert_eq!(status.counts.focused, 0, "only a full pass can be next");
    stage.target.remove("a");
    stage.faults(|faults| faults.blind = false);
    let status = stage.converged().await;
    assert_eq!((status.failures, status.last_error), (0, None));
    assert!(stage.values().contains(&"a=1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_not_a_pass_that_worked() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.blind = true);
    assert!(stage.handle.look("a".to_owned()).await.unwrap().is_err());
    later(SECOND).await;
    assert!(!stage.handle.status().is_converged);
    stage.faults(|faults| faults.blind = false);
    stage.converged().await;
}

#[tokio::test(start_paused = true)]
async fn a_focused_pass_that_breaks_is_followed_by_a_full_one() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.faults(|faults| faults.blind = true);
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.broken == 1).await.unwrap();
    stage.faults(|faults| faults.blind = false);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1", "b=2"]);
    let log = stage.target.take_log();
    assert_eq!(log, ["look at a", "subscribe", "look at all", "write a"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_with_its_answer_is_found_out() {
    let stage = Stage::with(&[("a", "1")], pace(), |faults| {
        faults.answer_lost.insert("a".into());
    });
    stage.converged().await;
    assert_eq!((stage.values(), stage.target.writes()), (vec!["a=1".to_owned()], 1));
}
