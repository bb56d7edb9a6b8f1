//! Processes, as `/proc` shows them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
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

/// What a process calls itself.
pub(crate) fn name(pid: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid())).unwrap_or_default();
    name.trim_end().to_owned()
}

/// When a process started, in ticks since the boot; nothing, if it has ended.
pub(crate) fn started(pid: Pid) -> Option<u64> {
    let state: char = stat_field(pid, 0)?;
    stat_field(pid, 19).filter(|_| !['Z', 'X'].contains(&state))
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

/// The process that listens on an address, or on all addresses, in the network of the calling thread; nothing, if it cannot be known:
/// the descriptors of other users' processes are shown to who may trace them.
pub(crate) fn listening_on(address: SocketAddr) -> Option<Pid> {
    let table = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let tables: String = ["tcp", "tcp6"].into_iter().filter_map(|name| table(name).ok()).collect();
    let inodes: BTreeSet<&str> =
        tables.lines().filter_map(|line| listening_inode(line, address)).collect();
    let links: BTreeSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let all = fs::read_dir("/proc").ok()?;
    let mut pids =
        all.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    pids.find(|pid| {
        let descriptors =
            fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid())).into_iter().flatten();
        let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| target.to_str().is_some_and(|target| links.contains(target)))
    })
}

/// The inode of a socket in a line of `/proc/net/tcp`, if it listens where `address` is.
fn listening_inode(line: &str, address: SocketAddr) -> Option<&str> {
    const LISTENING: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    let inode = words.nth(5)?;
    let (host, port) = local.split_once(':')?;
    let is_all = |host: &str| host.bytes().all(|digit| digit == b'0');
    // In the order of the machine's own bytes, four at a time.
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).filter_map(|word| word.try_into().ok());
    let own: Vec<String> = words.map(|word| format!("{:08X}", u32::from_ne_bytes(word))).collect();
    let own = own.concat();
    let is_there = is_all(host) || is_all(&own) || host == own;
    let is_port = u16::from_str_radix(port, 16).ok()? == address.port();
    (state == LISTENING && is_port && is_there).then_some(inode)
}

/// Who did something, as far as it can be known.
#[derive(Debug)]
pub(crate) struct Culprit {
    pid: Pid,
    /// The name of the program.
    program: String,
    command_line: String,
    /// The number of the user who has logged in, whatever user it runs as now.
    login: Option<u32>,
}

impl Culprit {
    /// Nothing, if the process has ended: its number may be another one's by now.
    pub(crate) fn read(pid: Pid, process: &OwnedFd) -> Option<Self> {
        /// Nobody has logged in.
        const UNSET: u32 = u32::MAX;
        let read = |name| fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_pid())).ok();
        let program = read("comm")?.trim().to_owned();
        let login = read("loginuid").and_then(|text| text.trim().parse().ok());
        let login = login.filter(|login| *login != UNSET);
        let culprit = Culprit { pid, program, command_line: command_line(pid), login };
        // All of it is of that process, if its number has not been given to another one by now.
        is_not_reaped(process, pid).then_some(culprit)
    }

    /// For people: with its arguments, or without.
    pub(crate) fn named(&self, with_arguments: bool) -> String {
        let Culprit { pid, program, command_line, login } = self;
        let login = login.map(|login| format!(", login uid {login}")).unwrap_or_default();
        let command =
            if with_arguments && !command_line.is_empty() { command_line } else { program };
        let shown: String = command.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        let more = if command.chars().count() > LONGEST { "..." } else { "" };
        format!("{shown}{more} (pid {}{login})", pid.as_raw_pid())
    }
}

/// So much of a command line is shown.
const LONGEST: usize = 80;

/// The kernel says the number of a process that a descriptor stands for, until it is reaped.
fn is_not_reaped(process: &OwnedFd, pid: Pid) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
    let expected = format!("Pid:\t{}", pid.as_raw_pid());
    about.is_ok_and(|about| about.lines().any(|line| line == expected))
}
