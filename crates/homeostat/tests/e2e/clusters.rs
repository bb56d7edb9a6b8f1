//! The cluster that guests are on: whom we talk to, what is noticed, what a reload takes over, what survives.

use std::fs;
use std::time::Duration;

use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, Simulator, World as Cluster};
use homeostat_testkit::namespace::Namespace;
use rustix::process::Signal;

use crate::guests::{GUEST, Ground, cluster, later};
use crate::world::DOCUMENT;

#[test]
fn a_daemon_notices_a_stopped_guest_long_before_the_resync() {
    let ground = Ground::new(GUEST);
    ground.cluster.with(|world| world.stale = Duration::ZERO);
    ground.connect("poll = \"100ms\"\n", &format!("{GUEST}[settings.guests]\nresync = \"1h\"\n"));
    let daemon = ground.world.start("");
    later(|| ground.is_running());
    ground.world.run("status --wait").exits(0);
    ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    later(|| ground.is_running());
    assert_eq!(ground.starts(), 2);
    daemon.stop();
}

#[test]
fn a_daemon_starts_guests_although_another_node_hangs() {
    let other = GUEST.replace("101", "103").replace("pve1", "pve3");
    let ground = Ground::new(&format!("{GUEST}{other}"));
    ground.cluster.with(|world| {
        world.put(103, Guest::new(Kind::Lxc, "pve3"));
        world.fail(Fault::on("/nodes/pve3/", Harm::Slow(Duration::from_hours(1))));
    });
    ground.connect("timeout = \"1h\"\n", &format!("{GUEST}{other}"));
    let daemon = ground.world.start("");
    later(|| ground.is_running());
    let key = ground.world.finish({
        let mut status = ground.world.homeostat("status");
        status.arg("guest 103");
        status
    });
    assert!(key.stdout.contains("node pve3 does not answer"), "{key:?}");
    daemon.stop();
}

/// At boot the cluster is reached only after the daemon is ready, and the network may wait for that.
#[test]
fn a_daemon_is_ready_although_the_cluster_does_not_answer() {
    let knob = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
    let ground = Ground::new("");
    ground.cluster.with(|world| {
        world.fail(Fault::on("/", Harm::Slow(Duration::from_hours(1))));
    });
    ground.connect("timeout = \"1h\"\n", &format!("{GUEST}{knob}"));
    let daemon = ground.world.start("");
    assert_eq!(ground.world.knob("net/ipv4/tcp_retries1"), "5");
    let status = ground.world.run("status --json").json(2);
    assert_eq!(status["ready"], true);
    let loops = status["loops"].as_array().unwrap();
    let guests = loops.iter().find(|one| one["source"] == "guests").unwrap();
    assert_eq!((&guests["ready"], &guests["converged"]), (&false.into(), &false.into()));
    daemon.stop();
}

/// A guest of pve1, and one of pve3, with a daemon that polls for changes often and waits for answers for ever.
fn two_nodes() -> Ground {
    let other = GUEST.replace("101", "103").replace("pve1", "pve3");
    let ground = Ground::new("");
    ground.cluster.with(|world| {
        world.stale = Duration::ZERO;
        world.put(103, Guest::new(Kind::Lxc, "pve3"));
    });
    let settings = "[settings.guests]\nresync = \"1h\"\n";
    let more = "timeout = \"1h\"\npoll = \"100ms\"\n";
    ground.connect(more, &format!("{GUEST}{other}{settings}"));
    ground
}

/// Stops the guest of pve1 again and again, and sees it started again.
fn heal(ground: &Ground) {
    for _ in 0..4 {
        later(|| ground.is_running());
        ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    }
    later(|| ground.is_running());
}

#[test]
fn a_start_that_is_not_answered_keeps_no_other_guest_from_being_healed() {
    let ground = two_nodes();
    ground.cluster.with(|world| {
        let hangs = Harm::Slow(Duration::from_hours(1));
        world.fail(Fault::on("/nodes/pve3/lxc/103/status/start", hangs));
    });
    let daemon = ground.world.start("");
    heal(&ground);
    let mut status = ground.world.homeostat("status");
    status.arg("guest 103");
    let output = ground.world.finish(status);
    assert!(output.stdout.contains("guest 103"), "{output:?}");
    assert_eq!(ground.cluster.with(|world| world.harmed.len()), 1, "it is asked once");
    daemon.stop();
}

