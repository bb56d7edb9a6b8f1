//! Large tables: a kill in the middle of an apply, a stop that does not wait for them, and what is left when the list is
//! empty.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::world::World;

const DOCUMENT: &str =
    "[links.va]\naddresses = [\"10.0.0.1/24\"]\n[[routes]]\nfrom-file = \"all.routes\"\n";

/// How many routes there are: a full Internet table where there is time for it.
fn size() -> u32 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 1_000_000 } else { 40_000 }
}

fn list(routes: u32) -> String {
    let mut list = String::new();
    for number in 0..routes {
        let [_, a, b, c] = number.to_be_bytes();
        writeln!(list, "{}.{b}.{c}.0/24 via 10.0.0.{}", 20 + a, 2 + number % 200).unwrap();
    }
    list
}

impl World {
    /// How many routes carry our mark.
    fn routes_of_ours(&self) -> usize {
        self.ip("-4 -o route show proto 76").lines().count()
    }

    /// Whether there is any; a list of all takes long.
    fn has_routes_of_ours(&self) -> bool {
        self.ip("-4 route show root 20.0.0.0/16 proto 76").contains("20.0")
    }

    /// Everything that is not ours, as `ip` reports it.
    fn foreign(&self) -> Vec<String> {
        let all =
            ["-d -4 route show table all", "-d -6 route show table all", "-d -o address show"];
        let lines = all.iter().map(|args| self.ip(args));
        let ours = |line: &&str| line.contains("proto 76") || line.contains("10.0.0.");
        let lines: Vec<String> = lines
            .flat_map(|text| {
                text.lines().filter(|line| !ours(line)).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        lines
    }

    /// Kills an apply after some of so many routes; returns how many. One that was too fast is undone, and another
    /// one is killed.
    fn kill_in_the_middle(&self, size: usize) -> usize {
        for _ in 0..100 {
            self.kill_after_the_first();
            let made = self.routes_of_ours();
            if made < size {
                return made;
            }
            self.ip("route flush proto 76");
        }
        panic!("nobody can be killed in the middle");
    }

    /// Starts an apply, and kills it once it has made some routes.
    fn kill_after_the_first(&self) {
        let mut apply = self.homeostat("apply --yes host.toml");
        let mut apply = apply.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while self.routes_of_ours() == 0 && apply.try_wait().unwrap().is_none() {}
        apply.kill().unwrap();
        apply.wait().unwrap();
    }
}

#[test]
fn an_apply_killed_in_the_middle_is_finished_by_the_next_and_an_empty_list_leaves_the_foreign_state()
 {
    let world = World::new();
    world.add_pair("va", "vb");
    for link in ["va", "vb"] {
        world.meddle(&format!("net/ipv6/conf/{link}/disable_ipv6"), "1");
        world.ip(&format!("link set {link} up"));
    }
    world.ip("address add 192.0.2.1/24 dev vb");
    world.ip("route add 10.255.0.0/24 via 192.0.2.9 proto bird");
    let foreign = world.foreign();
    let size = size();
    world.write("host.toml", DOCUMENT);
    world.write("all.routes", list(size));
    let made = world.kill_in_the_middle(size as usize);
    assert!(made > 0, "none was made before the kill");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.routes_of_ours(), size as usize);
    world.run("verify host.toml").exits(0);
    world.write("host.toml", "routes = []\n[links.va]\naddresses = []\n");
    let held = world.run("apply --yes host.toml").exits(1).stdout;
    assert!(held.contains("--allow-mass-delete"), "{held}");
    assert_eq!(world.routes_of_ours(), size as usize);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.routes_of_ours(), 0);
    assert_eq!(world.foreign(), foreign);
}

/// A stop takes at most so long, as `docs/lifetime.md` says, with whatever the daemon owns.
const STOP: Duration = Duration::from_millis(900);

/// The processor time that a process has used so far, and whether it has ended. How long it takes by the clock says more
/// about the machine.
fn used(pid: u32) -> (Duration, bool) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name before may hold anything.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    (Duration::from_millis(ticks * 1000 / clock_ticks_per_second()), fields[0] == "Z")
}

/// Stops a daemon in time.
#[track_caller]
fn stop(daemon: Daemon) {
    let (before, _) = used(daemon.pid());
    daemon.signal(Signal::TERM);
    until("the end", || used(daemon.pid()).1);
    let (after, _) = used(daemon.pid());
    assert!(daemon.wait().success());
    // One loop works meanwhile, and the process ends.
    let stopping = after.saturating_sub(before);
    assert!(stopping < STOP * 2, "{stopping:?} of a processor");
}

#[test]
fn a_stop_does_not_wait_for_what_many_routes_take() {
    const SIZE: u32 = 400_000;
    let world = World::new();
    world.add_pair("va", "vb");
    for link in ["va", "vb"] {
        world.ip(&format!("link set {link} up"));
    }
    world.write("all.routes", list(SIZE));
    world.ip("route add blackhole 10.255.0.0/24 proto bird");
    let start = |policy: &str| world.keep_with(DOCUMENT, &format!("--on-stop {policy}"));
    let some = |what: &str| until(what, || world.has_routes_of_ours());
    // While they are created, and while they are removed.
    let daemon = start("revert");
    some("the first route");
    stop(daemon);
    let daemon = start("leave");
    world.converges();
    stop(daemon);
    assert_eq!(world.routes_of_ours(), SIZE as usize);
    let daemon = start("revert");
    world.converges();
    stop(daemon);
    assert!(world.ip("route show proto bird").contains("10.255.0.0/24"));
}

/// Opens a file or directory for everybody.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_privileges_the_error_says_so_and_names_the_way_out() {
    let world = World::new();
    world.add_pair("va", "vb");
    world.write("host.toml", "[links.va]\naddresses = [\"10.0.0.1/24\"]\n");
    // Wherever the tests are built, nobody must reach the program.
    let program = world.path().join("homeostat");
    crate::program::copy_program(&program);
    let state = world.path().join("nobodys");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65_534), Some(65_534)).unwrap();
    open_to_all(world.path());
    open_to_all(&program);
    let as_nobody = |args: &str| {
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        command.arg(&program).args(args.split_whitespace()).arg("--state-dir").arg(&state);
        world.finish(command)
    };
    let plan = as_nobody("plan host.toml").exits(0);
    assert!(plan.stdout.contains("+ address 10.0.0.1/24 dev va"), "{plan:?}");
    let ran = as_nobody("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains("Operation not permitted"), "{ran:?}");
    assert!(ran.stdout.contains("help: run it as root or with CAP_NET_ADMIN"), "{ran:?}");
}
