//! Ethernet over UDP.

use std::net::IpAddr;

use homeostat_netlink::uapi::{
    IFLA_VXLAN_AGEING, IFLA_VXLAN_COLLECT_METADATA, IFLA_VXLAN_GROUP, IFLA_VXLAN_GROUP6,
    IFLA_VXLAN_ID, IFLA_VXLAN_LEARNING, IFLA_VXLAN_LINK, IFLA_VXLAN_LOCAL, IFLA_VXLAN_LOCAL6,
    IFLA_VXLAN_PORT, IFLA_VXLAN_PROXY, IFLA_VXLAN_TOS, IFLA_VXLAN_TTL, IFLA_VXLAN_TTL_INHERIT,
    IFLA_VXLAN_VNIFILTER,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::IfIndex;
use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Occupies, Parent};
use crate::link::kinds::options::{AttrValue as _, OptionTable as _, Options, is_alike, options};
use crate::link::vnis::Vnis;
use crate::message::{put_ip, read_ip};

options! {
    /// Options of a VXLAN.
    Vxlan [
        id: u32 = "id", "The network", ("a VXLAN network id", 0..=16_777_215) => IFLA_VXLAN_ID;
    ] {
        local: IpAddr = "local", "This end of the tunnel";
        remote: IpAddr = "remote", "The other end of the tunnel";
        group: IpAddr = "group", "The multicast group of all ends";
        port: u16 = "port", "Destination port", ("a port", 1..=u16::MAX);
        ttl: u8 = "ttl", "Hops that packets may take", ("a time to live", 0..=u8::MAX);
        tos: u8 = "tos", "Type of service of packets", ("a type of service", 0..=u8::MAX) => IFLA_VXLAN_TOS;
        learning: bool = "learning", "Whether ends are learned from packets" => IFLA_VXLAN_LEARNING;
        ageing: u32 = "ageing", "Time after which a learned end is forgotten" as crate::values::Seconds => IFLA_VXLAN_AGEING;
        proxy: bool = "proxy", "Whether ARP is answered for known ends" => IFLA_VXLAN_PROXY;
        external: bool = "external", "Whether it has several networks, with `id = 0`: VLANs, routes or programs say which" => IFLA_VXLAN_COLLECT_METADATA;
        vnis: Vnis = "vnis", "All networks that it takes, with `external`: ids and ranges";
    }
}

pub(crate) const BEHAVIOUR: Behaviour = Behaviour {
    parent: Parent::Optional,
    // The outer headers with IPv4.
    overhead: 50,
    occupies: Occupies::Namespace,
    ..Behaviour::PLAIN
};

