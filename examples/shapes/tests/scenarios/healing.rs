//! What happens behind our back is put right: by hints at once, without them by the resync.

use std::time::Duration;

use homeostat_engine::{Control as _, Status};
use homeostat_shapes::service::Stored;
use homeostat_shapes::source::MARK;

use crate::stage::{DOOR, Stage, TWO, in_time, marker, until};

const RARELY: Duration = Duration::from_hours(1);
const OFTEN: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_shape_that_is_removed_or_repainted_returns_by_a_hint() {
    let stage = Stage::new(marker());
    let handle = stage.keep(TWO, RARELY);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    stage.service.remove("my-window");
    until("the window", || stage.service.colour("my-window").is_some()).await;
    stage.service.paint("my-door", "red");
    until("the green door", || stage.service.colour("my-door").unwrap() == "green").await;
    assert_eq!(handle.status().counts.full, 1, "no resync was needed");
}

#[tokio::test]
async fn a_shape_that_is_removed_or_repainted_returns_within_one_resync_without_hints() {
    let stage = Stage::new(marker());
    stage.service.state().faults.mute = true;
    let handle = stage.keep(TWO, OFTEN);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    stage.service.remove("my-window");
    stage.service.paint("my-door", "red");
    let before = handle.status().counts.full;
    until("both", || stage.service.shown() == "green my-door, blue my-window").await;
    // One pass may have begun before the sabotage; the next one saw it.
    assert!(handle.status().counts.full <= before + 2);
    assert_eq!(handle.status().counts.focused, 0);
}

#[tokio::test]
async fn a_gap_in_the_notices_leads_to_a_look_at_everything() {
    let stage = Stage::new(marker());
    let handle = stage.keep(TWO, RARELY);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    stage.service.state().faults.lost_notices = 1;
    stage.service.remove("my-window");
    assert!(stage.service.colour("my-window").is_none(), "no hint came");
    stage.service.paint("cloud", "white");
    until("the window", || stage.service.colour("my-window").is_some()).await;
    let is_looked_at = |status: &Status| status.counts.lost == 1 && status.counts.full == 2;
    in_time("the full pass", handle.wait_for(is_looked_at)).await.unwrap();
}

#[tokio::test]
async fn a_watch_that_ends_is_opened_anew_and_everything_is_listed_again() {
    let stage = Stage::new(marker());
    let handle = stage.keep(TWO, RARELY);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    stage.service.state().hang_up();
    stage.service.remove("my-window");
    until("the window", || stage.service.colour("my-window").is_some()).await;
    until("a watcher", || stage.service.state().watched_by() == 1).await;
    stage.service.remove("my-door");
    until("the door", || stage.service.colour("my-door").is_some()).await;
}

#[tokio::test]
async fn hints_during_the_first_pass_are_not_lost() {
    let stage = Stage::new(marker());
    stage.life().pass(TWO).await;
    // The list is answered slowly: what happens after it was made up comes by the watch alone.
    stage.service.state().faults.slow_ms = 50;
    let handle = stage.keep(TWO, RARELY);
    until("a watcher", || stage.service.state().watched_by() == 1).await;
    for _ in 0..20 {
        stage.service.paint("my-door", "red");
        tokio::task::yield_now().await;
    }
    stage.service.state().faults.slow_ms = 0;
    until("the green door", || stage.service.colour("my-door").unwrap() == "green").await;
    drop(handle);
}

#[tokio::test]
async fn a_marked_stranger_without_a_declaration_goes_within_one_resync() {
    let stage = Stage::new(marker());
    stage.service.state().faults.mute = true;
    let handle = stage.keep(DOOR, OFTEN);
    in_time("convergence", handle.wait_for(|status| status.is_converged)).await.unwrap();
    stage.service.state().put(Stored::plain("bar", "black").labelled(MARK, "me"));
    let before = handle.status().counts.full;
    until("the end of it", || stage.service.shown() == "green my-door").await;
    assert!(handle.status().counts.full <= before + 2);
}

#[tokio::test]
async fn reconciling_at_the_start_alone_is_not_enough() {
    let stage = Stage::new(marker());
    // A program that looks at everything when it starts, and then only at what its own desired state says.
    assert!(stage.life().pass(DOOR).await.converged);
    stage.service.paint("my-door", "red");
    stage.service.state().put(Stored::plain("bar", "black").labelled(MARK, "me"));
    let reads = stage.service.state().reads;
    tokio::task::yield_now().await;
    assert_eq!(stage.service.state().reads, reads, "nothing looks, so nothing heals");
    assert_eq!(stage.service.shown(), "black bar, red my-door");
    // The same service under a loop, with every hint lost.
    stage.service.state().faults.mute = true;
    let handle = stage.keep(DOOR, OFTEN);
    until("the first healing", || stage.service.shown() == "green my-door").await;
    stage.service.paint("my-door", "red");
    until("the second healing", || stage.service.shown() == "green my-door").await;
    drop(handle);
}
