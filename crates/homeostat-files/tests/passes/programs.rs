//! Real programs that read a set: what they run is what counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::Phase;
use homeostat_files::{
    Attributes, Check, Content, DesiredState, FileSpec, Files, Limits, Network, Program, Reload,
    Request, Running,
};
use homeostat_netns::Netns;
use homeostat_testkit::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::bench::{Bench, report_lines};
use crate::rendering::made_of;

/// An `unbound` in a network of its own.
struct Resolver {
    bench: Bench,
    netns: Arc<Netns>,
    _namespace: Namespace,
}

impl Resolver {
    fn new() -> Self {
        let namespace = Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        let netns = Arc::new(Netns::current().unwrap());
        let bench = Bench::new();
        let network = || Network::In(Arc::clone(&netns));
        let conf = bench.at("/etc/unbound.conf").display().to_string();
        // Its client reads a file of its own, so that it can speak whatever the file of the set says.
        let client = bench.state().join("client.conf").display().to_string();
        fs::write(&client, control_section(&bench)).unwrap();
        let argv = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let control =
            |verb: &[&str]| argv(&[&["/usr/sbin/unbound-control", "-c", &client], verb].concat());
        let program = Program {
            reload: Reload::Send(Request::Run(control(&["reload"]))),
            pid_file: None,
            unit: None,
            restart: Some(argv(&["/usr/sbin/unbound", "-c", &conf])),
            running: Some(Running {
                ask: Request::Run(control(&["get_option", "identity"])),
                is: "generation-{{ generation }}".to_owned(),
            }),
            within: Duration::from_secs(5),
            limits: Limits::default(),
            note: None,
            network: network(),
            known: None,
        };
        // The view has the real paths, so the set does, too.
        let source = Files::new("dns", bench.source.store.clone()).read_by(Some(program));
        let bench = Bench { source, ..bench };
        Resolver { bench, netns, _namespace: namespace }
    }

    fn conf(&self) -> PathBuf {
        self.bench.at("/etc/unbound.conf")
    }

    /// A configuration with these lines of its own.
    fn text_with(&self, more: &str) -> String {
        let run = self.bench.state().display().to_string();
        format!(
            "server:\n  username: \"\"\n  chroot: \"\"\n  directory: \"{run}\"\n  \
             pidfile: \"{run}/unbound.pid\"\n  use-syslog: no\n  logfile: \"{run}/unbound.log\"\n  \
             interface: 127.0.0.1\n  do-ip6: no\n  identity: \"generation-{{{{ generation }}}}\"\n  \
             hide-identity: yes\n{more}\n{}",
            control_section(&self.bench)
        )
    }

    fn desired(&self, more: &str) -> DesiredState {
        let spec = FileSpec {
            content: Content::new(self.text_with(more).into_bytes()),
            attributes: Attributes::default(),
            secret: false,
            adopt: false,
        };
        let path = self.conf().to_str().unwrap().parse().unwrap();
        let files = BTreeMap::from([(path, spec)]);
        DesiredState::read_by_program(
            self.bench.source.store.digests(),
            "dns",
            files,
            BTreeMap::new(),
        )
    }

    #[expect(clippy::disallowed_methods, reason = "the program that is under care")]
    fn start(&self) {
        let mut command = Command::new("/usr/sbin/unbound");
        command.arg("-c").arg(self.conf()).stdin(Stdio::null()).stdout(Stdio::null());
        assert!(command.stderr(Stdio::null()).status().expect("install unbound").success());
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.bench.state().join("unbound.pid")).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        test_kill_process(pid).is_ok().then_some(pid)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.conf()).unwrap()
    }
}

fn control_section(bench: &Bench) -> String {
    let socket = bench.state().join("control").display().to_string();
    format!(
        "remote-control:\n  control-enable: yes\n  control-interface: {socket}\n  \
         control-use-cert: no\n"
    )
}

