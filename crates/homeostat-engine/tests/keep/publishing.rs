//! Status and events.

use homeostat_engine::Kind;
use homeostat_engine::pacing::Reason;
use homeostat_engine::{Control as _, EventKind};
use homeostat_testkit::memory::Mark;
use tokio::sync::broadcast::error::TryRecvError;

use crate::stage::{MS, SECOND, Stage, later};

#[tokio::test(start_paused = true)]
async fn a_pass_is_published_from_its_wakeup_to_its_end() {
    let mut stage = Stage::start(&[("a", "1")]);
    stage.converged().await;
    let events = stage.event_kinds();
    let names: Vec<&str> = events
        .iter()
        .map(|what| match what {
            EventKind::Woken { .. } => "woken",
            EventKind::Started { .. } => "started",
            EventKind::Planned { .. } => "planned",
            EventKind::StepApplied { .. } => "applied",
            EventKind::Completed { converged: true, .. } => "completed",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["woken", "started", "planned", "applied", "completed"]);
    stage.target.remove("a");
    later(SECOND).await;
    let events = stage.event_kinds();
    let (reasons, keys) = (Reason::Hint.into(), vec!["a".into()]);
    let woken = EventKind::Woken { reasons, keys, more: 0, by: None };
    assert_eq!(events.first(), Some(&woken));
}

#[tokio::test(start_paused = true)]
async fn events_carry_the_ids_of_passes_in_order() {
    let mut stage = Stage::start(&[("a", "1"), ("b", "2")]);
    stage.converged().await;
    for key in ["a", "b", "a"] {
        stage.target.remove(key);
        later(SECOND).await;
    }
    stage.handle.pass().await.unwrap().unwrap();
    let events = stage.events();
    assert!(events.is_sorted_by_key(|event| event.pass));
    let starts = events.iter().filter(|event| matches!(event.kind, EventKind::Started { .. }));
    assert_eq!(starts.map(|event| event.pass.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::Completed { .. }));
    assert_eq!(ends.map(|event| event.pass.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(
        events.iter().all(|event| (event.source, &*event.scope) == ("memory-independent", "test"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_loses_only_the_oldest_and_holds_nothing_up() {
    let mut stage = Stage::settled(&[("a", "1")]).await;
    for _ in 0..3000 {
        stage.handle.pass().await.unwrap().unwrap();
    }
    assert_eq!(stage.values(), ["a=1"]);
    let Err(TryRecvError::Lagged(lost)) = stage.events.try_recv() else {
        panic!("more happened than is kept")
    };
    assert!(lost > 0);
    let kept = stage.events();
    assert_eq!(kept.len(), 4096);
    assert_eq!(kept.last().unwrap().pass, stage.handle.status().pass);
}

#[tokio::test(start_paused = true)]
async fn the_status_says_what_is_due_next_and_why() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let status = stage.handle.status();
    assert!(status.next_due.is_some() && status.next_why.contains(Reason::Resync));
    stage.faults(|faults| _ = faults.refused.insert("a".into()));
    stage.target.remove("a");
    later(3 * SECOND).await;
    let status = stage.handle.status();
    assert!(status.next_why.contains(Reason::Retry), "{}", status.next_why);
    assert!(status.next_due > status.last_attempt && status.counts.failed > 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_healed_with_what_it_rests_on_is_no_longer_counted_as_open() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.target.add("b", "9", Mark::Foreign);
    later(SECOND).await;
    assert_eq!(stage.handle.status().open.count(Kind::Conflict), 1);
    stage.target.remove("b");
    later(10 * MS).await;
    assert!(stage.handle.status().is_converged);
    assert_eq!(stage.values(), ["a=1", "b=2"]);
}
