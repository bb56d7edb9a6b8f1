//! The ledger on disk: damage, another format, a busy or closed directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;
use snapbox::str;

use crate::keeping::until;
use crate::program::output;
use crate::world::{Ran, World};

const DESIRED: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";

/// A world that owns `ip_forward`, which somebody has turned since.
fn drifted() -> World {
    let world = World::new();
    world.apply(DESIRED);
    world.meddle("net/ipv4/ip_forward", "0");
    world
}

#[track_caller]
fn refused_everywhere(world: &World, words: &[&str]) {
    let before = fs::read(world.ledger()).unwrap();
    for command in ["plan host.toml", "verify host.toml", "apply --yes host.toml", "show"] {
        let ran = world.run(command).exits(1);
        for word in words {
            assert!(ran.stderr.contains(word), "{command}: {word:?} is not in: {}", ran.stderr);
        }
        assert_eq!(ran.stdout, "", "{command}");
    }
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    assert!(fs::read(world.ledger()).unwrap() == before, "the file was touched");
}

#[test]
fn a_file_that_is_no_ledger_is_refused_with_a_way_out() {
    for junk in [&b"not a database, but long enough to be one"[..], &[0xff; 9000]] {
        let world = drifted();
        fs::write(world.ledger(), junk).unwrap();
        refused_everywhere(
            &world,
            &["@DIR/state/ledger.db is damaged", "help: restore a backup, or move "],
        );
    }
}

#[test]
fn a_damaged_ledger_is_refused_and_another_directory_is_the_way_out() {
    let world = drifted();
    let mut bytes = fs::read(world.ledger()).unwrap();
    let middle = bytes.len() / 2;
    bytes[4096..middle].fill(0xa5);
    fs::write(world.ledger(), bytes).unwrap();
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stderr.contains("is damaged"), "{}", ran.stderr);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    fs::rename(world.state(), world.path().join("aside")).unwrap();
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}

#[test]
fn a_ledger_of_a_newer_version_is_refused() {
    let world = drifted();
    let ledger = Connection::open(world.ledger()).unwrap();
    ledger.pragma_update(None, "user_version", 99).unwrap();
    drop(ledger);
    refused_everywhere(&world, &["has format 99", "help: use the version that wrote it"]);
}

#[test]
fn the_database_of_another_program_is_refused() {
    let world = World::with(DESIRED);
    fs::create_dir(world.state()).unwrap();
    let other = Connection::open(world.ledger()).unwrap();
    other
        .execute_batch("CREATE TABLE things (thing TEXT); INSERT INTO things VALUES ('x')")
        .unwrap();
    drop(other);
    refused_everywhere(&world, &["it is the database of another program"]);
}

const TWO: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 7\n";
const BROKEN: &str = "sysctl net.ipv4.ip_forward";

impl World {
    fn in_ledger(&self, sql: &str) -> usize {
        Connection::open(self.ledger()).unwrap().execute(sql, []).unwrap()
    }

    /// The record of a key, as it is on disk.
    fn record(&self, key: &str) -> String {
        let ledger = Connection::open(self.ledger()).unwrap();
        let sql = "SELECT record FROM record WHERE key = ?1";
        ledger.query_row(sql, [key], |row| row.get(0)).unwrap()
    }
}

/// A world that owns two knobs, both of which somebody has turned since; the record of one cannot be read.
fn broken() -> World {
    let world = World::new();
    world.apply(TWO);
    let broken = format!("UPDATE record SET record = '{{}}' WHERE key = '{BROKEN}'");
    assert_eq!(world.in_ledger(&broken), 1);
    world.meddle("net/ipv4/ip_forward", "0");
    world.meddle("net/ipv4/tcp_retries1", "4");
    world
}

