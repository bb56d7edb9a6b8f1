//! "already running" and "not running": words that count for their verb only, and only after another look.

use std::time::Duration;

use homeostat_engine::{Alone, Explain as _, Source as _};
use homeostat_guests::{Guests, Located, Run, Sent, Stop, Timeouts, Verb, Vmid, Wanted};
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, runs};
use crate::journal::journal_of;

const ALREADY: &str = "CT 101 already running";
const NOT: &str = "CT 101 not running";
const DAEMON: &str = "pve-lxc-syscalld is not running";

fn ground(is_running: bool) -> Ground {
    let guest = Guest::new(Kind::Lxc, "pve1");
    let guest = if is_running { guest.running() } else { guest };
    Ground::new(World::default().with(101, guest))
}

fn refuses(ground: &Ground, words: &str) {
    let refuse = Harm::Refuse(500, words.to_owned());
    ground
        .simulator
        .with(|world| world.fail(Fault::on("/status/", refuse).method("POST").times(1)));
}

fn ends(ground: &Ground, words: &str, takes: Duration) {
    let end = End::Error(words.to_owned());
    ground.simulator.with(|world| world.script(101, Script { takes, end }));
}

fn stops() -> Wanted {
    Wanted { stop: Stop::Immediate, ..runs(Run::Stopped) }
}

/// What becomes of a command.
async fn sent(ground: &Ground, verb: Verb) -> Result<Sent, String> {
    let source = Guests::new(&ground.client(), "default", Timeouts::default());
    let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
    let located = Located::find(&writer.source, Vmid(101)).await.unwrap();
    writer.send(&located, verb).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_command_for_what_is_so_already_is_done() {
    assert_eq!(sent(&ground(true), Verb::Start).await, Ok(Sent::AlreadyDone));
    assert_eq!(sent(&ground(false), Verb::Stop).await, Ok(Sent::AlreadyDone));
    assert_eq!(sent(&ground(false), Verb::Shutdown).await, Ok(Sent::AlreadyDone));
}

#[tokio::test]
async fn a_command_that_is_refused_with_the_words_of_another_verb_has_failed() {
    for (is_running, verb, words) in [
        (false, Verb::Start, DAEMON),
        (false, Verb::Start, NOT),
        (true, Verb::Start, DAEMON),
        (true, Verb::Stop, ALREADY),
    ] {
        let ground = ground(is_running);
        refuses(&ground, words);
        let why = sent(&ground, verb).await.unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

#[tokio::test]
async fn a_command_that_is_said_to_be_done_and_is_not_has_failed() {
    for (is_running, verb, words) in
        [(false, Verb::Start, ALREADY), (true, Verb::Stop, NOT), (true, Verb::Shutdown, DAEMON)]
    {
        let ground = ground(is_running);
        refuses(&ground, words);
        let why = sent(&ground, verb).await.unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

#[tokio::test]
async fn the_journal_believes_no_refusal_by_its_words_alone() {
    for (is_running, wanted, words) in [
        (false, runs(Run::Running), ALREADY),
        (false, runs(Run::Running), DAEMON),
        (true, stops(), NOT),
        (true, stops(), ALREADY),
    ] {
        let ground = ground(is_running);
        refuses(&ground, words);
        ground.process().pass(&desired([(101, wanted)])).await;
        let recorded = journal_of(&ground, 101);
        let [_, end] = &*recorded else { panic!("{recorded:?}") };
        assert!(end.starts_with("failed: ") && end.contains(words), "{recorded:?}");
    }
}

#[tokio::test]
async fn the_journal_calls_a_start_of_what_runs_meanwhile_a_success() {
    let ground = ground(false);
    ground.simulator.with(|world| {
        let starts = Harm::ChangeBefore(|world| world.guests.get_mut(&101).unwrap().running = true);
        world.fail(Fault::on("/status/start", starts).times(1));
    });
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    assert!(report.is_converged());
    assert_eq!(journal_of(&ground, 101), ["start", "succeeded"]);
}

#[tokio::test]
async fn the_journal_believes_no_end_of_a_task_by_its_words_alone() {
    let dnsmasq = "lxc hook failed: dnsmasq not running";
    for (is_running, wanted, words) in [
        (false, runs(Run::Running), ALREADY),
        (false, runs(Run::Running), dnsmasq),
        (true, stops(), NOT),
        (true, stops(), ALREADY),
    ] {
        let ground = ground(is_running);
        ends(&ground, words, Duration::ZERO);
        let mut process = ground.process();
        process.pass(&desired([(101, wanted)])).await;
        process.operations.tasks_finished().await;
        let recorded = journal_of(&ground, 101);
        assert_eq!(
            recorded[1..],
            ["dispatched".to_owned(), format!("failed: {words}")],
            "{recorded:?}"
        );
    }
}

#[tokio::test]
async fn a_task_that_found_it_done_has_succeeded_when_another_look_shows_it() {
    let ground = ground(false);
    ends(&ground, ALREADY, World::LONG);
    let mut process = ground.process();
    process.pass(&desired([(101, runs(Run::Running))])).await;
    ground.simulator.with(|world| {
        world.guests.get_mut(&101).unwrap().running = true;
        world.hurry();
    });
    process.operations.tasks_finished().await;
    assert_eq!(journal_of(&ground, 101), ["start", "dispatched", "succeeded"]);
}

#[tokio::test]
async fn a_task_that_ended_while_no_loop_ran_is_not_believed_either() {
    let ground = ground(false);
    ends(&ground, ALREADY, World::LONG);
    let desired = desired([(101, runs(Run::Running))]);
    ground.process().pass(&desired).await;
    ground.simulator.with(World::hurry);
    ground.process().converge(&desired).await;
    let recorded = journal_of(&ground, 101);
    assert_eq!(
        recorded[..3],
        ["start", "dispatched", &format!("failed: {ALREADY}")],
        "{recorded:?}"
    );
}
