//! Trials: a document that undoes itself unless somebody confirms it from another session in time.
//!
//! What may happen in a trial, and the tests of it. "As before" is a dump of everything that `ip`, `nft` and `/proc/sys/net`
//! list (`dump.rs`).
//!
//! | scenario | tests |
//! |---|---|
//! | confirmed from a second session | `trial::a_trial_is_confirmed_from_another_session_only`, `trial::what_was_confirmed_outlives_the_daemon_until_the_files_change`, `holder::a_trial_is_confirmed_without_a_daemon`, `booted::a_trial_is_confirmed_in_another_login_only`, `undone::a_dormant_table_goes_when_the_trial_is_confirmed` |
//! | nobody confirms | `trial::a_trial_that_nobody_confirms_is_rolled_back`, `trial::trials_are_counted_by_their_end`, `holder::a_trial_that_nobody_confirms_is_rolled_back_without_a_daemon` |
//! | the terminal of the client is closed, its session ends | `trial_faults::a_terminal_that_is_closed_ends_the_client_and_not_the_trial_of_a_daemon`, `.._of_a_holder`, `holder::the_end_of_the_client_changes_nothing`, `booted::a_trial_outlives_the_login_session_that_began_it` |
//! | the client is killed between two steps | `trial_faults::a_client_that_is_killed_between_two_steps_leaves_the_trial_to_its_holder` |
//! | the daemon is killed after the third of nine steps, and started again | `trial_faults::a_daemon_that_is_killed_between_two_steps_undoes_them_at_its_next_start` |
//! | the holder is killed, no daemon runs | `holder::a_holder_that_is_killed_is_made_good_by_the_one_who_watches_it`, `booted::a_holder_that_is_killed_is_made_good_by_systemd`; with its watcher: `holder::when_both_are_killed_the_next_apply_rolls_back_first`, `holder::when_both_are_killed_an_operator_may_roll_back` |
//! | a reboot | `booted::a_reboot_in_a_trial_boots_the_confirmed_document`, `trial::a_boot_ends_a_trial` |
//! | a power loss | `booted::a_power_loss_in_a_trial_boots_the_confirmed_document`, `booted::a_power_loss_in_a_trial_without_a_daemon_leaves_nothing_in_the_way`; at each durable write: `holder::a_kill_at_any_durable_write_ends_in_the_state_before`, `trial_kills::a_kill_in_a_confirm_leaves_the_state_before_or_the_confirmed_one`; with a disk of its own: `cargo xtask vm --trials` |
//! | it adopts the default route of a DHCP client | `undone::what_the_trial_adopted_returns_to_its_owner` |
//! | foreign objects go with an address, or with a bridge (which is put aside) | `undone::foreign_objects_that_went_with_the_trial_return`, `undone::foreign_objects_on_a_link_that_the_trial_deleted_return_with_it` |
//! | their owner makes them again by itself | `undone::an_object_that_its_owner_made_again_by_itself_stays_as_it_is` |
//! | it drops a table with a dynamic set and counters | `undone::a_table_that_leaves_is_dormant_until_the_trial_is_confirmed` |
//! | it changes a sysctl to which others are coupled | `undone::knobs_that_go_with_a_claimed_one_are_what_they_were`, `unsaid::forwarding_of_a_link_that_is_aside_is_what_it_was` |
//! | the kernel forgets sysctls and orders by it | `unsaid::an_mtu_without_ipv6_costs_no_sysctl`, `unsaid::the_primary_address_of_a_network_is_the_same_again` |
//! | others build on what it made | `unsaid::a_rollback_may_take_along_what_its_trial_might`, `unsaid::a_rollback_takes_nothing_along_that_its_trial_might_not` |
//! | it has written to the disk when the power goes | `restored_at_boot::a_program_never_reads_a_file_of_a_trial_that_a_power_loss_ended`, `services::units_of_a_trial_that_a_power_loss_ended_start_as_if_there_had_been_no_trial`, `services::units_of_a_trial_that_a_reboot_ended_start_as_if_there_had_been_no_trial` |
//! | bad times, numbers and checks | `trial::a_time_that_makes_no_trial_is_refused_and_nothing_is_written`, `trial::an_older_document_is_tried_for_two_minutes`, `trial::without_a_trial_there_is_nothing_to_confirm_or_to_roll_back`, `checks::what_is_no_check_is_refused_and_nothing_is_written` |
//! | its firewall drops new connections, and the old session confirms | `holder::a_firewall_that_drops_new_connections_cannot_be_confirmed_over_the_old_one` |
//! | a check fails before, or after; something cannot be brought back | `checks::a_check_that_fails_already_keeps_a_trial_from_beginning`, `checks::a_check_that_fails_in_the_trial_rolls_it_back_and_is_good_again`, `checks::what_a_rollback_cannot_bring_back_is_named`, `checks::what_a_rollback_could_not_bring_back_is_made_when_it_can_be` |
//! | a second trial, or another document, while one is open | `trial::an_edit_during_a_trial_waits_for_its_end`, `trial::an_edit_during_a_trial_becomes_the_next_trial` |
//! | `confirm` twice | `trial::a_trial_is_confirmed_from_another_session_only` |
//! | the clock of the day is set | `trial_clock::a_clock_that_is_set_in_a_trial_changes_nothing_of_its_time`, `trial_clock::a_trial_without_a_daemon_ends_in_its_time_whatever_the_clock_says`, `trial_clock::after_a_boot_with_a_clock_that_is_behind_the_confirmed_document_is_in_force`; that of the kernel: `cargo xtask vm --trials` |
//! | a port leaves its bridge, which forgets what others have told it of that port | `parked::static_addresses_of_a_port_return_with_it`, `parked::a_static_address_that_was_made_again_meanwhile_stays_where_it_is` |
//! | the disk is full when it begins, or when it ends | `trial_faults::a_full_disk_keeps_a_trial_from_beginning`, `trial_faults::a_second_signal_ends_a_daemon_whose_rollback_cannot_be_completed` |
//! | a million routes are replaced by a million others | the benchmark `trial: 1M routes replaced by 1M others` |
//! | the document has a namespace, or guests | `holder::a_namespace_that_a_trial_made_goes_with_it`, `holder::a_namespace_that_leaves_is_left_alone_until_the_confirm`, `trial_faults::guests_wait_for_the_confirm` |
//! | anything, at random | `random_trials::whatever_is_tried_all_is_as_it_was_or_it_is_confirmed` |

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::http::listening;
use crate::keeping::until;
use crate::program::output;
use crate::provider::metric;
use crate::undone::begin;
use crate::world::{Ran, World};

