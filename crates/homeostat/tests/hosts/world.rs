//! A host in a network namespace of its own, and the machines around it in others.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]
#![expect(
    clippy::unused_self,
    reason = "a world proves that the thread of the test is in the namespace of the host"
)]

use std::cell::RefCell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use homeostat_netns::{Name, Netns};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;
use tempfile::TempDir;

/// How often something is tried until it works: links come up, bonds and spanning trees take their time.
const TRIES: usize = 30;

/// The host that a document is applied to. The thread of the test is in its namespace.
pub(crate) struct World {
    /// None in the namespace of the machine itself.
    namespace: Option<Namespace>,
    directory: TempDir,
    test: &'static str,
    peers: RefCell<Vec<String>>,
    /// One test at a time has the machine itself.
    _whole: Option<MutexGuard<'static, ()>>,
}

static WHOLE: Mutex<()> = Mutex::new(());

/// A machine beside the host.
#[derive(Clone)]
pub(crate) struct Peer {
    netns: String,
}

impl World {
    pub(crate) fn new(test: &'static str) -> Self {
        Self::of(Some(Namespace::enter().unwrap()), None, test)
    }

    /// The whole machine: for sysctls that no namespace has. Only a machine that is made for tests may be one.
    pub(crate) fn whole(test: &'static str) -> Self {
        assert!(
            Path::new("/tests/script").exists(),
            "this test writes sysctls of the whole machine: run `cargo xtask vm homeostat/hosts`"
        );
        let whole = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
        // The machine has a card of its own.
        rename_link("eth0", CARD);
        Self::of(None, Some(whole), test)
    }

    fn of(
        namespace: Option<Namespace>,
        whole: Option<MutexGuard<'static, ()>>,
        test: &'static str,
    ) -> Self {
        let directory = tempfile::Builder::new().prefix("homeostat-hosts-").tempdir().unwrap();
        let peers = RefCell::default();
        let world = World { namespace, directory, test, peers, _whole: whole };
        world.ip("link set lo up");
        world
    }

    /// A machine without links.
    pub(crate) fn peer(&self, name: &str) -> Peer {
        let netns = format!("{}-{}-{name}", self.test, std::process::id());
        self.ip(&format!("netns add {netns}"));
        self.peers.borrow_mut().push(netns.clone());
        let peer = Peer { netns };
        peer.ip("link set lo up");
        peer
    }

    /// A machine with an address, at the other end of a cable from `link`.
    pub(crate) fn peer_at(&self, link: &str, name: &str, address: &str) -> Peer {
        let peer = self.peer(name);
        self.cable(link, &peer, "eth0");
        peer.ip(&format!("address add {address} dev eth0"));
        peer
    }

    /// A cable. The end of the host is down, as that of a card is.
    pub(crate) fn cable(&self, link: &str, peer: &Peer, theirs: &str) {
        let there = &peer.netns;
        self.ip(&format!("link add {link} type veth peer name {theirs} netns {there}"));
        peer.ip(&format!("link set {theirs} up"));
    }

    /// Writes a file beside the document that nobody else reads, and returns its path.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A new private key of WireGuard in a file: its path, and the public key.
    pub(crate) fn wireguard_key(&self, name: &str) -> (String, String) {
        let path = self.write_secret(name, &self.run("wg genkey"));
        let mut public = Command::new("wg");
        public.arg("pubkey").stdin(fs::File::open(&path).unwrap());
        (path, good(public).trim().to_owned())
    }

    /// The same as [`Peer::serve`] on the host.
    pub(crate) fn serve(&self, name: &'static str, at: &str) {
        serve(name, &Netns::current().unwrap(), at);
    }

    /// Applies a document; afterwards everything is as declared, and a second look agrees.
    #[track_caller]
    pub(crate) fn apply(&self, document: &str) {
        fs::write(self.directory.path().join("host.toml"), document).unwrap();
        self.homeostat("apply --yes");
        self.homeostat("verify");
    }

