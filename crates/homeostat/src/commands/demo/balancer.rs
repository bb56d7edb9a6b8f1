//! The balancer of the demo: an `HAProxy` in the sandbox that reads a file of the document, and the hand that edits the file.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::judge::{Healing, is_awaited};
use super::kernel_events::now;

/// What the document has of it.
pub(super) const SECTION: &str = include_str!("balancer.toml");

const PROGRAM: &str = "/usr/sbin/haproxy";
/// `/run` is the sandbox's own.
const DIRECTORY: &str = "/run/demo";
const MAIN: &str = "/run/demo/haproxy.cfg";
const MASTER: &str = "/run/demo/master";
const ADMIN: &str = "/run/demo/admin";

/// What its package would have put there.
const SHIPPED: &str = "\
global
  stats socket /run/demo/admin mode 600 level admin

defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s

frontend web
  bind unix@/run/demo/web
";

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(50);

pub(super) fn is_installed() -> bool {
    let about = std::fs::metadata(PROGRAM);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// A running `HAProxy`, until this is dropped.
pub(super) struct Balancer {
    process: Child,
}

impl Balancer {
    /// Starts it with the file of its package, and waits until it answers.
    #[expect(clippy::disallowed_methods, reason = "the program that the demo keeps")]
    pub(super) fn start() -> Result<Self> {
        std::fs::create_dir_all(DIRECTORY)?;
        std::fs::write(MAIN, SHIPPED)?;
        let mut command = Command::new(PROGRAM);
        command.args(["-W", "-S", MASTER, "-f", MAIN]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().with_context(|| format!("cannot start {PROGRAM}"))?;
        let balancer = Balancer { process };
        let deadline = now() + PATIENCE;
        while worker().is_err() {
            ensure!(now() < deadline, "HAProxy does not answer on {ADMIN}");
            std::thread::sleep(PAUSE);
        }
        Ok(balancer)
    }

    /// Edits its file by hand, and waits until that is undone. Nothing else may have happened to the process.
    pub(super) fn edit_and_wait(stop: &AtomicBool) -> Result<Option<Healing>> {
        let (text, worker_before) = (std::fs::read_to_string(MAIN)?, worker()?);
        let edited = text.replace("weight 10", "weight 255");
        ensure!(edited != text, "{MAIN} is not as declared");
        let sent = now();
        std::fs::write(MAIN, edited)?;
        while is_awaited(sent, stop) {
            // It is replaced as a whole.
            if std::fs::read_to_string(MAIN)? == text {
                let healing = Healing { took: sent.elapsed(), objects: 1 };
                return Ok((worker()? == worker_before).then_some(healing));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Its master ends its workers, unless it is killed.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

/// The id of the process that takes requests.
fn worker() -> Result<String> {
    let mut stream = UnixStream::connect(ADMIN)?;
    stream.write_all(b"show info\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let pid = answer.lines().find_map(|line| line.strip_prefix("Pid: "));
    Ok(pid.context("HAProxy does not say its process")?.to_owned())
}
