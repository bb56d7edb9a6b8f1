//! Members of etcd, a directory, the binary in both, and simulated nodes on a thread of their own.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use homeostat_etcd::{Config, EtcdStore};
use homeostat_fleet::keys::Keys;
use homeostat_testkit::etcd::Members;
use serde_json::Value;

use crate::simulated::{Dice, Simulated, name};

/// However busy the machine is, what has not happened by then is a failure.
const PATIENCE: Duration = Duration::from_mins(5);

/// The binary in a directory.
pub(crate) fn command_in(directory: &std::path::Path, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homeostat"));
    command.args(args.split_whitespace()).current_dir(directory).stdin(Stdio::null());
    command
}

pub(crate) struct World {
    pub(crate) members: Members,
    processes: Vec<Child>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        serde_json::from_str(&self.exits(code).stdout).unwrap()
    }
}

impl World {
    /// One member that can be written to.
    pub(crate) fn start() -> Self {
        Self::of(Members::start(1, &[], |_| None).unwrap())
    }

    pub(crate) fn of(members: Members) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answered = async { while members.etcdctl(&["endpoint", "health"]).is_err() {} };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await }).unwrap();
        let world = World { members, processes: Vec::new() };
        world.write("fleet.toml", "fleet = \"edge\"\nendpoints = [\"127.0.0.1:2379\"]\n");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.members.path(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Any program in the directory of the test, with these words.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, args: &str) -> Ran {
        Self::finish(self.command(program, args))
    }

    /// `homeostat fleet` with the configuration file of this world.
    #[track_caller]
    pub(crate) fn fleet(&self, args: &str) -> Ran {
        Self::finish(self.fleet_command(args))
    }

    pub(crate) fn fleet_command(&self, args: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_homeostat"), &format!("fleet {args}"));
        command.args(["--config", "fleet.toml"]);
        command
    }

    pub(crate) fn command(&self, program: &str, args: &str) -> Command {
        let mut command = Command::new(program);
        command.args(args.split_whitespace()).current_dir(self.path("")).stdin(Stdio::null());
        command.env("HOME", self.path("home")).env_remove("XDG_CONFIG_HOME");
        command.env("ETCDCTL_API", "3");
        command
    }

    #[track_caller]
    pub(crate) fn finish(mut command: Command) -> Ran {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ran { code: output.status.code(), stdout, stderr }
    }

    /// A coordinator that runs until the end of the test; returns its number.
    pub(crate) fn coordinate(&mut self, name: &str) -> usize {
        let mut command = self.fleet_command(&format!("coordinate --name {name} --lease 3s"));
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap());
        self.processes.len() - 1
    }

    pub(crate) fn kill(&mut self, nth: usize) {
        self.processes[nth].kill().unwrap();
        self.processes[nth].wait().unwrap();
    }

    /// Starts simulated nodes; those in `bad` refuse to plan new documents, and roll them back.
    pub(crate) fn live(nodes: &[&str], bad: &[&str]) {
        let nodes: Vec<_> = nodes.iter().map(|node| (name(node), bad.contains(node))).collect();
        // A new thread is in the namespace of this one.
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            for (name, is_bad) in nodes {
                let member = Members::endpoint(0).parse().unwrap();
                let store = Arc::new(EtcdStore::new(Config::new([member], name.as_str())));
                let keys = Keys::new(&"edge".parse().unwrap());
                let slowest = Duration::from_millis(200);
                let (last, dice) = (None, Dice(1));
                let node = Simulated { store, keys, name, is_bad, last, slowest, dice };
                local.spawn_local(node.live(|| SystemTime::now().into()));
            }
            runtime.block_on(local);
        });
    }

    /// Waits until a command says what it should.
    #[track_caller]
    pub(crate) fn until(&self, args: &str, is_it: impl Fn(&Ran) -> bool) -> Ran {
        let began = std::time::Instant::now();
        loop {
            let ran = self.fleet(args);
            if is_it(&ran) {
                return ran;
            }
            assert!(began.elapsed() < PATIENCE, "{ran:#?}");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