    /// Starts a daemon with a document, and waits until everything but what waits for a check is as declared.
    pub(crate) fn keep(&self, document: &str) -> Daemon {
        fs::write(self.directory.path().join("host.toml"), document).unwrap();
        let mut run = self.program();
        run.args(["run", "host.toml", "--state-dir", "state"]);
        let daemon = Daemon(run.spawn().unwrap());
        let mut wait = self.program();
        wait.args(["status", "--wait", "--timeout", "2m", "--state-dir", "state"]);
        self.until("a daemon", || self.directory.path().join("state/default.sock").exists());
        good(wait);
        daemon
    }

    /// Something that others can connect to on the host as long as it is kept.
    pub(crate) fn service(&self, at: &'static str) -> Service {
        let listener = TcpListener::bind(at).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            for _ in listener.incoming() {
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Service { at, ends, thread: Some(thread) }
    }

    /// Looks again and again.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        const LOOKS: usize = 600;
        let pause = || std::thread::park_timeout(Duration::from_millis(100));
        let looks = std::iter::repeat_with(|| {
            is_so() || {
                pause();
                false
            }
        });
        assert!(looks.take(LOOKS).any(|is_so| is_so), "waited in vain for {what}");
    }

    fn program(&self) -> Command {
        let built = env!("CARGO_BIN_EXE_homeostat");
        let program = if Path::new(built).exists() { built } else { "homeostat" };
        let mut homeostat = Command::new(program);
        homeostat.current_dir(self.directory.path());
        homeostat
    }

    /// The program with the document that was applied.
    #[track_caller]
    pub(crate) fn homeostat(&self, command: &str) -> String {
        let mut homeostat = self.program();
        homeostat.args(command.split_whitespace()).args(["host.toml", "--state-dir", "state"]);
        good(homeostat)
    }

    #[track_caller]
    pub(crate) fn ip(&self, args: &str) {
        good(with(Command::new("ip"), args));
    }

    pub(crate) fn ip_json(&self, args: &str) -> Value {
        let printed = good(with(Command::new("ip"), &format!("-j -d {args}")));
        serde_json::from_str(&printed).unwrap()
    }

    /// Any other program, on the host.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let (program, args) = line.split_once(' ').unwrap_or((line, ""));
        good(with(Command::new(program), args))
    }

    /// Whether an address answers the host.
    pub(crate) fn reaches(&self, target: &str) -> bool {
        pings(with(Command::new("busybox"), "ping"), target)
    }

    #[track_caller]
    pub(crate) fn reaches_soon(&self, target: &str) {
        assert!((0..TRIES).any(|_| self.reaches(target)), "the host does not reach {target}");
    }
}

/// What the card of the machine is called meanwhile.
const CARD: &str = "card0";

/// If it is there. A link that is up cannot be renamed on all kernels.
fn rename_link(from: &str, to: &str) {
    for args in [&["link", "set", from, "down"][..], &["link", "set", from, "name", to]] {
        let _ = Command::new("ip").args(args).output();
    }
}

/// A daemon that ends with this.
pub(crate) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What listens until this is dropped.
pub(crate) struct Service {
    at: &'static str,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It looks when somebody connects.
        let _ = TcpStream::connect(self.at);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for netns in self.peers.borrow().iter() {
            let _ = Command::new("ip").args(["netns", "del", netns]).output();
        }
        if self.namespace.is_none() {
            for link in ["eth0", "br0"] {
                let _ = Command::new("ip").args(["link", "del", link]).output();
            }
            rename_link(CARD, "eth0");
        }
    }
}

impl Peer {
    #[track_caller]
    pub(crate) fn ip(&self, args: &str) {
        good(with(Command::new("ip"), &format!("-n {} {args}", self.netns)));
    }

    pub(crate) fn ip_json(&self, args: &str) -> Value {
        let line = format!("-n {} -j -s {args}", self.netns);
        serde_json::from_str(&good(with(Command::new("ip"), &line))).unwrap()
    }

