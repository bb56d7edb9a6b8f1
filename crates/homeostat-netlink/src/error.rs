//! The errors of this crate, one for each step that can fail.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::{Malformed, Refusal};

/// A failed step. [`Error::Refused`] is what the kernel itself refused, with its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum Error {
    #[error("cannot open a netlink socket inside the network namespace")]
    Netns(#[source] homeostat_netns::Error),
    #[error("cannot open a netlink socket")]
    Open { source: io::Error },
    #[error("cannot set {option} on a netlink socket")]
    Option { option: &'static str, source: io::Error },
    #[error("cannot send to the kernel")]
    Send { source: io::Error },
    #[error("cannot receive from the kernel")]
    Receive { source: io::Error },

    #[error("an attribute of type {kind} is longer than the 65535 bytes that netlink can express")]
    TooLong { kind: u16 },
    #[error("the message from the kernel is malformed")]
    Malformed(#[from] Malformed),
    #[error("the kernel refused the request")]
    Refused(#[source] Refusal),
    #[error("the kernel did not answer for {0:?}")]
    Timeout(Duration),
    #[error("the answer was lost because the receive buffer was full")]
    AnswerLost,
    #[error("a message of {needed} bytes does not fit the buffer of {room} bytes")]
    Truncated { needed: usize, room: usize },
    #[error("the list kept changing: the dump was interrupted {tries} times")]
    Torn { tries: u32 },
    #[error("the connection is unusable since an earlier failure")]
    Dead,
}

impl Error {
    /// The kernel's error number, if this error has one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(refusal) => Some(refusal.errno),
            Self::AnswerLost => Some(Errno::NOBUFS),
            Self::Timeout(_) => Some(Errno::TIMEDOUT),
            Self::Open { source }
            | Self::Option { source, .. }
            | Self::Send { source }
            | Self::Receive { source } => Errno::from_io_error(source),
            Self::Netns(error) => {
                std::error::Error::source(error)?.downcast_ref().and_then(Errno::from_io_error)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errno_is_found_in_every_variant_that_has_one() {
        let denied = || io::Error::from(Errno::PERM);
        let inside = homeostat_netns::Error::Enter { source: denied() };
        let refusal = Refusal { errno: Errno::PERM, text: None, offset: None };
        for error in [
            Error::Netns(inside),
            Error::Open { source: denied() },
            Error::Option { option: "SO_RCVBUF", source: denied() },
            Error::Send { source: denied() },
            Error::Receive { source: denied() },
            Error::Refused(refusal),
        ] {
            assert_eq!(error.errno(), Some(Errno::PERM), "{error}");
        }
        assert_eq!(Error::AnswerLost.errno(), Some(Errno::NOBUFS));
        assert_eq!(Error::Torn { tries: 1 }.errno(), None);
    }

    #[test]
    fn a_message_never_repeats_its_source() {
        let text = Some("Nexthop has invalid gateway".into());
        let error = Error::Refused(Refusal { errno: Errno::NETUNREACH, text, offset: None });
        assert_eq!(error.to_string(), "the kernel refused the request");
    }
}
