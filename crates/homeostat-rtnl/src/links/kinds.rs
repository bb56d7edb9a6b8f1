//! The kinds of links that can be made, and how their options are written and read.

pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod gre;
pub(crate) mod macvlan;
#[cfg(feature = "document")]
mod section;
pub(crate) mod tap;
pub(crate) mod time;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vxlan;

use std::net::IpAddr;

#[cfg(feature = "document")]
use homeostat_document::{Fields, Spanned};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::link::{IfIndex, LinkName};
use crate::links::normalize::BadLink;
use crate::links::words::MacvlanMode;
pub use bond::Bond;
pub use bridge::Bridge;
pub use gre::Gre;
pub use macvlan::{Ipvlan, Macvlan};
#[cfg(feature = "document")]
use section::{KindName, check_parent};
pub use tap::Tap;
pub use time::{Centis, NotATime};
pub use veth::Veth;
pub use vlan::{Vlan, Vrf};
pub use vxlan::Vxlan;

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
    /// Something that is there and that cannot be declared: a network card, another kind.
    Other {
        /// The kernel's word for it, if it has one.
        name: String,
    },
}

/// Whether a declared option is as declared; some cannot be kept to the last digit.
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

pub(crate) fn is_alike<T: Alike>(desired: Option<&T>, seen: Option<&T>) -> bool {
    match (desired, seen) {
        (None, _) => true,
        (Some(desired), Some(seen)) => desired.is_alike(seen),
        (Some(_), None) => false,
    }
}

/// A struct of options, each with its name in documents, what it is about and, where it is a number, which
/// numbers it takes. Those in brackets are always declared, the others may be left out.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident
        [$($must:ident: $fixed:ty = $must_key:literal, $must_text:literal $(, $must_spec:expr)?;)*]
        { $($field:ident: $type:ty = $key:literal, $text:literal $(, $number:ident)? $(as $written:ty)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $(
                #[doc = concat!($must_text, ".")]
                #[serde(rename = $must_key)]
                pub $must: $fixed,
            )*
            $(
                #[doc = concat!($text, ".")]
                #[serde(default, skip_serializing_if = "Option::is_none", rename = $key)]
                pub $field: Option<$type>,
            )*
        }

        impl $name {
            /// Whether every declared option is as declared.
            pub(crate) fn is_alike(&self, seen: &Self) -> bool {
                true $(&& self.$must == seen.$must)*
                    $(&& $crate::links::kinds::is_alike(self.$field.as_ref(), seen.$field.as_ref()))*
            }

            /// The declared options that are not as declared.
            pub(crate) fn without(&self, seen: &Self) -> Self {
                let mut left = self.clone();
                $(
                    if $crate::links::kinds::is_alike(self.$field.as_ref(), seen.$field.as_ref()) {
                        left.$field = None;
                    }
                )*
                left
            }

            #[cfg(feature = "document")]
            pub(super) fn read(fields: &mut homeostat_document::Fields<'_>) -> Option<Self> {
                $(let $must = fields.required_number($must_key, $must_text $(, $must_spec)?);)*
                $(let $field = $crate::links::kinds::option!(fields, $key, $text $(, $number)? $(as $written)?);)*
                Some(Self { $($must: $must?,)* $($field,)* })
            }
        }
    };
}

/// Reads an option: a number in a range, a value that is written as another type, or any other value.
#[cfg(feature = "document")]
macro_rules! option {
    ($fields:ident, $key:literal, $text:literal) => {
        $fields.optional($key, $text)
    };
    ($fields:ident, $key:literal, $text:literal as $written:ty) => {
        $fields.optional::<$written>($key, $text).map(Into::into)
    };
    ($fields:ident, $key:literal, $text:literal, $number:ident) => {
        $fields.number($key, $text, $number)
    };
}
#[cfg(feature = "document")]
pub(crate) use option;
pub(crate) use options;

