//! A bad network: requests and answers that are lost, refused by proxies, slow or now and then.

use std::time::Duration;

use homeostat_guests::Run;
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, options, runs, story, wish};

async fn starts_once(fault: Fault) {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| world.fail(fault.clone()));
    let wish = wish([(101, runs(Run::Running))]);
    let mut process = ground.process();
    process.pass(&wish).await;
    process.operations.landed().await;
    process.converge(&wish).await;
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running, "{fault:?}");
        assert_eq!(world.count(101, "vzstart"), 1, "{fault:?}");
    });
}

#[tokio::test]
async fn a_start_whose_request_or_answer_is_lost_happens_once() {
    for harm in [Harm::DropRequest, Harm::DropResponse] {
        starts_once(Fault::on("/status/start", harm).times(1)).await;
    }
}

#[tokio::test]
async fn a_start_that_a_proxy_answers_for_happens_once() {
    for status in [595, 596, 599] {
        let words = || "Connection timed out".to_owned();
        starts_once(Fault::on("/status/start", Harm::Mask(status, words())).times(1)).await;
        starts_once(Fault::on("/status/start", Harm::Refuse(status, words())).times(1)).await;
    }
}

#[tokio::test]
async fn a_task_whose_status_is_hard_to_get_is_followed_all_the_same() {
    starts_once(Fault::on("/tasks/", Harm::DropResponse).times(3)).await;
    starts_once(
        Fault::on("/tasks/", Harm::Refuse(599, "Too many redirections".to_owned())).times(3),
    )
    .await;
    starts_once(Fault::on("/tasks/", Harm::Slow(Duration::from_millis(50)))).await;
}

#[tokio::test]
async fn a_target_that_flaps_is_converged_in_the_end() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| {
        world.fail(Fault::on("", Harm::DropResponse).after(3).flapping(6).times(4));
    });
    let mut wanted = runs(Run::Running);
    wanted.options = options(&[("cores", "2")]).options;
    let wish = wish([(101, wanted)]);
    let mut process = ground.process();
    let mut told = Vec::new();
    for _ in 0..10 {
        // A pass that cannot look at all fails as a whole.
        if let Ok(report) = process.try_pass(&wish).await {
            told.push(story(&report));
            process.operations.landed().await;
        }
    }
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running, "{told:#?}");
        assert_eq!(world.guests[&101].config["cores"], "2", "{told:#?}");
        assert_eq!(world.count(101, "vzstart"), 1, "{told:#?}");
    });
}

#[tokio::test]
async fn a_change_of_options_whose_answer_is_lost_is_looked_at_again() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.simulator.with(|world| {
        world.fail(Fault::on("/config", Harm::DropResponse).method("PUT").times(1));
    });
    let wish = wish([(101, options(&[("cores", "2")]))]);
    ground.process().converge(&wish).await;
    assert_eq!(ground.writes(), 1, "it was done, so it is not sent again");
}
