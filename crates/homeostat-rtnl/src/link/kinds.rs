//! The kinds of links that can be created. This file has the list of them; each kind's options, constraints and
//! netlink attributes are in the file of its name, built with `options`.

pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod gre;
pub(crate) mod macvlan;
pub(crate) mod options;
pub(crate) mod tap;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vxlan;

#[cfg(feature = "document")]
use homeostat_document::{Diagnostic, Fields, Spanned, Text, ValueError, refuse};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::link::kinds::options::{OptionTable as _, Options as _};
use crate::link::model::LinkRef;
use crate::link::{IfIndex, LinkName};
use crate::neighbour::Mac;

pub use bond::Bond;
pub use bridge::Bridge;
pub use gre::Gre;
pub use macvlan::{Ipvlan, Macvlan};
pub use tap::Tap;
pub use veth::Veth;
pub use vlan::{Vlan, Vrf};
pub use vxlan::Vxlan;

/// Defines the enum of all kinds, and hands each question on to the options of the kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(($options:ty))? = $name:literal;)+) => {
        /// A kind of link with its options. What is left out is the kernel's choice.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum LinkKind {
            $($(#[$doc])* $kind $(($options))?,)+
            /// Something that exists and cannot be declared: a network card, another kind.
            Other {
                /// The kernel's word for it, if it has one.
                name: String,
            },
        }

        /// The kinds that can be created.
        #[cfg(feature = "document")]
        const KINDS: &[&str] = &[$($name),+];

        impl LinkKind {
            /// The word in documents.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(LinkKind::$kind { .. } => $name,)+
                    LinkKind::Other { name } => name,
                }
            }

            /// Refuses options that are never valid, and brings the others to the form in which they are compared.
            pub(crate) fn check(&mut self) -> Result<(), Impossible> {
                match self {
                    $($(LinkKind::$kind(options) => <$options>::check(options),)?)+
                    LinkKind::Other { name } => Err(Impossible::Unmakable(name.clone())),
                    _ => Ok(()),
                }
            }

            /// Writes the declared options.
            pub(crate) fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
                match self {
                    $($(LinkKind::$kind(options) => <$options>::encode(options, data, refs),)?)+
                    _ => {}
                }
            }

            /// Reads the options of a kind by the kernel's word for it, and the links that they refer to.
            pub(crate) fn decode(
                name: &str,
                data: Attrs<'_>,
                refs: &mut Refs,
            ) -> Result<Self, Malformed> {
                if name == "tun" {
                    return tap::decode_kind(data);
                }
                Ok(match name {
                    "ip6gre" => LinkKind::Gre(Gre::decode(data, refs)?),
                    $($name => LinkKind::$kind $((<$options>::decode(data, refs)?))?,)+
                    other => LinkKind::Other { name: other.to_owned() },
                })
            }

            /// Whether every declared option is as declared.
            pub(crate) fn is_alike(&self, seen: &Self) -> bool {
                match (self, seen) {
                    $($((LinkKind::$kind(desired), LinkKind::$kind(seen)) => {
                        <$options>::is_alike(desired, seen)
                    })?)+
                    (desired, seen) => desired == seen,
                }
            }

            /// Whether what differs can be changed while the link exists.
            pub(crate) fn changes_in_place(&self, seen: &Self) -> bool {
                match (self, seen) {
                    $($((LinkKind::$kind(desired), LinkKind::$kind(seen)) => {
                        <$options>::changes_in_place(desired, seen)
                    })?)+
                    (desired, seen) => desired == seen,
                }
            }

            /// The same kind without the options that are as declared: some are refused even unchanged.
            pub(crate) fn without(&self, seen: &Self) -> Self {
                match (self, seen) {
                    $($((LinkKind::$kind(desired), LinkKind::$kind(seen)) => {
                        LinkKind::$kind(<$options>::without(desired, seen))
                    })?)+
                    (desired, _) => desired.clone(),
                }
            }

            /// Reads `kind` and the options of every kind: those of other kinds are refused by name.
            #[cfg(feature = "document")]
            pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Spanned<LinkKind>> {
                let name: Option<Spanned<KindName>> =
                    fields.optional("kind", "What the link is; it is made and owned");
                let word = name.map(|name| name.value.0);
                fields.set_kind(word);
                let mut kind = None;
                $(
                    // Fields of all kinds are asked for, so that each is known.
                    #[expect(clippy::allow_attributes, reason = "kinds without options read nothing")]
                    #[allow(clippy::redundant_closure_call)]
                    let read = (|| {
                        Some(LinkKind::$kind $((fields.of_kinds(&[$name], <$options>::read)?))?)
                    })();
                    if word == Some($name) {
                        kind = read;
                    }
                )+
                fields.exclusive("remote", "group");
                let name = name?;
                if NEEDS_PARENT.contains(&name.value.0) && !fields.has("parent") {
                    let message = format!("a link of kind `{}` needs a parent", name.value.0);
                    let help = "add `parent = \"eth0\"`";
                    fields.report(Diagnostic::new(name.span, message).help(help));
                }
                Some(Spanned::new(kind?, name.span))
            }
        }
    };
}