const KEY: &str = "net/ipv4/tcp_retries1";
const BEFORE: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
const TRIED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n";
const EDITED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 7\n";

const ROUTE: &str = "routes = [{ to = \"10.6.0.0/16\", type = \"blackhole\" }]\n";

const LOGIN: &str = "{ echo 0 > /proc/self/loginuid; } 2>/dev/null; exec \"$0\" \"$@\"";

/// A daemon whose document is confirmed.
fn kept() -> (World, Daemon) {
    let world = World::new();
    let daemon = world.keep(BEFORE);
    world.converges();
    world.confirms(1);
    world.write("new.toml", TRIED);
    (world, daemon)
}

impl World {
    fn trial(&self) -> Value {
        self.status()["trial"].clone()
    }

    pub(crate) fn rolled_back(&self) -> Vec<Value> {
        let history: Value = self.run("history --json").json(0);
        history["rolled_back"].as_array().unwrap().clone()
    }

    /// Begins a trial whose client is gone, so that nothing is left of it but the trial.
    fn try_for(&self, within: &str) {
        let mut client = self.homeostat(&format!("apply --yes --confirm-within {within} new.toml"));
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the trial", || self.knob(KEY) == "6" && !self.trial().is_null());
        client.kill().unwrap();
        client.wait().unwrap();
    }

    /// Runs a command as a new login would: with a session of processes, and of the kernel's audit where there is one.
    pub(crate) fn in_another_session(&self, args: &str) -> Ran {
        let command = self.homeostat(args);
        let mut login = self.command("setsid");
        login.args(["--wait", "sh", "-c", LOGIN]);
        login.arg(command.get_program()).args(command.get_args());
        self.finish(login)
    }
}

