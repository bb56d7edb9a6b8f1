//! The kinds of links that can be created. This file has the list of them; each kind's options, constraints, netlink
//! attributes and behaviour are in the file of its name, built with `options` and `behaviour`.

pub(crate) mod behaviour;
pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod geneve;
pub(crate) mod gre;
pub(crate) mod ifb;
pub(crate) mod iptunnel;
pub(crate) mod macvlan;
pub(crate) mod options;
pub(crate) mod tap;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vxlan;
pub(crate) mod wireguard;
pub(crate) mod xfrm;

#[cfg(feature = "document")]
use std::sync::LazyLock;

#[cfg(feature = "document")]
use homeostat_document::{Diagnostic, Fields, Spanned, Text, ValueError, refuse};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::link::kinds::behaviour::{Behaviour, MtuOnParent, Occupies};
#[cfg(feature = "document")]
use crate::link::kinds::behaviour::{Parent, Ports};
use crate::link::kinds::options::{OptionTable as _, Options as _};
use crate::link::model::LinkRef;
use crate::link::vnis::Vnis;
use crate::link::{IfIndex, LinkName};
use crate::neighbour::Mac;

pub use bond::{
    AdSelect, ArpTargets, Bond, BondMode, FailOverMac, HashPolicy, LacpRate, PrimaryReselect,
};
pub use bridge::{Bridge, Centis, LongCentis};
pub use geneve::Geneve;
pub use gre::{Gre, Gretap};
pub use iptunnel::{Ip6Tunnel, Ip6TunnelMode, IpTunnel};
pub use macvlan::{Ipvlan, IpvlanMode, Macvlan, MacvlanMode};
pub use tap::Tap;
pub use veth::Veth;
pub use vlan::{Vlan, VlanProtocol, Vrf};
pub use vxlan::Vxlan;
pub use wireguard::{Peer, PublicKey, Wireguard};
pub use xfrm::Xfrm;

/// Defines the enum of all kinds, and hands each question on to the options of the kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(($options:ty))? = $name:literal, $behaviour:expr;)+) => {
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

        /// The kinds that can be created, by their words in documents.
        #[cfg(feature = "document")]
        const KINDS: &[KindName] = &[$(KindName { name: $name, behaviour: $behaviour }),+];

        impl LinkKind {
            /// The word in documents.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(LinkKind::$kind { .. } => $name,)+
                    LinkKind::Other { name } => name,
                }
            }

            /// How links of this kind depend on others.
            pub(crate) fn behaviour(&self) -> Behaviour {
                match self {
                    $(LinkKind::$kind { .. } => $behaviour,)+
                    // The character devices of macvlans and ipvlans are not declared, but stand on links that are.
                    LinkKind::Other { name } => Behaviour {
                        mtu: match name.as_str() {
                            "macvtap" => MtuOnParent::Lowered,
                            "ipvtap" => MtuOnParent::Same,
                            _ => MtuOnParent::Own,
                        },
                        ..Behaviour::PLAIN
                    },
                }
            }

            /// Refuses options that are never valid, and brings the others to the form in which they are compared.
            pub(crate) fn check(&mut self) -> Result<(), Impossible> {
                match self {
                    $($(LinkKind::$kind(options) => {
                        <$options>::check(options).map_err(Impossible::Options)
                    })?)+
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
                    "ip6gretap" => LinkKind::Gretap(Gretap::decode(data, refs)?),
                    $($name => LinkKind::$kind $((<$options>::decode(data, refs)?))?,)+
                    other => LinkKind::Other { name: other.to_owned() },
                })
            }

            /// Whether the kernel has every declared option as declared; undeclared options agree with anything.
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

            /// Whether there cannot be a link of each at once, where they are in the same place (see [`Occupies`]).
            pub(crate) fn excludes(&self, other: &Self) -> bool {
                match (self, other) {
                    $($((LinkKind::$kind(one), LinkKind::$kind(other)) => {
                        <$options>::excludes(one, other)
                    })?)+
                    (one, other) => {
                        let takes = |kind: &Self| kind.behaviour().occupies == Occupies::ParentPackets;
                        takes(one) && takes(other)
                    }
                }
            }

            /// The kernel's word for it.
            pub(crate) fn kernel_name(&self) -> &str {
                let own = match self {
                    $($(LinkKind::$kind(options) => <$options>::kernel_name(options),)?)+
                    _ => None,
                };
                own.unwrap_or(self.name())
            }

            /// The kernel module that brings it.
            pub(crate) fn module(&self) -> &str {
                let own = match self {
                    $($(LinkKind::$kind(options) => <$options>::module(options),)?)+
                    _ => None,
                };
                own.unwrap_or(self.kernel_name())
            }

            /// The word of the option that is written as an attribute.
            pub(crate) fn word_of(&self, attr: u16) -> Option<&'static str> {
                match self {
                    $($(LinkKind::$kind(_) => <$options>::word_of(attr),)?)+
                    _ => None,
                }
            }

            /// Whether something is declared that the kernel takes only while the link is down.
            pub(crate) fn needs_down(&self) -> bool {
                match self {
                    $($(LinkKind::$kind(options) => <$options>::needs_down(options),)?)+
                    _ => false,
                }
            }

            /// The other end of a pair.
            pub(crate) fn peer(&self) -> Option<&LinkRef> {
                match self {
                    $($(LinkKind::$kind(options) => <$options>::peer(options),)?)+
                    _ => None,
                }
            }

            pub(crate) fn peer_mut(&mut self) -> Option<&mut LinkRef> {
                match self {
                    $($(LinkKind::$kind(options) => <$options>::peer_mut(options),)?)+
                    _ => None,
                }
            }

            /// Reads `kind` and the options of every kind: those of other kinds are refused by name.
            #[cfg(feature = "document")]
            pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Spanned<LinkKind>> {
                let name: Option<Spanned<KindName>> =
                    fields.optional("kind", "What the link is; it is made and owned");
                let word = name.map(|name| name.value.name);
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
                let needs_parent = name.value.behaviour.parent == Parent::Required;
                if needs_parent && !fields.has("parent") {
                    let message = format!("a link of kind `{}` needs a parent", name.value.name);
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
    Veth(Veth) = "veth", Behaviour::PLAIN;
    /// A switch.
    Bridge(Bridge) = "bridge", bridge::BEHAVIOUR;
    /// Ethernet over UDP.
    Vxlan(Vxlan) = "vxlan", vxlan::BEHAVIOUR;
    /// Another hardware address on a link.
    Macvlan(Macvlan) = "macvlan", macvlan::MACVLAN;
    /// Another IP address on a link, with the same hardware address.
    Ipvlan(Ipvlan) = "ipvlan", macvlan::IPVLAN;
    /// A tagged part of a link.
    Vlan(Vlan) = "vlan", vlan::VLAN;
    /// A link that drops what is sent through it.
    Dummy = "dummy", Behaviour::PLAIN;
    /// Several links as one.
    Bond(Bond) = "bond", bond::BEHAVIOUR;
    /// A routing table of its own for some links.
    Vrf(Vrf) = "vrf", vlan::VRF;
    /// IP over IP.
    Gre(Gre) = "gre", gre::BEHAVIOUR;
    /// Ethernet over IP.
    Gretap(Gretap) = "gretap", gre::TAP;
    /// IPv4 in IPv4.
    Ipip(IpTunnel) = "ipip", iptunnel::BEHAVIOUR;
    /// IPv6 in IPv4.
    Sit(IpTunnel) = "sit", iptunnel::BEHAVIOUR;
    /// IP in IPv6.
    Ip6tnl(Ip6Tunnel) = "ip6tnl", iptunnel::BEHAVIOUR;
    /// Ethernet over UDP to one other end.
    Geneve(Geneve) = "geneve", geneve::BEHAVIOUR;
    /// What policies of IPsec encrypt.
    Xfrm(Xfrm) = "xfrm", xfrm::BEHAVIOUR;
    /// A macvlan whose packets go to a program.
    Macvtap(Macvlan) = "macvtap", macvlan::MACVLAN;
    /// A link for shaping what comes in.
    Ifb = "ifb", ifb::BEHAVIOUR;
    /// An encrypted tunnel to its peers.
    Wireguard(Wireguard) = "wireguard", wireguard::BEHAVIOUR;
    /// IP packets to a program.
    Tun(Tap) = "tun", tap::TUN;
    /// Ethernet frames to a program.
    Tap(Tap) = "tap", tap::TAP;
}

/// The kinds that may have a parent.
#[cfg(feature = "document")]
pub(crate) static WITH_PARENT: LazyLock<Vec<&str>> =
    LazyLock::new(|| names(|behaviour| behaviour.parent != Parent::None));

/// The kinds to which other links can belong.
#[cfg(feature = "document")]
pub(crate) static MASTERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| names(|behaviour| behaviour.ports != Ports::None));

