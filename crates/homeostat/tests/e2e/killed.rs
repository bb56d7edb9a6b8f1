//! Kills at every step of making and removing namespaces. The next run completes what was begun, and a
//! file in `/run/netns` that is not ours stops nothing but its own namespace.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::keeping::until;
use crate::program::{HOMEOSTAT, output};
use crate::world::World;

const BLUE: &str = r#"[namespaces.blue]
create = true
sysctl = { "net.ipv4.tcp_retries1" = 5 }
[[routes]]
to = "10.9.0.0/16"
type = "blackhole"
"#;

const NOTHING: &str = "namespaces = {}\nroutes = []\n";

/// The system calls that change names, the ledger or the caller's namespaces: a kill at the entry of each
/// is a kill between any two of them.
const CALLS: [&str; 6] = ["flock", "mount", "unshare", "umount2", "unlink", "fdatasync"];

/// More calls of one kind by one thread mean that something is wrong with the count.
const MOST_CALLS: usize = 60;

const SIGKILL: i32 = 9;

/// What is in `/run/netns` under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    File,
    Namespace,
}

impl World {
    /// Runs the program until a thread of it enters the `nth` system call of this name, and kills it
    /// there. False if it ended before that.
    fn is_killed_at(&self, args: &str, call: &str, nth: usize) -> bool {
        let mut command = self.command("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
        command.arg("-e").arg(format!("inject={call}:signal=KILL:when={nth}"));
        command.arg(HOMEOSTAT).args(args.split_whitespace());
        command.arg("--state-dir").arg(self.state());
        let ended = command.stdout(Stdio::null()).output().unwrap();
        let is_killed = ended.status.signal() == Some(SIGKILL);
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(is_killed || ended.status.success(), "{call} {nth}: {}: {stderr}", ended.status);
        is_killed
    }

    fn shell(&self, script: &str) -> String {
        let mut command = self.command("sh");
        command.args(["-ec", script]);
        output(command).trim().to_owned()
    }

    fn found(&self, name: &str) -> Found {
        let path = format!("/run/netns/{name}");
        let script = format!("if [ -e {path} ]; then stat -f -c %T {path}; fi");
        match self.shell(&script).as_str() {
            "" => Found::Nothing,
            "nsfs" => Found::Namespace,
            _ => Found::File,
        }
    }

    fn status_of(&self, key: &str) -> Command {
        let mut command = self.homeostat("status");
        command.arg(key);
        command
    }

    fn has_host_route(&self) -> bool {
        self.listed("route show proto 76").len() == 1
    }

    /// All of [`BLUE`] is there.
    #[track_caller]
    fn has_blue(&self, case: &str) {
        assert_eq!(self.found("blue"), Found::Namespace, "{case}");
        let knob = self.shell("ip netns exec blue cat /proc/sys/net/ipv4/tcp_retries1");
        assert_eq!(knob, "5", "{case}");
        assert!(self.has_host_route(), "{case}");
    }
}

/// Every moment at which a run of the document can be killed.
fn at_every_call(mut check: impl FnMut(&str, usize) -> bool) {
    for call in CALLS {
        let kills = (1..).take_while(|nth| check(call, *nth)).take(MOST_CALLS).count();
        assert!(kills < MOST_CALLS, "{call} is called without end");
    }
}

#[test]
fn a_kill_at_any_moment_of_making_a_namespace_is_made_good_by_the_next_run() {
    let mut files = 0;
    at_every_call(|call, nth| {
        let world = World::with(BLUE).with_own_names();
        if !world.is_killed_at("apply --yes host.toml", call, nth) {
            return false;
        }
        let case = format!("killed at {call} {nth}");
        files += usize::from(world.found("blue") == Found::File);
        world.run("plan host.toml").exits(0);
        world.run("apply --yes host.toml").exits(0);
        world.has_blue(&case);
        world.run("apply --yes host.toml").says(0, "No changes.\n");
        world.write("host.toml", NOTHING);
        world.run("apply --yes host.toml").exits(0);
        assert_eq!(world.found("blue"), Found::Nothing, "{case}");
        true
    });
    assert!(files > 0, "no kill came between the file and the mount");
}

#[test]
fn what_a_kill_left_of_a_namespace_that_nobody_wants_any_more_is_removed() {
    let world = World::with(BLUE).with_own_names();
    assert!(world.is_killed_at("apply --yes host.toml", "unshare", 1));
    assert_eq!(world.found("blue"), Found::File);
    world.write("host.toml", NOTHING);
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.found("blue"), Found::Nothing);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn a_kill_at_any_moment_of_removing_a_namespace_leaves_it_whole_or_removes_it() {
    at_every_call(|call, nth| {
        let world = World::with(BLUE).with_own_names();
        world.run("apply --yes host.toml").exits(0);
        world.write("host.toml", NOTHING);
        if !world.is_killed_at("apply --yes host.toml", call, nth) {
            return false;
        }
        let case = format!("killed at {call} {nth}");
        assert_ne!(world.found("blue"), Found::File, "{case}");
        world.run("plan host.toml").exits(0);
        world.run("apply --yes host.toml").exits(0);
        assert_eq!(world.found("blue"), Found::Nothing, "{case}");
        assert!(!world.has_host_route(), "{case}");
        // The name is free again.
        world.write("host.toml", BLUE);
        world.run("apply --yes host.toml").exits(0);
        world.has_blue(&case);
        true
    });
}

#[test]
fn a_daemon_starts_after_a_kill_in_the_middle_and_makes_the_namespace() {
    let world = World::with(BLUE).with_own_names();
    assert!(world.is_killed_at("run host.toml", "unshare", 1));
    assert_eq!(world.found("blue"), Found::File);
    let _daemon = world.keep(BLUE);
    world.converges();
    world.has_blue("after a kill of the daemon");
}

/// Kills that come from outside, as soon as a name is there.
#[test]
fn many_namespaces_are_made_good_after_a_kill_in_a_loop() {
    let names = ["n0", "n1", "n2", "n3", "n4"];
    let sections = names.map(|name| format!("[namespaces.{name}]\ncreate = true\n"));
    let document =
        format!("{}[[routes]]\nto = \"10.9.0.0/16\"\ntype = \"blackhole\"\n", sections.concat());
    let world = World::with(&document).with_own_names();
    for name in names.into_iter().cycle().take(20) {
        let path = world.outside(&format!("/run/netns/{name}"));
        let mut apply = world.homeostat("apply --yes host.toml");
        let mut apply = apply.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until(name, || Path::new(&path).exists());
        apply.kill().unwrap();
        apply.wait().unwrap();
        world.run("apply --yes host.toml").exits(0);
        assert!(names.iter().all(|name| world.found(name) == Found::Namespace));
        assert!(world.has_host_route());
        world.write("host.toml", NOTHING);
        world.run("apply --yes host.toml").exits(0);
        assert!(names.iter().all(|name| world.found(name) == Found::Nothing));
        world.write("host.toml", &document);
    }
}

#[test]
fn a_file_that_is_not_ours_stops_only_its_own_namespace() {
    let red = "[namespaces.red]\ncreate = true\n";
    let world = World::with(&format!("{red}{BLUE}")).with_own_names();
    for content in ["", "notes of others"] {
        world.shell(&format!("printf '{content}' > /run/netns/blue"));
        let ran = world.run("plan host.toml").exits(0);
        let help = "nothing is mounted there; remove the leftover with `ip netns delete blue`";
        assert!(ran.stdout.contains(help), "{}", ran.stdout);
        let ran = world.run("apply --yes host.toml").exits(1);
        assert!(ran.stdout.contains(help), "{}", ran.stdout);
        assert_eq!(world.found("red"), Found::Namespace);
        assert!(world.has_host_route());
        assert_eq!(world.shell("cat /run/netns/blue"), content);
    }
    let _daemon = world.keep(&format!("{red}{BLUE}"));
    let status = world.stands();
    assert_eq!(status["converged"], false, "{status}");
    let waits = "namespace blue: \"blue\" is not a network namespace";
    let mut loops = status["loops"].as_array().unwrap().iter();
    assert!(loops.any(|one| one["scope"] == "blue" && one["waits_on"] == waits), "{status}");
    let ran = world.finish(world.status_of("namespace blue"));
    assert!(ran.stdout.contains("ip netns delete blue"), "{ran:#?}");
    assert_eq!(world.shell("cat /run/netns/blue"), "notes of others");
    // The way out that the message names.
    world.shell("ip netns delete blue");
    world.converges();
    world.has_blue("after the file went");
}

#[test]
fn a_file_in_place_of_a_namespace_that_others_make_keeps_only_what_is_inside_waiting() {
    let document = BLUE.replace("create = true\n", "");
    let world = World::with(&document).with_own_names();
    world.shell("touch /run/netns/blue");
    let waits = "waits on namespace blue: \"blue\" is not a network namespace; nothing is mounted there; \
                 remove the leftover with `ip netns delete blue`";
    let ran = world.run("plan host.toml").exits(0);
    assert!(ran.stdout.contains(waits), "{}", ran.stdout);
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains(waits), "{}", ran.stdout);
    assert!(world.has_host_route());
}