#[test]
fn a_trial_that_nobody_confirms_is_rolled_back() {
    let (world, _daemon) = kept();
    let ran = world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    assert!(ran.stderr.contains("unless it is confirmed within 1 s"), "{}", ran.stderr);
    assert!(ran.stderr.contains("little time to open a new session"), "{}", ran.stderr);
    let end = "Rolled back to the confirmed document 1: nobody confirmed it in time.";
    assert_eq!(ran.last_line(), end);
    until("the document before", || world.knob(KEY) == "5");
    world.converges();
    assert!(world.trial().is_null() && world.status()["handed"] == false);
    let ended = world.event("trial-ended").unwrap();
    assert_eq!((&ended["end"], &ended["trial"]), (&"rolled-back".into(), &2.into()));
    let log = world.log();
    assert!(log.contains("trial begun trial=2"), "{log}");
    assert!(log.contains("trial rolled back trial=2 why=\"nobody confirmed it in time\""), "{log}");
    assert_eq!(world.history().len(), 1);
    world.meddle(KEY, "9");
    until("it is kept", || world.knob(KEY) == "5");
}

#[test]
fn a_trial_is_confirmed_from_another_session_only() {
    let (world, daemon) = kept();
    world.try_for("1h");
    let drawn = world.run("status").stdout;
    assert!(drawn.contains("trial 2: @DIR/new.toml is tried, "), "{drawn}");
    let trial = world.trial();
    assert_eq!((&trial["id"], &trial["returns_to"]), (&2.into(), &1.into()), "{trial}");
    assert!(trial["by"].as_str().unwrap().starts_with("uid "), "who: {trial}");
    assert!(trial["began_at"].as_str().unwrap().starts_with("20"), "since when: {trial}");
    assert!(trial["from"][0].as_str().unwrap().ends_with("new.toml"), "what: {trial}");
    let left = trial["left_ms"].as_u64().unwrap();
    assert!((1..=3_600_000).contains(&left), "time left: {trial}");
    let refused = world.run("confirm").exits(1).stderr;
    assert!(refused.contains("this is the session that began the trial"), "{refused}");
    assert!(!world.trial().is_null());
    let confirmed = world.in_another_session("confirm").exits(0).stdout;
    assert!(confirmed.contains("it is document 2 of the history"), "{confirmed}");
    assert!(world.trial().is_null());
    assert_eq!(world.knob(KEY), "6");
    let history = world.history();
    assert_eq!(history[1]["number"], 2);
    assert!(history[1]["confirmed_by"]["uid"].is_u64(), "{history:?}");
    let again = world.in_another_session("confirm").exits(1).stderr;
    assert!(again.contains("there is no open trial"), "{again}");
    drop(daemon);
}

#[test]
fn trials_are_counted_by_their_end() {
    let (world, _daemon) = listening();
    world.converges();
    world.confirms(1);
    assert_eq!(metric("homeostat_trials_total{end=\"rolled-back\"}"), "0");
    world.write("new.toml", TRIED);
    world.try_for("1h");
    assert_eq!(metric("homeostat_trial_open"), "1");
    world.run("rollback").exits(0);
    assert_eq!(metric("homeostat_trial_open"), "0");
    assert_eq!(metric("homeostat_trials_total{end=\"rolled-back\"}"), "1");
    assert_eq!(metric("homeostat_fallback_document"), "0");
}

#[test]
fn whoever_insists_may_confirm_in_the_same_session() {
    let (world, _daemon) = kept();
    world.try_for("1h");
    world.run("confirm --same-session").exits(0);
    assert_eq!(world.history().len(), 2);
}

#[test]
fn an_operator_may_roll_back_at_any_time() {
    let (world, _daemon) = kept();
    world.try_for("1h");
    let said = world.run("rollback").exits(0).stdout;
    assert!(said.contains("Rolled back to the confirmed document 1: uid "), "{said}");
    assert_eq!(world.knob(KEY), "5");
    assert!(world.trial().is_null());
    world.converges();
    let status = world.run("status").exits(0).stdout;
    assert!(status.contains("trial 2: Rolled back to the confirmed document 1: uid "), "{status}");
    assert_eq!(world.status()["last_trial"]["ended"]["end"], "rolled-back");
    let none = world.run("rollback").exits(1).stderr;
    assert!(none.contains("there is no open trial"), "{none}");
}

