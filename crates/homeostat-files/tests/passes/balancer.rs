//! A real `HAProxy` in a network of its own: what it cannot run costs no request.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homeostat_files::programs::{Known, Sockets, haproxy};
use homeostat_files::{
    Attributes, Check, Content, DesiredState, FileSpec, Files, Limits, Network, Program,
};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, report_lines};

pub(crate) struct Balancer {
    pub(crate) bench: Bench,
    process: Option<Child>,
    _namespace: Namespace,
}

impl Balancer {
    pub(crate) fn new() -> Self {
        let namespace = Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        let bench = Bench::new();
        let main = bench.at("/etc/haproxy.cfg").to_str().unwrap().parse().unwrap();
        let socket = |name: &str| bench.state().join(name);
        let arguments = (haproxy::PROFILE.check)(&main);
        let netns = std::sync::Arc::new(homeostat_netns::Netns::current().unwrap());
        let network = Network::In(netns);
        let program = Program {
            reload: haproxy::reload(socket("master")),
            pid_file: None,
            unit: None,
            restart: None,
            running: Some(haproxy::running(socket("admin"))),
            within: Duration::from_secs(20),
            limits: Limits::default(),
            note: None,
            network: network.clone(),
            known: Some(Known { profile: &haproxy::PROFILE, main, sockets: Sockets::default() }),
        };
        let source = Files::new("haproxy", bench.source.store.clone());
        let source = source
            .checked_by(Some(Check { arguments, network, profile: Some(&haproxy::PROFILE) }))
            .read_by(Some(program));
        Balancer { bench: Bench { source, ..bench }, process: None, _namespace: namespace }
    }

    pub(crate) fn main(&self) -> PathBuf {
        self.bench.at("/etc/haproxy.cfg")
    }

    /// A configuration that answers with a text on some ports.
    fn desired(&self, ports: &[u16], text: &str) -> DesiredState {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.desired_on(&ports, text)
    }

    /// The same, with ranges of ports.
    fn desired_on(&self, ports: &[impl Display], text: &str) -> DesiredState {
        let admin = self.bench.state().join("admin").display().to_string();
        let binds: Vec<String> =
            ports.iter().map(|port| format!("  bind 127.0.0.1:{port}\n")).collect();
        let text = format!(
            "global\n  setenv HOMEOSTAT {{{{ generation }}}}\n  stats socket {admin} mode 600 level admin\n\
             defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n\
             frontend web\n{}  http-request return status 200 content-type text/plain string {text}\n",
            binds.concat()
        );
        self.declared(&[("haproxy.cfg", &text)])
    }

    /// A set of files with these names and texts.
    pub(crate) fn declared(&self, files: &[(&str, &str)]) -> DesiredState {
        let files = files.iter().map(|(name, text)| {
            let spec = FileSpec {
                content: Content::new(text.as_bytes()),
                attributes: Attributes::default(),
                secret: false,
                adopt: false,
            };
            (self.path(name).parse().unwrap(), spec)
        });
        let digests = self.bench.source.store.digests();
        let haproxy = self.bench.source.program.as_ref().and_then(Program::haproxy);
        let (haproxy, files) = (haproxy.as_ref(), files.collect());
        DesiredState::read_by_haproxy(digests, "haproxy", haproxy, files, BTreeMap::new())
    }

    /// Where a file of the set is.
    pub(crate) fn path(&self, name: &str) -> String {
        self.bench.at(&format!("/etc/{name}")).display().to_string()
    }

    /// What one of its processes answers.
    pub(crate) fn ask(&self, socket: &str, request: &str) -> String {
        use std::io::Write as _;
        let mut stream = UnixStream::connect(self.bench.state().join(socket)).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// The process that takes requests.
    pub(crate) fn worker(&self) -> String {
        let info = self.ask("admin", "show info");
        info.lines().find(|line| line.starts_with("Pid: ")).unwrap().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the program that is under care")]
    pub(crate) fn start(&mut self) {
        let mut command = Command::new("/usr/sbin/haproxy");
        command.args(["-W", "-S"]).arg(self.bench.state().join("master"));
        command.arg("-f").arg(self.main());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("install haproxy"));
    }

    fn get(port: u16) -> String {
        use std::io::Write as _;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&process),
                rustix::process::Signal::TERM,
            );
            let _ = process.wait();
        }
    }
}

