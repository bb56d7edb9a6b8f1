//! Why a record, a signature, a list of signers or a chunk cannot be used.

use homeostat_core::outcome::Retry;

use crate::{Digest, Name};

/// Why something that was read from the store or from a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("`{text}` is no name")]
    Name { text: String },
    #[error("`{text}` is no SHA-256 digest")]
    Digest { text: String },
    #[error("`{text}` is no time")]
    Time { text: String },
    #[error("the {record} has format {found}; this version reads format {known}")]
    Format { record: &'static str, found: u64, known: u64 },
    #[error("the {record} cannot be read: {why}")]
    Record { record: &'static str, why: String },
    #[error("the {record} cannot be used: {why}")]
    Invalid { record: &'static str, why: String },
    #[error("the signature cannot be used: {0}")]
    Signature(#[from] SignatureError),
    #[error("line {line} of the allowed signers: {why}")]
    AllowedSigners { line: usize, why: String },
    #[error("{valid} valid signature(s) by distinct allowed keys, {needed} needed{}", in_words(.refused))]
    TooFewSignatures { valid: usize, needed: usize, refused: Vec<String> },
    #[error("the chunk {digest} is not here yet")]
    MissingChunk { digest: Digest },
    #[error("the chunk {digest} is damaged: {why}")]
    DamagedChunk { digest: Digest, why: &'static str },
    #[error("the content of `{path}` does not match its manifest: {why}")]
    Content { path: String, why: &'static str },
    #[error("the node `{node}` is in the rollout twice")]
    TwinNode { node: Name },
}

/// What is wrong with one signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    #[error("it is not between the lines BEGIN and END SSH SIGNATURE")]
    Armor,
    #[error("it is not in strict base64")]
    Base64,
    #[error("it is longer than any signature")]
    TooLong,
    #[error("it ends too early")]
    Truncated,
    #[error("bytes follow its end")]
    Trailing,
    #[error("it does not begin as an SSH signature")]
    Magic,
    #[error("its version is not 1")]
    Version,
    #[error("its key is neither ssh-ed25519 nor sk-ssh-ed25519@openssh.com")]
    KeyType,
    #[error("it is of another kind than its key")]
    Mismatch,
    #[error("its key or its value has a wrong length")]
    Length,
    #[error("its hash is neither sha256 nor sha512")]
    Hash,
    #[error("it is for another namespace")]
    Namespace,
    #[error("nobody touched the hardware key")]
    NotTouched,
    #[error("it is not of these bytes by this key")]
    Forged,
}

impl Error {
    /// When it makes sense to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::MissingChunk { .. } => Retry::Soon,
            _ => Retry::OnChange,
        }
    }

    /// The way out, if there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::Name { .. } => Some(
                "write up to 63 letters, digits, `.`, `-` or `_`, with a letter or digit at both ends",
            ),
            Error::Time { .. } => Some("write it as 2026-03-01T12:00:00Z"),
            Error::Format { .. } => {
                Some("update homeostat here, or write the record with the older version")
            }
            Error::TooFewSignatures { .. } => Some(
                "sign the stored bytes with `ssh-keygen -Y sign` and a key that the allowed signers list",
            ),
            _ => None,
        }
    }
}

fn in_words(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) }
}
