//! The kinds of links that can be made, and how their options are written and read.

pub(crate) mod bond;
pub(crate) mod bridge;
mod compare;
pub(crate) mod gre;
pub(crate) mod macvlan;
pub(crate) mod tap;
pub(crate) mod time;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vxlan;

use std::net::IpAddr;

use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::link::{IfIndex, LinkName};
use bond::Bond;
use bridge::Bridge;
use gre::Gre;
use macvlan::{Ipvlan, Macvlan};
use tap::Tap;
use veth::Veth;
use vlan::{Vlan, Vrf};
use vxlan::Vxlan;

/// A kind of link with its options. What is left out is the kernel's choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LinkKind {
    /// Two ends of one wire.
    Veth(Veth),
    /// A switch.
    Bridge(Bridge),
    /// Ethernet over UDP.
    Vxlan(Vxlan),
    /// Another hardware address on a link.
    Macvlan(Macvlan),
    /// Another IP address on a link, with the same hardware address.
    Ipvlan(Ipvlan),
    /// A tagged part of a link.
    Vlan(Vlan),
    /// A link that leads nowhere.
    Dummy,
    /// Several links as one.
    Bond(Bond),
    /// A routing table of its own for some links.
    Vrf(Vrf),
    /// IP over IP.
    Gre(Gre),
    /// A link for shaping what comes in.
    Ifb,
    /// IP packets to a program.
    Tun(Tap),
    /// Ethernet frames to a program.
    Tap(Tap),
    /// Something that is there and that cannot be wished: a network card, another kind.
    Other {
        /// The kernel's word for it, if it has one.
        name: String,
    },
}

/// Whether a declared option is as wished; some cannot be kept to the last digit.
pub(crate) trait Alike: PartialEq {
    fn is_alike(&self, seen: &Self) -> bool {
        self == seen
    }
}

impl Alike for bool {}
impl Alike for u8 {}
impl Alike for u16 {}
impl Alike for u32 {}
impl Alike for IpAddr {}
impl Alike for LinkName {}

pub(crate) fn is_alike<T: Alike>(wish: Option<&T>, seen: Option<&T>) -> bool {
    match (wish, seen) {
        (None, _) => true,
        (Some(wish), Some(seen)) => wish.is_alike(seen),
        (Some(_), None) => false,
    }
}

