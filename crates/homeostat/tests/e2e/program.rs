//! Starts programs: the binary under test, and the system's own as helpers and judges.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// The binary under test.
pub(crate) const HOMEOSTAT: &str = env!("CARGO_BIN_EXE_homeostat");

/// Words of the environment that change what programs print.
const OPINIONS: [&str; 5] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "CI"];

/// A program with an environment that is the same on every machine.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in OPINIONS {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").stdin(Stdio::null());
    command
}

/// What a program prints; it must succeed.
#[track_caller]
pub(crate) fn output(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Copies the binary by another process: a copy that this one had open for writing could be held by
/// the child of another test for a moment, and could not be run.
#[track_caller]
pub(crate) fn copy_program(to: &std::path::Path) {
    let mut copy = command("cp");
    copy.arg(HOMEOSTAT).arg(to);
    output(copy);
}

/// A process that keeps fresh namespaces alive, and ends when this value goes.
#[derive(Debug)]
pub(crate) struct Holder {
    child: Child,
}

impl Holder {
    /// Starts it in the namespaces that `flags` ask `unshare` for, and waits until `script` has run.
    pub(crate) fn start(flags: &str, script: &str) -> Self {
        let mut unshare = command("unshare");
        unshare.args(flags.split_whitespace());
        Self::in_shell_of(unshare, script)
    }

    /// Starts it by a command that runs a shell, and waits until `script` has run.
    pub(crate) fn in_shell_of(mut command: Command, script: &str) -> Self {
        let script = format!("{script}\necho ready\nexec cat");
        command.args(["sh", "-ec", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{command:?} failed: run these tests as root");
        Holder { child }
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // `cat` ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
