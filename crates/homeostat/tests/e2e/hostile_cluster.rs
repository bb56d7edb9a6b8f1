//! A cluster that is slow, fails, or says too much; many guests; and values that must not be shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script};

use crate::guests::{GUEST, Ground, later};
use crate::program::HOMEOSTAT;

/// Tasks begin so much later than their requests arrive.
fn begins_later(ground: &Ground, delay: Duration) {
    ground.cluster.with(|world| {
        world.fail(Fault::on("/status/start", Harm::BeginLater(delay)));
    });
}

/// How many starts were sent, whatever became of them.
fn sent(ground: &Ground) -> usize {
    let is_start = |path: &str| path.ends_with("/status/start");
    ground.cluster.with(|world| world.harmed.iter().filter(|call| is_start(&call.path)).count())
}

const SLOW: Duration = Duration::from_secs(2);
const DELAY: &str = "task-delay = \"6s\"\n";

#[test]
fn a_command_that_is_killed_before_its_task_begins_is_sent_once() {
    let ground = Ground::new("");
    ground.connect(DELAY, "");
    begins_later(&ground, SLOW);
    let start = "guest start 101 --idempotency-key k --document host.toml";
    let mut first = ground.world.homeostat(start);
    let mut first = first.stdout(Stdio::null()).spawn().unwrap();
    later(|| sent(&ground) == 1);
    first.kill().unwrap();
    first.wait().unwrap();
    let again = ground.world.run(start).exits(0);
    assert!(again.stdout.contains("succeeded"), "{again:?}");
    assert_eq!((sent(&ground), ground.starts()), (1, 1));
}

#[test]
fn a_command_whose_answer_takes_too_long_is_sent_once() {
    let ground = Ground::new("");
    ground.connect(&format!("timeout = \"500ms\"\n{DELAY}"), "");
    begins_later(&ground, SLOW);
    let start = "guest start 101 --idempotency-key k --document host.toml";
    let ran = ground.world.run(start).exits(0);
    assert!(ran.stdout.contains("succeeded"), "{ran:?}");
    assert_eq!((sent(&ground), ground.starts()), (1, 1));
}

#[test]
fn an_apply_that_is_killed_before_its_task_begins_or_waits_too_short_sends_one_start() {
    for (more, is_killed) in [("", true), ("timeout = \"500ms\"\n", false)] {
        let ground = Ground::new("");
        ground.connect(&format!("{more}{DELAY}"), GUEST);
        begins_later(&ground, SLOW);
        let mut apply = ground.world.homeostat("apply --yes host.toml");
        let mut apply = apply.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        later(|| sent(&ground) == 1);
        if is_killed {
            apply.kill().unwrap();
        }
        apply.wait().unwrap();
        ground.world.run("apply --yes host.toml").exits(0);
        assert_eq!((sent(&ground), ground.starts()), (1, 1), "killed: {is_killed}");
    }
}

/// Every start of guest 101 fails at once.
fn fails(ground: &Ground) {
    ground.cluster.with(|world| {
        for _ in 0..9999 {
            let end = End::Error("startup for container '101' failed".to_owned());
            world.script(101, Script { takes: Duration::ZERO, end });
        }
    });
}

#[test]
fn a_failing_start_is_tried_with_pauses_while_another_task_runs() {
    let other = "[guests.103]\nkind = \"lxc\"\nrun = \"running\"\n";
    let ground = Ground::new(&format!("{GUEST}{other}"));
    fails(&ground);
    ground.cluster.with(|world| {
        world.put(103, Guest::new(Kind::Lxc, "pve1"));
        world.script(103, Script { takes: Duration::from_secs(5), end: End::Ok });
    });
    ground.world.run("apply --yes host.toml").exits(1);
    // The pauses double from a tenth of a second on.
    assert!((3..=20).contains(&ground.starts()), "{}", ground.starts());
}

#[test]
fn namespaces_that_come_and_go_leave_the_pauses_of_a_failing_start_alone() {
    // One that the document names has the daemon arrange its loops anew.
    let red = "[namespaces.red.sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
    let mut ground = Ground::new(&format!("{GUEST}{red}"));
    ground.world = ground.world.with_own_names();
    fails(&ground);
    let daemon = ground.world.start("");
    // The next pause has a second or more.
    later(|| ground.starts() >= 5);
    for _ in 0..20 {
        ground.world.ip("netns add red");
        later(|| ground.world.run("status").stdout.contains("red"));
        ground.world.ip("netns del red");
    }
    let starts = ground.starts();
    assert!(starts <= 8, "{starts}");
    daemon.stop();
}