    /// A bond over all of these links, which are set down for it.
    pub(crate) fn bond(&self, mode: &str, links: &[&str]) {
        self.ip(&format!("link add bond0 type bond mode {mode} miimon 100"));
        for link in links {
            self.ip(&format!("link set {link} down"));
            self.ip(&format!("link set {link} master bond0"));
        }
        self.ip("link set bond0 up");
    }

    /// A VLAN on a link, with an address.
    pub(crate) fn vlan(&self, link: &str, id: u16, address: &str) {
        self.ip(&format!("link add {link}.{id} link {link} type vlan id {id}"));
        self.ip(&format!("link set {link}.{id} up"));
        self.ip(&format!("address add {address} dev {link}.{id}"));
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        good(with(Command::new("ip"), &format!("netns exec {} {line}", self.netns)))
    }

    /// Whether an address answers this machine.
    pub(crate) fn reaches(&self, target: &str) -> bool {
        pings(with(Command::new("ip"), &format!("netns exec {} busybox ping", self.netns)), target)
    }

    #[track_caller]
    pub(crate) fn reaches_soon(&self, target: &str) {
        let answers = (0..TRIES).any(|_| self.reaches(target));
        assert!(answers, "{} does not reach {target}", self.netns);
    }

    fn netns(&self) -> Netns {
        Netns::named(&Name::new(self.netns.clone()).unwrap()).unwrap()
    }

    /// Answers each connection and each datagram to an address with the name and with whom it sees, and keeps the
    /// connection open until the other side ends it.
    pub(crate) fn serve(&self, name: &'static str, at: &str) {
        serve(name, &self.netns(), at);
    }

    /// Gives a link to another machine.
    pub(crate) fn move_link(&self, link: &str, to: &Peer) {
        self.ip(&format!("link set {link} netns {}", to.netns));
    }

    /// Connects from this machine.
    pub(crate) fn connect(&self, to: &str) -> Option<Answer> {
        let to = to.parse().unwrap();
        self.netns().run(|| connect(to)).unwrap()
    }
}

fn serve(name: &'static str, netns: &Netns, at: &str) {
    let at: SocketAddr = at.parse().unwrap();
    let bind = || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
    let (listener, socket) = netns.run(bind).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let from = stream.peer_addr().unwrap().ip();
            let _ = stream.write_all(format!("{name} {from}\n").as_bytes());
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    std::thread::spawn(move || {
        let mut asked = [0; 16];
        while let Ok((_, from)) = socket.recv_from(&mut asked) {
            let _ = socket.send_to(format!("{name} {}\n", from.ip()).as_bytes(), from);
        }
    });
}

/// What a server of [`Peer::serve`] says.
pub(crate) struct Answer {
    /// `NAME ADDRESS`.
    pub(crate) words: String,
    /// Open as long as this is kept.
    _stream: TcpStream,
}

fn connect(to: SocketAddr) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut words = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).ok()? == 1 && byte != *b"\n" {
        words.push(byte[0]);
    }
    Some(Answer { words: String::from_utf8(words).unwrap(), _stream: stream })
}

/// Asks a server of [`Peer::serve`] from the host with one of its addresses; tried until an answer comes.
#[track_caller]
pub(crate) fn ask_from(source: &str, to: &str) -> String {
    let socket = UdpSocket::bind((source.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut answer = [0; 128];
    let ask = || {
        socket.send_to(b"?", to).ok()?;
        socket.recv(&mut answer).ok()
    };
    let length = std::iter::repeat_with(ask).take(TRIES).find_map(|length| length);
    let length = length.unwrap_or_else(|| panic!("no answer from {to}"));
    String::from_utf8_lossy(&answer[..length]).trim().to_owned()
}

fn with(mut command: Command, args: &str) -> Command {
    command.args(args.split_whitespace());
    command
}

fn pings(mut ping: Command, target: &str) -> bool {
    ping.args(["-c", "1", "-W", "3", target]).output().unwrap().status.success()
}

/// What a program prints; it must succeed.
#[track_caller]
fn good(mut command: Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}
