//! The name of a network namespace: one entry of `/run/netns`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Where named namespaces live, shared with `ip netns`.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// The longest file name that Linux file systems take.
const LONGEST: usize = 255;

/// A name that `ip netns` takes too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks that `name` is one plain file name.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        match fault(&name) {
            Some(why) => Err(Error::BadName { name, why }),
            None => Ok(Self(name)),
        }
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file that pins the namespace of this name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.0)
    }
}

fn fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        "." | ".." => Some("it is a directory's own entry"),
        _ if name.contains('/') => Some("it contains a slash"),
        _ if name.contains('\0') => Some("it contains a NUL"),
        _ if name.len() > LONGEST => Some("it is longer than 255 bytes"),
        _ => None,
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, why: &str) {
        let error = Name::new(name).unwrap_err().to_string();
        assert!(error.ends_with(why), "{name:?}: {error}");
    }

    #[test]
    fn names_that_leave_the_directory_or_no_file_can_have_are_refused() {
        check("", "it is empty");
        check(".", "a directory's own entry");
        check("..", "a directory's own entry");
        check("../etc", "it contains a slash");
        check("a/b", "it contains a slash");
        check("a\0b", "it contains a NUL");
        check(&"x".repeat(256), "it is longer than 255 bytes");
        check(&"ü".repeat(128), "it is longer than 255 bytes");
    }

    #[test]
    fn any_other_file_name_is_a_name() {
        for name in ["blue", "a b", "...", ".hidden", "12", &"x".repeat(255)] {
            assert_eq!(Name::new(name).unwrap().path(), Path::new("/run/netns").join(name));
        }
    }
}
