//! Who asks for something: the user of a process, and the login session that it belongs to.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// The number that the kernel has for "nobody logged in".
const UNSET: u32 = u32::MAX;

/// A process, as far as people want to know.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Person {
    /// The user that the process runs as.
    pub(crate) uid: u32,
    /// The user who logged in, if known.
    pub(crate) login: Option<u32>,
    pub(crate) session: Session,
    pub(crate) pid: u32,
    pub(crate) program: String,
}

/// A login session: the number that the kernel's audit gave the login, or the process session where it gave none. A
/// process session is distinguished from a later one of the same number by the start time of its leader.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Session {
    Audit(u32),
    Processes { leader: u32, started: u64 },
    Unknown,
}

impl Person {
    /// The user of this process.
    pub(crate) fn current() -> Self {
        Self::of(std::process::id(), rustix::process::getuid().as_raw())
    }

    /// The user of a process, which may have ended meanwhile.
    pub(crate) fn of(pid: u32, uid: u32) -> Self {
        let program = read(pid, "comm").unwrap_or_default();
        let login = number(pid, "loginuid").filter(|login| *login != UNSET);
        Person { uid, login, session: Session::of(pid), pid, program }
    }
}

impl Session {
    fn of(pid: u32) -> Self {
        if let Some(session) = number(pid, "sessionid").filter(|session| *session != UNSET) {
            return Session::Audit(session);
        }
        let leader = field(pid, SESSION).and_then(|leader| u32::try_from(leader).ok());
        // A leader outside of this process namespace has no number here.
        match leader {
            None | Some(0) => Session::Unknown,
            Some(leader) => {
                Session::Processes { leader, started: field(leader, STARTED).unwrap_or_default() }
            }
        }
    }
}

/// Where `/proc/PID/stat` has the leader of the session, and the start in ticks since the boot, behind the name.
const SESSION: usize = 3;
const STARTED: usize = 19;

fn field(pid: u32, nth: usize) -> Option<u64> {
    let stat = read(pid, "stat")?;
    // The name in parentheses may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(nth)?.parse().ok()
}

fn number(pid: u32, file: &str) -> Option<u32> {
    read(pid, file)?.parse().ok()
}

fn read(pid: u32, file: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    Some(text.trim_end().to_owned())
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.uid)?;
        if let Some(login) = self.login.filter(|login| *login != self.uid) {
            write!(f, " (logged in as {login})")?;
        }
        match self.session {
            Session::Audit(session) => write!(f, ", session {session}"),
            Session::Processes { leader, .. } => write!(f, ", session of process {leader}"),
            Session::Unknown => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_session_of_its_leader() {
        let own = Person::current();
        match own.session {
            Session::Processes { leader, .. } => assert_eq!(Session::of(leader), own.session),
            Session::Audit(_) | Session::Unknown => assert_eq!(Session::of(own.pid), own.session),
        }
    }

    #[test]
    fn a_process_that_is_gone_is_known_by_its_user_alone() {
        let gone = Person::of(u32::MAX, 7);
        assert_eq!((gone.uid, gone.login, gone.session), (7, None, Session::Unknown));
        assert_eq!(gone.to_string(), "uid 7");
    }
}
