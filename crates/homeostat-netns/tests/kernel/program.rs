//! Starts other programs: this test again, and `ip` as the independent judge.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of these tests that starts programs"
)]

use std::env;
use std::process::Command;

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

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
