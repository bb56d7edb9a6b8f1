//! Everything that can go wrong with namespaces, each with the step that failed and the way out.

use std::io;
use std::path::PathBuf;

use crate::{Name, Place, Switch};

/// A failed step. [`Error::help`] says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum Error {
    #[error("{name:?} cannot name a network namespace: {why}")]
    BadName { name: String, why: &'static str },
    #[error("{0:?} is not a process id")]
    BadPid(String),

    #[error("there is no network namespace named \"{name}\"")]
    NoSuchName { name: Name, known: Vec<Name> },
    #[error("there is no network namespace at {path:?}")]
    NoSuchPath { path: PathBuf },
    #[error("there is no process {pid}")]
    NoSuchProcess { pid: u32 },
    #[error("\"{place}\" is not a network namespace")]
    NotNetns { place: Place },
    #[error("cannot open the network namespace \"{place}\"")]
    Open { place: Place, source: io::Error },
    #[error("cannot tell which network namespace a descriptor is")]
    Stat { source: io::Error },
    #[error("cannot enter the network namespace")]
    Enter { source: io::Error },
    #[error("cannot start a thread for the network namespace")]
    Thread { source: io::Error },
    #[error("the work inside the network namespace panicked: {message}")]
    Panicked { message: String },
    #[error("cannot read the network namespace's cookie")]
    Cookie { source: io::Error },
    #[error("cannot read the boot id")]
    BootId { source: io::Error },

    #[error("cannot make a network namespace")]
    Detach { source: io::Error },
    #[error("cannot prepare /run/netns")]
    PrepareDirectory { source: io::Error },
    #[error("a network namespace named \"{name}\" exists already")]
    AlreadyExists { name: Name },
    #[error("\"{name}\" is not the empty file of an interrupted attempt any more")]
    NotLeftover { name: Name },
    #[error("cannot create the network namespace \"{name}\"")]
    Create { name: Name, source: io::Error },
    #[error("cannot remove the network namespace \"{name}\"")]
    Remove { name: Name, source: io::Error },
    #[error("cannot keep a network namespace at {path:?}")]
    Pin { path: PathBuf, source: io::Error },
    #[error("cannot remove the network namespace at {path:?}")]
    Unpin { path: PathBuf, source: io::Error },
    #[error("cannot list /run/netns")]
    List { source: io::Error },

    #[error("the sandbox must be entered before any thread is started; {threads} are running")]
    Threaded { threads: usize },
    #[error("cannot read the process's own status")]
    Status { source: io::Error },
    #[error("cannot become the user nobody before entering the sandbox")]
    BecomeNobody { source: io::Error },
    #[error("cannot make the sandbox's namespaces")]
    SandboxDetach { switch: Option<Switch>, source: io::Error },
    #[error("cannot write {file} for the sandbox")]
    SandboxIds { file: &'static str, switch: Option<Switch>, source: io::Error },
    #[error("cannot mount {what} in the sandbox")]
    SandboxMount { what: &'static str, switch: Option<Switch>, source: io::Error },
    #[error("the sandbox could still write the host's {path:?}")]
    HostReachable { path: PathBuf },
}

impl Error {
    /// The way out, where there is one.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::BadPid(text) => Some(digits_only(text)),
            Self::NoSuchProcess { pid } => Some(digits_only(&pid.to_string())),
            Self::NoSuchName { name, known } => Some(no_such_name(name, known)),
            Self::NotNetns { place: Place::Named(name) } => Some(format!(
                "nothing is mounted there; remove the leftover with `ip netns delete {name}`"
            )),
            Self::NotNetns { .. } | Self::NoSuchPath { .. } => {
                Some("give a file such as /run/netns/NAME or /proc/PID/ns/net".into())
            }
            Self::AlreadyExists { name } => {
                Some(format!("use the one that exists, or remove it with `ip netns delete {name}`"))
            }
            Self::Detach { source } if source.raw_os_error() == Some(libc::ENOSPC) => {
                Some(Switch::MaxNetNamespaces.help())
            }
            Self::Cookie { source } if source.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Some("this needs Linux 5.14 or newer".into())
            }
            Self::Threaded { .. } => Some("enter it first thing in `main`".into()),
            Self::HostReachable { .. } => Some(
                "start it as an ordinary user, or as root where the user nobody (65534) exists"
                    .into(),
            ),
            Self::SandboxDetach { switch, .. }
            | Self::SandboxIds { switch, .. }
            | Self::SandboxMount { switch, .. } => switch.map(Switch::help),
            _ => self.io_source().and_then(privileges),
        }
    }

    fn io_source(&self) -> Option<&io::Error> {
        std::error::Error::source(self)?.downcast_ref()
    }
}

fn digits_only(digits: &str) -> String {
    format!("digits alone are a process id; give a namespace of that name as /run/netns/{digits}")
}

fn no_such_name(name: &Name, known: &[Name]) -> String {
    let known = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let existing =
        if known.is_empty() { "none exists".into() } else { format!("there is {known}") };
    format!("{existing}; make it with `ip netns add {name}`")
}

fn privileges(source: &io::Error) -> Option<String> {
    (source.kind() == io::ErrorKind::PermissionDenied)
        .then(|| "this needs CAP_SYS_ADMIN: run as root, or in a sandbox".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_missing_name_is_answered_with_those_that_exist_and_how_to_make_it() {
        let missing = |known| Error::NoSuchName { name: name("blue"), known };
        assert_eq!(
            missing(vec![]).help().unwrap(),
            "none exists; make it with `ip netns add blue`"
        );
        assert_eq!(
            missing(vec![name("green"), name("red")]).help().unwrap(),
            "there is \"green\", \"red\"; make it with `ip netns add blue`"
        );
    }

    #[test]
    fn a_refused_permission_names_the_capability_and_the_sandbox() {
        let refused = || io::Error::from_raw_os_error(libc::EPERM);
        let busy = || io::Error::from_raw_os_error(libc::EBUSY);
        let help = Error::Enter { source: refused() }.help().unwrap();
        assert!(help.contains("CAP_SYS_ADMIN") && help.contains("sandbox"), "{help}");
        assert!(Error::Create { name: name("blue"), source: refused() }.help().is_some());
        assert!(Error::Enter { source: busy() }.help().is_none(), "no advice that would not help");
    }

    #[test]
    fn a_message_never_repeats_its_source() {
        let error = Error::Enter { source: io::Error::from_raw_os_error(libc::EPERM) };
        assert_eq!(error.to_string(), "cannot enter the network namespace");
    }
}
