//! The errors of requests.

use homeostat_core::{Failure, Retry};

use crate::classify::Class;
use crate::tls::{Fingerprint, WrongFingerprint};

/// Why a request failed. No variant contains the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was sent: no connection, or no TLS.
    #[error("cannot reach {endpoint}: {why}")]
    Unreachable { endpoint: String, why: String },
    /// Nothing was sent: the server is not the one whose certificate is pinned.
    #[error("cannot reach {endpoint}: {}", WrongFingerprint(*seen))]
    WrongFingerprint { endpoint: String, seen: Fingerprint },
    /// It was sent, and no answer arrived.
    #[error("{request}: the answer was lost: {why}")]
    Lost { request: String, why: String },
    #[error("{request}: {words} (status {status})")]
    Refused {
        request: String,
        status: u16,
        /// The text of the target.
        words: String,
        class: Class,
    },
    /// The answer does not have the expected form.
    #[error("{request}: the answer makes no sense: {why}")]
    UnexpectedAnswer { request: String, why: String },
}

impl Error {
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::Unreachable { .. } | Error::WrongFingerprint { .. } => Class::Transient,
            Error::Lost { .. } | Error::UnexpectedAnswer { .. } => Class::UnknownOutcome,
            Error::Refused { class, .. } => *class,
        }
    }

    /// Whether the request may have had its effect.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.class() == Class::UnknownOutcome
    }

    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.class() {
            Class::Conflict => Retry::Now,
            Class::Malformed => Retry::Never,
            Class::Forbidden | Class::NotFound => Retry::OnChange,
            _ => Retry::Soon,
        }
    }

    /// For plans and reports.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let help = match (self, self.class()) {
            (Error::WrongFingerprint { .. }, _) => {
                Some("if that is the server that you mean, put its fingerprint into `[proxmox]`")
            }
            (_, Class::Locked) => Some("it is tried again when the lock is gone"),
            (_, Class::Forbidden) => Some("see to the token and its privileges on the guest"),
            _ => None,
        };
        Failure::from_error(self, self.retry()).with_known_help(help.map(str::to_owned))
    }
}
