//! A caller that applies once waits until nothing is left that time could cure.

use std::time::Duration;

use homeostat_engine::{Control as _, Explain as _, Kind, PassSeries, Patience, Retry};
use homeostat_testkit::memory::Mark;

use crate::stage::{DesiredState, MINUTE, MS, SECOND, Stage, later, pace, taking};

const BOTH: DesiredState<'static> = &[("a", "1"), ("b", "2")];

/// The first pass and everything until the loop has settled, with how long that took.
async fn apply(stage: &Stage) -> (PassSeries, Duration) {
    taking(async {
        let mut recording = stage.handle.record();
        stage.handle.pass().await.unwrap().unwrap();
        stage.handle.settle(Patience::default()).await.unwrap();
        let mut series = PassSeries::default();
        recording.take().into_iter().for_each(|pass| series.push(pass));
        series
    })
    .await
}

fn keys(series: &PassSeries, kind: Kind) -> Vec<String> {
    let mut keys = Vec::new();
    series.explain(kind, &mut |entry| keys.push(entry.key().to_owned()));
    keys
}

#[tokio::test(start_paused = true)]
async fn one_pass_is_enough_where_it_converges_and_no_subscription_is_opened() {
    let stage = Stage::with(BOTH, pace().once(), |_| {});
    let (series, took) = apply(&stage).await;
    assert!(series.is_converged() && took == Duration::ZERO);
    assert_eq!(keys(&series, Kind::Applied), ["a", "b"]);
    let status = stage.handle.status();
    assert_eq!((status.counts.full, status.counts.focused), (1, 0));
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(stage.values(), ["b=2"], "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_works_a_second_later_is_waited_for() {
    let stage = Stage::with(BOTH, pace().once(), |faults| {
        faults.refused.insert("a".into());
    });
    let target = stage.target.clone();
    tokio::spawn(async move {
        later(SECOND).await;
        target.faults(|faults| faults.refused.clear());
    });
    let (series, took) = apply(&stage).await;
    assert!(series.is_converged(), "{:?}", keys(&series, Kind::Failed));
    assert_eq!(keys(&series, Kind::Applied), ["b", "a"]);
    assert!((SECOND..3 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_goes_on_failing_is_given_up_after_some_seconds() {
    let stage = Stage::with(BOTH, pace().once(), |faults| {
        faults.refused.insert("a".into());
    });
    let (series, took) = apply(&stage).await;
    assert!(!series.is_converged());
    assert_eq!(keys(&series, Kind::Failed), ["a"], "with its own error, and once");
    assert!((SECOND..=3 * SECOND + MS).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_that_time_cannot_cure() {
    for retry in [Retry::Never, Retry::OnChange] {
        let stage = Stage::with(BOTH, pace().once(), |faults| {
            faults.refused.insert("a".into());
            faults.refused_until = Some(retry);
        });
        let (series, took) = apply(&stage).await;
        assert_eq!((keys(&series, Kind::Failed), took), (vec!["a".to_owned()], Duration::ZERO));
    }
    let stage = Stage::with(BOTH, pace().once(), |_| {});
    stage.target.add("a", "theirs", Mark::Foreign);
    let (series, took) = apply(&stage).await;
    assert_eq!((keys(&series, Kind::Conflict), took), (vec!["a".to_owned()], Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_loop_goes_on_healing_while_a_caller_waits() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    stage.faults(|faults| _ = faults.refused.insert("a".into()));
    stage.target.remove("a");
    stage.target.remove("b");
    later(10 * MS).await;
    let mut patience = Patience::default();
    patience.retries = MINUTE;
    let waiting = tokio::spawn({
        let handle = stage.handle.clone();
        async move {
            handle.pass().await.unwrap().unwrap();
            handle.settle(patience).await.unwrap();
        }
    });
    later(SECOND).await;
    stage.target.remove("c");
    later(SECOND).await;
    assert_eq!(stage.values(), ["b=2", "c=3"]);
    stage.faults(|faults| faults.refused.clear());
    later(MINUTE).await;
    assert!(waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn callers_do_not_wait_for_a_paused_loop() {
    let stage = Stage::with(BOTH, pace(), |faults| {
        faults.refused.insert("a".into());
    });
    stage.ready().await;
    stage.handle.pause(None).unwrap();
    let mut recording = stage.handle.record();
    let (settled, took) = taking(stage.handle.settle(Patience::default())).await;
    assert!(settled.is_ok() && took == Duration::ZERO);
    assert!(recording.take().is_empty());
}
