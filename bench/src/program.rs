//! Starts the programs that homeostat is compared with. Nothing else in this crate starts programs.
#![expect(clippy::disallowed_methods, reason = "the one module that starts programs")]

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::clock;
use crate::run::LeftOut;

/// Where a program is, also for users who have no `sbin` in their path.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(system);
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

/// Where a program is; its contestant is left out where it is missing.
pub fn find_or_leave_out(name: &str, package: &str) -> Result<PathBuf> {
    let missing = || format!("`{name}` is not here; `apt-get install {package}` brings it");
    Ok(find(name).ok_or_else(|| LeftOut(missing()))?)
}

/// A path as an argument of a program.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().context("an odd directory")
}

/// Runs a program to its end and discards its output.
pub fn run_quietly(name: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(name).args(args).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start `{name}`"))?;
    ensure!(status.success(), "`{name} {}` ended with {status}", args.join(" "));
    Ok(())
}

/// How a program served a reader that went after the first line.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// From the start to the first line.
    pub first: Duration,
    /// From the moment at which the reader went to the end of the program.
    pub end: Duration,
}

/// Runs a program for a reader that goes after the first line. That must be no error.
pub fn head(name: &str, args: &[&str]) -> Result<Head> {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let (begun, first) = clock::time(|| -> Result<(Child, ChildStdout)> {
        let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
        let mut reader = BufReader::with_capacity(1, child.stdout.take().context("no pipe")?);
        ensure!(reader.read_until(b'\n', &mut Vec::new())? > 0, "`{name}` wrote no line");
        Ok((child, reader.into_inner()))
    });
    let (mut child, stdout) = begun?;
    let (status, end) = clock::time(|| {
        drop(stdout);
        child.wait()
    });
    let status = status?;
    ensure!(status.success(), "`{name} {}` ended with {status}", args.join(" "));
    Ok(Head { first, end })
}

/// Runs a program to its end and returns the most resident memory that it was seen with, in bytes.
pub fn peak(name: &str, args: &[&str]) -> Result<usize> {
    let (mut running, mut peak) = (Running::start(name, args)?, 0);
    while running.is_alive()? {
        // One that has just ended has no memory.
        peak = running.memory(PEAK).unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(1));
    }
    ensure!(peak > 0, "`{name} {}` ended too soon", args.join(" "));
    Ok(peak)
}

/// Runs a program to its end and returns its standard output. What it writes to standard error is in the error if
/// it fails.
pub fn read<'a>(program: &Path, args: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` ended with {}: {said}",
        program.display(),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its end, however it ends, and returns its standard output.
pub fn read_any(program: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub const RESIDENT: &str = "VmRSS:";
/// The most resident memory at any time.
pub const PEAK: &str = "VmHWM:";
/// Resident memory without pages of files, which processes share.
pub const ANONYMOUS: &str = "RssAnon:";

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a program and discards its output.
    pub fn start(name: &str, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(name);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(command.spawn().with_context(|| format!("cannot start `{name}`"))?))
    }

    /// Whether it has not ended by itself.
    pub fn is_alive(&mut self) -> io::Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    /// Memory in bytes, by its name in `/proc/PID/status`: [`RESIDENT`], [`PEAK`] or [`ANONYMOUS`].
    pub fn memory(&self, name: &str) -> Result<usize> {
        Ok(self.number::<usize>("status", name)? << 10)
    }

    /// The number after `name` in a file in `/proc/PID`.
    pub fn number<T>(&self, file: &str, name: &str) -> Result<T>
    where
        T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        number(self.pid(), file, name)
    }

    /// CPU seconds of all threads so far; those of threads that have ended are missing.
    pub fn work(&self) -> Result<f64> {
        process_work(self.pid())
    }

    /// The sum of a [`number`](Self::number) over all threads.
    pub fn total(&self, file: &str, name: &str) -> Result<f64> {
        total(self.pid(), file, name)
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// CPU seconds of all threads of a process so far; those of threads that have ended are missing.
pub fn process_work(pid: u32) -> Result<f64> {
    // The first number, in nanoseconds; other files have ticks.
    Ok(total(pid, "schedstat", "")? / 1e9)
}

fn number<T>(pid: u32, file: &str, name: &str) -> Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    Ok(number.with_context(|| format!("`{file}` has no `{name}`"))?.parse()?)
}

fn total(pid: u32, file: &str, name: &str) -> Result<f64> {
    let mut total = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.file_name();
        // A thread may have ended.
        let file = format!("task/{}/{file}", thread.to_string_lossy());
        total += number::<f64>(pid, &file, name).unwrap_or_default();
    }
    Ok(total)
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_with_its_handle() {
        let mut running = Running::start("sleep", &["60"]).unwrap();
        assert!(running.is_alive().unwrap());
        assert!(running.memory(RESIDENT).unwrap() > 0);
        let directory = PathBuf::from(format!("/proc/{}", running.0.id()));
        drop(running);
        assert!(!directory.exists());
    }

    #[test]
    fn a_reader_that_goes_is_told_from_the_end() {
        let head = head("sh", &["-c", "echo one; exit 0"]).unwrap();
        assert!(head.first > Duration::ZERO && head.end > Duration::ZERO);
        assert!(super::head("true", &[]).is_err(), "it writes no line");
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program"), None);
    }

    #[test]
    fn a_failure_is_named() {
        let error = run_quietly("false", &["now"]).unwrap_err();
        assert!(error.to_string().starts_with("`false now` ended with"), "{error}");
    }
}