/// With the files that it named when it was confirmed.
#[test]
fn an_older_document_is_tried_again() {
    let world = World::new();
    let firewall = world.write("fw.nft", "table ip old {\n}\n");
    let document = "[nftables]\nfile = \"fw.nft\"\n";
    let _daemon = world.keep(document);
    world.converges();
    world.confirms(1);
    std::fs::write(&firewall, "table ip new {\n}\n").unwrap();
    world.confirms(2);
    let ran = world.run("rollback --to 1 --confirm-within 1s").exits(1);
    assert!(ran.last_line().starts_with("Rolled back to the confirmed document 2"), "{ran:?}");
    until("the newer table", || world.nft("list tables").contains("new"));
    let command = world.homeostat("rollback --to 1 --confirm-within 1h");
    let mut command = command;
    let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the older table", || {
        world.nft("list tables").contains("old") && !world.trial().is_null()
    });
    world.in_another_session("confirm").exits(0);
    assert!(client.wait().unwrap().success());
    assert_eq!(world.history().len(), 3);
    assert!(!world.nft("list tables").contains("new"));
    let none = world.run("rollback --to 9").exits(1).stderr;
    assert!(none.contains("there is no confirmed document 9"), "{none}");
}

#[test]
fn a_daemon_that_is_killed_takes_its_trial_with_it() {
    let (world, daemon) = kept();
    world.try_for("1h");
    daemon.kill();
    assert_eq!(world.knob(KEY), "6");
    // The file may hold what was tried: nobody confirmed it.
    world.write("host.toml", TRIED);
    let _daemon = world.keep_by(world.homeostat("run host.toml"));
    until("the document before", || world.knob(KEY) == "5");
    until("the end", || world.event("trial-ended").is_some());
    assert_eq!(world.event("trial-ended").unwrap()["why"], "the process that held it ended");
    assert_eq!(world.status()["fallback"], 1);
    let why = world.run("status").exits(2).stdout;
    assert!(why.contains("this document was tried, and nobody confirmed it"), "{why}");
    world.write("host.toml", EDITED);
    until("a document that was never tried", || world.knob(KEY) == "7");
}

#[test]
fn a_daemon_that_is_stopped_rolls_back_before_it_ends() {
    let (world, daemon) = kept();
    world.try_for("1h");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(world.knob(KEY), "5");
    let ended = &world.rolled_back()[0];
    assert_eq!(ended["why"], "the daemon that held it was stopped");
    assert_eq!((&ended["trial"], &ended["to"]), (&2.into(), &1.into()));
}

#[test]
fn whoever_takes_the_lock_after_the_holder_died_rolls_back_first() {
    let (world, daemon) = kept();
    world.write("new.toml", format!("{ROUTE}{TRIED}"));
    world.try_for("1h");
    until("the route", || world.ip("route show").contains("10.6.0.0/16"));
    daemon.kill();
    assert_eq!(world.knob(KEY), "6");
    world.write("other.toml", format!("{}[sysctl]\n", ROUTE.replace("10.6", "10.7")));
    let ran = world.run("apply --yes other.toml").exits(0);
    let line = "Trial 2 was left open. Rolled back to the confirmed document 1: the process that held it ended.";
    assert!(ran.stderr.contains(line), "{}", ran.stderr);
    assert_eq!(world.knob(KEY), "5");
    assert!(!world.ip("route show").contains("10.6."), "the former document has no section for it");
    assert!(world.ip("route show").contains("blackhole 10.7.0.0/16"));
    assert_eq!(world.rolled_back().len(), 1);
    let again = world.run("apply --yes other.toml").exits(0);
    assert_eq!(again.stderr, "");
}

/// Not even if the file was changed since: what it does not speak of would stay.
#[test]
fn a_daemon_that_starts_after_the_holder_died_rolls_back_first() {
    let (world, daemon) = kept();
    world.write("new.toml", format!("{ROUTE}{TRIED}"));
    world.try_for("1h");
    until("the route", || world.ip("route show").contains("10.6.0.0/16"));
    daemon.kill();
    let _daemon = world.keep(EDITED);
    until("the daemon's own document", || world.knob(KEY) == "7");
    assert!(!world.ip("route show").contains("10.6."));
    assert_eq!(world.event("trial-ended").unwrap()["to"], 1);
    world.confirms(2);
}