#[test]
fn a_taken_port_is_found_before_anything_is_written_and_costs_no_request() {
    let mut balancer = Balancer::new();
    let first = balancer.desired(&[8001], "first");
    balancer.bench.pass(&first);
    balancer.start();
    balancer.bench.converge_soon(&first);
    assert!(Balancer::get(8001).ends_with("first"));
    let second = balancer.desired(&[8001, 8002], "second");
    balancer.bench.converge_soon(&second);
    assert!(Balancer::get(8002).ends_with("second"));
    // The check passes, and a reload would pause all listeners.
    let taken = TcpListener::bind("127.0.0.1:8003").unwrap();
    let third = balancer.desired(&[8001, 8003], "third");
    let text = fs::read(balancer.main()).unwrap();
    let is_over = AtomicBool::new(false);
    let (report, asked) = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) || asked < 100 {
                assert!(Balancer::get(8001).ends_with("second"), "it was disturbed");
                asked += 1;
            }
            asked
        });
        let report = balancer.bench.pass(&third);
        is_over.store(true, Ordering::Relaxed);
        (report, client.join().unwrap())
    });
    assert!(asked >= 100);
    let lines = report_lines(&report).join("\n");
    assert!(lines.contains("could not listen on 127.0.0.1:8003"), "{lines}");
    assert_eq!(fs::read(balancer.main()).unwrap(), text);
    balancer.bench.assert_quiet(&second);
    drop(taken);
    balancer.bench.converge_soon(&third);
    assert!(Balancer::get(8003).ends_with("third"));
}

/// Ranges of ports are not tried before, so a reload meets the one that is taken: the master reports nothing of it, and the
/// former worker goes on.
#[test]
fn a_reload_that_reports_success_and_did_not_happen_is_found() {
    let mut balancer = Balancer::new();
    balancer.bench.source.program.as_mut().unwrap().within = Duration::from_secs(5);
    let first = balancer.desired(&[8001], "first");
    balancer.bench.pass(&first);
    balancer.start();
    balancer.bench.converge_soon(&first);
    let (text, worker) = (fs::read(balancer.main()).unwrap(), balancer.worker());
    let taken = TcpListener::bind("127.0.0.1:8004").unwrap();
    let second = balancer.desired_on(&["8001", "8003-8004"], "second");
    let lines = report_lines(&balancer.bench.pass(&second)).join("\n");
    assert!(lines.contains("its program did not take the new files over"), "{lines}");
    assert_eq!(fs::read(balancer.main()).unwrap(), text);
    assert_eq!(balancer.worker(), worker);
    // Its listeners rest while the master tries.
    while TcpStream::connect("127.0.0.1:8001").is_err() {
        thread::yield_now();
    }
    assert!(Balancer::get(8001).ends_with("first"));
    // Each try would cost two seconds of refused requests.
    let lines = report_lines(&balancer.bench.pass(&second)).join("\n");
    assert!(lines.contains("not tried again"), "{lines}");
    balancer.bench.assert_quiet(&first);
    drop(taken);
}

/// Names are resolved when a file is checked: without a resolver nothing is known of the rest.
#[test]
fn a_name_that_cannot_be_resolved_is_neither_good_nor_bad() {
    let balancer = Balancer::new();
    let named = |more: &str| {
        let text = format!("x\nbackend named\n  server one no-such-name.invalid:80\n{more}");
        report_lines(&balancer.bench.pass(&balancer.desired(&[8001], &text))).join("\n")
    };
    let lines = named("");
    assert!(lines.contains("it could not be checked"), "{lines}");
    assert!(lines.contains("could not resolve address 'no-such-name.invalid'"), "{lines}");
    let lines = named("  no-such-keyword\n");
    assert!(lines.contains("its program refuses it"), "{lines}");
    assert!(!balancer.main().exists());
}

#[test]
fn what_haproxy_refuses_is_shown_with_its_line() {
    let balancer = Balancer::new();
    let bad = balancer.desired(&[8001], "x\n  no-such-keyword here");
    let lines = report_lines(&balancer.bench.pass(&bad)).join("\n");
    assert!(
        lines.contains("its program refuses it") && lines.contains("no-such-keyword"),
        "{lines}"
    );
    assert!(lines.contains("haproxy.cfg:12"), "{lines}");
    assert!(!balancer.main().exists());
}
