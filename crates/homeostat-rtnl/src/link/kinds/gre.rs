//! GRE: IP packets, or Ethernet frames, over IPv4 or IPv6. Which of the two it goes over follows from its ends.

use std::net::IpAddr;

#[cfg(feature = "document")]
use homeostat_document::Fields;
use homeostat_netlink::uapi::{
    GRE_KEY, IFLA_GRE_IFLAGS, IFLA_GRE_IKEY, IFLA_GRE_LINK, IFLA_GRE_LOCAL, IFLA_GRE_OFLAGS,
    IFLA_GRE_OKEY, IFLA_GRE_PMTUDISC, IFLA_GRE_REMOTE, IFLA_GRE_TOS, IFLA_GRE_TTL,
};
use homeostat_netlink::{Attr, Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::link::IfIndex;
use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Occupies, OwnMac, Parent};
use crate::link::kinds::options::{OptionTable, Options, options};

options! {
    /// Options of a GRE tunnel.
    Gre [] {
        local: IpAddr = "local", "This end of the tunnel" => IFLA_GRE_LOCAL;
        remote: IpAddr = "remote", "The other end of the tunnel" => IFLA_GRE_REMOTE;
        key: u32 = "key", "Tells tunnels with the same ends apart", ("a tunnel key", 0..=u32::MAX);
        ttl: u8 = "ttl", "Hops that packets may take", ("a time to live", 0..=u8::MAX) => IFLA_GRE_TTL;
        tos: u8 = "tos", "Type of service of packets", ("a type of service", 0..=u8::MAX) => IFLA_GRE_TOS;
        pmtudisc: bool = "pmtudisc", "Whether the path's MTU is found out" => IFLA_GRE_PMTUDISC;
    }
}

pub(crate) const BEHAVIOUR: Behaviour = Behaviour {
    parent: Parent::Optional,
    mac: OwnMac::None,
    occupies: Occupies::Namespace,
    ..Behaviour::PLAIN
};

impl Gre {
    /// Whether the tunnel goes over IPv6, which is another kind to the kernel.
    fn is_ipv6(&self) -> bool {
        self.local.or(self.remote).is_some_and(|end| end.is_ipv6())
    }
}

impl Options for Gre {
    fn check(&mut self) -> Result<(), &'static str> {
        let families = [self.local, self.remote].map(|end| end.map(|end| end.is_ipv6()));
        if let [Some(local), Some(remote)] = families
            && local != remote
        {
            return Err("the ends of a tunnel are of one family");
        }
        if self.is_ipv6() && (self.tos.is_some() || self.pmtudisc.is_some()) {
            return Err(
                "a tunnel over IPv6 has no type of service and always finds out the path's MTU",
            );
        }
        let has_ttl = self.ttl.is_some_and(|ttl| ttl != 0);
        if has_ttl && self.pmtudisc == Some(false) {
            Err("a tunnel with a TTL of its own always finds out the path's MTU")
        } else {
            Ok(())
        }
    }

    fn changes_in_place(&self, seen: &Self) -> bool {
        self.is_ipv6() == seen.is_ipv6()
    }

    /// Quirk `gre-forgets` (Linux 6.1): a change resets every option that it does not name, so that a change
    /// names them all.
    fn without(&self, seen: &Self) -> Self {
        Gre {
            local: self.local.or(seen.local),
            remote: self.remote.or(seen.remote),
            key: self.key.or(seen.key),
            ttl: self.ttl.or(seen.ttl),
            tos: self.tos.or(seen.tos),
            pmtudisc: self.pmtudisc.or(seen.pmtudisc),
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        (self.local, self.remote) == (other.local, other.remote)
    }

    fn kernel_name(&self) -> Option<&'static str> {
        self.is_ipv6().then_some("ip6gre")
    }

    fn module(&self) -> Option<&'static str> {
        Some(if self.is_ipv6() { "ip6_gre" } else { "ip_gre" })
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        if let Some(key) = self.key {
            data.attr_be16(IFLA_GRE_IFLAGS, GRE_KEY).attr_be16(IFLA_GRE_OFLAGS, GRE_KEY);
            data.attr_be32(IFLA_GRE_IKEY, key).attr_be32(IFLA_GRE_OKEY, key);
        }
        self.put_attrs(data);
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_GRE_LINK, index));
    }

    fn decode(data: Attrs<'_>, refs: &mut Refs) -> Result<Self, Malformed> {
        let (mut gre, mut flags, mut key) = (Gre::default(), 0, None);
        for attr in data {
            let attr = attr?;
            match attr.kind {
                IFLA_GRE_IFLAGS => flags = attr.be16()?,
                IFLA_GRE_IKEY => key = Some(attr.be32()?),
                IFLA_GRE_LINK => refs.parent = Some(IfIndex(attr.u32()?)),
                _ => gre.read_attr(&attr)?,
            }
        }
        gre.key = key.filter(|_| flags & GRE_KEY != 0);
        Ok(gre)
    }
}

/// Options of a GRE tunnel for Ethernet frames, which are those of one for packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gretap(pub Gre);

pub(crate) const TAP: Behaviour = Behaviour { mac: OwnMac::Settable, ..BEHAVIOUR };

impl Options for Gretap {
    fn check(&mut self) -> Result<(), &'static str> {
        self.0.check()
    }

    fn changes_in_place(&self, seen: &Self) -> bool {
        self.0.changes_in_place(&seen.0)
    }

    fn without(&self, seen: &Self) -> Self {
        Gretap(self.0.without(&seen.0))
    }

    fn excludes(&self, other: &Self) -> bool {
        self.0.excludes(&other.0)
    }

    fn kernel_name(&self) -> Option<&'static str> {
        self.0.is_ipv6().then_some("ip6gretap")
    }

    fn module(&self) -> Option<&'static str> {
        self.0.module()
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.0.encode(data, refs);
    }

    fn decode(data: Attrs<'_>, refs: &mut Refs) -> Result<Self, Malformed> {
        Gre::decode(data, refs).map(Gretap)
    }
}

impl OptionTable for Gretap {
    fn is_alike(&self, seen: &Self) -> bool {
        self.0.is_alike(&seen.0)
    }

    fn differing_from(&self, seen: &Self) -> Self {
        Gretap(self.0.differing_from(&seen.0))
    }

    fn put_attrs(&self, data: &mut MessageWriter<'_>) {
        self.0.put_attrs(data);
    }

    fn read_attr(&mut self, attr: &Attr<'_>) -> Result<(), Malformed> {
        self.0.read_attr(attr)
    }

    fn word_of(attr: u16) -> Option<&'static str> {
        Gre::word_of(attr)
    }

    #[cfg(feature = "document")]
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Gre::read(fields).map(Gretap)
    }
}