/// Nothing of a trial is in the kernel after a boot, and its document is not taken, wherever it lies by then.
#[test]
fn a_boot_ends_a_trial() {
    let world = World::new().with_own_names();
    let daemon = world.keep(BEFORE);
    world.converges();
    world.confirms(1);
    world.write("new.toml", TRIED);
    world.try_for("1h");
    daemon.kill();
    world.meddle(KEY, "3");
    let boot = world.write("boot_id", "11111111-2222-3333-4444-555555555555\n");
    let mut mount = world.command("mount");
    mount.arg("--bind").arg(boot).arg("/proc/sys/kernel/random/boot_id");
    output(mount);
    world.write("host.toml", TRIED);
    let _daemon = world.keep_by(world.homeostat("run host.toml"));
    until("the document before", || world.knob(KEY) == "5");
    until("the end", || world.event("trial-ended").is_some());
    assert_eq!(world.event("trial-ended").unwrap()["why"], "the machine was booted");
    assert_eq!(world.status()["fallback"], 1);
    assert_eq!(world.rolled_back()[0]["why"], "the machine was booted");
}

/// A full disk lets no trial begin: nothing of it is written.
#[test]
fn without_room_for_its_record_no_trial_begins() {
    let (world, _daemon) = kept();
    // Nobody, not even root, makes a directory where a file is.
    std::fs::write(world.state().join("confirmed/default/.new"), "").unwrap();
    let refused = world.run("apply --yes --confirm-within 1m new.toml").exits(1).stderr;
    assert!(refused.contains("cannot record the trial"), "{refused}");
    assert_eq!(world.knob(KEY), "5");
    assert!(world.trial().is_null());
}

/// What is paused would stay as it was tried.
#[test]
fn a_paused_daemon_rolls_back_all_the_same() {
    let (world, _daemon) = kept();
    world.try_for("2s");
    world.run("pause").exits(0);
    until("the document before", || world.knob(KEY) == "5");
    until("the end", || world.event("trial-ended").is_some());
}

#[test]
fn an_edit_during_a_trial_waits_for_its_end() {
    let (world, _daemon) = kept();
    world.try_for("1h");
    world.write("host.toml", EDITED);
    until("the edit is noticed", || world.trial()["edit_waits"] == true);
    assert_eq!(world.knob(KEY), "6");
    let refused = world.run("reload").exits(1).stderr;
    assert!(refused.contains("a trial is open"), "{refused}");
    let refused = world.run("apply --yes host.toml").exits(1).stderr;
    assert!(refused.contains("a trial is open"), "{refused}");
    let refused = world.run("apply --yes --confirm-within 1m host.toml").exits(1).stderr;
    assert!(refused.contains("trial 2 of uid "), "{refused}");
    world.run("confirm --extend 2h").exits(0);
    world.run("rollback").exits(0);
    until("the edit", || world.knob(KEY) == "7");
    // It came during a trial, so it is one, for the same time.
    let next = world.trial();
    let left = next["left_ms"].as_u64().unwrap();
    assert!(next["id"] == 3 && (3_000_000..=3_600_000).contains(&left), "{next}");
    world.run("rollback").exits(0);
    assert_eq!(world.knob(KEY), "5");
    // It is taken again only if somebody asks for it.
    world.write("host.toml", EDITED);
    until("the refusal", || world.status()["provider"]["ok"] == false);
    assert_eq!(world.knob(KEY), "5");
    world.run("reload").exits(0);
    assert_eq!(world.knob(KEY), "7");
}

#[test]
fn an_edit_during_a_trial_is_tried_also_if_that_one_was_confirmed() {
    let (world, _daemon) = kept();
    world.try_for("1h");
    world.write("host.toml", EDITED);
    until("the edit is noticed", || world.trial()["edit_waits"] == true);
    world.in_another_session("confirm").exits(0);
    until("the edit", || world.knob(KEY) == "7" && world.trial()["id"] == 3);
    world.run("rollback").exits(0);
    assert_eq!(world.knob(KEY), "6", "the first one was confirmed");
}

/// The operator writes what is tried into the files, and nobody confirms it.
#[test]
fn an_edit_that_is_what_is_tried_is_no_trial_of_its_own() {
    let (world, _daemon) = kept();
    world.try_for("1h");
    world.write("host.toml", TRIED);
    until("the edit is noticed", || world.trial()["edit_waits"] == true);
    world.run("rollback").exits(0);
    until("the refusal", || world.status()["provider"]["ok"] == false);
    assert_eq!((world.knob(KEY).as_str(), world.trial()), ("5", Value::Null));
}

