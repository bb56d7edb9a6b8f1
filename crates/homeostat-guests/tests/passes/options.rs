//! Declared options: written once, read back as the same, with a digest as a precondition.

use std::time::Duration;

use homeostat_engine::Explain as _;
use homeostat_guests::{Kind, Run, Wanted};
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind as Simulated, MODELS, Script, World};

use crate::ground::{Ground, desired, options, runs, story};

fn ground(kind: Simulated) -> Ground {
    Ground::new(World::default().with(101, Guest::new(kind, "pve1")))
}

/// Sets an option, and looks twice more: nothing may be written again.
async fn is_stable(kind: Kind, option: &str, value: &str) {
    let simulated = if kind == Kind::Lxc { Simulated::Lxc } else { Simulated::Qemu };
    let ground = ground(simulated);
    let desired = desired([(101, Wanted { kind, ..options(&[(option, value)]) })]);
    let mut process = ground.process();
    process.converge(&desired).await;
    let writes = ground.writes();
    assert_eq!(writes, 1, "{option} = {value:?}");
    for _ in 0..3 {
        let report = process.pass(&desired).await;
        assert!(report.is_converged(), "{option} = {value:?}: {}", story(&report));
    }
    assert_eq!(ground.writes(), writes, "{option} = {value:?} is written once");
}

#[tokio::test]
async fn quirk_description_ends_a_line() {
    for value in ["", "web", "web\n", "\nweb", "two\nlines\n\n\n", "  blanks  ", "ü & = + %"] {
        is_stable(Kind::Lxc, "description", value).await;
    }
}

#[tokio::test]
async fn quirk_tags_are_a_sorted_set_in_small_letters() {
    for value in ["web;blue", "Web, blue web", "a"] {
        is_stable(Kind::Lxc, "tags", value).await;
    }
}

#[tokio::test]
async fn quirk_net_printed_anew() {
    is_stable(Kind::Lxc, "net0", "bridge=vmbr0,name=eth0,ip=dhcp").await;
    is_stable(Kind::Lxc, "net0", "name=eth0,hwaddr=bc:24:11:00:00:01,bridge=vmbr0").await;
    is_stable(Kind::Qemu, "net0", "virtio,bridge=vmbr0").await;
    is_stable(Kind::Qemu, "net1", "model=e1000,macaddr=bc:24:11:00:00:01,bridge=vmbr0").await;
    for model in MODELS.split(' ') {
        is_stable(Kind::Qemu, "net0", &format!("bridge=vmbr0,model={model}")).await;
    }
}

#[tokio::test]
async fn quirk_nameserver_words() {
    is_stable(Kind::Lxc, "nameserver", "10.0.0.1,10.0.0.2").await;
    is_stable(Kind::Lxc, "nameserver", "  10.0.0.1   10.0.0.2 ").await;
}

#[tokio::test]
async fn quirk_cpuunits_clamped() {
    is_stable(Kind::Lxc, "cpuunits", "50000").await;
    is_stable(Kind::Qemu, "cpuunits", "200").await;
}

#[tokio::test]
async fn quirk_memory_is_a_number_here_and_a_text_there() {
    is_stable(Kind::Lxc, "memory", "1024").await;
    is_stable(Kind::Qemu, "memory", "1024").await;
}

#[tokio::test]
async fn an_interface_keeps_the_address_that_was_made_up_for_it() {
    let ground = ground(Simulated::Lxc);
    let mut process = ground.process();
    process.converge(&desired([(101, options(&[("net0", "name=eth0,bridge=vmbr0")]))])).await;
    let address = |world: &mut World| {
        let net = &world.guests[&101].config["net0"];
        net.split(',').find(|part| part.starts_with("hwaddr=")).unwrap().to_owned()
    };
    let before = ground.simulator.with(address);
    process.converge(&desired([(101, options(&[("net0", "name=eth0,bridge=vmbr1")]))])).await;
    assert_eq!(ground.simulator.with(address), before);
}

