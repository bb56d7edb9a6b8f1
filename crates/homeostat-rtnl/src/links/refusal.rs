//! The kernel's refusals of links, with the way out.

use homeostat_core::{Failure, Retry};
use homeostat_netlink::{Errno, Error};

use crate::link::LinkName;
use crate::links::kinds::LinkKind;

/// The kernel's words for a kind that it lacks.
const UNKNOWN_KIND: &str = "Unknown device type";

/// Why a link could not be made or changed.
pub(crate) fn failure(error: &Error, kind: &LinkKind) -> Failure {
    match error {
        Error::Refused(refusal) if is_unknown_kind(refusal) => {
            let error = format!("the kernel has no links of kind `{}`: {refusal}", kind.name());
            let help = format!("load the module that brings them: modprobe {}", kind.module());
            Failure::new(error, Retry::OnChange).with_help(help)
        }
        Error::Refused(refusal) if refusal.errno == Errno::BUSY => {
            crate::apply::failure(error).with_help("perhaps it has to be down for that, or unused")
        }
        error => crate::apply::failure(error),
    }
}

/// A name that is the alternative name of another link, which an ordinary list does not show.
pub(crate) fn second(name: LinkName, holder: LinkName) -> Failure {
    let error = format!("`{name}` is an alternative name of link `{holder}`");
    let help = format!("take it away: ip link property del dev {holder} altname {name}");
    Failure::new(error, Retry::Soon).with_help(help)
}

fn is_unknown_kind(refusal: &homeostat_netlink::Refusal) -> bool {
    let says_so = |text: &str| text.starts_with(UNKNOWN_KIND);
    refusal.errno == Errno::OPNOTSUPP && refusal.text.as_deref().is_some_and(says_so)
}
