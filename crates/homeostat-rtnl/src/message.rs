//! What the netlink messages of all kinds have in common: who writes them, and how addresses and the names of links
//! are written and read. Each kind has its own messages in its module. Sends nothing.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use homeostat_netlink::uapi::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use homeostat_netlink::{Attr, Batch, Malformed, MessageWriter, Result};

use crate::address::AddressMarks;
use crate::link::{IfIndex, LinkName, Links};
use crate::number::Protocol;

/// How an object is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Only if nothing is on its key.
    Create,
    /// In place of what is on its key.
    Replace,
}

impl Put {
    pub(crate) fn flags(self) -> u16 {
        match self {
            Put::Create => NLM_F_CREATE | NLM_F_EXCL,
            Put::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        }
    }
}

/// Writes into a batch on behalf of one owner.
pub(crate) struct Encoder<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) links: &'a Links,
    pub(crate) protocol: Protocol,
    pub(crate) address_marks: AddressMarks,
    /// `NLM_F_ECHO`, if the kernel is asked to send back what it made of a request, or 0. Where few objects are
    /// written, that saves a second observation; for very many, one observation of everything costs less.
    pub(crate) echo: u16,
}

/// The link that a request needs is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoLink(pub(crate) LinkName);

/// Whether the request was written.
pub(crate) type Encoded = std::result::Result<Result<()>, NoLink>;

impl Encoder<'_> {
    pub(crate) fn index(&self, link: LinkName) -> std::result::Result<IfIndex, NoLink> {
        self.links.index(link).ok_or(NoLink(link))
    }
}

/// Names of links end with a NUL.
pub(crate) fn put_link_name<'m, 'b>(
    message: &'m mut MessageWriter<'b>,
    kind: u16,
    name: LinkName,
) -> &'m mut MessageWriter<'b> {
    message.attr(kind, &[name.as_str().as_bytes(), &[0]].concat())
}

pub(crate) fn put_ip<'m, 'b>(
    message: &'m mut MessageWriter<'b>,
    kind: u16,
    ip: IpAddr,
) -> &'m mut MessageWriter<'b> {
    match ip {
        IpAddr::V4(ip) => message.attr(kind, &ip.octets()),
        IpAddr::V6(ip) => message.attr(kind, &ip.octets()),
    }
}

pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

/// Gives links their names, and the same link its name again at once.
pub(crate) struct LinkNames<'a> {
    links: &'a Links,
    last: (IfIndex, LinkName),
}

impl<'a> LinkNames<'a> {
    pub(crate) fn new(links: &'a Links) -> Self {
        let nothing = IfIndex(0);
        LinkNames { links, last: (nothing, links.name(nothing)) }
    }

    pub(crate) fn name(&mut self, index: u32) -> LinkName {
        let index = IfIndex(index);
        if self.last.0 != index {
            self.last = (index, self.links.name(index));
        }
        self.last.1
    }
}

pub(crate) fn read_ip(attr: &Attr<'_>) -> Result<IpAddr, Malformed> {
    match attr.value.len() {
        4 => Ok(IpAddr::from(attr.array::<4>()?)),
        _ => Ok(IpAddr::from(attr.array::<16>()?)),
    }
}

#[cfg(test)]
mod decode_tests {
    use homeostat_netlink::{Message, Port};
    use proptest::prelude::*;

    use super::*;

    fn read_all(payload: &[u8]) {
        let message = Message { kind: 24, flags: 0, seq: 1, port: Port::KERNEL, payload };
        let links = Links::default();
        let _ = crate::link::message::index_and_name(&message);
        let _ = crate::link::message::decode(&message);
        let _ = crate::address::decode(&message, &links);
        let _ = crate::route::message::decode(&message, &mut LinkNames::new(&links));
        let _ = crate::nexthop::decode(&message, &links);
        let _ = crate::rule::decode(&message);
        let _ = crate::neighbour::decode(&message, &links);
        let _ = crate::fdb::decode(&message, &links);
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_can_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            read_all(&payload);
        }

        #[test]
        fn no_attribute_can_panic(
            family in prop_oneof![Just(AF_INET), Just(AF_INET6), Just(crate::fdb::AF_BRIDGE)],
            attrs in proptest::collection::vec((0u16..32, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            for head in [8, 12, 16] {
                let mut payload = vec![0; head];
                payload[0] = family;
                for (kind, value) in &attrs {
                    let len = u16::try_from(value.len() + 4).unwrap();
                    payload.extend(len.to_ne_bytes());
                    payload.extend(kind.to_ne_bytes());
                    payload.extend(value);
                    payload.resize(payload.len().next_multiple_of(4), 0);
                }
                read_all(&payload);
            }
        }
    }
}
