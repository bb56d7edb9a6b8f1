//! `HAProxy`. Its check does not try to listen, and a reload that cannot listen pauses the listeners that are there for two
//! seconds and then reports success (2.6, 3.0): new addresses are tried before anything is written. What runs is asked of
//! the worker: the file sets a variable, `setenv HOMEOSTAT {{ generation }}`, which `show env` prints.

mod certificate;
mod map;
mod process;
mod runtime;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use homeostat_core::{Failure, Retry};
use homeostat_render::Quoting;
use rustix::process::Pid;

use crate::key::FilePath;
use crate::model::Content;
use crate::process::{listening_on, name};
use crate::programs::{Known, Privileges, Profile, argv};
use crate::running::{Program, Reload, Request, Running};

use self::process::Process;
pub(crate) use self::runtime::{Declared, Observed, ServerName};
pub(crate) use self::text::Split;

pub const PROFILE: Profile = Profile {
    name: "haproxy",
    main: "haproxy.cfg",
    check: |main| argv(&["/usr/sbin/haproxy", "-c", "-f", main.as_str()]),
    privileges: Privileges::ReadOnly,
    is_undecided,
    says: |line| line != "Configuration file is valid",
    reload: |setup| setup.sockets.master.clone().map(reload),
    running: |setup| setup.sockets.admin.clone().map(running),
    pid_file: None,
    workers: None,
    draining: Some(draining),
    needs: "`sockets = { master = \"/run/haproxy-master.sock\", admin = \"/run/haproxy/admin.sock\" }`, and in the main file \
            `setenv HOMEOSTAT {{ generation }}`",
    try_out: Some(try_to_listen),
    quoting: Quoting::Shell,
    mask: None,
};

/// An `HAProxy` that can be changed without a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Haproxy {
    /// The file that names all others.
    main: FilePath,
    /// The socket of its worker.
    admin: PathBuf,
}

/// What became of a change without a reload.
pub(crate) enum Update {
    /// The process has all that is declared, after so many commands.
    Done { commands: usize },
    /// It has, but for servers that leave when their connections end.
    Leaving(BTreeSet<ServerName>),
    /// It has not: a reload is needed.
    Refused,
}

impl Haproxy {
    /// Nothing, if it is another program, or is asked by other means than its own socket.
    #[must_use]
    pub fn of(known: Option<&Known>, running: Option<&Running>) -> Option<Self> {
        let Known { profile, main, .. } = known?;
        let Request::Socket { path: admin, .. } = &running?.ask else { return None };
        let haproxy = Haproxy { main: main.clone(), admin: admin.clone() };
        (**profile == PROFILE).then_some(haproxy)
    }

    pub(crate) fn split(&self, files: &BTreeMap<FilePath, &Content>) -> Split {
        text::split(&self.main, files)
    }

    /// What the running process has of what is declared.
    pub(crate) fn observe(&self, declared: &Declared) -> io::Result<Observed> {
        Process { admin: &self.admin }.observe(declared)
    }

    /// Makes a running process as declared, without a reload. `leave` gets the servers that will leave, before they do.
    pub(crate) fn update(
        &self,
        declared: &Declared,
        leaving: &BTreeSet<ServerName>,
        leave: impl FnOnce(&BTreeSet<ServerName>) -> io::Result<()>,
    ) -> io::Result<Update> {
        let process = Process { admin: &self.admin };
        let observed = process.observe(declared)?;
        let Some(commands) = declared.commands(&observed, leaving) else {
            return Ok(Update::Refused);
        };
        leave(&declared.leaving(&observed))?;
        let busy = process.run(&commands)?;
        let observed = process.observe(declared)?;
        let left = declared.leaving(&observed);
        let differences =
            declared.differences(&observed).len() + declared.returned(&observed, leaving).len();
        Ok(if differences == 0 {
            Update::Done { commands: commands.len() }
        } else if differences == left.len() && left.is_subset(&busy) {
            Update::Leaving(left)
        } else {
            Update::Refused
        })
    }

    /// Gives a process back what it had, as far as that is known.
    pub(crate) fn put_back(&self, declared: &Declared, had: &Observed) {
        let process = Process { admin: &self.admin };
        let former = declared.with_values_of(had);
        if let Ok(observed) = process.observe(&former)
            && let Some(commands) = former.commands(&observed, &BTreeSet::new())
        {
            // The next look finds what is left.
            let _ = process.run(&commands);
        }
    }
}

/// Names of servers are resolved by the check (2.6, 3.0): while that fails, nothing is known of the rest.
fn is_undecided(words: &str) -> bool {
    let mut alerts = words.lines().filter(|line| line.starts_with("[ALERT]")).peekable();
    let is_about_names = |line: &str| {
        line.contains("could not resolve address")
            || line.contains("Failed to initialize server(s) addr")
    };
    alerts.peek().is_some() && alerts.all(is_about_names)
}

/// How it is reloaded: by the socket of its master process.
#[must_use]
pub fn reload(master: PathBuf) -> Reload {
    Reload::Send(Request::Socket { path: master, send: "reload".to_owned() })
}