#[test]
fn a_setting_of_little_time_is_warned_of() {
    let world = World::with("[settings]\nconfirm-within = \"5s\"\n");
    let warning = "host.toml:2:18: this is little time to open a new session and confirm";
    for (command, code) in [("check host.toml", 0), ("plan host.toml", 0)] {
        let ran = world.run(command).exits(code);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("warning: ") && said.contains(warning), "{said}");
    }
    world.write("host.toml", "[settings]\nconfirm-within = \"15s\"\n");
    world.run("check host.toml").says(0, "");
}

/// With the setting an editor is as safe as `apply --confirm-within`.
#[test]
fn every_edit_is_a_trial_if_the_settings_say_so() {
    let setting = "[settings]\nconfirm-within = \"1h\"\n";
    let world = World::new();
    let _daemon = world.keep(&format!("{setting}{BEFORE}"));
    world.converges();
    world.confirms(1);
    let tried = format!("{setting}{TRIED}");
    world.write("host.toml", &tried);
    until("the trial", || world.knob(KEY) == "6" && !world.trial().is_null());
    world.run("rollback").exits(0);
    assert_eq!(world.knob(KEY), "5");
    let drawn = world.run("status").exits(2).stdout;
    assert!(drawn.contains("this document was tried, and nobody confirmed it"), "{drawn}");
    // The same again, as by an editor that only saves.
    world.write("host.toml", &tried);
    until("it is refused", || world.provider()["ok"] == false);
    assert_eq!(world.knob(KEY), "5");
    world.write("host.toml", EDITED);
    until("the change that takes the setting away", || world.knob(KEY) == "7");
    assert_eq!(world.trial()["from"][0], "host.toml");
    // The edit came from no login session, so the one that confirms is another one.
    world.run("confirm").exits(0);
    assert_eq!(world.history().len(), 2);
    world.write("host.toml", BEFORE);
    until("an ordinary change", || world.knob(KEY) == "5");
    assert!(world.trial().is_null());
    let bad = "[settings]\nconfirm-within = \"2d\"\n";
    world.write("bad.toml", bad);
    let ran = world.run("check bad.toml").exits(1).stderr;
    assert!(ran.contains("bad.toml:2:18") && ran.contains("from 1s to 24h"), "{ran}");
}

#[test]
fn a_time_that_makes_no_trial_is_refused_and_nothing_is_written() {
    let (world, _daemon) = kept();
    let before = world.dump();
    for time in ["0", "0s", "999ms", "24h1s", "25h", "365d", "400d", "1y", "-5s", "soon"] {
        for command in [
            "apply --yes --confirm-within=TIME new.toml",
            "rollback --to 1 --confirm-within=TIME",
            "confirm --extend=TIME",
        ] {
            let ran = world.run(&command.replace("TIME", time)).exits(1);
            assert!(ran.stderr.starts_with("error: "), "{command} {time}: {}", ran.stderr);
            assert!(ran.stderr.contains("a trial lasts from 1s to 24h"), "{time}: {}", ran.stderr);
        }
    }
    assert!(world.trial().is_null());
    assert_eq!(world.dump(), before);
    assert_eq!(world.history().len(), 1);
}

/// The shortest and the longest time are possible; a warning comes with those in which nobody can log in.
#[test]
fn only_a_short_time_is_warned_of() {
    let (world, _daemon) = kept();
    let times = [("1s", true), ("14s", true), ("15s", false), ("24h", false)];
    for (ended, (time, is_short)) in times.into_iter().enumerate() {
        let mut client = world.homeostat(&format!("apply --yes --confirm-within {time} new.toml"));
        let client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // That of one second may have ended by itself.
        until("the trial", || !world.trial().is_null() || world.rolled_back().len() > ended);
        let _ = world.run("rollback");
        let said = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.contains("little time to open a new session"), is_short, "{time}: {said}");
        until("the end", || world.trial().is_null());
    }
}

