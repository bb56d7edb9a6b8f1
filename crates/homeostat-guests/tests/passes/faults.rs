//! A bad network: requests and answers that are lost, refused by proxies, slow or now and then.

use std::time::Duration;

use homeostat_guests::Run;
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, options, runs, story};

/// A start meets a fault: it happens once all the same, and the journal has these ends. Returns how often the
/// list of all tasks was asked for, to find the one that was begun.
async fn starts_once(fault: Fault, ends: &[&str]) -> usize {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| {
        // It takes its time, so that nobody can see by the guest alone that it was asked for.
        world.script(101, Script { takes: Duration::from_millis(200), end: End::Ok });
        world.fail(fault.clone());
    });
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    process.pass(&desired).await;
    process.converge(&desired).await;
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running, "{fault:?}");
        assert_eq!(world.count(101, "vzstart"), 1, "{fault:?}");
    });
    assert_eq!(ground.ends(), ends, "{fault:?}");
    ground.looked_up("all")
}

/// A request that was done is found by the list of tasks, and its task is followed.
const DONE: [&str; 1] = ["succeeded"];
/// Of one that was not, nobody can know: it is sent again when its task would have begun by then, after a look.
const UNDONE: [&str; 2] = ["unknown", "succeeded"];

#[tokio::test]
async fn a_start_whose_request_or_answer_is_lost_happens_once() {
    let start = |harm| Fault::on("/status/start", harm).times(1);
    assert!(starts_once(start(Harm::DropRequest), &UNDONE).await > 1, "until the doubt ends");
    assert_eq!(starts_once(start(Harm::DropResponse), &DONE).await, 1);
}

#[tokio::test]
async fn a_start_that_a_proxy_answers_for_happens_once() {
    for status in (595..=599).chain([502, 504]) {
        let words = || "Connection timed out".to_owned();
        let start = |harm| Fault::on("/status/start", harm).times(1);
        assert_eq!(starts_once(start(Harm::Mask(status, words())), &DONE).await, 1);
        assert!(starts_once(start(Harm::Refuse(status, words())), &UNDONE).await > 1);
    }
}

#[tokio::test]
async fn a_task_whose_status_is_hard_to_get_is_followed_all_the_same() {
    let refuse = Harm::Refuse(599, "Too many redirections".to_owned());
    let status = |harm| Fault::on("/tasks/", harm);
    assert_eq!(starts_once(status(Harm::DropResponse).times(3), &DONE).await, 0);
    assert_eq!(starts_once(status(refuse).times(3), &DONE).await, 0);
    assert_eq!(starts_once(status(Harm::Slow(Duration::from_millis(50))), &DONE).await, 0);
}

#[tokio::test]
async fn a_target_that_flaps_is_converged_in_the_end() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| {
        world.fail(Fault::on("", Harm::DropResponse).after(3).flapping(6).times(4));
    });
    let mut wanted = runs(Run::Running);
    wanted.options = options(&[("cores", "2")]).options;
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    let mut reported = Vec::new();
    for _ in 0..10 {
        // A pass that cannot look at all fails as a whole.
        if let Ok(report) = process.try_pass(&desired).await {
            reported.push(story(&report));
            process.operations.tasks_finished().await;
        }
    }
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running, "{reported:#?}");
        assert_eq!(world.guests[&101].config["cores"], "2", "{reported:#?}");
        assert_eq!(world.count(101, "vzstart"), 1, "{reported:#?}");
    });
}

#[tokio::test]
async fn a_change_of_options_whose_answer_is_lost_is_looked_at_again() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| {
        world.fail(Fault::on("/config", Harm::DropResponse).method("PUT").times(1));
    });
    let desired = desired([(101, options(&[("cores", "2")]))]);
    ground.process().converge(&desired).await;
    assert_eq!(ground.writes(), 1, "it was done, so it is not sent again");
}

#[tokio::test]
async fn a_start_before_which_a_look_was_lost_has_failed_and_was_not_sent() {
    for path in ["/pve1/tasks", "/101/status/current"] {
        let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
        ground.simulator.with(|world| world.fail(Fault::on(path, Harm::DropResponse)));
        let desired = desired([(101, runs(Run::Running))]);
        let mut process = ground.process();
        let reported = story(&process.pass(&desired).await);
        assert!(reported.contains("Failed") && !reported.contains("Unknown"), "{path}: {reported}");
        assert_eq!(ground.writes(), 0, "{path}");
        ground.simulator.with(World::mend);
        process.converge(&desired).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_behind_each_answer_is_understood() {
    let world = World::default().with(101, Guest::new(Kind::Lxc, "pve1"));
    let ground = Ground::new(world);
    ground.simulator.with(|world| world.fail(Fault::on("", Harm::HangUp)));
    let mut wanted = runs(Run::Running);
    wanted.options = options(&[("cores", "2")]).options;
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    for _ in 0..20 {
        process.converge(&desired).await;
        ground.simulator.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    }
    assert_eq!(ground.looked_up("all"), 0, "no answer was lost");
    let ends = ground.ends_of(101, "start");
    assert!(ends.iter().all(|end| *end == "succeeded"), "{ends:?}");
}
