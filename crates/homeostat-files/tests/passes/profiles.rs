//! Known programs for real, each in a network and in directories of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use homeostat_files::programs::{Known, Profile, Setup, Sockets};
use homeostat_files::{
    Attributes, Check, Content, DesiredState, FilePath, FileSpec, Files, Limits, Network, Program,
};
use homeostat_netns::Netns;
use homeostat_testkit::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::bench::{Bench, report_lines};

mod bird;
mod chrony;
mod haproxy;
mod keepalived;
mod nginx;
mod unbound;

/// A program that reads a set of one file.
pub(crate) struct Daemon {
    pub(crate) bench: Bench,
    main: FilePath,
    /// What starts it, in the background.
    start: Vec<String>,
    namespace: Namespace,
}

impl Daemon {
    /// Everything but the main file is in the directory of which `sockets` and `start` are told.
    fn new(
        profile: &'static Profile,
        sockets: impl FnOnce(&Path) -> Sockets,
        start: impl FnOnce(&FilePath, &Path) -> Vec<String>,
    ) -> Self {
        let namespace = Namespace::enter().unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        let bench = Bench::new();
        let main: FilePath = bench.at("/etc").join(profile.main).to_str().unwrap().parse().unwrap();
        let network = Network::In(Arc::new(Netns::current().unwrap()));
        let pid_file = bench.state().join("pid");
        let sockets = sockets(&bench.state());
        let start = start(&main, &bench.state());
        let setup = Setup { main: &main, sockets: &sockets, restart: Some(&start) };
        let program = Program {
            reload: (profile.reload)(&setup).unwrap(),
            pid_file: Some(pid_file),
            unit: None,
            restart: Some(start.clone()),
            running: (profile.running)(&setup),
            // Far more than it takes: what is not taken over in time is never tried again.
            within: Duration::from_mins(2),
            limits: Limits::default(),
            note: None,
            network: network.clone(),
            known: Some(Known { profile, main: main.clone(), sockets }),
        };
        let check = Check { arguments: (profile.check)(&main), network, profile: Some(profile) };
        // The check sees real paths, so the set has them, too.
        let source = Files::new("daemon", bench.source.store.clone());
        let source = source.checked_by(Some(check)).read_by(Some(program));
        Daemon { bench: Bench { source, ..bench }, main, start, namespace }
    }

    fn unchecked(&mut self) {
        self.bench.source.check = None;
    }

    fn main(&self) -> &Path {
        Path::new(self.main.as_str())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.main()).unwrap()
    }

    /// A set with this main file; `@` is the directory of everything else.
    fn desired(&self, text: &str) -> DesiredState {
        let text = text.replace('@', self.bench.state().to_str().unwrap());
        let spec = FileSpec {
            content: Content::new(text.into_bytes()),
            attributes: Attributes::default(),
            secret: false,
            adopt: false,
        };
        let files = BTreeMap::from([(self.main.clone(), spec)]);
        let digests = self.bench.source.store.digests();
        DesiredState::read_by_program(digests, "daemon", files, BTreeMap::new())
    }

    #[expect(clippy::disallowed_methods, reason = "the program that is under care")]
    fn start(&self) {
        let [program, arguments @ ..] = &*self.start else { panic!("no program") };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().expect("run `cargo xtask setup`").success());
    }

    fn pid_file(&self) -> PathBuf {
        self.bench.state().join("pid")
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        test_kill_process(pid).is_ok().then_some(pid)
    }

    /// Ends it and waits for its end.
    fn stop(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
            while test_kill_process(pid).is_ok() && !is_zombie(pid) {
                std::thread::yield_now();
            }
        }
    }

    /// What every known program does: its files are there before it runs, new ones are taken over, an edit is healed without a
    /// reload, and what its own check refuses is not written. `bad` is not understood in its last line, which is told as this.
    #[track_caller]
    fn assert_kept(&self, first: &str, second: &str, bad: &str) {
        let first = self.desired(first);
        let lines = report_lines(&self.bench.pass(&first)).join("\n");
        assert!(lines.contains(". program daemon: the program, which does not answer"), "{lines}");
        self.start();
        self.bench.converge_soon(&first);
        let pid = self.pid();
        let second = self.desired(second);
        self.bench.converge(&second);
        assert_eq!(self.pid(), pid, "it was not started again");
        self.bench.assert_quiet(&second);
        let text = self.text();
        fs::write(self.main(), "edited\n").unwrap();
        let report = self.bench.converge(&second);
        assert_eq!(report.plan().steps.len(), 1, "no reload: {:?}", report_lines(&report));
        assert_eq!(self.text(), text);
        let line = bad.lines().count();
        let bad = self.desired(bad);
        let lines = report_lines(&self.bench.pass(&bad)).join("\n");
        let told = format!("{}:{line}", self.main);
        let expected = ["its program refuses it", &format!("; {line}: ")];
        assert!(expected.iter().all(|word| lines.contains(word)), "{told}: {lines}");
        assert_eq!((self.text(), self.pid()), (text, pid));
        self.bench.assert_quiet(&second);
    }
}

fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A master that is killed leaves its workers behind.
        self.stop(Signal::TERM);
    }
}
