//! The programs of the demo: etcd, the coordinator, the nodes, and the commands of the operator. They end with it.
#![expect(clippy::disallowed_methods, reason = "the one module of this demo that starts programs")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_netns::Netns;

use crate::daemon::clock::BootTime;
use crate::failure::helped;

/// This program: a path to it may lead through directories that a sandbox cannot enter.
const HOMEOSTAT: &str = "/proc/self/exe";
const LOOK: Duration = Duration::from_millis(100);

/// Programs that run until this is dropped, and the directory that they work in.
pub(super) struct Processes {
    children: Vec<Child>,
    directory: PathBuf,
}

/// A command that has ended.
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
}

/// Whether there is such a program.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |path: PathBuf| {
        fs::metadata(path)
            .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).any(|directory| is_program(directory.join(program)))
}

impl Processes {
    pub(super) fn new(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Processes { children: Vec::new(), directory })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file into the directory.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(&self.directory);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Starts a program whose output goes to `NAME.log`.
    pub(super) fn start(&mut self, name: &str, program: &str, args: &str) -> Result<()> {
        let log = File::create(self.path(&format!("{name}.log")))?;
        let mut command = self.command(program, args);
        command.stdout(log.try_clone()?).stderr(log);
        self.children.push(command.spawn().with_context(|| format!("cannot start {program}"))?);
        Ok(())
    }

    /// Starts this program in a network namespace.
    pub(super) fn start_in(&mut self, netns: &Netns, name: &str, args: &str) -> Result<()> {
        let log = File::create(self.path(&format!("{name}.log")))?;
        let mut command = self.command(HOMEOSTAT, args);
        command.stdout(log.try_clone()?).stderr(log);
        let started = netns.run(move || command.spawn())?;
        self.children.push(started.context("cannot start a node")?);
        Ok(())
    }

    pub(super) fn start_homeostat(&mut self, name: &str, args: &str) -> Result<()> {
        self.start(name, HOMEOSTAT, args)
    }

    /// Runs a command of the operator to its end. Progress is shown on a terminal.
    pub(super) fn homeostat(&self, args: &str) -> Result<Ran> {
        let mut command = self.command(HOMEOSTAT, args);
        let is_watched = std::io::stderr().is_terminal();
        command.stderr(if is_watched { Stdio::inherit() } else { Stdio::null() });
        let output = command.output().context("cannot run a command of the operator")?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Ran { code: output.status.code(), stdout })
    }

    /// Runs a program that must succeed.
    pub(super) fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let output = self.command(program, "").args(args).output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(anyhow::anyhow!("{program} failed: {}", words.trim()))
    }

    /// Waits until something is so. Says what did not come to pass, with the last words of a program.
    pub(super) fn until(
        &self,
        what: &str,
        log: &str,
        end: BootTime,
        mut is_so: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        while !is_so()? {
            if end.left().is_zero() {
                let log = self.path(&format!("{log}.log"));
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = text.lines().last().unwrap_or_default();
                return Err(helped(
                    format!("the demo took too long: {what}"),
                    format!("{} ends with: {last}", log.display()),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Nothing of the caller's environment decides how the demo goes.
    fn command(&self, program: impl AsRef<OsStr>, args: &str) -> Command {
        let mut command = Command::new(program);
        command.args(args.split_whitespace()).current_dir(&self.directory).env_clear();
        for name in ["PATH", "TERM"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", &self.directory).stdin(Stdio::null());
        command
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended needs no signal.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Prints what a command has printed, a little to the right.
pub(super) fn show(to: &mut dyn std::io::Write, text: &str) -> std::io::Result<()> {
    text.lines().try_for_each(|line| writeln!(to, "  {line}"))?;
    to.flush()
}

/// Reads a small file, such as a knob.
pub(super) fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    text.map(|text| text.trim().to_owned())
}