/// Where no time is given, an older document has two minutes.
#[test]
fn an_older_document_is_tried_for_two_minutes() {
    let (world, _daemon) = kept();
    world.write("host.toml", EDITED);
    world.confirms(2);
    let mut client = world.homeostat("rollback --to 1");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the trial", || world.knob(KEY) == "5" && !world.trial().is_null());
    let left = world.trial()["left_ms"].as_u64().unwrap();
    assert!((1..=120_000).contains(&left), "{left}");
    world.run("confirm --extend 1h").exits(0);
    world.run("rollback").exits(0);
    assert!(!client.wait().unwrap().success());
    assert_eq!(world.knob(KEY), "7");
    let before = world.dump();
    for number in ["0", "3", "99", "-1", "x"] {
        let ran = world.run(&format!("rollback --to={number}")).exits(1);
        assert!(ran.stderr.starts_with("error: "), "{number}: {}", ran.stderr);
    }
    assert!(world.trial().is_null() && world.dump() == before);
    let mut client = world.homeostat("apply --yes new.toml --confirm-within");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("a trial without a time", || world.knob(KEY) == "6" && !world.trial().is_null());
    let left = world.trial()["left_ms"].as_u64().unwrap();
    assert!((60_000..=120_000).contains(&left), "{left}");
    world.run("rollback").exits(0);
    client.wait().unwrap();
}

