//! Files that are being written: neither the daemon nor `apply` ever acts on the half of one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use homeostat_netns::Netns;
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::program::output;
use crate::world::World;

/// Listens to what is removed while it lives: `ip` and `nft` themselves are the judges.
struct Removals {
    monitors: Vec<Child>,
    world_path: std::path::PathBuf,
}

impl Removals {
    fn watch(world: &World) -> Self {
        let spawn = |program: &str, args: &[&str]| {
            let log = File::create(world.path().join(format!("{program}.monitor"))).unwrap();
            let mut command: Command = world.command("stdbuf");
            command.args(["-oL", program]).args(args).stdout(log).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let monitors = vec![spawn("ip", &["monitor", "route"]), spawn("nft", &["monitor"])];
        let removals = Removals { monitors, world_path: world.path().to_owned() };
        // What is seen of this shows that they listen.
        until("the monitors", || {
            world.ip("route add blackhole 203.0.113.0/24");
            world.ip("route del blackhole 203.0.113.0/24");
            world.nft("add table ip probe");
            world.nft("delete table ip probe");
            removals.text("ip").contains("203.0.113.0") && removals.text("nft").contains("probe")
        });
        removals
    }

    fn text(&self, program: &str) -> String {
        let path = self.world_path.join(format!("{program}.monitor"));
        fs::read_to_string(path).unwrap()
    }

    /// What was removed so far, besides what showed that they listen.
    #[track_caller]
    fn none(&self) {
        let (routes, rules) = (self.text("ip"), self.text("nft"));
        let mut lines = routes.lines().chain(rules.lines());
        let is_removal = |line: &&str| {
            (line.starts_with("Deleted") && !line.contains("203.0.113.0"))
                || (line.starts_with("delete") && !line.contains("probe"))
        };
        assert_eq!(lines.find(is_removal), None);
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        for monitor in &mut self.monitors {
            let _ = monitor.kill();
            let _ = monitor.wait();
        }
    }
}

impl World {
    pub(crate) fn nft(&self, args: &str) -> String {
        let mut command = self.command("nft");
        command.args(args.split_whitespace());
        output(command)
    }

    fn is_being_written(&self) -> bool {
        let status = self.run("status --json").stdout;
        status.contains("is being written")
    }

