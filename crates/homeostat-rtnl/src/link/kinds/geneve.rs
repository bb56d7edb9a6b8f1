//! Ethernet over UDP to one other end, with room for options of the packets.

use std::net::IpAddr;

use homeostat_netlink::uapi::{
    IFLA_GENEVE_ID, IFLA_GENEVE_PORT, IFLA_GENEVE_REMOTE, IFLA_GENEVE_REMOTE6, IFLA_GENEVE_TOS,
    IFLA_GENEVE_TTL,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Occupies};
use crate::link::kinds::options::{OptionTable as _, Options, is_alike, options};
use crate::message::{put_ip, read_ip};

options! {
    /// Options of a Geneve tunnel.
    Geneve [
        id: u32 = "id", "The network", ("a Geneve network id", 0..=16_777_215) => IFLA_GENEVE_ID;
    ] {
        remote: IpAddr = "remote", "The other end of the tunnel";
        port: u16 = "port", "Destination port", ("a port", 1..=u16::MAX);
        ttl: u8 = "ttl", "Hops that packets may take", ("a time to live", 1..=u8::MAX) => IFLA_GENEVE_TTL;
        tos: u8 = "tos", "Type of service of packets", ("a type of service", 0..=u8::MAX) => IFLA_GENEVE_TOS;
    }
}

pub(crate) const BEHAVIOUR: Behaviour =
    Behaviour { occupies: Occupies::Namespace, ..Behaviour::PLAIN };

impl Options for Geneve {
    fn check(&mut self) -> Result<(), &'static str> {
        match () {
            () if self.id > 0x00ff_ffff => Err("a Geneve network id is a number below 16777216"),
            () => match self.remote {
                None => Err("a Geneve tunnel needs its other end: `remote`"),
                Some(end) if end.is_multicast() || end.is_unspecified() => {
                    Err("the other end of a Geneve tunnel is one address")
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Quirk `geneve-fixed-options` (Linux 6.1): id, port and the family of the other end are for good.
    fn changes_in_place(&self, seen: &Self) -> bool {
        let is_ipv6 = |geneve: &Self| geneve.remote.is_some_and(|end| end.is_ipv6());
        self.id == seen.id
            && is_alike(self.port.as_ref(), seen.port.as_ref())
            && is_ipv6(self) == is_ipv6(seen)
    }

    fn excludes(&self, other: &Self) -> bool {
        (self.id, self.remote) == (other.id, other.remote)
    }

    fn encode(&self, data: &mut MessageWriter<'_>, _refs: &Refs) {
        if let Some(end) = self.remote {
            let attr = if end.is_ipv6() { IFLA_GENEVE_REMOTE6 } else { IFLA_GENEVE_REMOTE };
            put_ip(data, attr, end);
        }
        self.port.map(|port| data.attr_be16(IFLA_GENEVE_PORT, port));
        self.put_attrs(data);
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, _refs: &mut Refs) -> Result<(), Malformed> {
        match attr.kind {
            IFLA_GENEVE_REMOTE | IFLA_GENEVE_REMOTE6 => self.remote = Some(read_ip(attr)?),
            IFLA_GENEVE_PORT => self.port = Some(attr.be16()?),
            _ => self.read_attr(attr)?,
        }
        Ok(())
    }
}
