//! Journals on disk: two owners, readers that hang up, damage, a newer format, a full disk, a kill.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::guests::{GUEST, Ground, later};

const TWO: &str = "[settings]\nowner = \"two\"\nprotocol = 77\n";
const OTHER: &str = "[guests.102]\nkind = \"qemu\"\nnode = \"pve2\"\nrun = \"stopped\"\n";

#[test]
fn two_owners_in_one_state_directory_keep_a_journal_each() {
    let ground = Ground::new(GUEST);
    ground.world.write("two.toml", ground.document(&format!("{OTHER}{TWO}")));
    // The first one's journal is held by its daemon all the while.
    let daemon = ground.world.start("");
    later(|| ground.is_running());
    ground.world.run("apply --yes two.toml").exits(0);
    assert!(!ground.cluster.with(|world| world.guests[&102].running));
    ground.world.run("guest start 102 --document two.toml --owner two").exits(0);
    ground.world.run("guest stop 101").exits(0);
    let keys = |owner: &str| {
        let output =
            ground.world.run(&format!("journal --is intent --json {owner}")).exits(0).stdout;
        let records = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.map(|record| record["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(keys("").iter().all(|key| key == "guest 101"), "{:?}", keys(""));
    assert_eq!(keys("--owner two"), ["guest 102", "guest 102"]);
    daemon.stop();
}

#[test]
fn a_change_of_options_is_in_the_journal_without_its_values() {
    let ground = Ground::new(&format!("{GUEST}description = \"hush\"\n"));
    ground.world.run("apply --yes host.toml").exits(0);
    let output = ground.world.run("journal").exits(0).stdout;
    let words: Vec<_> = output.lines().filter_map(|line| line.split_once("guest 101 ")).collect();
    let words: Vec<_> =
        words.iter().map(|(_, rest)| rest.split(" step=").next().unwrap()).collect();
    assert_eq!(words[..2], ["set intent", "set succeeded"], "{output}");
    let file = fs::read(ground.world.state().join("journal")).unwrap();
    let file = String::from_utf8_lossy(&file);
    assert!(file.contains("\"repeat\":\"harmless\"") && !file.contains("hush"), "{file}");
}

#[test]
fn a_reader_of_the_journal_may_hang_up() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    for options in ["", "-f", "-f --json"] {
        let mut journal = ground.world.homeostat(&format!("journal {options}"));
        let mut journal = journal.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(journal.stdout.take());
        let ended = journal.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{options}: {ended:?}");
    }
}

#[test]
fn a_journal_that_cannot_be_read_says_why_and_the_way_out() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    let path = ground.world.state().join("journal");
    let mut bytes = fs::read(&path).unwrap();
    let word = b"\"is\":\"dispatched\"";
    let at = bytes.windows(word.len()).position(|window| window == word).unwrap();
    bytes[at + 13] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damaged = ground.world.run("journal").exits(1);
    assert_eq!(damaged.stdout.lines().count(), 1, "what stands before it: {damaged:?}");
    assert!(
        damaged.stderr.contains("is damaged: the checksum of record 2 does not fit"),
        "{damaged:?}"
    );
    let help =
        "help: look at it; to begin a new one, check that no task in it still runs, and move ";
    assert!(damaged.stderr.contains(help), "{damaged:?}");
    fs::remove_file(&path).unwrap();
    ground.world.run("apply --yes host.toml").exits(0);
    let mut newer = fs::read(&path).unwrap();
    // The format in the header of the file.
    newer[63] = 3;
    fs::write(&path, newer).unwrap();
    for command in ["journal", "journal -f", "apply --yes host.toml", "run host.toml"] {
        let ran = ground.world.run(command).exits(1);
        assert!(
            ran.stderr.contains("has format 3, and this version knows formats up to 2"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("help: use the newer version that wrote it"), "{ran:?}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let ran = ground.world.run("journal").exits(1);
    assert!(ran.stderr.contains("is no regular file") && ran.stderr.contains("help: "), "{ran:?}");
    assert_eq!(ground.starts(), 1);
}

#[test]
fn a_journal_on_a_full_disk_sends_nothing_and_says_so() {
    let ground = Ground::new("");
    ground.world.write("two.toml", ground.document(&format!("{GUEST}{TWO}")));
    // A journal of another owner has a directory of its own, so that only this disk is full.
    let script = format!(
        "mkdir -p state/two.journal\nmount -t tmpfs -o size=64k full state/two.journal\n\
         for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do\n\
         {0} guest stop 102 --document two.toml --owner two --state-dir state >stop 2>&1 || break\n\
         done\ncat stop >&2\n\
         exec {0} apply --yes two.toml --state-dir state",
        crate::program::HOMEOSTAT
    );
    let mut command = ground.world.command("unshare");
    command.args(["--mount", "sh", "-ec", &script]);
    let ran = ground.world.finish(command).exits(1);
    let output = format!("{}{}", ran.stdout, ran.stderr);
    // Which line is the first without room depends on how long they are.
    let refusals = ["error: the journal ", "error: cannot open the journal "];
    assert!(refusals.iter().any(|words| ran.stderr.starts_with(words)), "{output}");
    assert!(output.matches("No space left on device").count() >= 2, "{output}");
    assert!(
        output.matches("help: see to room and rights in the state directory").count() >= 2,
        "{output}"
    );
    assert_eq!(ground.starts(), 0);
}

#[test]
fn a_command_whose_daemon_was_killed_is_joined_through_the_next_one() {
    let ground = Ground::new("");
    ground.takes(3000);
    let daemon = ground.world.start("");
    let start = "guest start 101 --idempotency-key k --json";
    let mut first = ground.world.homeostat(start);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    daemon.signal(Signal::KILL);
    drop(daemon);
    assert!(!first.wait().unwrap().success(), "its daemon is gone");
    let daemon = ground.world.start("");
    let second = ground.world.run(start).json(0);
    assert_eq!((&second["outcome"], &second["stored"]), (&"succeeded".into(), &true.into()));
    assert_eq!(ground.starts(), 1);
    daemon.stop();
}

#[test]
fn a_client_that_gives_up_waiting_is_no_failure() {
    let ground = Ground::new("");
    ground.takes(1000);
    let daemon = ground.world.start("");
    let start = "guest start 101 --idempotency-key k --json";
    let mut first = ground.world.homeostat(start);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    first.kill().unwrap();
    first.wait().unwrap();
    later(|| {
        ground.world.run("journal --is succeeded").exits(0).stdout.contains("guest 101 start")
    });
    let again = ground.world.run(start).json(0);
    assert_eq!((&again["outcome"], &again["stored"]), (&"succeeded".into(), &true.into()));
    for word in ["failed", "unknown"] {
        assert_eq!(ground.world.run(&format!("journal --is {word}")).exits(0).stdout, "");
    }
    daemon.stop();
}