#[test]
fn a_record_that_cannot_be_read_holds_back_its_key_alone() {
    let world = broken();
    let plan = world.plan();
    assert_eq!(plan["unknown"][0]["key"], BROKEN, "{plan:#}");
    let reason = plan["unknown"][0]["reason"].as_str().unwrap();
    for words in ["its record in the ledger cannot be read", "missing field", "forget the key"] {
        assert!(reason.contains(words), "{reason}");
    }
    assert_eq!(plan["changes"].as_array().unwrap().len(), 1, "{plan:#}");
    world.run("verify host.toml").exits(2);
    let shown = world.run("show").exits(0);
    assert!(shown.stdout.contains("cannot be read"), "{}", shown.stdout);
    // Declared, and no longer declared.
    for document in [TWO, "[sysctl]\n\"net.ipv4.tcp_retries1\" = 7\n", "[sysctl]\n"] {
        world.write("host.toml", document);
        world.meddle("net/ipv4/tcp_retries1", "4");
        let applied = world.run("apply --yes --allow-mass-delete host.toml").exits(1);
        assert!(applied.stdout.contains(BROKEN), "{}", applied.stdout);
        assert_eq!(world.knob("net/ipv4/ip_forward"), "0", "it is left as it is");
        let is_declared = document.contains("retries");
        assert_eq!(world.knob("net/ipv4/tcp_retries1"), if is_declared { "7" } else { "4" });
        assert_eq!(world.record(BROKEN), "{}", "the record stays");
    }
}

#[test]
fn a_daemon_heals_all_but_the_key_whose_record_cannot_be_read() {
    let world = broken();
    let readable = world.record("sysctl net.ipv4.tcp_retries1");
    let daemon = world.keep(TWO);
    world.stands();
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
    let status = world.run("status").exits(2).stdout;
    assert!(status.contains(&format!("{BROKEN} (knobs in host): unknown")), "{status}");
    assert!(status.contains("its record in the ledger cannot be read"), "{status}");
    world.meddle("net/ipv4/tcp_retries1", "4");
    world.run("resync").exits(1);
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
    assert_eq!((&*world.knob("net/ipv4/ip_forward"), &*world.record(BROKEN)), ("0", "{}"));
    // Both ways out, without a restart: a record that can be read again, and none.
    let repaired = readable.replace("\"7\"", "\"1\"");
    world.in_ledger(&format!("UPDATE record SET record = '{repaired}' WHERE key = '{BROKEN}'"));
    world.run("resync").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    world.in_ledger(&format!("UPDATE record SET record = 'x' WHERE key = '{BROKEN}'"));
    drop(daemon);
    world.meddle("net/ipv4/ip_forward", "0");
    let _daemon = world.keep(TWO);
    world.stands();
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    let mut forget = world.homeostat("forget");
    forget.arg(BROKEN);
    world.finish(forget).exits(0);
    world.converges();
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}

#[test]
fn a_record_of_no_known_key_holds_back_removals_and_take_overs_without_a_record_alone() {
    let world = World::new();
    let route = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
    let other = "[[routes]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\n";
    world.apply(&format!("{route}{DESIRED}"));
    for source in ["rtnl", "knobs"] {
        world.in_ledger(&format!(
            "INSERT INTO record SELECT DISTINCT owner, '{source}', scope, 'gibberish', identity, '{{}}' \
             FROM record WHERE source = 'knobs' AND key = '{BROKEN}'"
        ));
    }
    world.meddle("net/ipv4/ip_forward", "0");
    let document = format!("{other}{TWO}");
    world.write("host.toml", &document);
    let plan = world.plan();
    let failed = plan["refused"].as_array().unwrap();
    assert_eq!(failed.len(), 2, "{plan:#}");
    let error = failed[0]["error"].as_str().unwrap();
    assert!(error.contains("record of `gibberish` cannot be read"), "{error}");
    assert!(error.contains("neither removed nor taken over"), "{error}");
    world.run("verify host.toml").exits(2);
    let applied = world.run("apply --yes host.toml").exits(1);
    assert!(applied.stdout.contains("gibberish"), "{}", applied.stdout);
    // What is recorded is healed, and what is new is made; the old route and the value that was not ours stay.
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.listed("route show proto 76").len(), 2);
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "3");
    assert_eq!(world.record("gibberish"), "{}");
    let daemon = world.keep(&document);
    world.stands();
    let status = world.run("status").exits(2).stdout;
    assert!(status.contains("record of `gibberish` cannot be read"), "{status}");
    assert_eq!(world.in_ledger("DELETE FROM record WHERE key = 'gibberish'"), 2);
    world.run("resync").exits(0);
    assert_eq!(world.listed("route show proto 76").len(), 1);
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
    drop(daemon);
}

