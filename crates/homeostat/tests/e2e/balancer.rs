//! What a trial told a running `HAProxy` without a reload is taken back from the process itself, not only from its files.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use crate::http::read;
use crate::keeping::until;
use crate::undone::begin;
use crate::world::World;

/// A machine with an `HAProxy` that reads what a document writes.
struct Site {
    world: World,
    process: Option<Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Site {
    fn new() -> Self {
        Self::of(World::new())
    }

    fn of(world: World) -> Self {
        world.ip("link set lo up");
        std::fs::create_dir(world.path().join("etc")).unwrap();
        Site { world, process: None }
    }

    /// A document with these servers and this map.
    fn document(&self, servers: &[&str], map: &str) -> String {
        let at = |name: &str| self.world.path().join(name).display().to_string();
        let (main, list) = (at("etc/haproxy.cfg"), at("etc/host.map"));
        let servers = servers.join("\n  server ");
        format!(
            "[files.haproxy]\nprogram = \"haproxy\"\nsockets = {{ master = \"{}\", admin = \"{admin}\" }}\n\
             [files.haproxy.write]\n\"{list}\" = {{ text = \"{map} web\\n\" }}\n\"{main}\" = {{ text = '''\n\
             global\n  setenv HOMEOSTAT {{{{ generation }}}}\n  stats socket {admin} mode 600 level admin\n\
             defaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n\
             frontend front\n  bind 127.0.0.1:8001\n  use_backend %[req.hdr(host),map({list},web)]\n\
             backend web\n  balance roundrobin\n  server {servers}\n''' }}\n",
            at("master"),
            admin = at("admin"),
        )
    }

    /// Starts the program once its files are there.
    fn start(&mut self) {
        self.start_in(None);
    }

    fn start_in(&mut self, namespace: Option<&str>) {
        let main = self.world.path().join("etc/haproxy.cfg");
        until("the files", || main.exists());
        let mut command = match namespace {
            None => self.world.command("/usr/sbin/haproxy"),
            Some(name) => {
                let mut command = self.world.command("ip");
                command.args(["netns", "exec", name, "/usr/sbin/haproxy"]);
                command
            }
        };
        command.args(["-W", "-S"]).arg(self.world.path().join("master")).arg("-f").arg(main);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        until("the program", || self.ask("show info").is_some());
    }

    fn ask(&self, request: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.world.path().join("admin")).ok()?;
        stream.write_all(format!("{request}\n").as_bytes()).ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer).filter(|answer| !answer.is_empty())
    }

    /// Its process, its servers with their weights, and its map.
    fn state(&self) -> (String, Vec<String>, String) {
        let info = self.ask("show info").unwrap();
        let process = info.lines().find(|line| line.starts_with("Pid: ")).unwrap().to_owned();
        let servers = self.ask("show servers state web").unwrap();
        let servers = servers.lines().filter(|line| !line.starts_with('#') && line.contains(' '));
        let servers = servers.map(|line| {
            let columns: Vec<&str> = line.split(' ').collect();
            format!("{} {}:{} weight {}", columns[3], columns[4], columns[18], columns[7])
        });
        let map = self.world.path().join("etc/host.map");
        let map = self.ask(&format!("show map {}", map.display())).unwrap();
        let entries = map.lines().filter_map(|line| line.split_once(' ')).map(|(_, entry)| entry);
        (process, servers.collect(), entries.collect())
    }

    fn converges(&self) {
        self.world.run("resync").exits(0);
        self.world.converges();
    }
}

const BEFORE: [&str; 2] = ["s1 127.0.0.1:8101 weight 11", "s2 127.0.0.1:8102 weight 12"];
const TRIED: [&str; 3] =
    ["s1 127.0.0.1:8101 weight 21", "s2 127.0.0.2:8102 weight 12", "s3 127.0.0.1:8103 weight 13"];

#[test]
fn a_rollback_takes_back_what_a_running_program_was_told() {
    let mut site = Site::new();
    let before = site.document(&BEFORE, "a.test");
    let tried = site.document(&TRIED, "b.test");
    let mut daemon = site.world.keep(&before);
    site.start();
    site.converges();
    site.world.confirms(1);
    let then = site.state();
    assert_eq!(then.1, BEFORE);
    for is_killed in [false, true] {
        let mut client = begin(&site.world, &tried, "");
        site.converges();
        let during = site.state();
        assert_eq!((&during.1[..], &*during.2), (&TRIED.map(str::to_owned)[..], "b.test web"));
        assert_eq!(during.0, then.0, "it was not reloaded");
        if is_killed {
            daemon.kill();
            daemon = site.world.keep_at("host.toml");
        } else {
            site.world.run("rollback").exits(0);
        }
        client.wait().unwrap();
        site.converges();
        assert_eq!(site.state(), then);
    }
    drop(daemon);
}