#[test]
fn a_daemon_that_cannot_ask_what_became_of_a_start_heals_the_other_guests() {
    let ground = two_nodes();
    let long = Script { takes: Duration::from_mins(10), end: End::Ok };
    ground.cluster.with(|world| world.script(103, long));
    let daemon = ground.world.start("");
    later(|| ground.cluster.with(|world| world.count(103, "vzstart") == 1));
    later(|| ground.world.run("journal --json").stdout.contains("UPID:pve3:"));
    drop(daemon);
    let hangs = Harm::Slow(Duration::from_hours(1));
    ground.cluster.with(|world| world.fail(Fault::on("/nodes/pve3/", hangs)));
    let daemon = ground.world.start("");
    heal(&ground);
    drop(daemon);
    ground.cluster.with(|world| {
        world.mend();
        world.calls.clear();
    });
    let daemon = ground.world.start("");
    let is_followed = |world: &mut Cluster| {
        world.calls.iter().any(|call| call.path.contains("/nodes/pve3/tasks/UPID"))
    };
    later(|| ground.cluster.with(is_followed));
    assert_eq!(ground.cluster.with(|world| world.count(103, "vzstart")), 1, "it is found again");
    daemon.stop();
}

#[test]
fn an_apply_sees_to_this_machine_before_it_waits_for_a_node() {
    let Ground { world, cluster } = Ground::new("");
    let ground = Ground { world: world.with_own_names(), cluster };
    ground.world.ip("netns add blue");
    let hangs = Harm::Slow(Duration::from_hours(1));
    ground.cluster.with(|world| world.fail(Fault::on("/nodes/pve1/", hangs)));
    let blue = "[namespaces.blue.sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
    ground.connect("timeout = \"1h\"\n", &format!("{GUEST}{blue}"));
    let mut applying = ground.world.homeostat("apply --yes host.toml").spawn().unwrap();
    later(|| ground.world.knob_in("blue", "net/ipv4/tcp_retries1") == "5");
    assert!(applying.try_wait().unwrap().is_none(), "it waits for the node");
    applying.kill().unwrap();
    applying.wait().unwrap();
}

/// Whether all six guests run. Their tasks end when so many are under way, or when no more can come.
fn are_started(world: &mut Cluster, at_once: usize) -> bool {
    let running = world.tasks().iter().filter(|task| task.is_running()).count();
    if running == at_once || world.tasks().len() == 6 {
        world.hurry();
    }
    (101..107).all(|vmid| world.guests[&vmid].running)
}

#[test]
fn a_reload_takes_over_another_node_limit_another_cluster_and_another_token() {
    let one = "[guests.101]\nkind = \"lxc\"\nrun = \"stopped\"\nstop = \"immediate\"\n";
    let many = (101..107).map(|vmid| one.replace("101", &vmid.to_string())).collect::<String>();
    let ground = Ground::new(&many);
    ground.cluster.with(|world| {
        for vmid in 101..107 {
            world.put(vmid, Guest::new(Kind::Lxc, "pve1"));
            world.script(vmid, Script { takes: Cluster::LONG, end: End::Ok });
        }
    });
    ground.connect("node-limit = 1\n", &many);
    let daemon = ground.world.start("");
    ground.world.run("status --wait").exits(0);
    // More may run at once.
    let starts = many.replace("stopped", "running");
    ground.connect("node-limit = 4\n", &starts);
    // What it began runs on when the answer comes.
    ground.world.run("reload").exits(1);
    later(|| ground.cluster.with(|world| are_started(world, 4)));
    assert_eq!(ground.cluster.with(|world| world.most_per_node), 4);
    // Another token is read when its file changes, without a command.
    ground.world.run("status --wait").exits(0);
    ground.cluster.with(|world| {
        world.tokens = [("keeper@pve!second".to_owned(), "secret".to_owned())].into();
        world.calls.clear();
    });
    ground.put_token("keeper@pve!second=secret", 0o600);
    let is_used = |world: &mut Cluster| {
        let called = |call: &homeostat_pve_simulator::Call| {
            call.authorization.as_ref().is_some_and(|token| token.contains("!second="))
        };
        world.calls.iter().any(called)
    };
    later(|| ground.cluster.with(is_used));
    // Another cluster is another cluster.
    let other =
        Simulator::start(Cluster::default().with(101, Guest::new(Kind::Lxc, "pve9"))).unwrap();
    ground.put_token(&Simulator::token(), 0o600);
    let text = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    let text = text.replace(&ground.cluster.endpoint(), &other.endpoint());
    let text = text.replace(&ground.cluster.fingerprint(), &other.fingerprint());
    ground.world.write(DOCUMENT, text);
    ground.world.run("reload");
    later(|| other.with(|world| world.guests[&101].running));
    daemon.stop();
}

