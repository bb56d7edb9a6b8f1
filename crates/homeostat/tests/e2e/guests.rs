//! Guests on a simulated cluster, over HTTPS: apply, heal, commands, the journal, and secrets kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, UNIX_EPOCH};

use homeostat_pve_simulator::{End, Guest, Kind, Script, Simulator, World as Cluster};
use serde_json::Value;

use crate::program;
use crate::world::{DOCUMENT, World};

/// A world with a cluster in it.
pub(crate) struct Ground {
    pub(crate) world: World,
    pub(crate) cluster: Simulator,
}

pub(crate) const GUEST: &str = "[guests.101]\nkind = \"lxc\"\nnode = \"pve1\"\nrun = \"running\"\n";

impl Ground {
    pub(crate) fn new(guests: &str) -> Self {
        let world = World::new();
        let ground = Ground { world, cluster: cluster() };
        ground.token(0o600);
        ground.declare(guests);
        ground
    }

    pub(crate) fn token(&self, mode: u32) {
        self.put_token(&Simulator::token(), mode);
    }

    pub(crate) fn put_token(&self, token: &str, mode: u32) {
        let path = self.world.write("pve.token", format!("{token}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn declare(&self, guests: &str) {
        self.connect("", guests);
    }

    /// Declares guests, and more about the cluster.
    pub(crate) fn connect(&self, more: &str, guests: &str) {
        self.world.write(DOCUMENT, self.document(&format!("{more}{guests}")));
    }

    /// A document with this cluster in it.
    pub(crate) fn document(&self, rest: &str) -> String {
        let (endpoint, pin) = (self.cluster.endpoint(), self.cluster.fingerprint());
        // Tasks begin at once here, so that what is not there will not come.
        let delay = if rest.contains("task-delay") { "" } else { "task-delay = \"300ms\"\n" };
        format!(
            "[proxmox]\nendpoint = \"{endpoint}\"\ntoken-file = \"pve.token\"\nfingerprint = \
             \"{pin}\"\n{delay}{rest}"
        )
    }

    pub(crate) fn starts(&self) -> usize {
        self.cluster.with(|world| world.count(101, "vzstart"))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.cluster.with(|world| world.guests[&101].running)
    }

    /// Its next task goes on until the test lets it hurry.
    pub(crate) fn lasts(&self) {
        let script = Script { takes: Cluster::LONG, end: End::Ok };
        self.cluster.with(|world| world.script(101, script));
    }

    pub(crate) fn hurry(&self) {
        self.cluster.with(Cluster::hurry);
    }

    /// Its next task takes so long.
    pub(crate) fn takes(&self, millis: u64) {
        let script = Script { takes: Duration::from_millis(millis), end: End::Ok };
        self.cluster.with(|world| world.script(101, script));
    }
}

/// A cluster on the loopback of the namespace that we are in.
pub(crate) fn cluster() -> Simulator {
    let mut up = program::command("ip");
    up.args(["link", "set", "lo", "up"]);
    program::output(up);
    let cluster = Cluster::default()
        .with(101, Guest::new(Kind::Lxc, "pve1"))
        .with(102, Guest::new(Kind::Qemu, "pve2").running());
    Simulator::start(cluster).unwrap()
}

/// Waits until something is so. The cluster runs on a thread of its own, and sends no events.
#[track_caller]
pub(crate) fn later(so: impl Fn() -> bool) {
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
    ground.lasts();
    let stderr = ground.world.path().join("stderr");
    let mut apply = ground.world.homeostat("apply --yes host.toml");
    apply.stdout(std::process::Stdio::piped()).stderr(fs::File::create(&stderr).unwrap());
    let apply = apply.spawn().unwrap();
    let waits = "Waiting for guest 101: task UPID:pve1:";
    later(|| fs::read_to_string(&stderr).unwrap().starts_with(waits));
    ground.hurry();
    let ran = ground.world.ran(&apply.wait_with_output().unwrap()).exits(0);
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
    let events = || ground.world.run("events").exits(0).stdout;
    later(|| events().contains("step-applied action=update key=\"guest 101\""));
    daemon.stop();
}

#[test]
fn a_start_that_fails_in_a_daemon_is_reported_in_the_words_of_the_target_and_not_retried_at_once() {
    let ground = Ground::new(GUEST);
    let words = "startup for container '101' failed";
    ground.cluster.with(|world| {
        for _ in 0..9999 {
            let end = End::Error(words.to_owned());
            world.script(101, Script { takes: Duration::ZERO, end });
        }
    });
    let daemon = ground.world.start("");
    // The pauses double from a tenth of a second on.
    later(|| ground.starts() >= 5);
    let events = ground.world.run("events").exits(0).stdout;
    assert!(events.contains("step-failed") && events.contains(words), "{events}");
    later(|| ground.world.run("status").exits(2).stdout.contains("1 failed"));
    daemon.stop();
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
fn a_cluster_that_leaves_the_document_with_its_guests_is_missed() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    ground.world.run("apply --yes host.toml").exits(0);
    ground.world.write("host.toml", "[sysctl]\n");
    let plan = ground.world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("guests  waits on `[proxmox]`"), "{plan}");
    // Once the marks are off, nobody misses it.
    ground.declare("[guests]\n");
    ground.world.run("--allow-mass-delete apply --yes host.toml").exits(0);
    ground.world.write("host.toml", "[sysctl]\n");
    ground.world.run("plan host.toml").says(0, "No changes.\n");
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
fn a_damaged_journal_and_a_foreign_file_stop_everything() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    let path = ground.world.state().join("journal");
    let mut damaged = fs::read(&path).unwrap();
    damaged[3] ^= 1;
    for bytes in [damaged, b"my diary\n".to_vec()] {
        fs::write(&path, bytes).unwrap();
        let ran = ground.world.run("apply --yes host.toml").exits(1);
        assert!(ran.stderr.contains("is damaged: ") && ran.stderr.contains("help: "), "{ran:?}");
    }
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
    let place = format!(" guests in host at {}: guest 101 ", ground.cluster.endpoint());
    assert!(lines[0].contains(&format!("{place}start intent step=")), "{all}");
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
fn what_the_token_may_not_see_is_unknown_and_nothing_is_written() {
    let ground = Ground::new(GUEST);
    ground.cluster.with(|world| {
        world.guests.get_mut(&101).unwrap().denied.insert("VM.Audit".to_owned());
    });
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["unknown"][0]["key"], "guest 101", "{report}");
    assert_eq!(ground.cluster.with(|world| world.writes().len()), 0);
}