/// How it is asked what it runs: by the socket of its worker.
#[must_use]
pub fn running(admin: PathBuf) -> Running {
    let ask = Request::Socket { path: admin, send: "show env HOMEOSTAT".to_owned() };
    Running { ask, is: "HOMEOSTAT={{ generation }}".to_owned() }
}

/// The workers of former reloads, as the master says.
fn draining(program: &Program) -> Vec<Pid> {
    let master = program.known.as_ref().and_then(|known| known.sockets.master.clone());
    // The master does not hang up by itself.
    let request = master.map(|path| Request::Socket { path, send: "show proc\nquit".to_owned() });
    let answer = request.and_then(|request| program.send(&request).ok());
    answer.map(|(_, words)| old_workers(&words)).unwrap_or_default()
}

fn old_workers(words: &str) -> Vec<Pid> {
    let old = words.lines().skip_while(|line| !line.starts_with("# old workers")).skip(1);
    let old = old.take_while(|line| !line.starts_with('#'));
    old.filter_map(|line| Pid::from_raw(line.split_whitespace().next()?.parse().ok()?)).collect()
}

/// Tries to listen on the addresses that a new file has and the former one has not. To be called in the network of the
/// program.
pub(crate) fn try_to_listen(before: &str, after: &str) -> Result<(), Failure> {
    let own: BTreeSet<u16> = addresses(before).iter().map(SocketAddr::port).collect();
    // On a port that it has, its own process would be in the way.
    for address in addresses(after).iter().filter(|address| !own.contains(&address.port())) {
        if let Err(error) = TcpListener::bind(address) {
            let holder = match listening_on(*address) {
                Some(pid) => format!(", held by {} (pid {})", name(pid), pid.as_raw_pid()),
                None => String::new(),
            };
            let error = format!("HAProxy could not listen on {address}: {error}{holder}");
            let help = "see who does: `ss -ltnp`; nothing was written, so that no request was lost";
            return Err(Failure::new(error, Retry::Soon).with_help(help));
        }
    }
    Ok(())
}

/// The addresses of `bind` lines that can be tried: numbers, one port, in the network of the process.
fn addresses(text: &str) -> BTreeSet<SocketAddr> {
    const ELSEWHERE: [&str; 3] = ["interface", "namespace", "transparent"];
    let mut all = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("bind") {
            continue;
        }
        let Some(list) = words.next() else { continue };
        if words.any(|word| ELSEWHERE.contains(&word)) {
            continue;
        }
        all.extend(list.split(',').filter_map(address));
    }
    all
}

fn address(text: &str) -> Option<SocketAddr> {
    let (text, default) = match text.split_once('@') {
        Some(("ipv6", rest)) => (rest, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        Some(("ipv4", rest)) => (rest, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        Some(_) => return None,
        None => (text, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let (host, port) = text.rsplit_once(':')?;
    let host = match host {
        "" | "*" => default,
        "::" | "[::]" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        host => host.trim_start_matches('[').trim_end_matches(']').parse().ok()?,
    };
    Some(SocketAddr::new(host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_can_be_tried_are_read_from_bind_lines() {
        let text = "frontend a\n  bind :80\n\tbind 192.0.2.1:81,[2001:db8::1]:82 ssl crt x\n  \
            bind ipv6@:83\n  bind *:84 # all\n  bind /run/a.sock\n  bind :90-99\n  bind :${PORT}\n  \
            bind 192.0.2.2:85 transparent\n  bind abns@x\n  mode http # bind :86\n";
        let found: Vec<String> = addresses(text).iter().map(ToString::to_string).collect();
        let expected = ["0.0.0.0:80", "0.0.0.0:84", "192.0.2.1:81", "[::]:83", "[2001:db8::1]:82"];
        assert_eq!(found, expected);
    }

    #[test]
    fn workers_of_former_reloads_are_listed_by_the_master() {
        let words = "#<PID> <type> <reloads> <uptime> <version>\n7 master 2 [failed: 0] 0d 2.6\n\
            # workers\n9 worker 0 0d 2.6\n# old workers\n8 worker 1 0d 2.6\n6 worker 2 0d 2.6\n# programs\n\n";
        let pids: Vec<i32> = old_workers(words).into_iter().map(Pid::as_raw_pid).collect();
        assert_eq!(pids, [8, 6]);
        assert_eq!(old_workers("# workers\n9 worker 0 0d 2.6\n"), []);
    }

    #[test]
    fn a_taken_port_is_found_and_one_of_its_own_is_not_tried() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let bind = format!("  bind {}\n", taken.local_addr().unwrap());
        let error = try_to_listen("", &bind).unwrap_err().error;
        assert!(error.contains("could not listen on 127.0.0.1:"), "{error}");
        assert!(error.contains(&format!(" (pid {})", std::process::id())), "{error}");
        assert_eq!(try_to_listen(&bind, &bind), Ok(()));
        // A port that is free stays so only if the kernel chooses it.
        assert_eq!(try_to_listen("", "  bind 127.0.0.1:0\n"), Ok(()));
    }
}
