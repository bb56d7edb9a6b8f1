//! Why a pass runs: a closed set of reasons that merge by union and travel to the log.

use core::fmt;
use core::ops::BitOr;

/// One reason for a pass. The driver and the log see it, a source never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The loop has just begun and nothing was observed yet.
    Start,
    /// The desired state changed.
    Desired,
    /// The target said that something may have changed.
    Hint,
    /// It is time to look at everything again, or hints were lost.
    Resync,
    /// The backoff of an earlier failure has elapsed.
    Retry,
    /// A person asked for it.
    Operator,
}

impl Reason {
    const ALL: [Self; 6] =
        [Self::Start, Self::Desired, Self::Hint, Self::Resync, Self::Retry, Self::Operator];

    /// The word for it in logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Desired => "desired",
            Self::Hint => "hint",
            Self::Resync => "resync",
            Self::Retry => "retry",
            Self::Operator => "operator",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The merged reasons of one pass.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u8);

impl Reasons {
    /// No reason given.
    pub const NONE: Self = Self(0);

    /// Whether `reason` is among them.
    #[must_use]
    pub const fn contains(self, reason: Reason) -> bool {
        self.0 & reason.bit() != 0
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self(reason.bit())
    }
}

impl<R: Into<Reasons>> BitOr<R> for Reasons {
    type Output = Self;

    fn bitor(self, other: R) -> Self {
        Self(self.0 | other.into().0)
    }
}

impl BitOr for Reason {
    type Output = Reasons;

    fn bitor(self, other: Self) -> Reasons {
        Reasons::from(self) | other
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = Reason::ALL.into_iter().filter(|reason| self.contains(*reason));
        let words: Vec<_> = given.map(Reason::word).collect();
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join(",")) }
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_keeps_its_own_bit_and_word() {
        let mut all = Reasons::NONE;
        for reason in Reason::ALL {
            assert!(!all.contains(reason), "{reason:?} shares a bit");
            all = all | reason;
        }
        assert_eq!(all.to_string(), "start,desired,hint,resync,retry,operator");
        assert_eq!(Reasons::NONE.to_string(), "none");
    }
}
