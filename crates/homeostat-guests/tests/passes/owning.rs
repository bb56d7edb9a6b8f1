//! Whose guests they are: marks, numbers that are given again, and guests that leave the document.

use homeostat_engine::Explain as _;
use homeostat_guests::{Run, Stop, Wanted};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, key, options, story, wish};

fn ground() -> Ground {
    Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1").running()))
}

fn tags(ground: &Ground) -> String {
    ground
        .simulator
        .with(|world| world.guests[&101].config.get("tags").cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_configured_guest_carries_our_mark_beside_the_tags_of_others() {
    let ground = ground();
    ground.simulator.with(|world| {
        world.guests.get_mut(&101).unwrap().config.insert("tags".to_owned(), "web".to_owned());
    });
    ground.process().converge(&wish([(101, options(&[("cores", "2")]))])).await;
    let tags = tags(&ground);
    assert!(tags.starts_with("homeostat-default+101.") && tags.ends_with(";web"), "{tags}");
}

#[tokio::test]
async fn a_guest_that_got_the_number_of_ours_is_not_touched() {
    let ground = ground();
    let wanted = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    ground.process().converge(&wish([(101, wanted.clone())])).await;
    // The number is given to another guest, which happens to be stopped.
    ground.simulator.with(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
    let writes = ground.writes();
    let mut process = ground.process();
    let report = process.pass(&wish([(101, wanted.clone())])).await;
    assert!(story(&report).contains("LostMark"), "{}", story(&report));
    assert_eq!(ground.writes(), writes);
    // It stays so, until somebody says that this one is meant.
    assert!(!process.pass(&wish([(101, wanted.clone())])).await.is_converged());
    process.adopt(key(101));
    process.converge(&wish([(101, wanted)])).await;
    assert!(ground.simulator.with(|world| world.guests[&101].running));
}

/// The number of our guest is given to another one when its configuration is looked at for the second
/// time: after the plan, at the head of the lane.
async fn given_again(other: fn(&mut World)) {
    let ground = ground();
    let keep = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    ground.process().converge(&wish([(101, keep.clone())])).await;
    let writes = ground.writes();
    ground.simulator.with(|world| {
        let fault = Fault::on("/101/config", Harm::Meddle(other)).method("GET");
        world.fail(fault.after(1).times(1));
    });
    let stop = Wanted { run: Some(Run::Stopped), stop: Stop::Immediate, ..keep };
    let report = ground.process().pass(&wish([(101, stop)])).await;
    let told = story(&report);
    assert!(told.contains("not the guest that was planned for"), "{told}");
    assert_eq!(ground.writes(), writes, "nothing was sent to the other guest");
    assert!(ground.simulator.with(|world| world.guests[&101].running));
}

#[tokio::test]
async fn a_number_that_is_given_again_after_the_plan_is_noticed_before_the_stop() {
    given_again(|world| world.put(101, Guest::new(Kind::Lxc, "pve1").running())).await;
}

#[tokio::test]
async fn a_mark_of_another_generation_is_another_guest() {
    given_again(|world| {
        let mark = "homeostat-default+101.ffffffff";
        world.put(101, Guest::new(Kind::Lxc, "pve1").running().with("tags", mark));
    })
    .await;
}

#[tokio::test]
async fn a_guest_of_another_owner_is_a_conflict_unless_adopted() {
    let ground = ground();
    ground.process().converge(&wish([(101, options(&[("cores", "2")]))])).await;
    let writes = ground.writes();
    let theirs = Ground { state: tempfile::TempDir::new().unwrap(), ..ground };
    let mut process = theirs.process_of("blue");
    let wanted = options(&[("cores", "4")]);
    let report = process.pass(&wish([(101, wanted.clone())])).await;
    assert!(story(&report).contains("the owner default"), "{}", story(&report));
    assert_eq!(theirs.writes(), writes);
    process.converge(&wish([(101, Wanted { adopt: true, ..wanted })])).await;
    assert!(tags(&theirs).starts_with("homeostat-blue+101."), "{}", tags(&theirs));
}

#[tokio::test]
async fn a_guest_that_leaves_the_document_is_given_up_and_not_touched() {
    let ground = ground();
    let mut process = ground.process();
    process.converge(&wish([(101, options(&[("cores", "2")]))])).await;
    let writes = ground.writes();
    process.converge(&wish([])).await;
    assert!(process.pass(&wish([])).await.is_converged());
    assert_eq!(ground.writes(), writes);
}
