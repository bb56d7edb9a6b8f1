//! What a set of files is made of, by path.

use std::fmt;
use std::str::FromStr;

/// A file or a directory of a set, or the program that reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Directory(FilePath),
    File(FilePath),
    /// By the name of the set.
    Program(String),
    /// What files are made of, by its name. It is never written.
    Input(String),
    /// Owner, group and mode of what is on a path, on the undo list of a trial. No document has it: what it does not
    /// declare of these stays as it is, so only a record knows what they were.
    Attributes(FilePath),
}

impl Key {
    /// Where it is; nothing for a program or an input.
    #[must_use]
    pub fn path(&self) -> Option<&FilePath> {
        match self {
            Key::Directory(path) | Key::File(path) => Some(path),
            Key::Program(_) | Key::Input(_) | Key::Attributes(_) => None,
        }
    }

    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self, Key::Directory(_))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Directory(path) => write!(f, "directory {path}"),
            Key::File(path) => write!(f, "file {path}"),
            Key::Program(set) => write!(f, "program {set}"),
            Key::Input(name) => write!(f, "input {name}"),
            Key::Attributes(path) => write!(f, "attributes {path}"),
        }
    }
}

impl FromStr for Key {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        match text.split_once(' ') {
            Some(("directory", path)) => Ok(Key::Directory(path.parse()?)),
            Some(("file", path)) => Ok(Key::File(path.parse()?)),
            Some(("program", set)) if !set.is_empty() => Ok(Key::Program(set.to_owned())),
            Some(("input", name)) if !name.is_empty() => Ok(Key::Input(name.to_owned())),
            Some(("attributes", path)) => Ok(Key::Attributes(path.parse()?)),
            _ => Err(PathError::NotAKey(text.to_owned())),
        }
    }
}

/// An absolute path in one form only: no `.`, no `..`, no empty parts, not the root itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

/// Why a text is no path of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    #[error("`{0}` is not `file PATH`, `directory PATH`, `program SET` or `input NAME`")]
    NotAKey(String),
    #[error("`{0}` is not an absolute path")]
    Relative(String),
    #[error("`{0}` is not a path in its shortest form")]
    NotNormal(String),
    #[error("the path holds a control character")]
    Control,
}

impl PathError {
    /// The way out, where there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            PathError::Relative(_) => Some("write where the file is on the machine, from `/` on"),
            PathError::NotNormal(_) => {
                Some("write it without `.`, `..`, `//` and a slash at its end")
            }
            PathError::NotAKey(_) | PathError::Control => None,
        }
    }
}

impl FilePath {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory that it is in, and its name there.
    #[must_use]
    pub fn split(&self) -> (&str, &str) {
        let at = self.0.rfind('/').unwrap_or_default();
        (if at == 0 { "/" } else { &self.0[..at] }, &self.0[at + 1..])
    }

    /// Whether it is somewhere below a directory.
    #[must_use]
    pub fn is_below(&self, directory: &FilePath) -> bool {
        self.0.strip_prefix(&directory.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for FilePath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PathError::Relative(text.to_owned()));
        };
        if rest.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            return Err(PathError::NotNormal(text.to_owned()));
        }
        Ok(FilePath(text.to_owned()))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_itself() {
        for text in [
            "file /etc/a b",
            "directory /etc/haproxy/maps",
            "file /x",
            "program web",
            "input servers",
            "attributes /etc/a",
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in ["/etc/a", "files /etc/a", "file etc/a", "file "] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_has_one_form() {
        let normal = |text: &str| text.parse::<FilePath>();
        assert_eq!(normal("/etc/a").unwrap().split(), ("/etc", "a"));
        assert_eq!(normal("/a").unwrap().split(), ("/", "a"));
        assert!(normal("/etc/a/b").unwrap().is_below(&normal("/etc/a").unwrap()));
        assert!(!normal("/etc/ab").unwrap().is_below(&normal("/etc/a").unwrap()));
        for text in ["/", "/a/", "//a", "/a/../b", "/a/./b", "a", "", "/a\nb"] {
            assert!(normal(text).is_err(), "{text:?}");
        }
    }
}
