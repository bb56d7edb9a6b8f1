//! Whether the installed `nft` is one that this program understands.

use std::fmt;
use std::str::FromStr;

/// A version of `nft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// Comments on tables, chains and sets, `-t` and texts from standard input are all in it.
pub(crate) const OLDEST: Version = Version { major: 1, minor: 0, patch: 0 };

impl Version {
    /// From what `nft --version` prints: `nftables v1.0.6 (Lester Gooch #5)`.
    pub(crate) fn told(words: &str) -> Option<Self> {
        let mut words = words.split_whitespace();
        let word = words.find(|word| word.starts_with('v') && word.contains('.'))?;
        word.strip_prefix('v')?.parse().ok()
    }
}

impl FromStr for Version {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.');
        let mut next = || parts.next().map_or(Ok(0), str::parse);
        Ok(Version { major: next()?, minor: next()?, patch: next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_the_program_prints() {
        for (words, expected) in [
            ("nftables v1.0.6 (Lester Gooch #5)\n", Some("1.0.6")),
            ("nftables v1.1 (Commodore Bullmoose)", Some("1.1.0")),
            ("nftables v0.9.3 (Topsy)", Some("0.9.3")),
            ("echo (GNU coreutils) 9.1", None),
            ("", None),
        ] {
            let told = Version::told(words).map(|version| version.to_string());
            assert_eq!(told.as_deref(), expected, "{words}");
        }
    }

    #[test]
    fn an_old_version_is_older_than_the_oldest() {
        assert!(Version::told("nftables v0.9.8 (E.D.S.)").is_some_and(|old| old < OLDEST));
        assert!(Version::told("nftables v1.0.2 (Lester Gooch)").is_some_and(|new| new >= OLDEST));
    }
}
