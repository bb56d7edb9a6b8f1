//! IP over IP.

use std::net::IpAddr;

use homeostat_netlink::uapi::{
    GRE_KEY, IFLA_GRE_IFLAGS, IFLA_GRE_IKEY, IFLA_GRE_LINK, IFLA_GRE_LOCAL, IFLA_GRE_OFLAGS,
    IFLA_GRE_OKEY, IFLA_GRE_PMTUDISC, IFLA_GRE_REMOTE, IFLA_GRE_TOS, IFLA_GRE_TTL,
};
use homeostat_netlink::{Attr, Attrs, Malformed, MessageWriter};

use crate::link::IfIndex;
#[cfg(feature = "document")]
use crate::links::kinds::section::TTL;
use crate::links::kinds::{LinkKind, Refs, Told, options};
use crate::links::normalize::BadLink;
#[cfg(feature = "document")]
use crate::values::TOS;
#[cfg(feature = "document")]
use homeostat_document::Number;

#[cfg(feature = "document")]
const KEY: Number<u32> = Number { what: "a tunnel key", least: 0, most: u32::MAX };

options! {
    /// Options of a GRE tunnel.
    Gre [] {
        local: IpAddr = "local", "This end of the tunnel";
        remote: IpAddr = "remote", "The other end of the tunnel";
        key: u32 = "key", "Tells tunnels with the same ends apart", KEY;
        ttl: u8 = "ttl", "Hops that packets may take", TTL;
        tos: u8 = "tos", "Type of service of packets", TOS;
        pmtudisc: bool = "pmtudisc", "Whether the path's MTU is found out";
    }
}

impl Gre {
    pub(super) fn check(&self) -> Result<(), BadLink> {
        let families = [self.local, self.remote].map(|end| end.map(|end| end.is_ipv6()));
        if let [Some(local), Some(remote)] = families
            && local != remote
        {
            return Err(BadLink::EndFamilies);
        }
        if self.is_ipv6() && (self.tos.is_some() || self.pmtudisc.is_some()) {
            return Err(BadLink::TunnelOverIpv6);
        }
        let has_ttl = self.ttl.is_some_and(|ttl| ttl != 0);
        if has_ttl && self.pmtudisc == Some(false) {
            Err(BadLink::TtlWithoutPmtudisc)
        } else {
            Ok(())
        }
    }

    /// Whether the tunnel goes over IPv6, which is another kind to the kernel.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.local.or(self.remote).is_some_and(|end| end.is_ipv6())
    }

    /// What is declared, and the rest as it is.
    ///
    /// Quirk `gre-forgets` (Linux 6.1): a change resets every option that it does not name.
    pub(crate) fn over(&self, seen: &Self) -> Self {
        Gre {
            local: self.local.or(seen.local),
            remote: self.remote.or(seen.remote),
            key: self.key.or(seen.key),
            ttl: self.ttl.or(seen.ttl),
            tos: self.tos.or(seen.tos),
            pmtudisc: self.pmtudisc.or(seen.pmtudisc),
        }
    }

    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        if let Some(key) = self.key {
            data.attr_be16(IFLA_GRE_IFLAGS, GRE_KEY).attr_be16(IFLA_GRE_OFLAGS, GRE_KEY);
            data.attr_be32(IFLA_GRE_IKEY, key).attr_be32(IFLA_GRE_OKEY, key);
        }
        for (kind, end) in [(IFLA_GRE_LOCAL, self.local), (IFLA_GRE_REMOTE, self.remote)] {
            if let Some(end) = end {
                ip(data, kind, end);
            }
        }
        self.pmtudisc.map(|on| data.attr_u8(IFLA_GRE_PMTUDISC, on.into()));
        self.ttl.map(|ttl| data.attr_u8(IFLA_GRE_TTL, ttl));
        self.tos.map(|tos| data.attr_u8(IFLA_GRE_TOS, tos));
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_GRE_LINK, index));
    }
}

fn ip(data: &mut MessageWriter<'_>, kind: u16, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => data.attr(kind, &ip.octets()),
        IpAddr::V6(ip) => data.attr(kind, &ip.octets()),
    };
}

pub(crate) fn decode(data: Attrs<'_>) -> Result<Told, Malformed> {
    let (mut gre, mut lower, mut flags, mut key) = (Gre::default(), None, 0, None);
    for attr in data {
        let attr = attr?;
        match attr.kind {
            IFLA_GRE_IFLAGS => flags = attr.be16()?,
            IFLA_GRE_IKEY => key = Some(attr.be32()?),
            IFLA_GRE_LOCAL => gre.local = end(&attr)?,
            IFLA_GRE_REMOTE => gre.remote = end(&attr)?,
            IFLA_GRE_TTL => gre.ttl = Some(attr.u8()?),
            IFLA_GRE_TOS => gre.tos = Some(attr.u8()?),
            IFLA_GRE_PMTUDISC => gre.pmtudisc = Some(attr.u8()? != 0),
            IFLA_GRE_LINK => lower = Some(IfIndex(attr.u32()?)).filter(|index| index.0 != 0),
            _ => {}
        }
    }
    gre.key = key.filter(|_| flags & GRE_KEY != 0);
    Ok(Told { kind: LinkKind::Gre(gre), lower, primary: None })
}

/// An end that is not set reads back as all zeroes.
fn end(attr: &Attr<'_>) -> Result<Option<IpAddr>, Malformed> {
    let ip: IpAddr = match attr.value.len() {
        4 => attr.array::<4>()?.into(),
        _ => attr.array::<16>()?.into(),
    };
    Ok(Some(ip).filter(|ip| !ip.is_unspecified()))
}
