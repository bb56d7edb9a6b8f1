//! How a person points at a namespace on the command line: by name, by path or by process.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::name::DIRECTORY;
use crate::{Error, Name, Result};

/// Where a network namespace is to be found. Parsing opens nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// An entry of `/run/netns`.
    Named(Name),
    /// A file that is a network namespace.
    At(PathBuf),
    /// The namespace of the process with this id (of its main thread).
    OfPid(u32),
}

impl Place {
    /// A file; one of `/run/netns` is the name that it is the entry of, and `/proc/PID/ns/net` the process: so one
    /// namespace is called one way.
    #[must_use]
    pub fn of_path(path: PathBuf) -> Self {
        let text = path.to_str().unwrap_or_default();
        let name = text.strip_prefix(DIRECTORY).and_then(|name| name.strip_prefix('/'));
        let pid = text.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/ns/net"));
        let named = name.and_then(|name| Name::new(name).ok()).map(Self::Named);
        let process = pid.and_then(|pid| pid.parse().ok()).map(Self::OfPid);
        named.or(process).unwrap_or(Self::At(path))
    }

    /// The file to open.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Named(name) => name.path(),
            Self::At(path) => path.clone(),
            Self::OfPid(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    /// A slash makes it a path, digits alone a pid, anything else is a name.
    fn from_str(text: &str) -> Result<Self> {
        if text.contains('/') {
            return Ok(Self::At(text.into()));
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Name::new(text).map(Self::Named);
        }
        text.parse().map(Self::OfPid).map_err(|_| Error::BadPid(text.into()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::At(path) => path.display().fmt(f),
            Self::OfPid(pid) => pid.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &str) {
        let place: Place = text.parse().unwrap();
        assert_eq!(place.path().to_str(), Some(path));
        assert_eq!(place.to_string(), text, "it is shown as it was given");
    }

    #[test]
    fn a_slash_means_a_path_digits_a_pid_and_the_rest_a_name() {
        check("blue", "/run/netns/blue");
        check("12a", "/run/netns/12a");
        check("12", "/proc/12/ns/net");
        check("/run/netns/12", "/run/netns/12");
        check("./blue", "./blue");
    }

    #[test]
    fn a_path_is_what_it_leads_to() {
        for (path, expected) in [
            ("/run/netns/blue", Place::Named(Name::new("blue").unwrap())),
            ("/run/netns/12", Place::Named(Name::new("12").unwrap())),
            ("/proc/12/ns/net", Place::OfPid(12)),
            ("/proc/self/ns/net", Place::At("/proc/self/ns/net".into())),
            ("/run/netnsx", Place::At("/run/netnsx".into())),
            ("/run/docker/netns/a", Place::At("/run/docker/netns/a".into())),
        ] {
            assert_eq!(Place::of_path(path.into()), expected);
        }
    }

    #[test]
    fn digits_that_no_pid_has_are_refused_and_help_says_how_to_give_such_a_name() {
        let error = "99999999999".parse::<Place>().unwrap_err();
        assert!(matches!(error, Error::BadPid(_)));
        assert!(error.help().unwrap().contains("/run/netns/99999999999"));
    }

    #[test]
    fn an_empty_text_is_a_bad_name() {
        assert!(matches!("".parse::<Place>(), Err(Error::BadName { .. })));
    }
}
