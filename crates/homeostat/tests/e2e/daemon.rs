//! A daemon as a child in a world of its own, ended with its test.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::keeping::until;
use crate::world::World;

/// A running daemon.
pub(crate) struct Daemon {
    child: Child,
}

impl World {
    /// Starts a daemon that keeps the document.
    pub(crate) fn keep(&self, document: &str) -> Daemon {
        self.keep_with(document, "")
    }

    /// Keeps a document, with more options.
    pub(crate) fn keep_with(&self, document: &str, options: &str) -> Daemon {
        self.write("host.toml", document);
        self.keep_at(&format!("host.toml {options}"))
    }

    /// Starts a daemon that keeps the document at a path.
    pub(crate) fn keep_at(&self, path: &str) -> Daemon {
        self.keep_by(self.homeostat(&format!("run {path}")))
    }

    /// Starts a daemon by a command that was prepared.
    pub(crate) fn keep_by(&self, mut command: Command) -> Daemon {
        age(self.path());
        let log = std::fs::File::create(self.path().join("log")).unwrap();
        Daemon { child: command.stdout(Stdio::null()).stderr(log).spawn().unwrap() }
    }

    /// How things stand once each loop has made its first pass, whatever that led to.
    pub(crate) fn stands(&self) -> Value {
        let answer = RefCell::new(Value::Null);
        until("the first pass of each loop", || {
            // Before it listens there is nothing to read.
            let status = self.run("status --json").stdout;
            answer.replace(serde_json::from_str(&status).unwrap_or_default());
            answer.borrow()["ready"] == true
        });
        answer.into_inner()
    }

    /// Waits until everything is as declared.
    #[track_caller]
    pub(crate) fn converges(&self) {
        self.run("status --wait").exits(0);
    }

    /// Follows the events of the daemon from here on.
    pub(crate) fn follow(&self) -> Following {
        let mut command = self.homeostat("events -f --json");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let mut following = Following { lines, listener: Daemon { child } };
        // An event of a pass that is asked for now shows that the subscription works.
        self.run("pause").exits(0);
        following.until(|event| event["event"] == "paused");
        self.run("resume").exits(0);
        following
    }
}

impl Daemon {
    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends it as nothing should end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets all files of a directory be some time old: a daemon waits for those that were written a moment ago.
pub(crate) fn age(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => age(&entry.path()),
            kind if kind.is_file() => {
                // A daemon may delete a file of its own meanwhile.
                let Ok(file) = File::options().read(true).open(entry.path()) else { continue };
                file.set_modified(UNIX_EPOCH + Duration::from_hours(1)).unwrap();
            }
            _ => {}
        }
    }
}

/// However busy the machine is, silence for so long is a failure.
const PATIENCE: Duration = Duration::from_mins(2);

/// The reading blocks, so a thread does it; it ends with the program.
fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // An error means that nobody listens any more.
        let _ = lines.map(|line| send.send(line)).find(Result::is_err);
    });
    receive
}

/// The events of a daemon, as they come.
pub(crate) struct Following {
    lines: Receiver<String>,
    #[expect(dead_code, reason = "it ends with this")]
    listener: Daemon,
}

impl Following {
    /// Reads on until there is such an event.
    #[track_caller]
    pub(crate) fn until(&mut self, so: impl Fn(&Value) -> bool) -> Value {
        let deadline = UNIX_EPOCH.elapsed().unwrap() + PATIENCE;
        loop {
            let left = deadline.saturating_sub(UNIX_EPOCH.elapsed().unwrap());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("there is no such event: {error}"));
            let event: Value = serde_json::from_str(&line).unwrap();
            if so(&event) {
                return event;
            }
        }
    }

    /// Reads on until drift of this key was healed.
    #[track_caller]
    pub(crate) fn until_healed(&mut self, key: &str) -> Value {
        self.until(|event| {
            event["event"] == "step-applied" && event["key"] == key && event["cause"] == "drift"
        })
    }
}