#[cfg(feature = "document")]
fn names(is_wanted: impl Fn(&Behaviour) -> bool) -> Vec<&'static str> {
    KINDS.iter().filter(|kind| is_wanted(&kind.behaviour)).map(|kind| kind.name).collect()
}

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
    /// The link that a bond prefers.
    pub(crate) fn primary(&self) -> Option<LinkName> {
        match self {
            LinkKind::Bond(bond) => bond.primary,
            _ => None,
        }
    }

    /// What it is made of beside the link, if that is more than its options.
    /// The networks of a VXLAN that has a list of them.
    pub(crate) fn vnis(&self) -> Option<&Vnis> {
        match self {
            LinkKind::Vxlan(vxlan) => vxlan.vnis.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn wireguard(&self) -> Option<&Wireguard> {
        match self {
            LinkKind::Wireguard(wireguard) => Some(wireguard),
            _ => None,
        }
    }

    /// Whether it is a switch, whose ports have VLANs.
    pub(crate) fn is_bridge(&self) -> bool {
        matches!(self, LinkKind::Bridge(_))
    }

    /// The options that are still to be written where the kind is the same.
    pub(crate) fn left_of(&self, seen: &Self) -> Option<Self> {
        (!self.is_alike(seen)).then(|| self.without(seen))
    }
}

/// One of the kinds that can be created.
#[cfg(feature = "document")]
#[derive(Clone, Copy)]
struct KindName {
    name: &'static str,
    behaviour: Behaviour,
}

#[cfg(feature = "document")]
impl Text for KindName {
    const WHAT: &'static str = "a kind of link";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = KINDS.iter().find(|kind| kind.name == text);
        known.copied().ok_or_else(|| match text {
            "ip6gre" | "ip6gretap" => ValueError::is_not(text, Self::WHAT).help(format!(
                "write \"{}\": its ends, `local` and `remote`, say that it goes over IPv6",
                text.trim_start_matches("ip6")
            )),
            _ => refuse(text, Self::WHAT, &Self::words()),
        })
    }

    fn words() -> Vec<&'static str> {
        names(|_| true)
    }
}
