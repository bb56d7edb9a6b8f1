//! SHA-256 digests of contents and of nodes of the Merkle tree.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A SHA-256 digest; as text, `sha256:` and 64 small hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; Digest::LENGTH]);

const PREFIX: &str = "sha256:";

impl Digest {
    /// In bytes.
    pub const LENGTH: usize = 32;

    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts([bytes])
    }

    /// Of all parts, one after the other, without anything between them.
    #[must_use]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(part);
        }
        let mut bytes = [0; Self::LENGTH];
        // SHA-256 has exactly this many bytes.
        bytes.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Digest(bytes)
    }

    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Digest(bytes)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The digits without their prefix, as keys have them.
    #[must_use]
    pub fn hex(&self) -> String {
        let digits = |byte: &u8| [byte >> 4, byte & 15].map(|it| char::from_digit(it.into(), 16));
        self.0.iter().flat_map(digits).flatten().collect()
    }
}

impl FromStr for Digest {
    type Err = Error;

    /// One digest has one text: capital digits are refused.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || Error::Digest { text: text.chars().take(80).collect() };
        let digits = text.strip_prefix(PREFIX).ok_or_else(refuse)?.as_bytes();
        if digits.len() != 2 * Self::LENGTH {
            return Err(refuse());
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; Self::LENGTH];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = *pair else { return Err(refuse()) };
            *byte = value(high).ok_or_else(refuse)? << 4 | value(low).ok_or_else(refuse)?;
        }
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of the empty text is in the standard.
    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_has_one_text() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse::<Digest>().unwrap(), Digest::of(b""));
        let capital = EMPTY.replace('e', "E");
        for text in ["", "sha256:", &EMPTY[7..], &EMPTY[..70], &capital, &format!("{EMPTY}0")] {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn parts_are_joined() {
        assert_eq!(Digest::of_parts([b"ab".as_slice(), b"c"]), Digest::of(b"abc"));
    }
}
