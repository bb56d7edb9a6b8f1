//! Keys that another program keeps undoing, and writes that never show.

use homeostat_engine::{Control as _, Kind};
use std::time::Duration;

use homeostat_engine::EventKind;
use homeostat_testkit::memory::Mark;
use tokio::time::Instant;

use crate::stage::{MINUTE, MS, SECOND, Stage, later, pace};

async fn fought(stage: &Stage, during: Duration) -> Vec<Duration> {
    let began = Instant::now();
    let mut healed = Vec::new();
    while began.elapsed() < during {
        if stage.values().contains(&"a=1".to_owned()) {
            healed.push(began.elapsed());
            stage.target.remove("a");
        }
        later(2 * MS).await;
    }
    healed
}

#[tokio::test(start_paused = true)]
async fn two_who_fight_over_a_key_are_slowed_down_and_the_key_is_never_given_up() {
    let stage = Stage::settled_at(&[("a", "1")], pace().with_min_interval(MS)).await;
    let healed = fought(&stage, 3 * MINUTE).await;
    let waits: Vec<_> = healed.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert!(waits.iter().take(4).all(|wait| *wait < 10 * MS), "at once at first: {waits:?}");
    assert!((200 * MS..220 * MS).contains(&waits[4]), "{waits:?}");
    assert!((400 * MS..420 * MS).contains(&waits[5]), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait < 31 * SECOND), "{waits:?}");
    assert!(waits.last().unwrap() > &(29 * SECOND), "{waits:?}");
    let contended = stage.handle.status().contended;
    assert_eq!((contended.len(), contended[0].key.as_str()), (1, "a"));
    stage.converged().await;
    later(2 * MINUTE).await;
    assert!(stage.handle.status().contended.is_empty(), "calm again");
}

#[tokio::test(start_paused = true)]
async fn who_keeps_undoing_it_is_reported_where_the_target_knows() {
    let mut stage = Stage::settled_at(&[("a", "1")], pace().with_min_interval(MS)).await;
    stage.faults(|faults| faults.culprit = Some("protocol bird".into()));
    fought(&stage, SECOND).await;
    assert_eq!(stage.handle.status().contended[0].culprit, "protocol bird");
    let contended = serde_json::to_value(&stage.handle.status().contended).unwrap();
    let expected = r#"[{"key":"a","culprit":"protocol bird","pause_us":800000}]"#;
    assert_eq!(contended, serde_json::from_str::<serde_json::Value>(expected).unwrap());
    let events = stage.event_kinds();
    let is_named = |what: &EventKind| matches!(what, EventKind::Woken { by: Some(by), .. } if &**by == "protocol bird");
    assert!(events.iter().any(is_named), "{events:?}");
    let contention = events.into_iter().find_map(|what| match what {
        EventKind::Contention { key, culprit, pause } => Some((key, culprit, pause)),
        _ => None,
    });
    assert_eq!(contention, Some(("a".to_owned(), "protocol bird".to_owned(), 200 * MS)));
}

/// Who caused the drift that was healed, by each heal that was published.
fn healed_by(stage: &mut Stage) -> Vec<Option<String>> {
    let heals = stage.event_kinds().into_iter().filter_map(|what| match what {
        EventKind::StepApplied { by, .. } => Some(by.map(|by| by.to_string())),
        _ => None,
    });
    heals.collect()
}

#[tokio::test(start_paused = true)]
async fn the_healing_says_who_did_it_also_if_it_took_many_tries() {
    let mut stage = Stage::settled(&[("a", "1")]).await;
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(healed_by(&mut stage), [None], "the target did not say");
    stage.faults(|faults| faults.culprit = Some("protocol bird".into()));
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(healed_by(&mut stage), [Some("protocol bird".to_owned())]);
    stage.faults(|faults| _ = faults.refused.insert("a".into()));
    stage.target.remove("a");
    later(MINUTE).await;
    assert!(healed_by(&mut stage).is_empty());
    stage.faults(|faults| faults.refused.clear());
    later(3 * MINUTE).await;
    assert_eq!(healed_by(&mut stage), [Some("protocol bird".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn no_pass_heals_a_contended_key_before_its_pause_has_ended() {
    let stage = Stage::settled_at(&[("a", "1"), ("b", "2")], pace().with_min_interval(MS)).await;
    fought(&stage, 10 * SECOND).await;
    assert_eq!(stage.values(), ["b=2"]);
    let report = stage.handle.pass().await.unwrap().unwrap();
    assert!(!report.is_converged());
    stage.target.remove("b");
    later(5 * MS).await;
    assert_eq!(stage.values(), ["b=2"], "others are healed meanwhile");
    assert!(!stage.handle.status().is_converged);
}

#[tokio::test(start_paused = true)]
async fn what_goes_with_its_parent_is_no_fight() {
    let desired = [("p", "1"), ("p/c", "2")];
    let stage = Stage::settled_at(&desired, pace().with_min_interval(MS)).await;
    for _ in 0..4 {
        stage.target.remove("p/c");
        stage.target.remove("p");
        later(3 * SECOND).await;
        assert_eq!(stage.values(), ["p/c=2", "p=1"]);
    }
    for _ in 0..3 {
        stage.target.remove("p/c");
        later(SECOND).await;
        assert_eq!(stage.values(), ["p/c=2", "p=1"], "only these three count");
    }
    assert_eq!(stage.handle.status().contended, []);
}

#[tokio::test(start_paused = true)]
async fn what_never_was_as_declared_is_not_lost() {
    let stage = Stage::settled_at(&[("a", "1")], pace().with_min_interval(MS)).await;
    stage.faults(|faults| _ = faults.refused.insert("a".into()));
    stage.target.remove("a");
    for _ in 0..20 {
        later(50 * MS).await;
        stage.target.remove("a");
    }
    let status = stage.handle.status();
    assert_eq!((status.contended.len(), status.counts.drift_by_hint), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_replacement_is_a_conflict_and_no_fight() {
    let mut stage = Stage::settled_at(&[("a", "1")], pace().with_min_interval(MS)).await;
    for _ in 0..10 {
        stage.target.remove("a");
        stage.target.add("a", "9", Mark::Foreign);
        later(SECOND).await;
    }
    let status = stage.handle.status();
    assert_eq!((status.open.count(Kind::Conflict), status.contended.len()), (1, 0));
    assert!(stage.values().iter().all(|value| value == "a=9"));
    let events = stage.event_kinds();
    assert!(
        events.iter().any(|what| matches!(what, EventKind::Conflict { key, .. } if key == "a"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_works_and_never_shows_is_reported_and_does_not_run_hot() {
    let mut stage = Stage::with(&[("a", "1"), ("b", "B")], pace(), |faults| {
        faults.no_read_back = true;
        faults.rewrite = Some(|value| if value == "1" { "2".to_owned() } else { value.to_owned() });
    });
    stage.ready().await;
    later(10 * MINUTE).await;
    let status = stage.handle.status();
    assert_eq!((status.is_converged, status.not_converging), (false, vec!["a".to_owned()]));
    let writes = stage.target.writes();
    assert!((25..=45).contains(&writes), "tries at first, then pauses and resyncs: {writes}");
    let expected = EventKind::NotConverging { key: "a".into() };
    let count = stage.event_kinds().into_iter().filter(|what| *what == expected).count();
    assert_eq!(count, 1);
    stage.faults(|faults| faults.rewrite = None);
    let status = stage.converged().await;
    assert!(status.not_converging.is_empty());
}
