//! The result of the law suite.

use std::fmt;

/// The laws in short, in order of their numbers from one; `homeostat_core` has their full text.
pub const LAWS: [&str; 10] = [
    "observe never writes, and unknown never causes a write",
    "objects are normalized: what was written reads back equal, or is settled",
    "diff and plan are pure: same input, same plan, same order",
    "a writer touches what its steps name, nothing foreign, and answers for every step",
    "nothing is deleted unless it is owned and was seen in this pass",
    "a pass after a converged pass writes nothing",
    "hints may be lost, duplicated or wrong: the end state is the same",
    "where the target holds no mark, the intent is durable before the write",
    "steps fail the way the source says, and strict mode stops at the first failure",
    "the subscription stands before the first observe, and hints cover what is said",
];

/// Why the suite stopped. `Debug` is the same as `Display`, so that `unwrap` prints the text.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The source breaks a law.
    #[error("law {law} is broken by source `{name}`: {how} (the law: {}); help: {help}", text(*.law))]
    #[non_exhaustive]
    Law {
        law: u8,
        /// The source.
        name: &'static str,
        /// What was seen.
        how: String,
        /// What its author can do about it.
        help: &'static str,
    },
    /// The harness is unfit, so that nothing is known about the source.
    #[error("the harness is unfit: {how}")]
    Harness { how: String },
}

fn text(law: u8) -> &'static str {
    LAWS.get(usize::from(law).wrapping_sub(1)).copied().unwrap_or_default()
}

impl Broken {
    /// What the author of the source, or of the harness, can do about it.
    #[must_use]
    pub fn help(&self) -> &str {
        match self {
            Broken::Law { help, .. } => help,
            Broken::Harness { how } => how,
        }
    }

    /// The number of the broken law, if it was one.
    #[must_use]
    pub fn number(&self) -> Option<u8> {
        match self {
            Broken::Law { law, .. } => Some(*law),
            Broken::Harness { .. } => None,
        }
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result when no law is broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the harness could not check, with the number of the law.
    pub unchecked: Vec<(u8, &'static str)>,
}
