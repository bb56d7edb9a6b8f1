//! The result of a check, with its place.

use std::fmt;

/// Sorts by place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    line: Option<usize>,
    text: String,
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of(path: &str, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, text: text.into() }
    }

    /// A problem in one line; `index` counts from 0.
    pub(crate) fn at(path: &str, index: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(index + 1), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Fails unless `found` reads exactly as `expected`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_problems(found: &[Problem], expected: &[&str]) {
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}