    fn routes_and_rules(&self) -> (usize, usize) {
        let rules = self.nft("list ruleset");
        (self.listed("route show proto 76").len(), rules.matches("tcp dport").count())
    }
}

fn hang_up(daemon: &Daemon) {
    kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
}

fn routes(count: usize) -> String {
    let lines = (0..count).map(|nth| format!("blackhole 10.{}.{}.0/24\n", nth / 256, nth % 256));
    lines.collect::<Vec<_>>().concat()
}

fn documented_routes(count: usize) -> String {
    let route = |nth| format!("[[routes]]\nto = \"10.0.{nth}.0/24\"\ntype = \"blackhole\"\n");
    (0..count).map(route).collect()
}

fn rules(count: usize) -> String {
    let rules = (1..=count).map(|port| format!("add rule ip t c tcp dport {port} accept\n"));
    rules.collect()
}

const CHAIN: &str = "add table ip t\nadd chain ip t c\n";

/// Each kind of file, whole; every half of it that ends with a line is one that could be read.
fn check(document: &str, file: &str, whole: &str, others: &[(&str, &str)], holds: (usize, usize)) {
    let world = World::new().with_own_names();
    for (name, text) in others {
        world.write(name, text);
    }
    world.write("host.toml", document);
    world.write(file, whole);
    world.ip("netns add red");
    let daemon = world.keep_at("host.toml");
    world.converges();
    assert_eq!(world.routes_and_rules(), holds, "{file}");
    let removals = Removals::watch(&world);

    let mut writer = File::create(world.path().join(file)).unwrap();
    let half = whole.len() / 2 + whole[whole.len() / 2..].find('\n').unwrap() + 1;
    for part in [&whole[..half], ""] {
        writer.write_all(part.as_bytes()).unwrap();
        let neighbour = Path::new(file).with_file_name("neighbour");
        world.write(neighbour.to_str().unwrap(), "another file of the directory");
        until("the refusal", || world.is_being_written());
        hang_up(&daemon);
        let refused = world.run("reload").exits(1);
        assert!(refused.stderr.contains("is being written"), "{file}: {}", refused.stderr);
        world.ip("netns delete red");
        world.ip("netns add red");
        assert_eq!(world.routes_and_rules(), holds, "{file}");
    }
    let refused = world.run("apply --yes host.toml --protocol 79 --owner other").exits(1);
    assert!(refused.stderr.contains("is being written"), "{file}: {}", refused.stderr);
    writer.write_all(&whole.as_bytes()[half..]).unwrap();
    drop(writer);
    until("the whole file", || !world.is_being_written());
    world.converges();
    assert_eq!(world.routes_and_rules(), holds, "{file}");
    removals.none();
}

const RED: &str = "[namespaces.red.links.lo]\nup = true\n";

#[test]
fn a_list_of_routes() {
    let document = format!("[[routes]]\nfrom-file = \"lists/a.routes\"\n{RED}");
    check(&document, "lists/a.routes", &routes(400), &[], (400, 0));
}

#[test]
fn a_document() {
    let document = documented_routes(60);
    check(&document, "host.toml", &document, &[], (60, 0));
}

#[test]
fn a_ruleset() {
    let document = format!("[nftables]\nfile = \"fw/main.nft\"\n{RED}");
    check(&document, "fw/main.nft", &format!("{CHAIN}{}", rules(60)), &[], (0, 60));
}

#[test]
fn an_included_file() {
    let document = format!("[nftables]\nfile = \"fw/main.nft\"\n{RED}");
    let main = ("fw/main.nft", &*format!("{CHAIN}include \"./more.nft\"\n"));
    check(&document, "fw/more.nft", &rules(60), &[main], (0, 60));
}

/// A script that opens the file for each line leaves it closed most of the time.
#[test]
fn a_list_that_is_rebuilt_line_by_line_is_read_when_it_has_been_left_alone() {
    let world = World::new();
    world.write("lists/a.routes", routes(400));
    let _daemon = world.keep("[[routes]]\nfrom-file = \"lists/a.routes\"\n");
    world.converges();
    let removals = Removals::watch(&world);
    let path = world.path().join("lists/a.routes");
    fs::write(&path, "").unwrap();
    let append = |line: &str| {
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    };
    let whole = routes(400);
    let mut lines = whole.lines();
    // Longer than a directory that never rests is waited for, until the daemon has looked by itself; then somebody
    // asks for it, too.
    let mut reload: Option<Child> = None;
    loop {
        match lines.next() {
            Some(line) => append(&format!("{line}\n")),
            None => append("# more\n"),
        }
        if let Some(reload) = &mut reload {
            if let Some(ended) = reload.try_wait().unwrap() {
                assert_eq!(ended.code(), Some(1), "it was refused");
                break;
            }
        } else if world.is_being_written() {
            assert_eq!(world.routes_and_rules().0, 400);
            let mut command = world.homeostat("reload");
            reload = Some(command.stderr(Stdio::null()).spawn().unwrap());
        }
    }
    assert_eq!(world.routes_and_rules().0, 400);
    lines.for_each(|line| append(&format!("{line}\n")));
    until("the whole file", || !world.is_being_written());
    world.converges();
    assert_eq!(world.routes_and_rules().0, 400);
    removals.none();
}

/// Both ends of a link to a namespace of its own. A packet from there needs a rule that accepts it on its way in, and a
/// route on its way back; before each, another one is sent that no rule accepts.
struct Ends {
    peer: UdpSocket,
    open: UdpSocket,
    closed: UdpSocket,
}

/// Packets with lower numbers are sent while there is no ruleset; one that comes late says nothing about a later one.
const FIRST: u64 = 1 << 32;

impl Ends {
    /// However busy the machine is, what takes longer does not come.
    const PATIENCE: Duration = Duration::from_mins(1);
    const OPEN: &str = "10.9.0.1:9999";
    const CLOSED: &str = "10.9.0.1:9998";

