//! The kinds of links that can be made, and the options of each.

use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Kinds};
use crate::options::{Bond, Bridge, Gre, Ipvlan, Macvlan, Tap, Veth, Vlan, Vrf, Vxlan};
use crate::span::Spanned;
use crate::words::words;

/// A kind of link with its options. What is left out is the kernel's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
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
}

words! {
    /// The name of a kind.
    KindName, "a kind of link":
    /// Two ends of one wire.
    Veth = "veth",
    /// A switch.
    Bridge = "bridge",
    /// Ethernet over UDP.
    Vxlan = "vxlan",
    /// Another hardware address on a link.
    Macvlan = "macvlan",
    /// Another IP address on a link.
    Ipvlan = "ipvlan",
    /// A tagged part of a link.
    Vlan = "vlan",
    /// A link that leads nowhere.
    Dummy = "dummy",
    /// Several links as one.
    Bond = "bond",
    /// A routing table of its own.
    Vrf = "vrf",
    /// IP over IP.
    Gre = "gre",
    /// Shaping of what comes in.
    Ifb = "ifb",
    /// IP packets to a program.
    Tun = "tun",
    /// Ethernet frames to a program.
    Tap = "tap",
}

/// Kinds that stand on another link.
pub(crate) const WITH_PARENT: Kinds = &["macvlan", "ipvlan", "vlan", "vxlan", "gre"];

/// Kinds that cannot be without it.
const NEEDS_PARENT: Kinds = &["macvlan", "ipvlan", "vlan"];

impl Kind {
    /// The name of the kind.
    #[must_use]
    pub const fn name(&self) -> KindName {
        match self {
            Self::Veth(_) => KindName::Veth,
            Self::Bridge(_) => KindName::Bridge,
            Self::Vxlan(_) => KindName::Vxlan,
            Self::Macvlan(_) => KindName::Macvlan,
            Self::Ipvlan(_) => KindName::Ipvlan,
            Self::Vlan(_) => KindName::Vlan,
            Self::Dummy => KindName::Dummy,
            Self::Bond(_) => KindName::Bond,
            Self::Vrf(_) => KindName::Vrf,
            Self::Gre(_) => KindName::Gre,
            Self::Ifb => KindName::Ifb,
            Self::Tun(_) => KindName::Tun,
            Self::Tap(_) => KindName::Tap,
        }
    }
}

/// Reads `kind` and the options of every kind: those of other kinds are refused by name.
pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Spanned<Kind>> {
    let name: Option<Spanned<KindName>> =
        fields.optional("kind", "What the link is; it is made and owned");
    fields.set_kind(name.map(|name| name.word()));
    let veth = fields.of_kinds(&["veth"], |f| f.required("peer", "The other end"));
    let bridge = fields.of_kinds(&["bridge"], Bridge::read);
    let tunnel = fields.of_kinds(&["vxlan"], read_vxlan);
    let macvlan = fields.of_kinds(&["macvlan"], Macvlan::read);
    let ipvlan = fields.of_kinds(&["ipvlan"], Ipvlan::read);
    let vlan = fields.of_kinds(&["vlan"], read_vlan);
    let bond = fields.of_kinds(&["bond"], Bond::read);
    let vrf = fields.of_kinds(&["vrf"], |f| f.required("table", "Its routing table"));
    let gre = fields.of_kinds(&["gre"], Gre::read);
    let tap = fields.of_kinds(&["tun", "tap"], Tap::read);
    let name = name?;
    check_parent(fields, name);
    let kind = match name.value {
        KindName::Veth => Kind::Veth(Veth { peer: veth? }),
        KindName::Bridge => Kind::Bridge(bridge),
        KindName::Vxlan => Kind::Vxlan(tunnel?),
        KindName::Macvlan => Kind::Macvlan(macvlan),
        KindName::Ipvlan => Kind::Ipvlan(ipvlan),
        KindName::Vlan => Kind::Vlan(vlan?),
        KindName::Dummy => Kind::Dummy,
        KindName::Bond => Kind::Bond(bond),
        KindName::Vrf => Kind::Vrf(Vrf { table: vrf? }),
        KindName::Gre => Kind::Gre(gre),
        KindName::Ifb => Kind::Ifb,
        KindName::Tun => Kind::Tun(tap),
        KindName::Tap => Kind::Tap(tap),
    };
    Some(Spanned::new(kind, name.span))
}

fn check_parent(fields: &mut Fields<'_>, kind: Spanned<KindName>) {
    if NEEDS_PARENT.contains(&kind.word()) && !fields.has("parent") {
        let message = format!("a link of kind `{}` needs a parent", kind.value);
        fields.report(Diagnostic::new(kind.span, message).help("add `parent = \"eth0\"`"));
    }
}

fn read_vlan(fields: &mut Fields<'_>) -> Option<Vlan> {
    let id = fields.required("id", "The tag");
    let protocol = fields.optional("protocol", "How tags are written");
    Some(Vlan { id: id?, protocol })
}

fn read_vxlan(fields: &mut Fields<'_>) -> Option<Vxlan> {
    let id = fields.required("id", "The network");
    let tunnel = Vxlan {
        local: fields.optional("local", "This end of the tunnel"),
        remote: fields.optional("remote", "The other end of the tunnel"),
        group: fields.optional("group", "The multicast group of all ends"),
        port: fields.optional("port", "Destination port"),
        ttl: fields.optional("ttl", "Hops that packets may take"),
        tos: fields.optional("tos", "Type of service of packets"),
        learning: fields.optional("learning", "Whether ends are learned from packets"),
        ageing: fields.optional("ageing", "Time after which a learned end is forgotten"),
        proxy: fields.optional("proxy", "Whether ARP is answered for known ends"),
        id: id?,
    };
    fields.exclusive("remote", "group");
    Some(tunnel)
}