#[test]
fn an_apply_counts_every_change_of_many_guests_once() {
    const GUESTS: u32 = 120;
    let numbers = || 200..200 + GUESTS;
    let declared =
        |vmid| format!("[guests.{vmid}]\nkind = \"lxc\"\nrun = \"running\"\ncores = 2\n");
    let ground = Ground::new(&numbers().map(declared).collect::<String>());
    ground.cluster.with(|world| {
        for vmid in numbers() {
            world.put(vmid, Guest::new(Kind::Lxc, format!("pve{}", vmid % 20)));
            let takes = Duration::from_millis(u64::from(vmid % 7) * 20);
            world.script(vmid, Script { takes, end: End::Ok });
        }
    });
    let report = ground.world.run("apply --yes --json host.toml").json(0);
    let writes = ground.cluster.with(|world| world.writes().len());
    assert_eq!(writes, 2 * GUESTS as usize, "options and a start of each");
    let mut applied: Vec<_> = report["applied"].as_array().unwrap().iter().collect();
    assert_eq!(applied.len(), writes, "{report}");
    applied.sort_by_key(|entry| entry["key"].as_str());
    for pair in applied.chunks(2) {
        assert_eq!(pair[0]["key"], pair[1]["key"]);
    }
}

#[test]
fn a_start_of_a_guest_whose_configuration_cannot_be_read_is_counted() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    ground.cluster.with(|world| {
        let refuse = Harm::Refuse(500, "unable to parse config line 7".to_owned());
        world.fail(Fault::on("/101/config", refuse).method("GET"));
    });
    let report = ground.world.run("apply --yes --json host.toml").json(1);
    assert!(ground.is_running());
    let applied = report["applied"].as_array().unwrap();
    assert_eq!(applied.len(), 1, "{report}");
    assert_eq!(applied[0]["key"], "guest 101", "{report}");
    assert_eq!(report["unknown"][0]["key"], "guest 101", "{report}");
}

#[test]
fn a_secret_option_is_refused_and_its_value_is_nowhere() {
    let ground = Ground::new("[guests.102]\nkind = \"qemu\"\n");
    let inline = "config = { cipassword = \"hunter2\", force = 1 }\n";
    let table = "[guests.102.config]\ncipassword = \"hunter2\"\n";
    for config in [inline, table] {
        ground.declare(&format!("[guests.102]\nkind = \"qemu\"\n{config}"));
        for command in ["check host.toml", "plan host.toml", "apply --yes host.toml"] {
            let ran = ground.world.run(command);
            assert_ne!(ran.code(), Some(0), "{command}: {ran:?}");
            assert!(ran.stderr.contains("`cipassword` cannot be declared"), "{command}: {ran:?}");
            assert!(!format!("{ran:?}").contains("hunter2"), "{command}: {ran:?}");
        }
    }
    assert_eq!(ground.cluster.with(|world| world.writes().len()), 0);
    ground.world.write("inline.toml", "proxmox = { endpoint = \"x\", token = \"hunter2\" }\n");
    let ran = ground.world.run("check inline.toml");
    assert!(ran.stderr.contains("the token is never in the document"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
}

#[test]
fn what_is_kept_of_guests_is_readable_for_the_owner_only() {
    let ground = Ground::new(&format!("{GUEST}cores = 2\n"));
    ground.world.run("apply --yes host.toml").exits(0);
    for file in [ground.world.ledger(), ground.world.state().join("journal")] {
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

/// Looks at guest 101 with so much memory for data as the program may need, and returns what it says.
fn with_little_memory(ground: &Ground) -> String {
    let mut limited = ground.world.command("sh");
    // In KiB.
    let run = "ulimit -d 160000; exec \"$0\" verify host.toml";
    limited.args(["-c", run, HOMEOSTAT]);
    ground.world.finish(limited).exits(2).stdout
}

#[test]
fn answers_of_megabytes_cost_little_memory() {
    let rows = |bytes: usize| {
        let rows = vec!["{}"; bytes / 3];
        Harm::Answer(200, Arc::from(format!("{{\"data\":[{}]}}", rows.join(","))))
    };
    let ground = Ground::new(GUEST);
    ground.cluster.with(|world| {
        for node in 0..20 {
            world.nodes.insert(format!("pve{node}"), true);
        }
        for path in ["/lxc", "/qemu"] {
            world.fail(Fault::on(path, rows(15 << 20)));
        }
    });
    let said = with_little_memory(&ground);
    assert!(said.contains("does not answer"), "{said}");
    // A guest that is on no node is looked for in the list of the cluster.
    ground.cluster.with(|world| {
        world.mend();
        world.guests.remove(&101);
        world.fail(Fault::on("/cluster/resources", rows(15 << 20)));
    });
    let said = with_little_memory(&ground);
    assert!(said.contains("makes no sense"), "{said}");
}
