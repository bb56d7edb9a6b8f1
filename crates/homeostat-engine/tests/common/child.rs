//! Starts this test binary again as another process, to run one of its tests.

#![allow(dead_code, reason = "every test binary uses another part of it")]

use std::path::Path;
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

/// Runs the test `name` in a process for which a directory is a disk of 256 KiB with a file of ballast on
/// it; the variable names the directory.
#[expect(clippy::disallowed_methods, reason = "the one place where these tests start a program")]
pub(crate) fn on_a_small_disk(name: &str, (variable, directory): (&str, &Path)) {
    let script = "mount -t tmpfs -o size=256k small \"$1\" && head -c 65536 /dev/zero > \"$1/ballast\" \
                  && exec \"$2\" \"$3\" --exact --test-threads=1";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-ec", script, "sh"])
        .args([directory, &std::env::current_exe().unwrap(), Path::new(name)])
        .env(variable, directory)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
}