#[tokio::test]
async fn only_declared_options_are_written_and_each_with_the_digest() {
    let ground = ground(Simulated::Lxc);
    let before = ground.simulator.with(|world| world.guests[&101].config.clone());
    ground.process().converge(&desired([(101, options(&[("cores", "2")]))])).await;
    let after = ground.simulator.with(|world| world.guests[&101].config.clone());
    let changed: Vec<_> =
        after.iter().filter(|(name, value)| before.get(*name) != Some(value)).collect();
    let names: Vec<_> = changed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cores", "tags"], "the option, and our mark");
    let calls =
        ground.simulator.with(|world| world.writes().into_iter().cloned().collect::<Vec<_>>());
    assert!(calls.iter().all(|call| call.parameter("digest").is_some()), "{calls:?}");
}

#[tokio::test]
async fn an_option_that_is_declared_away_is_deleted() {
    let guest = Guest::new(Simulated::Lxc, "pve1").with("nameserver", "10.0.0.9");
    let ground = Ground::new(World::default().with(101, guest));
    let mut process = ground.process();
    let desired = desired([(101, options(&[("nameserver", ""), ("onboot", "")]))]);
    process.converge(&desired).await;
    assert!(!ground.simulator.with(|world| world.guests[&101].config.contains_key("nameserver")));
    assert_eq!(ground.writes(), 1);
}

#[tokio::test]
async fn a_change_by_somebody_else_in_between_is_seen_by_the_digest() {
    let ground = ground(Simulated::Lxc);
    let words = "detected modified configuration - file changed by other user? Try again.";
    ground.simulator.with(|world| {
        let harm = Harm::Refuse(500, words.to_owned());
        world.fail(Fault::on("/config", harm).method("PUT").times(1));
    });
    let mut process = ground.process();
    let desired = desired([(101, options(&[("cores", "2")]))]);
    let report = process.pass(&desired).await;
    assert!(story(&report).contains("retry: Now"), "{}", story(&report));
    process.converge(&desired).await;
}

/// Desired states an option of a running guest that can only change while it does not run: the change is written once,
/// reported as long as it waits, and in effect after a restart, which the operator does.
async fn waits_for_a_restart(guest: Guest, (option, value): (&str, &str)) {
    let kind = if guest.kind == Simulated::Lxc { Kind::Lxc } else { Kind::Qemu };
    let before = guest.config.get(option).cloned();
    let ground = Ground::new(World::default().with(101, guest.running()));
    let mut process = ground.process();
    let wanted = Wanted { kind, run: Some(Run::Running), ..options(&[(option, value)]) };
    let desired = desired([(101, wanted)]);
    process.pass(&desired).await;
    let writes = ground.writes();
    assert_eq!(writes, 1, "{option} = {value:?}");
    let waits = format!("a restart of the guest, for `{option}` to take effect");
    for _ in 0..2 {
        let report = process.pass(&desired).await;
        let reported = story(&report);
        assert!(reported.contains(&waits), "{option} = {value:?}: {reported}");
        assert!(!report.is_converged());
    }
    assert_eq!(ground.writes(), writes, "it is not written again, and the guest is not restarted");
    let held = |world: &mut World| world.guests[&101].config.get(option).cloned();
    assert_eq!(ground.simulator.with(held), before, "it is not in effect");
    assert!(ground.simulator.with(|world| world.guests[&101].running));
    ground.simulator.with(World::restart_all);
    let report = process.pass(&desired).await;
    assert!(report.is_converged(), "{option} = {value:?}: {}", story(&report));
    let expected = Some(value.to_owned()).filter(|value| !value.is_empty());
    assert_eq!(ground.simulator.with(held), expected);
    assert_eq!(ground.writes(), writes);
}

#[tokio::test]
async fn what_waits_for_a_restart_is_reported_and_not_fought() {
    let container = || Guest::new(Simulated::Lxc, "pve1");
    let machine = || Guest::new(Simulated::Qemu, "pve1");
    waits_for_a_restart(container(), ("nameserver", "10.0.0.1")).await;
    waits_for_a_restart(machine(), ("memory", "1024")).await;
    waits_for_a_restart(machine(), ("sockets", "2")).await;
}

#[tokio::test]
async fn a_deletion_that_waits_for_a_restart_is_reported_and_not_fought() {
    let container = Guest::new(Simulated::Lxc, "pve1").with("nameserver", "10.0.0.9");
    let machine = Guest::new(Simulated::Qemu, "pve1").with("searchdomain", "example.org");
    waits_for_a_restart(container, ("nameserver", "")).await;
    waits_for_a_restart(machine, ("searchdomain", "")).await;
    // Without the option it has its default, which is not in effect either.
    let machine = Guest::new(Simulated::Qemu, "pve1").with("memory", "4096");
    waits_for_a_restart(machine, ("memory", "")).await;
}

