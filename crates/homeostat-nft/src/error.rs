//! What can go wrong between a ruleset and the kernel.

use homeostat_core::{Failure, Retry};
use homeostat_netlink::{Errno, Malformed};

/// A failed look or write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("cannot talk to nftables")]
    Netlink(#[from] homeostat_netlink::Error),
    #[error("what the kernel tells of {what} is malformed")]
    Malformed { what: &'static str, source: Malformed },
    #[error("the ruleset changed each of the {tries} times that it was read")]
    Moving { tries: u32 },
}

impl Error {
    /// For the report, with the way out.
    pub(crate) fn failure(&self) -> Failure {
        let errno = match self {
            Error::Netlink(error) => error.errno(),
            _ => None,
        };
        match errno {
            Some(Errno::PERM | Errno::ACCESS) => Failure::from_error(self, Retry::Never)
                .with_help("run it as root or with CAP_NET_ADMIN, or try it with --sandbox"),
            Some(Errno::MSGSIZE) => {
                Failure::from_error(self, Retry::OnChange).with_help(crate::compile::TOO_LONG)
            }
            _ => Failure::from_error(self, Retry::Soon),
        }
    }
}