#[test]
fn an_authority_of_the_system_is_trusted_for_the_names_that_it_vouches_for() {
    let ground = Ground::new(GUEST);
    let authority = ground.world.write("authority.pem", ground.cluster.authority());
    let text = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    let pin = format!("fingerprint = \"{}\"\n", ground.cluster.fingerprint());
    let unpinned = text.replace(&pin, "");
    let apply = |text: &str, trusts: bool| {
        ground.world.write(DOCUMENT, text);
        let mut apply = ground.world.homeostat("apply --yes host.toml");
        if trusts {
            apply.env("SSL_CERT_FILE", &authority);
        }
        ground.world.finish(apply)
    };
    let refused = apply(&unpinned, false).exits(1);
    assert!(format!("{refused:?}").contains("cannot reach"), "{refused:?}");
    let another = unpinned.replace("127.0.0.1", "127.0.0.2");
    assert!(format!("{:?}", apply(&another, true).exits(1)).contains("cannot reach"));
    assert_eq!(ground.cluster.with(|world| world.calls.len()), 0);
    apply(&unpinned, true).exits(0);
    assert!(ground.is_running());
}

#[test]
fn a_reboot_of_this_machine_forgets_no_guest() {
    let declared = format!("{GUEST}cores = 2\n");
    let mut ground = Ground::new(&declared);
    ground.world.run("apply --yes host.toml").exits(0);
    // Another network namespace has another identity, as a machine that has booted again has. The cluster
    // is the same one in the meantime, but for a guest that got the number of ours.
    ground.world.namespace = Namespace::enter().unwrap();
    ground.cluster = cluster();
    ground.declare(&declared);
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["conflicts"][0]["key"], "guest 101", "{report}");
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["conflicts"][0]["key"], "guest 101", "it was not forgotten: {report}");
    assert_eq!(ground.cluster.with(|world| world.writes().len()), 0);
}

#[test]
fn a_malformed_pin_and_an_open_token_file_refuse_to_start() {
    let ground = Ground::new(GUEST);
    let text = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    let broken = text.replace(&ground.cluster.fingerprint(), "AB:CD");
    ground.world.write(DOCUMENT, broken);
    let ran = ground.world.run("check host.toml").exits(1);
    assert!(ran.stderr.contains("`AB:CD` is no SHA-256 fingerprint"), "{ran:?}");
    ground.declare(GUEST);
    ground.token(0o644);
    for command in ["plan host.toml", "apply --yes host.toml", "run host.toml"] {
        let ran = ground.world.run(command).exits(1);
        assert!(ran.stderr.contains("has mode 0644"), "{command}: {ran:?}");
        assert!(ran.stderr.contains("chmod 600"), "{command}: {ran:?}");
    }
    assert_eq!(ground.cluster.with(|world| world.calls.len()), 0);
}

#[test]
fn another_server_is_refused_and_the_token_is_in_no_output() {
    let ground = Ground::new(GUEST);
    let text = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    let other = text.replace(&ground.cluster.fingerprint(), &["AB"; 32].join(":"));
    ground.world.write(DOCUMENT, other);
    let ran = ground.world.run("apply --yes host.toml -v").exits(1);
    assert!(format!("{ran:?}").contains("the server's certificate has the fingerprint"), "{ran:?}");
    assert_eq!(ground.cluster.with(|world| world.calls.len()), 0);
    let daemon = ground.world.start_watched("-v", None);
    later(|| ground.world.log().contains("fingerprint"));
    daemon.signal(Signal::TERM);
    drop(daemon);
    let (_, secret) =
        Simulator::token().split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let output = format!("{ran:?}{}", ground.world.log());
    assert!(!output.contains(&secret), "{output}");
}

#[test]
fn the_token_is_in_no_output_no_log_and_no_file_of_ours() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    let output = |command: &str| {
        let ran = ground.world.run(command);
        format!("{}{}", ran.stdout, ran.stderr)
    };
    let before =
        ["check host.toml", "plan host.toml -v", "plan --json host.toml", "show", "show --json"];
    let mut all: String = before.into_iter().map(output).collect();
    let daemon = ground.world.start_watched("-v", None);
    later(|| ground.is_running());
    // Errors and refusals are printed, too.
    ground.cluster.with(|world| {
        world.tokens.clear();
        world.guests.get_mut(&101).unwrap().running = false;
    });
    ground.world.run("resync");
    later(|| ground.world.log().contains("401"));
    let after =
        ["status", "status --json", "events", "journal", "journal --json", "guest start 101"];
    all.extend(after.into_iter().map(output));
    daemon.signal(Signal::TERM);
    drop(daemon);
    all += &ground.world.log();
    for entry in fs::read_dir(ground.world.state()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap_or_default();
        all += &String::from_utf8_lossy(&bytes);
    }
    let token = Simulator::token();
    let (_, secret) = token.split_once('=').unwrap();
    assert!(all.contains("guest 101") && all.contains("401"), "{all}");
    assert!(!all.contains(secret), "{all}");
}