/// A struct of options: those in brackets are always declared, the others may be left out.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident [$($(#[$of:meta])* $must:ident: $fixed:ty,)*]
        { $($(#[$what:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct $name {
            $($(#[$of])* pub $must: $fixed,)*
            $(
                $(#[$what])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }

        impl $name {
            /// Whether every declared option is as wished.
            pub(crate) fn is_alike(&self, seen: &Self) -> bool {
                true $(&& self.$must == seen.$must)*
                    $(&& $crate::links::kinds::is_alike(self.$field.as_ref(), seen.$field.as_ref()))*
            }

            /// The declared options that are not as wished.
            pub(crate) fn without(&self, seen: &Self) -> Self {
                let mut left = self.clone();
                $(
                    if $crate::links::kinds::is_alike(self.$field.as_ref(), seen.$field.as_ref()) {
                        left.$field = None;
                    }
                )*
                left
            }
        }
    };
}
pub(crate) use options;

/// What options refer to, by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refs {
    /// The link below.
    pub(crate) parent: Option<IfIndex>,
    /// The preferred link of a bond.
    pub(crate) primary: Option<IfIndex>,
    /// The namespace of a veth pair's other end, as a descriptor.
    pub(crate) peer_netns: Option<u32>,
    /// The group that marks what is ours.
    pub(crate) group: u32,
}

/// What the kernel told of a kind, with references by number.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) kind: LinkKind,
    pub(crate) lower: Option<IfIndex>,
    pub(crate) primary: Option<IfIndex>,
}

impl Told {
    pub(crate) fn of(kind: LinkKind) -> Self {
        Told { kind, lower: None, primary: None }
    }
}

impl LinkKind {
    /// The word in documents.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            LinkKind::Veth(_) => "veth",
            LinkKind::Bridge(_) => "bridge",
            LinkKind::Vxlan(_) => "vxlan",
            LinkKind::Macvlan(_) => "macvlan",
            LinkKind::Ipvlan(_) => "ipvlan",
            LinkKind::Vlan(_) => "vlan",
            LinkKind::Dummy => "dummy",
            LinkKind::Bond(_) => "bond",
            LinkKind::Vrf(_) => "vrf",
            LinkKind::Gre(_) => "gre",
            LinkKind::Ifb => "ifb",
            LinkKind::Tun(_) => "tun",
            LinkKind::Tap(_) => "tap",
            LinkKind::Other { name } => name,
        }
    }

    /// The kernel's word for it.
    pub(crate) fn kernel_name(&self) -> &str {
        match self {
            LinkKind::Gre(gre) if gre.is_ipv6() => "ip6gre",
            LinkKind::Tun(_) | LinkKind::Tap(_) => "tun",
            other => other.name(),
        }
    }

    /// The kernel module that brings it.
    pub(crate) fn module(&self) -> &str {
        match self {
            LinkKind::Vlan(_) => "8021q",
            LinkKind::Bond(_) => "bonding",
            LinkKind::Gre(gre) if gre.is_ipv6() => "ip6_gre",
            LinkKind::Gre(_) => "ip_gre",
            other => other.kernel_name(),
        }
    }

    /// Writes the declared options.
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        match self {
            LinkKind::Veth(veth) => veth.encode(data, refs),
            LinkKind::Bridge(bridge) => bridge.encode(data),
            LinkKind::Vxlan(vxlan) => vxlan.encode(data, refs),
            LinkKind::Macvlan(macvlan) => macvlan.encode(data),
            LinkKind::Ipvlan(ipvlan) => ipvlan.encode(data),
            LinkKind::Vlan(vlan) => vlan.encode(data),
            LinkKind::Bond(bond) => bond.encode(data, refs),
            LinkKind::Vrf(vrf) => vrf.encode(data),
            LinkKind::Gre(gre) => gre.encode(data, refs),
            // What is made through a device, and what has no options.
            _ => {}
        }
    }

    /// Whether there is nothing to write about it but its name.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            LinkKind::Bridge(bridge) => *bridge == Bridge::default(),
            LinkKind::Macvlan(macvlan) => *macvlan == Macvlan::default(),
            LinkKind::Ipvlan(ipvlan) => *ipvlan == Ipvlan::default(),
            LinkKind::Bond(bond) => *bond == Bond::default(),
            LinkKind::Dummy | LinkKind::Ifb => true,
            _ => false,
        }
    }

    /// Reads the options of a kind by the kernel's word for it.
    pub(crate) fn decode(name: &str, data: Attrs<'_>) -> Result<Told, Malformed> {
        Ok(match name {
            "veth" => Told::of(LinkKind::Veth(Veth::unknown())),
            "bridge" => Told::of(LinkKind::Bridge(Bridge::decode(data)?)),
            "vxlan" => vxlan::decode(data)?,
            "macvlan" => Told::of(LinkKind::Macvlan(Macvlan::decode(data)?)),
            "ipvlan" => Told::of(LinkKind::Ipvlan(Ipvlan::decode(data)?)),
            "vlan" => Told::of(LinkKind::Vlan(Vlan::decode(data)?)),
            "dummy" => Told::of(LinkKind::Dummy),
            "bond" => bond::decode(data)?,
            "vrf" => Told::of(LinkKind::Vrf(Vrf::decode(data)?)),
            "gre" | "ip6gre" => gre::decode(data)?,
            "ifb" => Told::of(LinkKind::Ifb),
            "tun" => Told::of(tap::decode(data)?),
            other => Told::of(LinkKind::Other { name: other.to_owned() }),
        })
    }
}
