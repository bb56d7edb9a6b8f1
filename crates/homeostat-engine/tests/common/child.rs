//! Starts this test binary again as another process, to run one of its tests.

#![allow(dead_code, reason = "every test binary uses another part of it")]

use std::process::{Child, Command, Stdio};

/// Starts the test `name` with an environment variable set. Its output is swallowed.
#[expect(clippy::disallowed_methods, reason = "the one place where these tests start a program")]
pub(crate) fn start(name: &str, (variable, value): (&str, &str)) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1"])
        .env(variable, value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