impl Options for Vxlan {
    fn check(&mut self) -> Result<(), &'static str> {
        let ends = [self.local, self.remote, self.group];
        let mut families = ends.iter().flatten().map(IpAddr::is_ipv6);
        let first = families.next();
        if self.id > 0x00ff_ffff {
            return Err("a VXLAN network id is a number below 16777216");
        }
        if self.remote.is_some() && self.group.is_some() {
            return Err("it has either a remote end or a multicast group");
        }
        if self.external == Some(true)
            && (self.id != 0 || self.remote.is_some() || self.group.is_some())
        {
            return Err(
                "with `external` its id is 0, and it has no remote end or group of its own",
            );
        }
        if self.vnis.is_some() && self.external != Some(true) {
            return Err("a list of networks is for a VXLAN with `external = true`");
        }
        let is_group = |end: IpAddr| end.is_multicast();
        if self.remote.is_some_and(is_group) || self.group.is_some_and(|group| !is_group(group)) {
            return Err("its group is no multicast address, or its remote end is one");
        }
        let is_one_family = families.all(|is_v6| Some(is_v6) == first);
        if is_one_family { Ok(()) } else { Err("the ends of a tunnel are of one family") }
    }

    /// Quirk `vxlan-fixed-options` (Linux 6.18): id, port, proxy, external and whether it has a list of networks are refused in words ("Cannot
    /// change VNI."), a local address of the other family too, and whether the TTL is inherited is
    /// silently left as it was.
    fn changes_in_place(&self, seen: &Self) -> bool {
        let inherits = |ttl: Option<u8>| ttl == Some(0);
        let is_v6 = |ip: Option<IpAddr>| ip.map(|ip| ip.is_ipv6());
        let families = |vxlan: &Self| is_v6(vxlan.local.or(vxlan.remote).or(vxlan.group));
        let is_ends_alike = families(self).is_none()
            || families(seen).is_none_or(|is_v6| families(self) == Some(is_v6));
        self.id == seen.id
            && is_alike(self.port.as_ref(), seen.port.as_ref())
            && is_alike(self.proxy.as_ref(), seen.proxy.as_ref())
            && is_alike(self.external.as_ref(), seen.external.as_ref())
            && (self.vnis.is_none() || seen.vnis.is_some())
            && (self.ttl.is_none() || inherits(self.ttl) == inherits(seen.ttl))
            && is_ends_alike
    }

    /// Networks are written on their own.
    fn without(&self, seen: &Self) -> Self {
        Vxlan { vnis: None, ..self.differing_from(seen) }
    }

    fn excludes(&self, other: &Self) -> bool {
        self.id == other.id
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        let attr = |ip: IpAddr, v4: u16, v6: u16| if ip.is_ipv4() { v4 } else { v6 };
        if let Some(far) = self.group.or(self.remote) {
            put_ip(data, attr(far, IFLA_VXLAN_GROUP, IFLA_VXLAN_GROUP6), far);
        }
        if let Some(local) = self.local {
            put_ip(data, attr(local, IFLA_VXLAN_LOCAL, IFLA_VXLAN_LOCAL6), local);
        }
        refs.parent.map(|IfIndex(index)| data.attr_u32(IFLA_VXLAN_LINK, index));
        match self.ttl {
            Some(0) => _ = data.attr_flag(IFLA_VXLAN_TTL_INHERIT),
            ttl => _ = ttl.map(|ttl| data.attr_u8(IFLA_VXLAN_TTL, ttl)),
        }
        self.port.map(|port| data.attr_be16(IFLA_VXLAN_PORT, port));
        if self.vnis.is_some() {
            data.attr_u8(IFLA_VXLAN_VNIFILTER, 1);
        }
        self.put_attrs(data);
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, refs: &mut Refs) -> Result<(), Malformed> {
        match attr.kind {
            // The kernel keeps one address for both.
            IFLA_VXLAN_GROUP | IFLA_VXLAN_GROUP6 => {
                let ip = read_ip(attr)?;
                let end = if ip.is_multicast() { &mut self.group } else { &mut self.remote };
                *end = Some(ip);
            }
            IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => self.local = Some(read_ip(attr)?),
            IFLA_VXLAN_LINK => refs.parent = Some(IfIndex(attr.u32()?)),
            // A TTL that is inherited is 0 here, and one that is 0 in the message is not set.
            IFLA_VXLAN_TTL => {
                self.ttl = Some(attr.u8()?).filter(|ttl| *ttl != 0).or(self.ttl);
            }
            IFLA_VXLAN_TTL_INHERIT if attr.u8()? != 0 => self.ttl = Some(0),
            IFLA_VXLAN_PORT => self.port = Some(attr.be16()?),
            IFLA_VXLAN_VNIFILTER => self.vnis = Vnis::read(attr)?,
            _ => self.read_attr(attr)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vxlan_of_several_networks_has_none_of_its_own() {
        let external = Vxlan { external: Some(true), ..Vxlan::default() };
        let vnis = Some(Vnis::default());
        for (mut vxlan, is_fine) in [
            (external.clone(), true),
            (Vxlan { vnis: vnis.clone(), ..external.clone() }, true),
            (Vxlan { id: 7, ..external.clone() }, false),
            (Vxlan { remote: Some([192, 0, 2, 1].into()), ..external }, false),
            (Vxlan { id: 7, vnis, ..Vxlan::default() }, false),
        ] {
            assert_eq!(vxlan.check().is_ok(), is_fine, "{vxlan:?}");
        }
    }
}
