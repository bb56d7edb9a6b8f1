//! Tunnels that carry IP packets in IP packets: `ipip` and `sit` over IPv4, `ip6tnl` over IPv6.

use std::net::IpAddr;

use homeostat_netlink::uapi::{
    IFLA_IPTUN_LINK, IFLA_IPTUN_LOCAL, IFLA_IPTUN_PMTUDISC, IFLA_IPTUN_PROTO, IFLA_IPTUN_REMOTE,
    IFLA_IPTUN_TOS, IFLA_IPTUN_TTL,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::IfIndex;
use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Occupies, OwnMac, Parent};
use crate::link::kinds::options::{OptionTable as _, Options, named_values, options};

options! {
    /// Options of a tunnel over IPv4.
    IpTunnel [] {
        local: IpAddr = "local", "This end of the tunnel" => IFLA_IPTUN_LOCAL;
        remote: IpAddr = "remote", "The other end of the tunnel" => IFLA_IPTUN_REMOTE;
        ttl: u8 = "ttl", "Hops that packets may take", ("a time to live", 0..=u8::MAX) => IFLA_IPTUN_TTL;
        tos: u8 = "tos", "Type of service of packets", ("a type of service", 0..=u8::MAX) => IFLA_IPTUN_TOS;
        pmtudisc: bool = "pmtudisc", "Whether the path's MTU is found out" => IFLA_IPTUN_PMTUDISC;
    }
}

options! {
    /// Options of a tunnel over IPv6.
    Ip6Tunnel [] {
        local: IpAddr = "local", "This end of the tunnel" => IFLA_IPTUN_LOCAL;
        remote: IpAddr = "remote", "The other end of the tunnel" => IFLA_IPTUN_REMOTE;
        ttl: u8 = "ttl", "Hops that packets may take", ("a time to live", 0..=u8::MAX) => IFLA_IPTUN_TTL;
        mode: Ip6TunnelMode = "mode", "Which packets it carries" => IFLA_IPTUN_PROTO;
    }
}

named_values! {
    /// Which packets a tunnel over IPv6 carries.
    Ip6TunnelMode(u8), "a mode of an ip6tnl tunnel":
    /// IPv4 and IPv6.
    Any = "any", 0;
    /// IPv4.
    Ipip6 = "ipip6", 4;
    /// IPv6.
    Ip6ip6 = "ip6ip6", 41;
}

pub(crate) const BEHAVIOUR: Behaviour = Behaviour {
    parent: Parent::Optional,
    mac: OwnMac::None,
    occupies: Occupies::Namespace,
    ..Behaviour::PLAIN
};

impl Options for IpTunnel {
    fn check(&mut self) -> Result<(), &'static str> {
        if [self.local, self.remote].into_iter().flatten().any(|end| end.is_ipv6()) {
            return Err("the ends of such a tunnel are IPv4 addresses: `ip6tnl` goes over IPv6");
        }
        let has_ttl = self.ttl.is_some_and(|ttl| ttl != 0);
        if has_ttl && self.pmtudisc == Some(false) {
            Err("a tunnel with a TTL of its own always finds out the path's MTU")
        } else {
            Ok(())
        }
    }

    fn changes_in_place(&self, _seen: &Self) -> bool {
        true
    }

    /// Quirk `ip-tunnels-forget` (Linux 6.1): a change resets every option that it does not name, so that a change names
    /// them all.
    fn without(&self, seen: &Self) -> Self {
        IpTunnel {
            local: self.local.or(seen.local),
            remote: self.remote.or(seen.remote),
            ttl: self.ttl.or(seen.ttl),
            tos: self.tos.or(seen.tos),
            pmtudisc: self.pmtudisc.or(seen.pmtudisc),
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        (self.local, self.remote) == (other.local, other.remote)
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.put_attrs(data);
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_IPTUN_LINK, index));
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, refs: &mut Refs) -> Result<(), Malformed> {
        if attr.kind == IFLA_IPTUN_LINK {
            refs.parent = Some(IfIndex(attr.u32()?));
        }
        self.read_attr(attr)
    }
}

impl Options for Ip6Tunnel {
    fn check(&mut self) -> Result<(), &'static str> {
        if [self.local, self.remote].into_iter().flatten().any(|end| end.is_ipv4()) {
            return Err(
                "the ends of such a tunnel are IPv6 addresses: `ipip` and `sit` go over IPv4",
            );
        }
        Ok(())
    }

    fn changes_in_place(&self, _seen: &Self) -> bool {
        true
    }

    /// Quirk `ip-tunnels-forget`, as for those over IPv4.
    fn without(&self, seen: &Self) -> Self {
        Ip6Tunnel {
            local: self.local.or(seen.local),
            remote: self.remote.or(seen.remote),
            ttl: self.ttl.or(seen.ttl),
            mode: self.mode.or(seen.mode),
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        (self.local, self.remote) == (other.local, other.remote)
    }

    fn module(&self) -> Option<&'static str> {
        Some("ip6_tunnel")
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.put_attrs(data);
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_IPTUN_LINK, index));
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, refs: &mut Refs) -> Result<(), Malformed> {
        if attr.kind == IFLA_IPTUN_LINK {
            refs.parent = Some(IfIndex(attr.u32()?));
        }
        self.read_attr(attr)
    }
}