#[test]
fn a_plan_goes_on_while_another_process_writes_the_ledger() {
    let world = drifted();
    let mut ledger = Connection::open(world.ledger()).unwrap();
    let writing =
        ledger.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    writing.execute("DELETE FROM record", []).unwrap();
    let plan = world.plan();
    assert_eq!(plan["changes"][0]["cause"], "drift", "what is not committed is not seen");
    writing.rollback().unwrap();
}

#[test]
fn a_state_directory_that_cannot_be_made_is_an_error_before_any_write() {
    let world = World::with(DESIRED);
    world.write("state", "a file");
    world.run("apply --yes host.toml").fails(str![[r#"
error: cannot open the ledger @DIR/state/ledger.db: File exists (os error 17)
help: the state directory must be a directory with room on its disk, and this user must own it; --state-dir names another one

"#]]);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
}

#[test]
fn a_state_directory_that_cannot_be_written_is_an_error_before_any_write() {
    let world = drifted();
    world.write(
        "host.toml",
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 7\n",
    );
    let mut mount = world.command("unshare");
    let script = format!(
        "mount --bind state state && mount -o remount,ro,bind state && exec {} apply --yes \
         host.toml --state-dir state",
        crate::program::HOMEOSTAT
    );
    mount.args(["--mount", "sh", "-ec", &script]);
    let ran = world.finish(mount).exits(1);
    assert!(ran.stderr.starts_with("error: cannot "), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: "), "{}", ran.stderr);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
}

/// Applies once, fills the disk but for `left` KiB, applies another desired state.
fn on_a_full_disk(left: usize) -> (World, Ran) {
    let world = World::with(DESIRED);
    world.write("more.toml", format!("{DESIRED}\"net.ipv4.tcp_retries1\" = 7\n"));
    let script = format!(
        "mkdir state\nmount -t tmpfs -o size=256k,mode=700 full state\n\
         {0} apply --yes -q host.toml --state-dir state\n\
         room=$(df --output=avail -k state | tail -1)\n\
         head -c $(( (room - {left}) * 1024 )) /dev/zero > state/rest\n\
         exec {0} apply --yes more.toml --state-dir state",
        crate::program::HOMEOSTAT
    );
    let mut command = world.command("unshare");
    command.args(["--mount", "sh", "-ec", &script]);
    let ran = world.finish(command).exits(1);
    (world, ran)
}

#[test]
fn a_full_disk_is_an_error_before_the_write_that_needs_a_record() {
    // Room for nothing: the ledger cannot be opened. Room to open it, but not to write a record: what needs
    // one is held back, and the report says so.
    let (unopened, refused) = (on_a_full_disk(0), on_a_full_disk(36));
    assert!(unopened.1.stderr.starts_with("error: cannot open"), "{}", unopened.1.stderr);
    assert!(unopened.1.stderr.contains("\nhelp: "), "{}", unopened.1.stderr);
    let held = "! update sysctl net.ipv4.tcp_retries1  cannot write the ledger: ";
    assert!(refused.1.stdout.contains(held), "{}", refused.1.stdout);
    assert!(refused.1.stdout.contains("; make room"), "{}", refused.1.stdout);
    for (world, _) in [unopened, refused] {
        assert_eq!(world.knob("net/ipv4/ip_forward"), "1", "the first apply had room");
        assert_eq!(world.knob("net/ipv4/tcp_retries1"), "3", "the second had none");
    }
}

#[test]
fn on_a_full_disk_a_daemon_heals_all_that_needs_no_record() {
    let world = World::new().with_own_names();
    let in_mounts = |script: &str| {
        let mut command = world.command("sh");
        command.args(["-ec", script]);
        output(command)
    };
    in_mounts("mkdir state && mount -t tmpfs -o size=512k full state && chmod 700 state");
    world.add_pair("va", "vb");
    let route = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
    let _daemon = world.keep(&format!("{route}[links.va]\nup = true\n"));
    world.converges();
    in_mounts("cat /dev/zero > state/rest || true");
    // The original of a link that is not ours has to be recorded.
    world.write("host.toml", format!("{route}[links.va]\nup = true\nmtu = 1400\n"));
    world.run("reload").exits(1);
    let mtu = || world.listed("link show dev va")[0]["mtu"].clone();
    assert_eq!(mtu(), 1500);
    let open = world.run("status").exits(2).stdout;
    assert!(open.contains("link va mtu (rtnl in host): held"), "{open}");
    assert!(open.contains("make room on the disk of the state directory"), "{open}");
    for _ in 0..3 {
        world.ip("route del blackhole 10.9.0.0/16");
        until("the heal", || world.listed("route show proto 76").len() == 1);
    }
    in_mounts("rm state/rest");
    world.run("resync").exits(0);
    assert_eq!(mtu(), 1400);
}

#[test]
fn a_daemon_that_starts_on_a_full_disk_heals_all_that_needs_no_record() {
    // With what an earlier run recorded, and without a ledger at all.
    for is_first in [false, true] {
        let world = World::new().with_own_names();
        let in_mounts = |script: &str| {
            let mut command = world.command("sh");
            command.args(["-ec", script]);
            output(command)
        };
        in_mounts("mkdir state && mount -t tmpfs -o size=256k full state && chmod 700 state");
        let route = "[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
        let knobs = |more: &str| format!("{route}{DESIRED}{more}");
        if !is_first {
            world.apply(&knobs(""));
            world.ip("route del blackhole 10.9.0.0/16");
        }
        in_mounts("cat /dev/zero > state/rest || true");
        let _daemon = world.keep(&knobs("\"net.ipv4.tcp_retries1\" = 7\n"));
        until("the first heal", || world.listed("route show proto 76").len() == 1);
        world.ip("route del blackhole 10.9.0.0/16");
        until("another heal", || world.listed("route show proto 76").len() == 1);
        world.stands();
        let open = world.run("status").exits(2).stdout;
        assert!(open.contains("sysctl net.ipv4.tcp_retries1 (knobs in host): held"), "{open}");
        assert!(world.log().contains("started without a ledger that can be written"));
        assert_eq!(world.knob("net/ipv4/tcp_retries1"), "3");
        if !is_first {
            // What is recorded is known, and healed.
            world.meddle("net/ipv4/ip_forward", "0");
            world.run("resync").exits(1);
            assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
        }
        in_mounts("rm state/rest");
        world.run("resync").exits(0);
        assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
        world.run("verify host.toml").exits(0);
    }
}

#[test]
fn a_state_directory_that_others_could_write_in_is_refused() {
    for (mode, owner, why) in [
        (0o777, 0, "other users may write in @DIR/state (mode 777)"),
        (0o700, 65_534, "@DIR/state belongs to user 65534, not 0"),
    ] {
        let world = World::with(DESIRED);
        fs::create_dir(world.state()).unwrap();
        fs::set_permissions(world.state(), fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(world.state(), Some(owner), None).unwrap();
        for command in ["apply --yes host.toml", "run host.toml"] {
            let refused = world.run(command).exits(1).stderr;
            assert!(refused.contains(why), "{command}: {refused}");
            assert!(refused.contains("help: "), "{command}: {refused}");
        }
        assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    }
}

#[test]
fn a_ledger_that_is_deleted_under_a_daemon_is_noticed() {
    let world = World::new();
    let _daemon = world.keep(DESIRED);
    world.converges();
    let away = world.path().join("away.db");
    fs::rename(world.ledger(), &away).unwrap();
    let says = || world.run("status").stdout;
    until("the notice", || says().contains("was deleted or replaced while it was in use"));
    world.meddle("net/ipv4/ip_forward", "0");
    until("the heal", || world.knob("net/ipv4/ip_forward") == "1");
    fs::rename(away, world.ledger()).unwrap();
    world.converges();
}

#[test]
fn only_the_owner_may_look_into_a_state_directory_that_we_made() {
    let world = World::new();
    world.apply(DESIRED);
    let mode = fs::metadata(world.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "{mode:o}");
}
