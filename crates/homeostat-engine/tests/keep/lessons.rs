//! What other controllers learned the hard way.

use homeostat_engine::OnStop;
use homeostat_engine::{Control as _, Kind};
use homeostat_testkit::memory::Act;

use crate::stage::{MINUTE, MS, SECOND, Stage, later, pace, taking};

#[tokio::test(start_paused = true)]
async fn a_stop_flushes_nothing() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 1).await.unwrap();
    later(MS).await;
    stage.target.remove("a");
    later(MS).await;
    let target = stage.stop(OnStop::Leave).await;
    assert_eq!(target.objects().len(), 0, "it waited for its interval, and was left");
}

#[tokio::test(start_paused = true)]
async fn a_report_reaches_who_asked_however_many_events_were_lost() {
    let stage = Stage::settled(&[("a", "1")]).await;
    // Nobody reads them, and there is room for some thousands.
    for _ in 0..3000 {
        stage.handle.pass().await.unwrap().unwrap();
    }
    assert!(stage.events.len() > 4096, "{}", stage.events.len());
    stage.target.remove("a");
    let report = stage.handle.pass().await.unwrap().unwrap();
    assert_eq!(report.summary().create, 1);
}

#[tokio::test(start_paused = true)]
async fn hints_without_end_do_not_put_off_the_resync() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let before = stage.handle.status().counts.full;
    for _ in 0..6000 {
        stage.target.alter("a", "1");
        later(10 * MS).await;
    }
    let status = stage.handle.status();
    assert!(status.counts.full > before && status.counts.focused > 1000, "{:?}", status.counts);
    assert_eq!(status.stall, None);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_holds_up_no_other() {
    let stage = Stage::with(&[("a", "1"), ("b", "2")], pace(), |faults| {
        faults.refused.insert("a".to_owned());
    });
    stage.ready().await;
    later(SECOND).await;
    stage.target.remove("b");
    let healed = stage.handle.wait_for(|status| status.counts.drift_by_hint == 1);
    let (_, waited) = taking(healed).await;
    later(MS).await;
    assert!(waited < 5 * MS, "{waited:?}");
    assert_eq!(stage.values(), ["b=2"]);
    assert_eq!(stage.handle.status().open.count(Kind::Failed), 1, "the other still fails");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_all_the_time_takes_no_other_along() {
    let broken = Stage::with(&[("a", "1")], pace(), |faults| faults.panics = Some(Act::Observe));
    let sound = Stage::settled(&[("b", "2")]).await;
    sound.target.remove("b");
    let healed = sound.handle.wait_for(|status| status.counts.drift_by_hint == 1);
    let (_, waited) = taking(healed).await;
    assert!(waited < 5 * MS, "{waited:?}");
    later(MINUTE).await;
    let status = broken.handle.status();
    assert!(status.failures > 2 && !status.is_converged && !broken.running.is_finished());
    broken.faults(|faults| faults.panics = None);
    broken.converged().await;
}
