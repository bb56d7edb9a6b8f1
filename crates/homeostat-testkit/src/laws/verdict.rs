//! The result of the law suite.

use std::fmt;

/// One law of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    pub number: u8,
    /// In short.
    pub text: &'static str,
}

const fn law(number: u8, text: &'static str) -> Law {
    Law { number, text }
}

/// The laws, in order; `homeostat_core` has their full text.
pub const LAWS: [Law; 10] = [
    law(1, "observe never writes, and unknown never causes a write"),
    law(2, "objects are normalized: what was written reads back equal, or is settled"),
    law(3, "diff and plan are pure: same input, same plan, same order"),
    law(4, "a writer touches what its steps name, nothing foreign, and answers for every step"),
    law(5, "nothing is deleted unless it is owned and was seen in this pass"),
    law(6, "a pass after a converged pass writes nothing"),
    law(7, "hints may be lost, duplicated or wrong: the end state is the same"),
    law(8, "where the target holds no mark, the intent is durable before the write"),
    law(9, "steps fail the way the source says, and strict mode stops at the first failure"),
    law(10, "the subscription stands before the first observe, and hints cover what is said"),
];

/// Why the suite stopped. `Debug` is the same as `Display`, so that `unwrap` prints the text.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// The source breaks a law.
    Law { law: Law, source: &'static str, how: String },
    /// The harness is unfit, so that nothing is known about the source.
    Harness { how: String },
}

impl Broken {
    /// The number of the broken law, if it was one.
    #[must_use]
    pub fn number(&self) -> Option<u8> {
        match self {
            Broken::Law { law, .. } => Some(law.number),
            Broken::Harness { .. } => None,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Law { law: Law { number, text }, source, how } => {
                write!(f, "law {number} is broken by source `{source}`: {how} (the law: {text})")
            }
            Broken::Harness { how } => write!(f, "the harness is unfit: {how}"),
        }
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Broken {}

/// The result when no law is broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the harness could not check, with the number of the law.
    pub unchecked: Vec<(u8, &'static str)>,
}

impl Verdict {
    pub(super) fn skip(&mut self, law: u8, what: &'static str) {
        self.unchecked.push((law, what));
    }
}
