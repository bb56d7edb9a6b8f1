//! Processes, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;

/// The process whose id is in a file.
pub(crate) fn named_in(pid_file: &Path) -> io::Result<Pid> {
    let text = fs::read_to_string(pid_file).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", pid_file.display()))
    })?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("no process id is in {}", pid_file.display())))
}

/// The children of a process.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(|pid| parent(*pid) == Some(of)).collect()
}

/// What a process is called by its arguments, separated by blanks. One that has ended has none.
pub(crate) fn command_line(pid: Pid) -> String {
    let path = format!("/proc/{}/cmdline", pid.as_raw_pid());
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    text.trim().to_owned()
}

fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat_field(pid, 1)?)
}

/// A field of `/proc/PID/stat`, counted from the state of the process, which is 0.
fn stat_field<T: std::str::FromStr>(pid: Pid, number: usize) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name in parentheses may hold blanks and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(number)?.parse().ok()
}