/// A trial that needs a reload is taken back by another one.
#[test]
fn a_rollback_lets_a_program_read_its_former_files() {
    let mut site = Site::new();
    let before = site.document(&BEFORE, "a.test");
    let tried = before.replace("bind 127.0.0.1:8001", "bind 127.0.0.1:8002");
    let _daemon = site.world.keep(&before);
    site.start();
    site.converges();
    site.world.confirms(1);
    let generation = || site.ask("show env HOMEOSTAT").unwrap();
    let (then, process) = (generation(), site.state().0);
    let mut client = begin(&site.world, &tried, "");
    site.converges();
    assert_ne!(generation(), then);
    site.world.run("rollback").exits(0);
    client.wait().unwrap();
    site.converges();
    assert_eq!(generation(), then);
    assert_ne!(site.state().0, process, "it was reloaded");
}

#[test]
fn a_rollback_without_a_daemon_takes_back_what_a_running_program_was_told() {
    let mut site = Site::new();
    let (before, tried) = (site.document(&BEFORE, "a.test"), site.document(&TRIED, "b.test"));
    site.world.write("host.toml", &before);
    site.world.run("apply --yes host.toml");
    site.start();
    site.world.run("apply --yes host.toml").exits(0);
    let then = site.state();
    site.world.write("new.toml", &tried);
    let ran = site.world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    assert!(ran.stdout.contains("Rolled back to the confirmed document"), "{ran:?}");
    assert_eq!(site.state(), then);
}

#[test]
fn what_happens_to_a_program_is_counted_and_announced() {
    let mut site = Site::new();
    site.world.write("host.toml", site.document(&BEFORE, "a.test"));
    let _daemon = site.world.start("--listen 127.0.0.1:9876");
    site.start();
    site.converges();
    let count = |name: &str| {
        let (_, text) = read("/metrics");
        let start = format!("homeostat_files_{name}{{source=\"files\",scope=\"files/haproxy\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let mut events = site.world.follow();
    let mut is_announced = |phase: &str| {
        events.until(|event| event["event"] == phase && event["scope"] == "files/haproxy");
    };
    let (reloads, changes) = (count("reloads_total"), count("runtime_changes_total"));
    let tried = site.document(&TRIED, "b.test");
    site.world.write("host.toml", &tried);
    ["rendered", "validated", "deployed"].into_iter().for_each(&mut is_announced);
    until("the changes", || count("runtime_changes_total") >= changes + 4);
    assert_eq!(count("reloads_total"), reloads);
    let other = tried.replace("timeout client 60s", "timeout client 61s");
    site.world.write("host.toml", &other);
    is_announced("reloaded");
    until("the reload", || count("reloads_total") == reloads + 1);
    // It runs what the file says, but cannot prove it.
    let unproven = other.replace("setenv HOMEOSTAT", "setenv OTHER");
    let unproven = unproven.replace("[files.haproxy]\n", "[files.haproxy]\nwithin = \"1s\"\n");
    assert_ne!(unproven, other);
    site.world.write("host.toml", &unproven);
    is_announced("rolled-back");
    let main = site.world.path().join("etc/haproxy.cfg");
    until("the former file", || std::fs::read_to_string(&main).unwrap().contains("HOMEOSTAT"));
    assert_eq!((count("checks_refused_total"), count("runtime_refused_total")), (0, 0));
    assert!(count("old_processes") <= 2);
}

/// A listener that somebody else has in a namespace. It ends with its input.
fn listener(site: &Site, port: u16) -> Child {
    let listen = format!(
        "use IO::Socket::INET; $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1:{port}', Listen => 1) or die; \
         open(F, '>', '{}'); close(F); <STDIN>",
        site.world.path().join("listens").display()
    );
    let mut perl = site.world.command("ip");
    perl.args(["netns", "exec", "blue", "perl", "-e", &listen]).stdin(Stdio::piped());
    let perl = perl.spawn().unwrap();
    until("the listener", || site.world.path().join("listens").exists());
    perl
}

/// A port is tried where the program runs: what is taken elsewhere is not in its way.
#[test]
fn new_addresses_are_tried_in_the_namespace_of_the_set() {
    let mut site = Site::of(World::new().with_own_names());
    site.world.ip("netns add blue");
    site.world.ip("-n blue link set lo up");
    let document = site.document(&BEFORE, "a.test");
    let document = document.replace("[files.haproxy]\n", "[files.haproxy]\nnamespace = \"blue\"\n");
    site.world.write("host.toml", &document);
    site.world.run("apply --yes host.toml");
    site.start_in(Some("blue"));
    site.world.run("apply --yes host.toml").exits(0);
    let process = site.state().0;
    let _here = std::net::TcpListener::bind("127.0.0.1:8002").unwrap();
    let mut there = listener(&site, 8003);
    site.world.write("host.toml", document.replace("127.0.0.1:8001", "127.0.0.1:8003"));
    let refused = site.world.run("apply --yes host.toml").exits(1).stdout;
    let taken = format!(
        "HAProxy could not listen on 127.0.0.1:8003: Address already in use (os error 98), held by perl (pid {})",
        there.id()
    );
    assert!(refused.contains(&taken), "{refused}");
    assert_eq!(site.state().0, process, "it was not reloaded");
    site.world.write("host.toml", document.replace("127.0.0.1:8001", "127.0.0.1:8002"));
    site.world.run("apply --yes host.toml").exits(0);
    assert_ne!(site.state().0, process, "it was reloaded");
    drop(there.stdin.take());
    there.wait().unwrap();
}