    /// Wires the world to the namespace. Nothing waits for an answer about neighbours.
    fn wire(world: &World) -> Self {
        let [near, far] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
        let netns = Netns::anonymous().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd());
        world.ip(&format!("link add v0 address {near} type veth peer name v1 address {far}"));
        world.ip(&format!("link set v1 netns {path}"));
        world.ip("address add 10.9.0.1/24 dev v0");
        world.ip("link set v0 up");
        world.ip(&format!("neighbour add 10.9.0.2 lladdr {far} dev v0 nud permanent"));
        let peer = netns.run(|| {
            world.ip("address add 10.9.0.2/24 dev v1");
            world.ip("address add 10.50.0.1/32 dev v1");
            world.ip("link set v1 up");
            world.ip(&format!("neighbour add 10.9.0.1 lladdr {near} dev v1 nud permanent"));
            UdpSocket::bind("10.50.0.1:0").unwrap()
        });
        let peer = peer.unwrap();
        // A worker of the kernel follows carriers: before that, packets are dropped.
        let is_up = || world.listed("link show dev v0")[0]["operstate"] == "UP";
        until("the carrier", || {
            is_up() && netns.run(|| world.ip("link show dev v1").contains("state UP")).unwrap()
        });
        let [open, closed] = [Self::OPEN, Self::CLOSED].map(|at| UdpSocket::bind(at).unwrap());
        closed.set_nonblocking(true).unwrap();
        for socket in [&open, &peer] {
            socket.set_read_timeout(Some(Self::PATIENCE)).unwrap();
        }
        Ends { peer, open, closed }
    }

    /// One packet there and back. The other one is sent before it over the same link: it has come by then, or comes
    /// before the next one, if the sender was moved to another processor.
    fn send_round(&self, number: u64) -> Result<(), String> {
        let (sent, mut got) = (number.to_be_bytes(), [0; 8]);
        let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        self.peer.send_to(&sent, Self::CLOSED).map_err(failed("cannot send"))?;
        self.peer.send_to(&sent, Self::OPEN).map_err(failed("cannot send"))?;
        let (_, from) = self.open.recv_from(&mut got).map_err(failed("lost on the way in"))?;
        if got != sent {
            return Err("another packet came".to_owned());
        }
        loop {
            match self.closed.recv_from(&mut got) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
                Ok(_) => {}
            }
            let came = u64::from_be_bytes(got);
            if came >= FIRST || number < FIRST {
                return Err(format!("{came} came, which no rule accepts"));
            }
        }
        self.open.send_to(&sent, from).map_err(failed("no way back"))?;
        self.peer.recv_from(&mut got).map_err(failed("lost on the way back"))?;
        Ok(())
    }
}

/// Packets that go round until it is asked.
struct Packets {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    sender: JoinHandle<Result<(), String>>,
}

impl Packets {
    fn start(ends: Ends) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(FIRST)));
        let (until, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let sender = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed);
                ends.send_round(number).map_err(|why| format!("{number}: {why}"))?;
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
            Ok(())
        });
        Packets { stop, rounds, sender }
    }

    /// Waits until some more have gone round.
    #[track_caller]
    fn go_on(&self) {
        let enough = self.rounds.load(Ordering::Relaxed) + 20;
        until("the packets", || {
            self.rounds.load(Ordering::Relaxed) >= enough || self.sender.is_finished()
        });
    }

    #[track_caller]
    fn none_was_lost_and_none_let_in(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap().unwrap();
    }
}

