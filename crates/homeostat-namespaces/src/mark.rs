//! The owner's mark on what is inside a namespace: what carries it does not keep the namespace.

use std::borrow::Cow;

use homeostat_core::Owner;
use homeostat_netlink::uapi::{
    RTPROT_BIRD, RTPROT_BOOT, RTPROT_DHCP, RTPROT_KERNEL, RTPROT_RA, RTPROT_REDIRECT,
    RTPROT_STATIC, RTPROT_UNSPEC, RTPROT_ZEBRA,
};

/// The number that the kernel keeps with a route, a rule or an address: who put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

/// Whose objects are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    protocol: Protocol,
    alias: String,
}

impl Mark {
    /// The mark of an owner.
    #[must_use]
    pub fn new(protocol: Protocol, owner: &str) -> Self {
        Mark { protocol, alias: format!("homeostat:{owner}") }
    }

    /// Whether a link is one that we made: its group, and a word of its alias.
    pub(crate) fn is_on_link(&self, group: u32, alias: Option<&str>) -> bool {
        let words = alias.into_iter().flat_map(str::split_whitespace);
        group == u32::from(self.protocol.0) && words.into_iter().any(|word| word == self.alias)
    }

    /// Whether a table is one that we made: the last word of its comment.
    pub(crate) fn is_on_table(&self, comment: &str) -> bool {
        comment.rsplit(' ').next() == Some(&self.alias)
    }

    /// Who put a route, rule, nexthop or neighbour there.
    pub(crate) fn owner(&self, protocol: Protocol) -> Owner {
        match protocol.0 {
            _ if protocol == self.protocol => Owner::Ours,
            RTPROT_REDIRECT | RTPROT_KERNEL | RTPROT_RA => Owner::Kernel,
            _ => foreign(protocol),
        }
    }

    /// Who put an address there: the kernel marks what it makes by itself with 1 to 3.
    pub(crate) fn address_owner(&self, protocol: Protocol) -> Owner {
        match protocol.0 {
            _ if protocol == self.protocol => Owner::Ours,
            1..=3 => Owner::Kernel,
            _ => foreign(protocol),
        }
    }
}

fn foreign(protocol: Protocol) -> Owner {
    Owner::Foreign(match protocol.0 {
        RTPROT_UNSPEC => Cow::Borrowed("another owner"),
        RTPROT_BOOT => Cow::Borrowed("protocol boot"),
        RTPROT_STATIC => Cow::Borrowed("protocol static"),
        RTPROT_ZEBRA => Cow::Borrowed("protocol zebra"),
        RTPROT_BIRD => Cow::Borrowed("protocol bird"),
        RTPROT_DHCP => Cow::Borrowed("protocol dhcp"),
        number => Cow::Owned(format!("protocol {number}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_ours_by_group_and_by_a_word_of_its_alias() {
        let mark = Mark::new(Protocol(76), "default");
        assert!(mark.is_on_link(76, Some("homeostat:default")));
        assert!(mark.is_on_link(76, Some("uplink to rack 7 homeostat:default")));
        for (group, alias) in [
            (0, Some("homeostat:default")),
            (76, None),
            (76, Some("homeostat:default2")),
            (76, Some("homeostat:other")),
        ] {
            assert!(!mark.is_on_link(group, alias), "{group} {alias:?}");
        }
    }

    #[test]
    fn a_protocol_says_whose_it_is() {
        let mark = Mark::new(Protocol(76), "default");
        let who = |number| mark.owner(Protocol(number)).to_string();
        assert_eq!(who(76), "ours");
        for kernel in [1, 2, 9] {
            assert_eq!(who(kernel), "kernel");
        }
        assert_eq!(who(4), "protocol static");
        assert_eq!(who(77), "protocol 77");
        assert_eq!(who(0), "another owner");
        assert_eq!(mark.address_owner(Protocol(3)), Owner::Kernel);
        assert_eq!(mark.address_owner(Protocol(0)).to_string(), "another owner");
    }
}
