//! Starts other programs: this test again, and `ip` as the independent judge.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// This test program, to run one check in a fresh process.
pub(crate) fn myself() -> Command {
    Command::new(env::current_exe().unwrap())
}

/// What `ip` prints; it must succeed.
pub(crate) fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().unwrap_or_else(|error| {
        panic!("`ip` cannot be started ({error}): install iproute2, or run `cargo xtask test`")
    });
    assert!(output.status.success(), "ip {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A shell in a copy of the mount namespace, in which nothing that is mounted or unmounted here later is seen.
pub(crate) fn shell_in_own_mounts(script: &str) -> Shell {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    Shell { child, input, output: BufReader::new(output) }
}

/// A shell that runs a script; it is waited for.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