/// Kinds that may stand on another link.
pub(crate) const WITH_PARENT: &[&str] = &["macvlan", "ipvlan", "vlan", "vxlan", "gre"];

/// Kinds that cannot be without it.
pub(crate) const NEEDS_PARENT: &[&str] = &["macvlan", "ipvlan", "vlan"];

#[cfg(feature = "document")]
/// The kinds that can be made.
const KINDS: [&str; 13] = [
    "veth", "bridge", "vxlan", "macvlan", "ipvlan", "vlan", "dummy", "bond", "vrf", "gre", "ifb",
    "tun", "tap",
];

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

    /// Whether other links can belong to it.
    #[cfg(feature = "document")]
    pub(crate) fn can_lead(&self) -> bool {
        matches!(self, LinkKind::Bridge(_) | LinkKind::Bond(_) | LinkKind::Vrf(_))
    }

    /// An ipvlan has its parent's hardware address, and what carries bare IP packets has none.
    pub(crate) fn has_mac(&self) -> bool {
        !matches!(self, LinkKind::Ipvlan(_) | LinkKind::Gre(_) | LinkKind::Tun(_))
    }

    /// Refuses options that can never be, and brings the others to the form in which they are compared.
    pub(crate) fn check(&mut self) -> Result<(), BadLink> {
        match self {
            LinkKind::Other { name } => Err(BadLink::Unmakable(name.clone())),
            LinkKind::Vxlan(vxlan) => vxlan.check(),
            LinkKind::Vlan(vlan) => vlan.check(),
            LinkKind::Vrf(vrf) => vrf.check(),
            LinkKind::Gre(gre) => gre.check(),
            LinkKind::Bond(bond) => bond.check(),
            _ => Ok(()),
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

/// How a declared kind compares with one that is there, and what can be changed.
impl LinkKind {
    /// Whether every declared option is as declared.
    pub(crate) fn is_alike(&self, seen: &Self) -> bool {
        match (self, seen) {
            (LinkKind::Veth(desired), LinkKind::Veth(seen)) => desired == seen,
            (LinkKind::Bridge(desired), LinkKind::Bridge(seen)) => desired.is_alike(seen),
            (LinkKind::Vxlan(desired), LinkKind::Vxlan(seen)) => desired.is_alike(seen),
            (LinkKind::Macvlan(desired), LinkKind::Macvlan(seen)) => desired.is_alike(seen),
            (LinkKind::Ipvlan(desired), LinkKind::Ipvlan(seen)) => desired.is_alike(seen),
            (LinkKind::Vlan(desired), LinkKind::Vlan(seen)) => desired.is_alike(seen),
            (LinkKind::Bond(desired), LinkKind::Bond(seen)) => desired.is_alike(seen),
            (LinkKind::Gre(desired), LinkKind::Gre(seen)) => desired.is_alike(seen),
            (LinkKind::Tun(desired), LinkKind::Tun(seen))
            | (LinkKind::Tap(desired), LinkKind::Tap(seen)) => desired.is_alike(seen),
            (desired, seen) => desired == seen,
        }
    }

    /// Whether what differs can be changed while the link is there.
    pub(crate) fn changes_in_place(&self, seen: &Self) -> bool {
        match (self, seen) {
            (LinkKind::Bridge(_), LinkKind::Bridge(_))
            | (LinkKind::Ipvlan(_), LinkKind::Ipvlan(_)) => true,
            (LinkKind::Vxlan(desired), LinkKind::Vxlan(seen)) => desired.changes_in_place(seen),
            // Quirk `macvlan-passthru-fixed` (Linux 6.18): EINVAL, to it and from it.
            (LinkKind::Macvlan(desired), LinkKind::Macvlan(seen)) => {
                let passes = |macvlan: &Macvlan| macvlan.mode == Some(MacvlanMode::Passthru);
                desired.mode.is_none() || passes(desired) == passes(seen)
            }
            (LinkKind::Bond(desired), LinkKind::Bond(seen)) => {
                is_alike(desired.mode.as_ref(), seen.mode.as_ref())
            }
            (LinkKind::Gre(desired), LinkKind::Gre(seen)) => desired.is_ipv6() == seen.is_ipv6(),
            (desired, seen) => desired.is_alike(seen),
        }
    }

    /// The options that are still to be written where the kind is the same.
    pub(crate) fn left_of(&self, seen: &Self) -> Option<Self> {
        (!self.is_alike(seen)).then(|| self.without(seen))
    }

    /// The same kind without the options that are as declared: some are refused even unchanged.
    pub(crate) fn without(&self, seen: &Self) -> Self {
        match (self, seen) {
            (LinkKind::Bridge(desired), LinkKind::Bridge(seen)) => {
                LinkKind::Bridge(desired.without(seen))
            }
            (LinkKind::Vxlan(desired), LinkKind::Vxlan(seen)) => {
                LinkKind::Vxlan(desired.without(seen))
            }
            (LinkKind::Macvlan(desired), LinkKind::Macvlan(seen)) => {
                LinkKind::Macvlan(desired.without(seen))
            }
            (LinkKind::Ipvlan(desired), LinkKind::Ipvlan(seen)) => {
                LinkKind::Ipvlan(desired.without(seen))
            }
            (LinkKind::Vlan(desired), LinkKind::Vlan(seen)) => {
                LinkKind::Vlan(desired.without(seen))
            }
            (LinkKind::Bond(desired), LinkKind::Bond(seen)) => {
                LinkKind::Bond(desired.without(seen))
            }
            (LinkKind::Gre(desired), LinkKind::Gre(seen)) => {
                LinkKind::Gre(desired.without(seen).over(seen))
            }
            (LinkKind::Tap(desired), LinkKind::Tap(seen)) => LinkKind::Tap(desired.without(seen)),
            (desired, _) => desired.clone(),
        }
    }
}

#[cfg(feature = "document")]
impl LinkKind {
    /// Reads `kind` and the options of every kind: those of other kinds are refused by name.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Spanned<LinkKind>> {
        let name: Option<Spanned<KindName>> =
            fields.optional("kind", "What the link is; it is made and owned");
        fields.set_kind(name.map(|name| name.value.0));
        let veth = fields.of_kinds(&["veth"], Veth::read);
        let bridge = fields.of_kinds(&["bridge"], Bridge::read);
        let vxlan = fields.of_kinds(&["vxlan"], Vxlan::read);
        fields.exclusive("remote", "group");
        let macvlan = fields.of_kinds(&["macvlan"], Macvlan::read);
        let ipvlan = fields.of_kinds(&["ipvlan"], Ipvlan::read);
        let tagged = fields.of_kinds(&["vlan"], Vlan::read);
        let bond = fields.of_kinds(&["bond"], Bond::read);
        let vrf = fields.of_kinds(&["vrf"], Vrf::read);
        let gre = fields.of_kinds(&["gre"], Gre::read);
        let tap = fields.of_kinds(&["tun", "tap"], Tap::read);
        let name = name?;
        check_parent(fields, name);
        let kind = match name.value.0 {
            "veth" => LinkKind::Veth(veth?),
            "bridge" => LinkKind::Bridge(bridge?),
            "vxlan" => LinkKind::Vxlan(vxlan?),
            "macvlan" => LinkKind::Macvlan(macvlan?),
            "ipvlan" => LinkKind::Ipvlan(ipvlan?),
            "vlan" => LinkKind::Vlan(tagged?),
            "dummy" => LinkKind::Dummy,
            "bond" => LinkKind::Bond(bond?),
            "vrf" => LinkKind::Vrf(vrf?),
            "gre" => LinkKind::Gre(gre?),
            "ifb" => LinkKind::Ifb,
            "tun" => LinkKind::Tun(tap?),
            "tap" => LinkKind::Tap(tap?),
            _ => return None,
        };
        Some(Spanned::new(kind, name.span))
    }
}
