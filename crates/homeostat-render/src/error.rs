//! Why a text could not be read, fetched or kept.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use homeostat_core::outcome::Retry;
use homeostat_kit::finished_files::Unfinished;

/// Why an input or a template could not be read, or a value not be kept. No message has the content of a secret in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} is larger than {most} bytes")]
    TooLarge { name: String, most: u64 },
    #[error("{name} is not UTF-8: a wrong byte in line {line}")]
    NotText { name: String, line: usize },
    #[error("{name} is empty")]
    Empty { name: String },
    #[error("the last line of {name} has no newline: it may be cut off")]
    CutOff { name: String },
    #[error("{message}")]
    Malformed { message: String },
    #[error("{message}")]
    BeingWritten {
        message: String,
        /// When it may be finished; nothing while a process has it open.
        due_in: Option<Duration>,
    },
    #[error("no credentials were passed to this program")]
    NoCredentials,
    #[error("`{0}` is no name of a credential")]
    CredentialName(String),
    #[error("`{url}` cannot be fetched: {why}")]
    Url { url: String, why: &'static str },
    #[error("cannot fetch {url}: {why}")]
    Fetch {
        url: String,
        /// The words of the network, of TLS or of the server.
        why: String,
    },
    #[error("cannot keep the accepted value in {path}")]
    Keep {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the links")]
    Links(#[from] homeostat_netlink::Error),
}

impl Error {
    /// When it makes sense to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Read { .. }
            | Error::Fetch { .. }
            | Error::Keep { .. }
            | Error::Links(_)
            | Error::BeingWritten { .. } => Retry::Soon,
            Error::Url { .. } | Error::CredentialName(_) | Error::NoCredentials => Retry::Never,
            _ => Retry::OnChange,
        }
    }

    /// The way out, if there is one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::Empty { .. } => Some("say that it may be empty, if that is meant"),
            Error::NoCredentials => {
                Some("start the program by a unit with LoadCredential= or SetCredential=")
            }
            Error::BeingWritten { .. } => {
                Some("what writes to another file and renames it is never in the way")
            }
            _ => None,
        }
    }

    pub(crate) fn being_written(unfinished: &Unfinished) -> Self {
        let message = unfinished.failure().error;
        Error::BeingWritten { message, due_in: unfinished.due_in }
    }
}

/// An error with its causes, for states that are shown.
pub(crate) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    homeostat_core::outcome::Failure::from_error(error, Retry::OnChange).error
}