#[tokio::test]
async fn a_held_lock_is_reported_and_retried() {
    let ground = ground(Simulated::Lxc);
    let lock = |to: Option<&str>| {
        let to = to.map(str::to_owned);
        ground.simulator.with(|world| world.guests.get_mut(&101).unwrap().lock = to);
    };
    lock(Some("backup"));
    let mut process = ground.process();
    let desired = desired([(101, options(&[("cores", "2")]))]);
    let report = process.pass(&desired).await;
    let reported = story(&report);
    assert!(reported.contains("the end of its lock `backup`"), "{reported}");
    assert_eq!(ground.writes(), 0);
    // It is locked after the look.
    lock(None);
    ground.simulator.with(|world| {
        let locks = Harm::ChangeBefore(|world| {
            world.guests.get_mut(&101).unwrap().lock = Some("backup".to_owned());
        });
        world.fail(Fault::on("/101/config", locks).method("PUT").times(1));
    });
    let reported = story(&process.pass(&desired).await);
    assert!(
        reported.contains("CT is locked (backup)") && reported.contains("retry: Soon"),
        "{reported}"
    );
    lock(None);
    process.converge(&desired).await;
}

#[tokio::test]
async fn a_failed_change_of_options_leaves_the_start_of_that_guest_undone_and_others_go_on() {
    let ground = ground(Simulated::Lxc);
    ground.simulator.with(|world| {
        world.put(102, Guest::new(Simulated::Lxc, "pve1"));
        let refuse = Harm::Refuse(500, "no".to_owned());
        world.fail(Fault::on("/101/config", refuse).method("PUT"));
    });
    let mut first = runs(Run::Running);
    first.options.insert("cores".to_owned(), "2".to_owned());
    let desired = desired([(101, first), (102, runs(Run::Running))]);
    let mut process = ground.process();
    let report = process.pass(&desired).await;
    assert!(story(&report).contains("EarlierStep(\"guest 101\")"), "{}", story(&report));
    process.operations.tasks_finished().await;
    let running = ground.simulator.with(|world| [101, 102].map(|vmid| world.guests[&vmid].running));
    assert_eq!(running, [false, true]);
}

#[tokio::test]
async fn a_value_that_the_target_hides_is_neither_written_nor_taken_for_the_declared_one() {
    let ground = ground(Simulated::Lxc);
    let mut process = ground.process();
    let declared = |hostname| desired([(101, options(&[("hostname", hostname), ("cores", "2")]))]);
    process.converge(&declared("web")).await;
    ground.simulator.with(|world| {
        let guest = world.guests.get_mut(&101).unwrap();
        guest.config.insert("hostname".to_owned(), "**********".to_owned());
    });
    let writes = ground.writes();
    let reported = story(&process.pass(&declared("not to be shown")).await);
    assert!(reported.contains("does not show the value of `hostname`"), "{reported}");
    assert!(!reported.contains("not to be shown"), "{reported}");
    assert_eq!(ground.writes(), writes);
}

#[tokio::test]
async fn a_change_of_options_that_is_a_task_is_followed_to_its_end() {
    let ground = ground(Simulated::Qemu);
    ground.simulator.with(|world| {
        world.configures_by_tasks = true;
        let end = End::Error("no space left on device".to_owned());
        world.script(101, Script { takes: Duration::from_millis(200), end });
        world.script(101, Script { takes: Duration::from_millis(200), end: End::Ok });
    });
    let mut process = ground.process();
    let machine = Wanted { kind: Kind::Qemu, ..options(&[("cores", "2")]) };
    let desired = desired([(101, machine)]);
    let report = process.pass(&desired).await;
    let reported = story(&report);
    assert!(
        reported.contains("Failed") && reported.contains("no space left on device"),
        "{reported}"
    );
    let report = process.pass(&desired).await;
    assert!(report.is_converged(), "{}", story(&report));
    assert_eq!(ground.ends_of(101, "set"), ["failed", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "qmconfig")), 2);
}
