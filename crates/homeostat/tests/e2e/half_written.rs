//! Files that are being written: neither the daemon nor `apply` ever acts on the half of one.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
