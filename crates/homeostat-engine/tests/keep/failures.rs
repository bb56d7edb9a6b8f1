//! What fails is tried again, and when.

use homeostat_engine::{Control as _, EventKind, Kind, Retry};
use homeostat_testkit::memory::Mark;
use serde_json::{Value, json};

use crate::stage::{MINUTE, MS, SECOND, Stage, bound, later, pace};

async fn refusing(until: Option<Retry>) -> Stage {
    let stage = Stage::with(&[("a", "1"), ("b", "2")], pace(), |faults| {
        faults.refused.insert("a".into());
        faults.refused_until = until;
    });
    let status = stage.ready().await;
    assert!(!status.is_converged && status.open.count(Kind::Failed) == 1);
    stage
}

fn writes_of(stage: &Stage, key: &str) -> usize {
    let line = format!("write {key}");
    stage.target.take_log().into_iter().filter(|entry| *entry == line).count()
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
async fn what_waits_for_a_new_desired_state_is_not_tried_before() {
    let stage = refusing(Some(Retry::Never)).await;
    let _ = stage.target.take_log();
    stage.target.alter("a", "hint");
    later(10 * MINUTE).await;
    stage.handle.pass().await.unwrap().unwrap();
    assert_eq!(writes_of(&stage, "a"), 0);
    let status = stage.handle.status();
    assert_eq!(
        (status.is_converged, status.open.count(Kind::Failed)),
        (false, 1),
        "it still counts as failed"
    );
    stage.handle.put(bound(&stage.target, &[("a", "1"), ("b", "3")])).unwrap();
    later(SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 0, "what is declared of it is the same");
    stage.handle.put(bound(&stage.target, &[("a", "2"), ("b", "3")])).unwrap();
    later(SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 1);
    stage.handle.replace(bound(&stage.target, &[("a", "2"), ("b", "3")])).unwrap();
    later(SECOND).await;
    assert_eq!(writes_of(&stage, "a"), 1, "somebody asked for it");
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
async fn a_new_desired_state_begins_the_backoff_anew() {
    let stage = refusing(None).await;
    later(2 * MINUTE).await;
    stage.faults(|faults| faults.refused.clear());
    stage.handle.put(bound(&stage.target, &[("a", "1")])).unwrap();
    stage.handle.wait_for(|status| status.is_converged).await.unwrap();
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_desired_state_again_wakes_nothing_and_keeps_the_backoff() {
    let stage = refusing(None).await;
    later(2 * MINUTE).await;
    let before = stage.handle.status().counts;
    let _ = stage.target.take_log();
    for _ in 0..100 {
        stage.handle.put(bound(&stage.target, &[("a", "1"), ("b", "2")])).unwrap();
        later(100 * MS).await;
    }
    let counts = stage.handle.status().counts;
    let passes = counts.full - before.full + counts.focused - before.focused;
    assert!(passes <= 2, "a resync and a retry at most: {passes}");
    assert!(writes_of(&stage, "a") <= 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_desired_state_again_leaves_a_loop_converged() {
    let stage = Stage::settled(&[("a", "1")]).await;
    assert!(!stage.handle.put(bound(&stage.target, &[("a", "1")])).unwrap());
    assert!(stage.handle.status().is_converged);
    assert!(stage.handle.put(bound(&stage.target, &[("a", "2")])).unwrap());
    assert!(!stage.handle.status().is_converged);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=2"]);
}

#[tokio::test(start_paused = true)]
async fn another_way_to_the_target_is_taken_with_the_same_desired_state() {
    let stage = refusing(Some(Retry::Never)).await;
    let other = homeostat_testkit::memory::Target::default();
    assert!(stage.handle.put(bound(&other, &[("a", "1"), ("b", "2")])).unwrap());
    stage.converged().await;
    assert_eq!(other.objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_desired_state_that_changes_other_keys_tries_a_failing_one_once_and_keeps_its_pause() {
    let stage = refusing(None).await;
    later(2 * MINUTE).await;
    stage.handle.pass().await.unwrap().unwrap();
    let _ = stage.target.take_log();
    stage.handle.put(bound(&stage.target, &[("a", "1"), ("b", "3")])).unwrap();
    later(10 * SECOND).await;
    let tries = writes_of(&stage, "a");
    assert!((1..=2).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_failing_keys_is_tried_in_few_passes_and_reported_in_few_events() {
    let keys: Vec<String> = (0..2_000).map(|number| format!("k{number:04}")).collect();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    let mut stage = Stage::with(&entries, pace(), |faults| {
        faults.refused.extend(keys.iter().cloned());
    });
    let (mut failures, mut rest) = (0, Vec::new());
    for second in 0..600 {
        later(SECOND).await;
        for what in stage.event_kinds() {
            match what {
                EventKind::StepFailed { .. } => failures += 1,
                EventKind::More { steps } => rest.push((second, steps)),
                _ => {}
            }
        }
    }
    let counts = stage.handle.status().counts;
    assert!((19..=22).contains(&counts.full), "resyncs only: {counts:?}");
    assert!((10..=100).contains(&counts.focused), "{counts:?}");
    let tries = counts.failed / 2_000;
    assert!((20..=36).contains(&tries), "each key is tried at resyncs and after pauses: {tries}");
    assert_eq!(
        (failures, rest),
        (100, vec![(0, 1_900)]),
        "and nothing is published again and again"
    );
    stage.faults(|faults| faults.refused.clear());
    stage.converged().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_when_it_begins_when_its_words_change_and_once_an_hour() {
    fn errors(stage: &mut Stage) -> Vec<String> {
        let failures = stage.event_kinds().into_iter().filter_map(|what| match what {
            EventKind::StepFailed { failure, .. } => Some(failure.error),
            _ => None,
        });
        failures.collect()
    }
    let mut stage = refusing(None).await;
    later(10 * MINUTE).await;
    assert_eq!(errors(&mut stage), ["the target refused"]);
    stage.faults(|faults| faults.refused_with = Some("no such device".to_owned()));
    later(10 * MINUTE).await;
    assert_eq!(errors(&mut stage), ["no such device"]);
    later(60 * MINUTE).await;
    assert_eq!(errors(&mut stage), ["no such device"]);
    stage.faults(|faults| faults.refused.clear());
    stage.converged().await;
    stage.faults(|faults| _ = faults.refused.insert("a".to_owned()));
    stage.target.remove("a");
    later(10 * SECOND).await;
    assert_eq!(errors(&mut stage), ["no such device"], "it had worked in between");
}

#[tokio::test(start_paused = true)]
async fn open_keys_say_why_and_since_when_through_any_number_of_passes() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    stage.faults(|faults| {
        faults.refused.extend(["a".to_owned(), "c".to_owned()]);
        faults.refused_with = Some("no such device".to_owned());
    });
    assert!(stage.handle.open_keys(None, 10).unwrap().is_empty());
    stage.target.remove("a");
    later(SECOND).await;
    let first = stage.handle.open_keys(None, 10).unwrap();
    assert_eq!(
        (first.len(), first[0].kind, &*first[0].reason),
        (1, Kind::Failed, "no such device")
    );
    let good = stage.handle.status().last_success;
    later(10 * MINUTE).await;
    let mut later_on = stage.handle.open_keys(None, 10).unwrap();
    assert!(later_on[0].next_try > first[0].next_try, "it was tried again: {later_on:?}");
    later_on[0].next_try = first[0].next_try;
    assert_eq!(later_on, first, "it is still so, since then");
    assert_eq!(stage.handle.status().last_success, good, "no pass was good");
    stage.faults(|faults| faults.refused_with = Some("busy".to_owned()));
    stage.target.remove("b");
    stage.target.add("b", "9", Mark::Foreign);
    stage.target.remove("c");
    later(10 * MINUTE).await;
    let open = stage.handle.open_keys(None, 10).unwrap();
    let kinds: Vec<_> = open.iter().map(|one| (one.key.as_str(), one.kind)).collect();
    assert_eq!(kinds, [("a", Kind::Failed), ("b", Kind::Conflict), ("c", Kind::Failed)]);
    assert_eq!((&*open[0].reason, open[0].since), ("busy", first[0].since), "another reason");
    assert!(open[1].owner.is_some() && open[1].since > first[0].since, "{:?}", open[1]);
    assert_eq!(stage.handle.open_keys(None, 2).unwrap(), open[..2], "a page");
    assert_eq!(stage.handle.open_keys(Some("b"), 2).unwrap(), open[2..], "and the next");
    stage.faults(|faults| faults.refused.clear());
    later(5 * MINUTE).await;
    assert_eq!(stage.handle.open_keys(None, 10).unwrap(), open[1..2], "the others are healed");
    stage.target.remove("b");
    stage.converged().await;
    assert!(stage.handle.open_keys(None, 10).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn status_and_open_keys_are_values_that_serialize() {
    let stage = refusing(None).await;
    let status = serde_json::to_value(stage.handle.status()).unwrap();
    let expected = [
        ("mode", json!("heal")),
        ("ready", json!(true)),
        ("converged", json!(false)),
        ("last_success_us", Value::Null),
        ("last_error", Value::Null),
        ("stall", Value::Null),
        ("contended", json!([])),
    ];
    for (field, value) in expected {
        assert_eq!(status[field], value, "{field} of {status}");
    }
    assert_eq!((&status["open"]["failed"], &status["counts"]["applied"]), (&json!(1), &json!(1)));
    assert!(status["next_due_us"].is_u64() && status["next_why"].is_string(), "{status}");
    let open = stage.handle.open_keys(None, 10).unwrap();
    let open = serde_json::to_value(&open[0]).unwrap();
    assert_eq!((&open["key"], &open["kind"]), (&json!("a"), &json!("failed")));
    assert!(open["reason"].is_string() && open["since_us"].is_u64(), "{open}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_reported_once() {
    let mut stage = Stage::settled(&[("a", "1")]).await;
    stage.target.remove("a");
    stage.target.add("a", "9", Mark::Foreign);
    later(5 * MINUTE).await;
    let events = stage.event_kinds();
    let conflicts = events.iter().filter(|what| matches!(what, EventKind::Conflict { .. }));
    assert_eq!(conflicts.count(), 1);
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
    assert!(stage.handle.look("a").await.unwrap().is_err());
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