impl Drop for Resolver {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn a_program_that_is_down_gets_its_files_and_is_waited_for() {
    let resolver = Resolver::new();
    let desired = resolver.desired("");
    let lines = report_lines(&resolver.bench.pass(&desired)).join("\n");
    assert!(resolver.conf().exists(), "{lines}");
    assert!(lines.contains(". program dns: the program, which does not answer"), "{lines}");
    resolver.start();
    resolver.bench.converge(&desired);
    resolver.bench.assert_quiet(&desired);
}

#[test]
fn new_files_are_taken_over_and_a_lost_reload_is_made_good() {
    let resolver = Resolver::new();
    let first = resolver.desired("");
    resolver.bench.pass(&first);
    resolver.start();
    resolver.bench.converge(&first);
    let pid = resolver.pid();
    let second = resolver.desired("  verbosity: 2");
    let report = resolver.bench.converge(&second);
    assert_eq!(report.plan().steps.len(), 2, "{:?}", report_lines(&report));
    assert_eq!(resolver.pid(), pid, "it was reloaded, not started again");
    resolver.bench.assert_quiet(&second);
    // The file alone is edited: it comes back, and nobody is told.
    fs::write(resolver.conf(), "edited\n").unwrap();
    let report = resolver.bench.converge(&second);
    assert_eq!(report.plan().steps.len(), 1, "{:?}", report_lines(&report));
    // Somebody started it with other files: the right ones are there, and it must run them.
    let right = resolver.text();
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    fs::write(resolver.conf(), right.replace("generation-", "other-")).unwrap();
    while resolver.pid().is_some() {
        std::thread::yield_now();
    }
    resolver.start();
    fs::write(resolver.conf(), right).unwrap();
    let report = resolver.bench.converge(&second);
    let told: Vec<_> = report_lines(&report);
    assert_eq!(report.plan().steps.len(), 1, "{told:?}");
    assert!(told[0].contains("program dns"), "{told:?}");
    resolver.bench.assert_quiet(&second);
}

/// `unbound-control reload` answers "ok", and then the daemon dies of the new file.
#[test]
fn a_program_that_dies_of_new_files_is_back_with_the_former_ones() {
    let resolver = Resolver::new();
    let good = resolver.desired("");
    resolver.bench.pass(&good);
    resolver.start();
    resolver.bench.converge(&good);
    let text = resolver.text();
    let bad = resolver.desired("  no-such-option: yes");
    let report = resolver.bench.pass(&bad);
    let lines = report_lines(&report).join("\n");
    assert!(
        lines.contains("! program dns: its program did not take the new files over"),
        "{lines}"
    );
    assert_eq!(resolver.text(), text, "the former file is back");
    resolver.bench.assert_quiet(&good);
    // The same files are not tried again, by another process either.
    let pid = resolver.pid();
    let lines = report_lines(&resolver.bench.pass(&bad)).join("\n");
    assert!(lines.contains("not tried again"), "{lines}");
    assert_eq!((resolver.text(), resolver.pid()), (text, pid));
    let better = resolver.desired("  verbosity: 1");
    resolver.bench.converge(&better);
}

#[test]
fn what_its_own_checker_refuses_never_reaches_the_program() {
    let mut resolver = Resolver::new();
    let good = resolver.desired("");
    resolver.bench.pass(&good);
    resolver.start();
    resolver.bench.converge(&good);
    let (text, pid) = (resolver.text(), resolver.pid());
    let conf = resolver.conf().display().to_string();
    let arguments = vec!["/usr/sbin/unbound-checkconf".to_owned(), conf];
    let network = Network::In(Arc::clone(&resolver.netns));
    let check = Check { arguments, network, profile: None };
    resolver.bench.source = resolver.bench.source.clone().checked_by(Some(check));
    let bad = resolver.desired("  no-such-option: yes");
    let lines = report_lines(&resolver.bench.pass(&bad)).join("\n");
    assert!(lines.contains("its program refuses it"), "{lines}");
    assert!(lines.contains("no-such-option: yes"), "the line is shown: {lines}");
    assert_eq!((resolver.text(), resolver.pid()), (text, pid));
}

/// One input that the daemon dies of, beside one that is good.
#[test]
fn a_value_that_the_program_dies_of_is_refused_and_the_other_one_is_accepted() {
    let resolver = Resolver::new();
    let (level, more) = (resolver.bench.state().join("level"), resolver.bench.state().join("more"));
    let write = |level_text: &str, more_text: &str| {
        fs::write(&level, level_text).unwrap();
        fs::write(&more, more_text).unwrap();
    };
    let inputs = [("level", level.as_path()), ("more", more.as_path())];
    let text = resolver.text_with("  verbosity: {{ inputs.level }}\n  {{ inputs.more }}");
    let desired = made_of(&resolver.conf(), &text, &inputs, Some("dns"));
    write("0", "prefetch: no");
    resolver.bench.pass_once(&desired);
    resolver.start();
    resolver.bench.converge_once(&desired);
    write("1", "no-such-option: yes");
    let mut lines = String::new();
    for _ in 0..4 {
        lines = report_lines(&resolver.bench.pass_once(&desired)).join("\n");
    }
    assert!(lines.contains("! input more: its program did not take the new files over"), "{lines}");
    assert!(!lines.contains("input level"), "{lines}");
    let kept = resolver.text();
    assert!(kept.contains("verbosity: 1") && kept.contains("prefetch: no"), "{kept}");
    let phases = resolver.bench.phases();
    let count = |is: fn(&Phase) -> bool| phases.iter().filter(|phase| is(phase)).count();
    assert_eq!(count(|phase| matches!(phase, Phase::RolledBack { .. })), 1, "{phases:?}");
    assert_eq!(count(|phase| matches!(phase, Phase::Reloaded)), 1, "{phases:?}");
    // What was good last is kept, although there is something newer.
    let pid = resolver.pid();
    assert!(pid.is_some(), "it runs");
    fs::write(resolver.conf(), "edited\n").unwrap();
    resolver.bench.pass_once(&desired);
    assert_eq!((resolver.text(), resolver.pid()), (kept, pid));
    write("1", "prefetch: yes");
    resolver.bench.converge_once(&desired);
    assert!(resolver.text().contains("prefetch: yes"));
}