/// Neither with a daemon nor without one.
#[test]
fn without_a_trial_there_is_nothing_to_confirm_or_to_roll_back() {
    let (world, daemon) = kept();
    let before = world.dump();
    for command in ["confirm", "confirm --same-session", "confirm --extend 5m", "rollback"] {
        let ran = world.run(command).exits(1);
        assert!(ran.stderr.contains("there is no open trial"), "{command}: {}", ran.stderr);
        assert!(ran.stderr.contains("help: "), "{command}: {}", ran.stderr);
    }
    daemon.kill();
    for command in ["confirm", "confirm --extend 5m", "rollback"] {
        let ran = world.run(command).exits(1);
        assert!(
            ran.stderr.starts_with("error: there is no open trial"),
            "{command}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains("help: "), "{command}: {}", ran.stderr);
    }
    let none = world.run("rollback --to 9").exits(1).stderr;
    assert!(none.starts_with("error: there is no confirmed document 9"), "{none}");
    assert_eq!(world.dump(), before);
}

/// Where every edit is tried, one that came during a trial is the next one.
#[test]
fn an_edit_during_a_trial_becomes_the_next_trial() {
    let setting = "[settings]\nconfirm-within = \"1h\"\n";
    let world = World::new();
    let _daemon = world.keep(&format!("{setting}{BEFORE}"));
    world.converges();
    world.confirms(1);
    world.write("host.toml", format!("{setting}{TRIED}"));
    until("the trial", || world.knob(KEY) == "6" && !world.trial().is_null());
    let first = world.trial()["id"].as_u64().unwrap();
    world.write("host.toml", format!("{setting}{EDITED}"));
    until("the edit waits", || world.trial()["edit_waits"] == true);
    let drawn = world.run("status").stdout;
    assert!(drawn.contains("wait"), "{drawn}");
    assert_eq!(world.knob(KEY), "6");
    world.run("confirm").exits(0);
    until("the next trial", || world.knob(KEY) == "7" && !world.trial().is_null());
    assert!(world.trial()["id"].as_u64().unwrap() > first, "{}", world.trial());
    world.run("rollback").exits(0);
    assert_eq!(world.knob(KEY), "6", "the first one was confirmed");
}

/// The command, the log and the metric say which document is in force.
#[test]
fn a_document_that_was_rolled_back_yields_to_the_confirmed_one_for_all_to_see() {
    for (text, why) in [
        ("[sysctl\n", "host.toml:1:8"),
        (TRIED, "this document was tried, and nobody confirmed it"),
    ] {
        let (world, daemon) = listening();
        world.converges();
        world.confirms(1);
        world.write("new.toml", TRIED);
        world.try_for("1h");
        world.run("rollback").exits(0);
        drop(daemon);
        world.write("host.toml", text);
        let command = world.homeostat("run host.toml --listen 127.0.0.1:9876");
        let _daemon = world.keep_by(command);
        until("the confirmed document", || {
            world.run("status --json").stdout.contains("\"fallback\":1")
        });
        until("its metric", || metric("homeostat_fallback_document") == "1");
        let status = world.run("status").exits(2).stdout;
        assert!(
            status.contains(why) && status.contains("The confirmed document 1 is in"),
            "{status}"
        );
        let log = world.log();
        assert!(log.contains("confirmed document in force number=1") && log.contains(why), "{log}");
    }
}

/// The files still have what was there before: a restart takes nothing back that was confirmed.
#[test]
fn what_was_confirmed_outlives_the_daemon_until_the_files_change() {
    let (world, daemon) = kept();
    world.try_for("1h");
    world.in_another_session("confirm").exits(0);
    let is_in_force = || {
        world.converges();
        let status = world.run("status").exits(0).stdout;
        assert!(status.contains("The confirmed document 2 is in force, also after"), "{status}");
        assert_eq!(world.knob(KEY), "6");
        assert_eq!(world.status()["handed_number"], 2);
    };
    is_in_force();
    daemon.kill();
    let daemon = world.keep_at("host.toml");
    is_in_force();
    assert_eq!(world.history().len(), 2);
    // It is also what the next trial returns to, whoever ends that.
    world.write("new.toml", EDITED);
    for is_killed in [false, true] {
        let mut client = begin(&world, EDITED, "");
        until("the next trial", || world.knob(KEY) == "7");
        if is_killed {
            break;
        }
        world.run("rollback").exits(0);
        client.wait().unwrap();
        is_in_force();
    }
    daemon.kill();
    let _daemon = world.keep_at("host.toml");
    until("the end of the trial", || world.stands()["trial"].is_null() && world.knob(KEY) == "6");
    is_in_force();
    world.write("host.toml", EDITED.replace('7', "8"));
    until("the changed files", || world.knob(KEY) == "8");
    assert!(world.status()["handed_number"].is_null());
}

/// One that nobody confirmed at first is as good as any other once it is confirmed.
#[test]
fn a_document_that_was_confirmed_after_a_rollback_is_taken_at_the_start() {
    let (world, daemon) = kept();
    world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    world.try_for("1h");
    world.in_another_session("confirm").exits(0);
    drop(daemon);
    world.write("host.toml", TRIED);
    let daemon = world.keep_at("host.toml");
    world.converges();
    assert_eq!(world.knob(KEY), "6");
    assert!(world.status()["fallback"].is_null(), "{}", world.status());
    drop(daemon);
}

/// Neither is taken at the start, not only the last one.
#[test]
fn no_document_that_was_rolled_back_is_taken_at_the_start() {
    let (world, daemon) = kept();
    world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    world.write("new.toml", EDITED);
    world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    drop(daemon);
    world.write("host.toml", TRIED);
    let _daemon = world.keep_at("host.toml");
    world.converges_by_fallback();
    assert_eq!((world.knob(KEY).as_str(), &world.status()["fallback"]), ("5", &1.into()));
}

impl World {
    /// All is as the confirmed document declares, which is not that of the files.
    fn converges_by_fallback(&self) {
        until("the confirmed document", || {
            let status = self.stands();
            status["fallback"].is_u64() && status["converged"] == true
        });
    }
}

/// A document is its files, too: one with a mended ruleset was never tried.
#[test]
fn a_document_whose_file_was_mended_is_tried_again() {
    let world = World::new();
    let document = "[settings]\nconfirm-within = \"1h\"\n[nftables]\nfile = \"fw.nft\"\n";
    let firewall = world.write("fw.nft", "table ip one {\n}\n");
    let _daemon = world.keep(document);
    world.converges();
    world.confirms(1);
    std::fs::write(&firewall, "table ip two {\n}\n").unwrap();
    until("the trial", || !world.trial().is_null());
    world.run("rollback").exits(0);
    until("it is refused", || world.provider()["ok"] == false);
    std::fs::write(&firewall, "table ip three {\n}\n").unwrap();
    until("the next trial", || {
        !world.trial().is_null() && world.nft("list tables").contains("three")
    });
}

/// Also if the daemon's own files are what is tried again.
#[test]
fn an_older_document_is_confirmed_in_another_session_only() {
    let world = World::new();
    let path = world.write("host.toml", BEFORE);
    let _daemon = world.keep_at(path.to_str().unwrap());
    world.converges();
    world.confirms(1);
    world.write("host.toml", EDITED);
    world.confirms(2);
    let mut client = world.homeostat("rollback --to 1");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the trial", || world.knob(KEY) == "5" && !world.trial().is_null());
    let refused = world.run("confirm").exits(1).stderr;
    assert!(refused.contains("this is the session that began the trial"), "{refused}");
    world.in_another_session("confirm").exits(0);
    assert!(client.wait().unwrap().success());
    assert_eq!(world.status()["handed_number"], 3);
}
