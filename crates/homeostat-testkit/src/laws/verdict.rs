//! The result of the law suite.

use std::fmt;

/// Makes the list, and shows it on the page of the constant.
macro_rules! laws {
    ($($text:literal,)*) => {
        /// The laws in short, in order of their numbers from one; `homeostat_core` has their full text.
        ///
        $(#[doc = concat!("1. ", $text)])*
        ///
        /// *Settled* is an object for which the target keeps another value than it was given, twice in a row: it is
        /// reported, and not written again. A *hint* is a notice that a key may have changed. To *observe* is to read
        /// the target: of an `Api`, to `list` it or to `look` at some keys.
        pub const LAWS: [&str; 10] = [$($text),*];
    };
}

laws! {
    "observe never writes, and unknown never causes a write",
    "objects are normalized: what was written reads back equal, or is settled",
    "diff and plan are pure: same input, same plan, same order",
    "a writer touches what its steps name, nothing foreign, and answers for every step",
    "nothing is deleted unless it is owned and was seen in this pass",
    "a pass after a converged pass writes nothing",
    "hints may be lost, duplicated or wrong: the end state is the same",
    "where the target holds no mark, the intent is durable before the write",
    "steps fail the way the source says, and strict mode stops at the first failure",
    "the subscription is open before the first observe, and hints cover what the source claims",
}

/// Why the suite stopped. `Debug` is the same as `Display`, so that `unwrap` prints the text.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The source breaks a law.
    #[error("law {law} is broken by source `{source_name}`: {how} (the law: {}); help: {help}", text(*.law))]
    #[non_exhaustive]
    Law {
        /// The number of the law, from one: its text is `LAWS[law - 1]`, see [`LAWS`].
        law: u8,
        /// The name of the source: its `NAME`.
        source_name: &'static str,
        /// What was seen.
        how: String,
        /// What its author can do about it.
        help: &'static str,
    },
    /// The harness is unfit, so that nothing is known about the source.
    #[error("the harness is unfit: {how}")]
    Harness {
        /// What is wrong with it, and what to do about it.
        how: String,
    },
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
#[non_exhaustive]
pub struct Verdict {
    /// What the harness could not check, with the number of the law.
    pub unchecked: Vec<(u8, &'static str)>,
}
