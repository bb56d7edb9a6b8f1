//! Guests on a simulated cluster, over HTTPS: apply, heal, commands, the journal, and secrets kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, UNIX_EPOCH};

use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, Simulator, World as Cluster};
use homeostat_testkit::namespace::Namespace;
use rustix::process::Signal;
use serde_json::Value;

use crate::program;
use crate::world::{DOCUMENT, World};

/// A world with a cluster in it.
struct Ground {
    world: World,
    cluster: Simulator,
}

const GUEST: &str = "[guests.101]\nkind = \"lxc\"\nnode = \"pve1\"\nrun = \"running\"\n";

impl Ground {
    fn new(guests: &str) -> Self {
        let world = World::new();
        let ground = Ground { world, cluster: cluster() };
        ground.token(0o600);
        ground.declare(guests);
        ground
    }

    fn token(&self, mode: u32) {
        self.put_token(&Simulator::token(), mode);
    }

    fn put_token(&self, token: &str, mode: u32) {
        let path = self.world.write("pve.token", format!("{token}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn declare(&self, guests: &str) {
        self.connect("", guests);
    }

    /// Declares guests, and more about the cluster.
    fn connect(&self, more: &str, guests: &str) {
        let (endpoint, pin) = (self.cluster.endpoint(), self.cluster.fingerprint());
        let text = format!(
            "[proxmox]\nendpoint = \"{endpoint}\"\ntoken-file = \"pve.token\"\nfingerprint = \
             \"{pin}\"\n{more}{guests}"
        );
        self.world.write(DOCUMENT, text);
    }

    fn starts(&self) -> usize {
        self.cluster.with(|world| world.count(101, "vzstart"))
    }

    fn is_running(&self) -> bool {
        self.cluster.with(|world| world.guests[&101].running)
    }

    fn takes(&self, millis: u64) {
        let script = Script { takes: Duration::from_millis(millis), end: End::Ok };
        self.cluster.with(|world| world.script(101, script));
    }
}

/// A cluster on the loopback of the namespace that we are in.
fn cluster() -> Simulator {
    let mut up = program::command("ip");
    up.args(["link", "set", "lo", "up"]);
    program::output(up);
    let cluster = Cluster::default()
        .with(101, Guest::new(Kind::Lxc, "pve1"))
        .with(102, Guest::new(Kind::Qemu, "pve2").running());
    Simulator::start(cluster).unwrap()
}

/// Waits until something is so. The cluster runs on a thread of its own, and tells nobody.
#[track_caller]
fn later(so: impl Fn() -> bool) {
    let deadline = UNIX_EPOCH.elapsed().unwrap() + Duration::from_mins(1);
    while !so() {
        assert!(UNIX_EPOCH.elapsed().unwrap() < deadline, "it did not come to pass");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn an_apply_waits_for_its_tasks_and_a_second_one_has_nothing_to_do() {
    let ground = Ground::new(&format!(
        "{GUEST}cores = 2\nmemory = \"1G\"\ndescription = \"web\"\ntags = [\"web\", \"blue\"]\n\
         [guests.101.config]\nnameserver = \"10.0.0.1 10.0.0.2\"\n"
    ));
    ground.takes(300);
    let ran = ground.world.run("apply --yes host.toml").exits(0);
    assert!(ran.stderr.starts_with("Waiting for guest 101: task UPID:pve1:"), "{ran:?}");
    assert!(ran.stdout.contains("guest 101") && ran.stdout.contains("task UPID:pve1:"), "{ran:?}");
    assert!(ground.is_running());
    let config = ground.cluster.with(|world| world.guests[&101].config.clone());
    let is = |name: &str| config.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!((is("cores"), is("memory"), is("description")), ("2", "1024", "web\n"));
    assert_eq!(is("nameserver"), "10.0.0.1 10.0.0.2");
    let writes = ground.cluster.with(|world| world.writes().len());
    ground.world.run("apply --yes host.toml").exits(0);
    ground.world.run("verify host.toml").exits(0);
    assert!(ground.world.run("plan host.toml").exits(0).stdout.ends_with("No changes.\n"));
    assert_eq!(ground.cluster.with(|world| world.writes().len()), writes);
}

#[test]
fn a_start_that_fails_again_and_again_is_given_up_with_the_words_of_the_target() {
    let ground = Ground::new(GUEST);
    let words = "startup for container '101' failed";
    for _ in 0..9 {
        let end = End::Error(words.to_owned());
        let script = Script { takes: Duration::from_millis(50), end };
        ground.cluster.with(|world| world.script(101, script));
    }
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["failed"][0]["error"], words, "{report}");
    assert_eq!(report["pending"], serde_json::json!([]), "{report}");
    assert_eq!(ground.starts(), 3);
}

#[test]
fn one_start_that_fails_keeps_no_other_guest_from_its_turn() {
    let declared = |vmid| format!("[guests.{vmid}]\nkind = \"lxc\"\nrun = \"running\"\n");
    let guests: String = (101..108).map(declared).collect();
    let ground = Ground::new(&guests);
    ground.cluster.with(|world| {
        for vmid in 102..108 {
            world.put(vmid, Guest::new(Kind::Lxc, "pve1"));
        }
        for _ in 0..40 {
            let end = End::Error("no".to_owned());
            world.script(101, Script { takes: Duration::ZERO, end });
        }
    });
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["failed"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["applied"].as_array().unwrap().len(), 6, "{report}");
    let running = ground.cluster.with(|world| (102..108).all(|vmid| world.guests[&vmid].running));
    assert!(running, "{report}");
}

#[test]
fn a_plan_shows_what_would_change_and_writes_nothing_not_even_a_journal() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    let plan = ground.world.plan();
    let changes = plan["changes"].as_array().unwrap();
    let after: Vec<&Value> = changes.iter().map(|change| &change["after"]).collect();
    let expected = [&serde_json::json!({ "cores": "2" }), &serde_json::json!({ "run": "running" })];
    assert_eq!(after, expected, "{plan}");
    assert_eq!(ground.cluster.with(|world| world.writes().len()), 0);
    assert!(!ground.world.state().join("journal").exists());
}

#[test]
fn a_daemon_starts_a_guest_again_that_somebody_stopped() {
    let ground = Ground::new(&format!("{GUEST}[settings.guests]\nresync = \"300ms\"\n"));
    let daemon = ground.world.start("");
    later(|| ground.is_running());
    ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    later(|| ground.is_running());
    assert_eq!(ground.starts(), 2);
    let status = ground.world.run("status --wait").exits(0);
    assert!(status.stdout.contains("guests"), "{status:?}");
    daemon.stop();
}

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

#[test]
fn a_reload_takes_over_another_node_limit_another_cluster_and_another_token() {
    let one = "[guests.101]\nkind = \"lxc\"\nrun = \"stopped\"\nstop = \"immediate\"\n";
    let many = (101..107).map(|vmid| one.replace("101", &vmid.to_string())).collect::<String>();
    let ground = Ground::new(&many);
    ground.cluster.with(|world| {
        for vmid in 101..107 {
            world.put(vmid, Guest::new(Kind::Lxc, "pve1"));
            world.script(vmid, Script { takes: Duration::from_millis(400), end: End::Ok });
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
    later(|| ground.cluster.with(|world| (101..107).all(|vmid| world.guests[&vmid].running)));
    assert_eq!(ground.cluster.with(|world| world.most_per_node), 4);
    // Another token is read when its file changes, without anybody's word.
    ground.world.run("status --wait").exits(0);
    ground.cluster.with(|world| {
        world.tokens = [("keeper@pve!second".to_owned(), "secret".to_owned())].into();
        world.calls.clear();
    });
    ground.put_token("keeper@pve!second=secret", 0o600);
    let is_heard = |world: &mut Cluster| {
        let called = |call: &homeostat_pve_simulator::Call| {
            call.authorization.as_ref().is_some_and(|told| told.contains("!second="))
        };
        world.calls.iter().any(called)
    };
    later(|| ground.cluster.with(is_heard));
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
fn a_guest_that_leaves_the_document_loses_our_mark() {
    let both = format!("{GUEST}cores = 2\n[guests.102]\nkind = \"qemu\"\ndescription = \"db\"\n");
    let ground = Ground::new(&both);
    ground.world.run("apply --yes host.toml").exits(0);
    let tags = |vmid| ground.cluster.with(|world| world.guests[&vmid].config.get("tags").cloned());
    assert!(tags(101).is_some() && tags(102).is_some());
    ground.declare("[guests.102]\nkind = \"qemu\"\ndescription = \"db\"\n");
    let plan = ground.world.run("plan host.toml").exits(0);
    assert!(plan.stdout.contains("our mark is taken off"), "{plan:?}");
    ground.world.run("apply --yes host.toml").exits(0);
    assert!(tags(101).is_none() && tags(102).is_some());
    assert!(ground.is_running(), "it is left as it is");
    assert!(ground.world.run("plan host.toml").exits(0).stdout.ends_with("No changes.\n"));
}

#[test]
fn an_apply_that_was_killed_leaves_a_task_that_the_next_one_adopts() {
    let ground = Ground::new(GUEST);
    ground.takes(1500);
    let mut apply = ground.world.homeostat("apply --yes host.toml");
    let mut apply = apply.stderr(std::process::Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    apply.kill().unwrap();
    apply.wait().unwrap();
    ground.world.run("apply --yes host.toml").exits(0);
    assert!(ground.is_running());
    assert_eq!(ground.starts(), 1, "the task was found again");
}

#[test]
fn a_command_with_a_name_is_done_once_also_across_restarts() {
    let ground = Ground::new("");
    let start = "guest start 101 --idempotency-key once --document host.toml";
    let first = ground.world.run(start).exits(0);
    assert_eq!(first.stdout, "start guest 101: succeeded\n");
    ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    let second = ground.world.run(start).exits(0);
    let stored = "start guest 101: succeeded (the outcome of an earlier try)\n";
    assert_eq!(second.stdout, stored);
    assert_eq!(ground.starts(), 1);
    // The same name for something else is something else.
    let stop = "guest stop 102 --idempotency-key once --document host.toml --json";
    let answer = ground.world.run(stop).json(0);
    assert_eq!((&answer["outcome"], &answer["stored"]), (&"succeeded".into(), &false.into()));
    // A daemon knows it too.
    let daemon = ground.world.start("");
    let third = ground.world.run("guest start 101 --idempotency-key once").exits(0);
    assert_eq!(third.stdout, stored);
    ground.world.run("guest start 101").exits(0);
    assert_eq!(ground.starts(), 2);
    daemon.stop();
}

#[test]
fn a_duplicate_of_a_running_command_joins_it() {
    let ground = Ground::new("");
    let daemon = ground.world.start("");
    ground.takes(700);
    let start = "guest start 101 --idempotency-key k --json";
    let mut first = ground.world.homeostat(start);
    let first = first.stdout(std::process::Stdio::piped()).spawn().unwrap();
    later(|| ground.starts() == 1);
    let second = ground.world.run(start).json(0);
    let first = first.wait_with_output().unwrap();
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((&first["stored"], &second["stored"]), (&false.into(), &true.into()));
    assert_eq!((&first["outcome"], &second["outcome"]), (&"succeeded".into(), &"succeeded".into()));
    assert_eq!(ground.starts(), 1);
    daemon.stop();
}

#[test]
fn a_command_whose_process_was_killed_is_joined_by_the_next_try() {
    let ground = Ground::new("");
    ground.takes(1500);
    let start = "guest start 101 --idempotency-key k --document host.toml --json";
    let mut first = ground.world.homeostat(start);
    let mut first = first.stdout(std::process::Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    first.kill().unwrap();
    first.wait().unwrap();
    let second = ground.world.run(start).json(0);
    assert_eq!((&second["outcome"], &second["stored"]), (&"succeeded".into(), &true.into()));
    assert_eq!(ground.starts(), 1);
}

#[test]
fn a_command_that_fails_says_why_and_keeps_saying_it() {
    let ground = Ground::new("");
    let words = "startup for container '101' failed";
    ground.cluster.with(|world| {
        let end = End::Error(words.to_owned());
        world.script(101, Script { takes: Duration::ZERO, end });
    });
    let start = "guest start 101 --idempotency-key k --document host.toml";
    let failed = ground.world.run(start).exits(1);
    assert_eq!(failed.stdout, format!("start guest 101: failed: {words}\n"));
    let again = ground.world.run(start).exits(1);
    assert!(again.stdout.contains(words) && again.stdout.contains("earlier try"), "{again:?}");
    let absent = ground.world.run("guest start 999 --document host.toml").exits(1);
    assert!(absent.stderr.contains("there is no guest 999"), "{absent:?}");
    let nowhere = ground.world.run("guest start 101").exits(1);
    assert!(nowhere.stderr.contains("--document"), "{nowhere:?}");
}

#[test]
fn a_torn_journal_is_cut_and_said_so_and_a_damaged_one_stops_everything() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    let path = ground.world.state().join("journal");
    let whole = fs::read(&path).unwrap();
    let torn = [whole.as_slice(), b"0123 half a li"].concat();
    fs::write(&path, torn).unwrap();
    let ran = ground.world.run("apply --yes host.toml").exits(0);
    assert!(
        ran.stderr.contains("the end of the journal was torn, and cut off: 14 bytes"),
        "{ran:?}"
    );
    let mut damaged = whole;
    damaged[3] ^= 1;
    fs::write(&path, damaged).unwrap();
    let ran = ground.world.run("apply --yes host.toml").exits(1);
    assert!(
        ran.stderr.contains("is damaged in line 1") && ran.stderr.contains("help: "),
        "{ran:?}"
    );
}

#[test]
fn the_journal_is_listed_filtered_and_followed() {
    let ground = Ground::new(GUEST);
    assert_eq!(ground.world.run("journal").exits(0).stdout, "", "there is none yet");
    ground.world.run("apply --yes host.toml").exits(0);
    ground.world.run("guest stop 102 --document host.toml").exits(0);
    let all = ground.world.run("journal").exits(0).stdout;
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), 6, "{all}");
    assert!(lines[0].contains(" guests in host: guest 101 start intent step="), "{all}");
    assert!(lines[1].contains("guest 101 start dispatched task=UPID:pve1:"), "{all}");
    assert!(lines[2].contains("guest 101 start succeeded step="), "{all}");
    let mut one = ground.world.homeostat("journal --json --source guests");
    one.args(["--key", "guest 102"]);
    let one = ground.world.finish(one).exits(0).stdout;
    let records: Vec<Value> = one.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words: Vec<_> = records.iter().map(|record| record["is"].as_str().unwrap()).collect();
    assert_eq!(words, ["intent", "dispatched", "succeeded"], "{one}");
    assert!(records.iter().all(|record| record["key"] == "guest 102"), "{one}");
    assert_eq!(ground.world.run("journal --source nft").exits(0).stdout, "");
    let path = ground.world.path().join("followed");
    let mut follow = ground.world.homeostat("journal -f --json");
    let mut follow = follow.stdout(fs::File::create(&path).unwrap()).spawn().unwrap();
    later(|| fs::read_to_string(&path).unwrap().lines().count() == 6);
    ground.world.run("guest start 102 --document host.toml").exits(0);
    later(|| fs::read_to_string(&path).unwrap().lines().count() == 9);
    follow.kill().unwrap();
    follow.wait().unwrap();
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
    let told = format!("{ran:?}{}", ground.world.log());
    assert!(!told.contains(&secret), "{told}");
}

#[test]
fn the_token_is_in_no_output_no_log_and_no_file_of_ours() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    let mut told = String::new();
    let before =
        ["check host.toml", "plan host.toml -v", "plan --json host.toml", "show", "show --json"];
    for command in before {
        told += &format!("{:?}", ground.world.run(command));
    }
    let daemon = ground.world.start_watched("-v", None);
    later(|| ground.is_running());
    // Errors and refusals are told, too.
    ground.cluster.with(|world| {
        world.tokens.clear();
        world.guests.get_mut(&101).unwrap().running = false;
    });
    ground.world.run("resync");
    later(|| ground.world.log().contains("401"));
    for command in ["status", "status --json", "events", "journal", "journal --json"] {
        told += &format!("{:?}", ground.world.run(command));
    }
    told += &format!("{:?}", ground.world.run("guest start 101"));
    daemon.signal(Signal::TERM);
    drop(daemon);
    told += &ground.world.log();
    for entry in fs::read_dir(ground.world.state()).unwrap() {
        let path = entry.unwrap().path();
        told += &fs::read(&path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
    }
    let (_, secret) =
        Simulator::token().split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(told.contains("guest 101") && told.contains("401"), "{told}");
    assert!(!told.contains(&secret), "{told}");
}

#[test]
fn what_the_token_may_not_see_is_unknown_and_nothing_is_written() {
    let ground = Ground::new(GUEST);
    ground.cluster.with(|world| {
        world.guests.get_mut(&101).unwrap().denied.insert("VM.Audit".to_owned());
    });
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["unknown"][0]["key"], "guest 101", "{report}");
    assert_eq!(ground.cluster.with(|world| world.writes().len()), 0);
}
