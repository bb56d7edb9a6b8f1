//! Digests of contents, keyed: a reader of one cannot guess a short secret by trying.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

/// The digest of a content under the key of one state directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// That of no content.
    pub(crate) fn unknown() -> Self {
        Digest(String::new())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of one state directory.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestKey([u8; Self::LENGTH]);

impl DigestKey {
    pub(crate) const LENGTH: usize = 32;

    /// A new one; nothing, if the system has no random numbers.
    #[must_use]
    pub fn generate() -> Option<Self> {
        let mut bytes = [0; Self::LENGTH];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(DigestKey(bytes))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(DigestKey(bytes.try_into().ok()?))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn digest(&self, content: &[u8]) -> Digest {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        Digest(hex(hmac::sign(&key, content).as_ref()))
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Random letters for the name of a file, so that it is unique.
pub(crate) fn random_name() -> Option<String> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}
