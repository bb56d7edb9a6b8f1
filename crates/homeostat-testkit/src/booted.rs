//! A machine with a real systemd as its PID 1, for tests: a Debian in namespaces of its own, booted in half a second.
//!
//! Every machine has its own writable layer over one Debian root, which `cargo xtask setup` makes. Nothing of the host is
//! mounted in it but a few device nodes; of the host's sysctls, it can write only those of its own network namespace.
//! ```no_run
//! use homeostat_testkit::booted::{BootedSystemd, debian_root};
//!
//! let mut machine = BootedSystemd::boot(&debian_root()?)?;
//! std::fs::write(machine.path().join("etc/motd"), "kept on its disk\n")?;
//! machine.reboot()?;
//! let output = machine.run(&["systemctl", "is-system-running"])?;
//! assert_eq!(output.stdout, b"running\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![expect(clippy::disallowed_methods, reason = "it starts the programs of the machine")]

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// Makes namespaces, and cleans up.
const SUPERVISOR: &str = include_str!("booted/supervisor.sh");
/// Mounts the file systems of the machine and becomes systemd.
const INIT: &str = include_str!("booted/init.sh");

/// Where `cargo xtask setup` puts the Debian root, below the target directory of cargo.
const DEBIAN: &str = "debian/root";

/// How long a boot or a shutdown may take. Both take less than a second on an idle machine.
const PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("only root can boot a machine for this test: run it as root")]
    NotRoot,
    /// The directory in which the search began.
    #[error("no Debian root for this test above {0}: run `cargo xtask setup` as root")]
    NoDebian(PathBuf),
    #[error("no cgroup2 is mounted, which systemd needs: run `mount -t cgroup2 none DIRECTORY`")]
    NoCgroup,
    #[error("the machine cannot be started: {0}")]
    Start(#[from] io::Error),
    /// With what it has printed.
    #[error("the machine did not boot; its console has:\n{0}")]
    NotBooted(String),
    #[error("the machine did not shut down; its console has:\n{0}")]
    NotOff(String),
}

/// The Debian root that `cargo xtask setup` has made, found from the place of the running test program.
pub fn debian_root() -> Result<PathBuf, Error> {
    let program = std::env::current_exe()?;
    let found = program.ancestors().map(|place| place.join(DEBIAN)).find(|root| root.is_dir());
    found.ok_or(Error::NoDebian(program))
}

/// A machine that is booted. It ends, and its disk is removed, when this value is dropped or the test process dies.
#[derive(Debug)]
pub struct BootedSystemd {
    /// `upper` is its disk; the rest is for its boot. The supervisor removes it, too.
    directory: TempDir,
    supervisor: Child,
    /// The lines of the supervisor: one each time that the machine is off.
    ends: BufReader<ChildStdout>,
    init: Init,
}

/// PID 1 of a machine, as the host sees it.
#[derive(Debug)]
struct Init {
    pid: Pid,
    handle: OwnedFd,
}

impl BootedSystemd {
    /// Boots a machine with an empty disk over this Debian root, and waits until its boot is complete.
    pub fn boot(debian: &Path) -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let directory =
            tempfile::Builder::new().prefix("machine-").tempdir_in(debian.join(".."))?;
        for part in ["upper", "work", "root"] {
            fs::create_dir(directory.path().join(part))?;
        }
        let cgroup = own_cgroup().ok_or(Error::NoCgroup)?;
        let name = directory.path().file_name().unwrap_or_default();
        let mut supervisor = Command::new("sh");
        supervisor.args(["-euc", SUPERVISOR, "supervisor"]).arg(directory.path()).arg(debian);
        supervisor.arg(cgroup.join(name)).arg(INIT).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = supervisor.spawn()?;
        let ends = supervisor.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let ends = BufReader::new(ends);
        let init = start(&directory, &mut supervisor, &ends)?;
        Ok(BootedSystemd { directory, supervisor, ends, init })
    }

    /// Shuts down in order and boots again: the disk is kept; boot id, network namespace and processes are new.
    pub fn reboot(&mut self) -> Result<(), Error> {
        self.run(&["systemctl", "--no-block", "reboot"])?;
        self.start_again()
    }

    /// Kills every process of the machine at once, and boots again.
    pub fn lose_power(&mut self) -> Result<(), Error> {
        // It may be off already.
        let _ = pidfd_send_signal(&self.init.handle, Signal::KILL);
        self.start_again()
    }

    fn start_again(&mut self) -> Result<(), Error> {
        if !is_readable(&self.ends.get_ref().as_fd())? {
            return Err(Error::NotOff(console(&self.directory)));
        }
        self.ends.read_line(&mut String::new())?;
        self.init = start(&self.directory, &mut self.supervisor, &self.ends)?;
        Ok(())
    }

    /// Runs a program in the machine, as root, to its end.
    pub fn run(&self, argv: &[&str]) -> io::Result<Output> {
        self.command(argv).stdin(Stdio::null()).output()
    }

    /// A program that will run in the machine, as root, outside of all units.
    #[must_use]
    pub fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.pid().to_string(), "env", "-i", "TERM=dumb"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(argv);
        command
    }

    /// The process on the host that is PID 1 of the machine.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.init.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// The root directory of the machine, as the host reaches it while this boot lasts.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid()))
    }

    #[must_use]
    pub fn boot_id(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("boot_id"));
        text.unwrap_or_default().trim_end().to_owned()
    }
}

impl Drop for BootedSystemd {
    fn drop(&mut self) {
        // The supervisor ends the machine when its input ends.
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// Lets the supervisor boot the machine, and waits until it says that it is ready.
fn start(
    directory: &TempDir,
    supervisor: &mut Child,
    ends: &BufReader<ChildStdout>,
) -> Result<Init, Error> {
    let file = |name| directory.path().join(name);
    fs::copy("/proc/sys/kernel/random/uuid", file("boot_id"))?;
    fs::write(file("console"), "")?;
    let notifications = listen(directory)?;
    let mut input = supervisor.stdin.as_ref().ok_or_else(|| io::Error::other("no input"))?;
    input.write_all(b"boot\n")?;
    loop {
        let mut sources = [
            PollFd::new(&notifications, PollFlags::IN),
            PollFd::new(ends.get_ref(), PollFlags::IN),
        ];
        poll(&mut sources, Some(&PATIENCE)).map_err(io::Error::from)?;
        if sources[0].revents().is_empty() {
            return Err(Error::NotBooted(console(directory)));
        }
        let mut text = [0; 4096];
        let length = notifications.recv(&mut text)?;
        if text[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
            break;
        }
    }
    let pid = fs::read_to_string(file("pid"))?;
    let pid = pid.trim_end().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::NotBooted(console(directory)))?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?;
    Ok(Init { pid, handle })
}

/// Where PID 1 says `READY=1` once all jobs of the boot have ended. It is open only until then: PID 1 goes on to say how
/// it does, and would stop to work if it could not get rid of that.
fn listen(directory: &TempDir) -> io::Result<UnixDatagram> {
    // A path in the directory may be too long for the address of a socket.
    let handle = fs::File::open(directory.path())?;
    let address = format!("/proc/self/fd/{}/notify", handle.as_raw_fd());
    // The id of the former boot.
    let _ = fs::remove_file(&address);
    UnixDatagram::bind(address)
}

fn is_readable(descriptor: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&PATIENCE))?;
    Ok(ready > 0)
}

fn console(directory: &TempDir) -> String {
    fs::read_to_string(directory.path().join("console")).unwrap_or_default()
}

/// The directory of the cgroup of this process in the second hierarchy.
fn own_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount.split(' ').nth(4)?).join(own))
}
