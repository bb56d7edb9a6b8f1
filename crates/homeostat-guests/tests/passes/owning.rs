//! Whose guests they are: marks, numbers that are given again, and guests that leave the document.

use homeostat_engine::{Explain as _, OnRelease};
use homeostat_guests::{Run, Stop, Wanted};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, desired, key, options, runs, story};

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
    ground.process().converge(&desired([(101, options(&[("cores", "2")]))])).await;
    let tags = tags(&ground);
    assert!(tags.starts_with("homeostat-default+101.") && tags.ends_with(";web"), "{tags}");
}

#[tokio::test]
async fn a_guest_that_got_the_number_of_ours_is_not_touched() {
    let ground = ground();
    let wanted = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    ground.process().converge(&desired([(101, wanted.clone())])).await;
    // The number is given to another guest, which happens to be stopped.
    ground.simulator.with(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
    let writes = ground.writes();
    let mut process = ground.process();
    let report = process.pass(&desired([(101, wanted.clone())])).await;
    assert!(story(&report).contains("LostMark"), "{}", story(&report));
    assert_eq!(ground.writes(), writes);
    // It stays so, until the operator says that this one is meant.
    assert!(!process.pass(&desired([(101, wanted.clone())])).await.is_converged());
    process.adopt(key(101));
    process.converge(&desired([(101, wanted)])).await;
    assert!(ground.simulator.with(|world| world.guests[&101].running));
}

/// The number of our guest is given to another one when its configuration is looked at for the second
/// time: after the plan, at the head of the lane.
async fn given_again(other: fn(&mut World)) {
    let ground = ground();
    let keep = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    ground.process().converge(&desired([(101, keep.clone())])).await;
    let writes = ground.writes();
    ground.simulator.with(|world| {
        let fault = Fault::on("/101/config", Harm::ChangeBefore(other)).method("GET");
        world.fail(fault.after(1).times(1));
    });
    let stop = Wanted { run: Some(Run::Stopped), stop: Stop::Immediate, ..keep };
    let report = ground.process().pass(&desired([(101, stop)])).await;
    let reported = story(&report);
    assert!(reported.contains("not the guest that was planned for"), "{reported}");
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
    ground.process().converge(&desired([(101, options(&[("cores", "2")]))])).await;
    let writes = ground.writes();
    let theirs = Ground { state: tempfile::TempDir::new().unwrap(), ..ground };
    let mut process = theirs.process_of("blue");
    let wanted = options(&[("cores", "4")]);
    let report = process.pass(&desired([(101, wanted.clone())])).await;
    assert!(story(&report).contains("the owner default"), "{}", story(&report));
    assert_eq!(theirs.writes(), writes);
    process.converge(&desired([(101, Wanted { adopt: true, ..wanted })])).await;
    assert!(tags(&theirs).starts_with("homeostat-blue+101."), "{}", tags(&theirs));
}

#[tokio::test]
async fn two_machines_with_one_owner_are_reported_by_the_mark_of_the_other() {
    let ground = ground();
    let wanted = options(&[("cores", "2")]);
    ground.process_on("one").converge(&desired([(101, wanted.clone())])).await;
    assert!(tags(&ground).contains(".7692c3ad.one"), "{}", tags(&ground));
    let writes = ground.writes();
    let theirs = Ground { state: tempfile::TempDir::new().unwrap(), ..ground };
    let mut other = theirs.process_on("two");
    let report = other.pass(&desired([(101, options(&[("cores", "4")]))])).await;
    let reported = story(&report);
    assert!(reported.contains("the owner default on one (7692c3ad)"), "{reported}");
    assert_eq!(theirs.writes(), writes, "it is not touched");
    other.converge(&desired([(101, Wanted { adopt: true, ..wanted })])).await;
    assert!(tags(&theirs).contains(".3fc4ccfe.two"), "{}", tags(&theirs));
}

/// A guest that carries a tag of its own, with what the ledger knows of our claim on it.
async fn claimed() -> Ground {
    let ground = ground();
    ground.simulator.with(|world| {
        let config = &mut world.guests.get_mut(&101).unwrap().config;
        config.insert("tags".to_owned(), "web".to_owned());
        config.insert("cores".to_owned(), "1".to_owned());
    });
    let wanted = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    ground.process().converge(&desired([(101, wanted)])).await;
    ground
}

#[tokio::test]
async fn a_guest_that_leaves_the_document_loses_our_mark_and_nothing_else() {
    let ground = claimed().await;
    let before = ground.simulator.with(|world| world.guests[&101].clone());
    let writes = ground.writes();
    let mut process = ground.process();
    process.converge(&desired([])).await;
    assert!(process.pass(&desired([])).await.is_converged());
    assert_eq!(ground.writes(), writes + 1, "one write, and then none");
    let after = ground.simulator.with(|world| world.guests[&101].clone());
    assert_eq!(tags(&ground), "web");
    assert_eq!(after.running, before.running);
    let others = |guest: &Guest| {
        let mut config = guest.config.clone();
        config.remove("tags");
        config
    };
    assert_eq!(others(&after), others(&before));
    let call = ground.simulator.with(|world| world.writes().last().map(|call| (*call).clone()));
    assert!(call.unwrap().parameter("digest").is_some());
}

#[tokio::test]
async fn a_released_guest_gets_its_options_back_if_that_is_asked_for() {
    let ground = claimed().await;
    let mut process = ground.process();
    process.on_release(OnRelease::Restore);
    process.converge(&desired([])).await;
    let cores = ground.simulator.with(|world| world.guests[&101].config["cores"].clone());
    assert_eq!((tags(&ground).as_str(), cores.as_str()), ("web", "1"));
    assert!(
        ground.simulator.with(|world| world.guests[&101].running),
        "it is not stopped for that"
    );
}

#[tokio::test]
async fn a_mark_that_may_not_be_written_any_more_is_given_up() {
    let ground = claimed().await;
    ground.simulator.with(|world| {
        world.guests.get_mut(&101).unwrap().denied.insert("VM.Config.Options".to_owned());
    });
    let mut process = ground.process();
    process.converge(&desired([])).await;
    let writes = ground.writes();
    assert!(process.pass(&desired([])).await.is_converged());
    assert_eq!(ground.writes(), writes, "it is not tried for ever");
}

#[tokio::test]
async fn a_release_waits_for_a_lock_and_for_a_configuration_that_can_be_read() {
    let ground = claimed().await;
    let lock = |to: Option<&str>| {
        let to = to.map(str::to_owned);
        ground.simulator.with(|world| world.guests.get_mut(&101).unwrap().lock = to);
    };
    lock(Some("backup"));
    let mut process = ground.process();
    assert!(story(&process.pass(&desired([])).await).contains("the end of its lock `backup`"));
    lock(None);
    ground.simulator.with(|world| {
        let refuse = Harm::Refuse(500, "unable to parse".to_owned());
        world.fail(Fault::on("/101/config", refuse).method("GET").times(1));
    });
    assert!(story(&process.pass(&desired([])).await).contains("Unknown"));
    process.converge(&desired([])).await;
    assert_eq!(tags(&ground), "web");
}

#[tokio::test]
async fn a_guest_that_got_the_number_of_a_released_one_is_not_written() {
    let ground = claimed().await;
    ground.simulator.with(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
    let writes = ground.writes();
    let mut process = ground.process();
    process.converge(&desired([])).await;
    assert_eq!(ground.writes(), writes);
    // Nor if that happens between the look and the write.
    let ground = claimed().await;
    ground.simulator.with(|world| {
        let other = Harm::ChangeBefore(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
        world.fail(Fault::on("/101/config", other).method("PUT").times(1));
    });
    let mut process = ground.process();
    assert!(!process.pass(&desired([])).await.is_converged());
    process.converge(&desired([])).await;
    assert_eq!(tags(&ground), "");
}

#[tokio::test]
async fn options_are_not_written_into_a_guest_that_got_the_number_after_the_plan() {
    let ground = claimed().await;
    ground.simulator.with(|world| {
        let other = Harm::ChangeBefore(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
        world.fail(Fault::on("/101/config", other).method("PUT").times(1));
    });
    let mut process = ground.process();
    let report = process.pass(&desired([(101, options(&[("cores", "4")]))])).await;
    assert!(story(&report).contains("detected modified configuration"), "{}", story(&report));
    assert!(!ground.simulator.with(|world| world.guests[&101].config.contains_key("cores")));
    let report = process.pass(&desired([(101, options(&[("cores", "4")]))])).await;
    assert!(story(&report).contains("LostMark"), "{}", story(&report));
}

#[tokio::test]
async fn an_unmarked_guest_is_known_by_its_digest_and_else_by_its_name() {
    let replaced = |world: &mut World| {
        world.put(101, Guest::new(Kind::Lxc, "pve1").running().with("hostname", "another"));
    };
    // The first is noticed by the configuration, the second by the state, since that one cannot be read.
    for is_read in [true, false] {
        let ground = ground();
        ground.simulator.with(|world| {
            if !is_read {
                let refuse = Harm::Refuse(500, "unable to parse".to_owned());
                world.fail(Fault::on("/101/config", refuse).method("GET"));
            }
            world.fail(Fault::on("/101/status/current", Harm::ChangeBefore(replaced)).times(1));
        });
        let stop = Wanted { stop: Stop::Immediate, ..runs(Run::Stopped) };
        let report = ground.process().pass(&desired([(101, stop)])).await;
        let reported = story(&report);
        assert!(reported.contains("not the guest that was planned for"), "{reported}");
        assert!(ground.simulator.with(|world| world.guests[&101].running));
        assert_eq!(ground.writes(), 0);
    }
}