kinds! {
    /// Two ends of one wire.
    Veth(Veth) = "veth";
    /// A switch.
    Bridge(Bridge) = "bridge";
    /// Ethernet over UDP.
    Vxlan(Vxlan) = "vxlan";
    /// Another hardware address on a link.
    Macvlan(Macvlan) = "macvlan";
    /// Another IP address on a link, with the same hardware address.
    Ipvlan(Ipvlan) = "ipvlan";
    /// A tagged part of a link.
    Vlan(Vlan) = "vlan";
    /// A link that drops what is sent through it.
    Dummy = "dummy";
    /// Several links as one.
    Bond(Bond) = "bond";
    /// A routing table of its own for some links.
    Vrf(Vrf) = "vrf";
    /// IP over IP.
    Gre(Gre) = "gre";
    /// A link for shaping what comes in.
    Ifb = "ifb";
    /// IP packets to a program.
    Tun(Tap) = "tun";
    /// Ethernet frames to a program.
    Tap(Tap) = "tap";
}

/// Kinds that may stand on another link.
pub(crate) const WITH_PARENT: &[&str] = &["macvlan", "ipvlan", "vlan", "vxlan", "gre"];

/// Kinds that cannot exist without it.
pub(crate) const NEEDS_PARENT: &[&str] = &["macvlan", "ipvlan", "vlan"];

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
    /// The number that a new link gets, if it is to be a certain one.
    pub(crate) number: Option<IfIndex>,
    /// The same of a veth pair's other end, which the kernel gives it only if the link has such a number, too.
    pub(crate) peer_number: Option<IfIndex>,
    /// The hardware address of a veth pair's other end.
    pub(crate) peer_mac: Option<Mac>,
}

impl LinkKind {
    /// Whether other links can belong to it.
    #[cfg(feature = "document")]
    pub(crate) fn can_lead(&self) -> bool {
        matches!(self, LinkKind::Bridge(_) | LinkKind::Bond(_) | LinkKind::Vrf(_))
    }

    /// An ipvlan has its parent's hardware address, and what carries bare IP packets has none.
    pub(crate) fn has_mac(&self) -> bool {
        !matches!(self, LinkKind::Ipvlan(_) | LinkKind::Gre(_) | LinkKind::Tun(_))
    }

    /// Whether its other end is a program, so that only `/dev/net/tun` creates it.
    pub(crate) fn is_tun(&self) -> bool {
        matches!(self, LinkKind::Tun(_) | LinkKind::Tap(_))
    }

    /// The kernel's word for it.
    pub(crate) fn kernel_name(&self) -> &str {
        match self {
            LinkKind::Gre(gre) if gre.is_ipv6() => "ip6gre",
            kind if kind.is_tun() => "tun",
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

    /// The other end of a pair.
    pub(crate) fn peer(&self) -> Option<&LinkRef> {
        match self {
            LinkKind::Veth(veth) => Some(&veth.peer),
            _ => None,
        }
    }

    /// The link that a bond prefers.
    pub(crate) fn primary(&self) -> Option<LinkName> {
        match self {
            LinkKind::Bond(bond) => bond.primary,
            _ => None,
        }
    }

    /// The options that are still to be written where the kind is the same.
    pub(crate) fn left_of(&self, seen: &Self) -> Option<Self> {
        (!self.is_alike(seen)).then(|| self.without(seen))
    }
}

/// One of the kinds that can be created.
#[cfg(feature = "document")]
#[derive(Clone, Copy)]
struct KindName(&'static str);

#[cfg(feature = "document")]
impl Text for KindName {
    const WHAT: &'static str = "a kind of link";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = KINDS.iter().find(|kind| **kind == text);
        known.map(|kind| Self(kind)).ok_or_else(|| refuse(text, Self::WHAT, KINDS))
    }

    fn words() -> Vec<&'static str> {
        KINDS.to_vec()
    }
}
