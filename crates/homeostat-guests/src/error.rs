//! Why the target could not be asked, or what it refused.

use homeostat_core::{Failure, Retry};

use crate::classify::Class;

/// Why a request came to nothing. No variant carries the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was sent: no connection, or the wrong server.
    #[error("cannot reach {endpoint}: {why}")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// Why.
        why: String,
    },
    /// It was sent, and no answer came.
    #[error("{request}: the answer was lost: {why}")]
    Lost {
        /// The request.
        request: String,
        /// How.
        why: String,
    },
    /// It was answered with an error.
    #[error("{request}: {words} (status {status})")]
    Refused {
        /// The request.
        request: String,
        /// The status.
        status: u16,
        /// The target's words.
        words: String,
        /// What they mean.
        class: Class,
    },
    /// The answer makes no sense.
    #[error("{request}: the answer makes no sense: {why}")]
    Senseless {
        /// The request.
        request: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// What it means.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::Unreachable { .. } => Class::Transient,
            Error::Lost { .. } | Error::Senseless { .. } => Class::UnknownOutcome,
            Error::Refused { class, .. } => *class,
        }
    }

    /// Whether it may have been done all the same.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.class() == Class::UnknownOutcome
    }

    /// When another try makes sense.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.class() {
            Class::Conflict => Retry::Now,
            Class::Malformed => Retry::Never,
            Class::Forbidden | Class::NotFound => Retry::OnChange,
            _ => Retry::Soon,
        }
    }

    /// As plans and reports tell it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let failure = Failure::from_error(self, self.retry());
        match self.help() {
            Some(help) => failure.with_help(help),
            None => failure,
        }
    }

    fn help(&self) -> Option<&'static str> {
        Some(match (self, self.class()) {
            (Error::Unreachable { why, .. }, _) if why.contains("fingerprint") => {
                "if that is the server that you mean, put its fingerprint into `[proxmox]`"
            }
            (_, Class::Locked) => "it is tried again when the lock is gone",
            (_, Class::Forbidden) => "see to the token and its privileges on the guest",
            _ => return None,
        })
    }
}