#[test]
fn no_packet_is_lost_or_let_in_while_rules_and_routes_are_being_written() {
    let world = World::new();
    let ends = Ends::wire(&world);
    // Without a ruleset the other packet comes in, and is noticed.
    let mut rounds = (0..FIRST).map(|number| ends.send_round(number));
    let noticed = rounds.find_map(Result::err).unwrap();
    assert!(noticed.contains("no rule accepts"), "{noticed}");
    drop(rounds);
    // Every half could be read, and none has the rule or the route that the packets need.
    let chain = "add chain ip t c { type filter hook input priority 0; policy drop; }\n";
    let accept = "add rule ip t c udp dport 9999 accept\n";
    let ruleset = format!("add table ip t\n{chain}{}{accept}", rules(60));
    let list = format!("{}10.50.0.0/24 via 10.9.0.2\n", routes(60));
    world.write("fw/main.nft", &ruleset);
    world.write("lists/a.routes", &list);
    let daemon = world
        .keep("[[routes]]\nfrom-file = \"lists/a.routes\"\n[nftables]\nfile = \"fw/main.nft\"\n");
    world.converges();
    let packets = Packets::start(ends);
    packets.go_on();
    for (file, whole) in [("fw/main.nft", &ruleset), ("lists/a.routes", &list)] {
        let mut writer = File::create(world.path().join(file)).unwrap();
        // Empty, then filled slowly, up to the half and to the last line but one.
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for part in lines.chunks(lines.len() / 4) {
            // Nothing announces a file that is only truncated and written to, before it is closed.
            hang_up(&daemon);
            let refused = world.run("reload").exits(1);
            assert!(refused.stderr.contains("is being written"), "{file}: {}", refused.stderr);
            packets.go_on();
            writer.write_all(part.concat().as_bytes()).unwrap();
        }
        drop(writer);
        until("the whole file", || !world.is_being_written());
        world.converges();
        // Emptied for good: the last good one stands.
        world.write(file, "");
        until("the refusal", || world.run("reload").code() == Some(1));
        packets.go_on();
        world.write(file, whole);
        until("the whole file", || world.run("reload").code() == Some(0));
        packets.go_on();
    }
    world.converges();
    packets.none_was_lost_and_none_let_in();
}

/// What a full disk, or a crash of an editor, leaves for good.
#[test]
fn what_was_cut_off_or_emptied_for_good_is_refused_and_the_last_good_one_stands() {
    let world = World::new();
    let list = routes(40);
    let main = format!("{CHAIN}include \"./more.nft\"\n");
    world.write("lists/a.routes", &list);
    world.write("fw/main.nft", &main);
    world.write("fw/more.nft", rules(40));
    let _daemon = world
        .keep("[[routes]]\nfrom-file = \"lists/a.routes\"\n[nftables]\nfile = \"fw/main.nft\"\n");
    world.converges();
    let removals = Removals::watch(&world);
    let more = rules(40);
    for (file, whole, left, why) in [
        ("lists/a.routes", &list, &list[..list.len() / 2 + 3], "the last line has no end"),
        ("lists/a.routes", &list, "", "has no routes"),
        ("lists/a.routes", &list, "# routes\n", "has no routes"),
        ("fw/main.nft", &main, &main[..main.len() - 5], "the last line has no end"),
        ("fw/more.nft", &more, &more[..more.len() / 2], "the last line has no end"),
        ("fw/more.nft", &more, "", "the file is empty"),
    ] {
        world.write(file, left);
        let refused = || {
            let status = world.run("status --json").stdout;
            status.contains(why)
        };
        until(why, refused);
        assert_eq!(world.routes_and_rules(), (40, 40), "{file}: {why}");
        world.write(file, whole);
        until("the good one", || !refused());
    }
    world.converges();
    removals.none();
    // What is meant is said.
    world.write("lists/a.routes", "# none\n");
    world.write(
        "host.toml",
        "[[routes]]\nfrom-file = \"lists/a.routes\"\nallow-empty = true\n\
         [nftables]\nruleset = \"\"\n",
    );
    world.run("reload --allow-mass-delete").exits(0);
    world.converges();
    assert_eq!(world.routes_and_rules(), (0, 0));
}
