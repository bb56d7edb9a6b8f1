//! The options that links of each kind have.

use std::net::IpAddr;

use crate::attributes::{Table, Tos};
use crate::fields::Fields;
use crate::links::LinkRef;
use crate::name::Name;
use crate::number::numbers;
use crate::span::Spanned;
use crate::time::Period;
use crate::words::words;

numbers! {
    /// A network identifier of VXLAN.
    Vni(u32): 0..=16_777_215, "a VXLAN network id";
    /// A VLAN tag.
    VlanId(u16): 1..=4094, "a VLAN id";
    /// A UDP port.
    Port(u16): 1..=65_535, "a port";
    /// Hops that a packet may take; 0 takes over that of the inner packet.
    Ttl(u8): 0..=255, "a time to live";
    /// A number that tells tunnels with the same ends apart.
    GreKey(u32): 0..=u32::MAX, "a tunnel key";
    /// A user or group by number.
    Uid(u32): 0..=4_294_967_294, "a numeric user or group id";
    /// Milliseconds.
    Millis(u32): 0..=u32::MAX, "a number of milliseconds";
    /// Order of a bridge in the spanning tree.
    BridgePriority(u16): 0..=65_535, "a bridge priority";
    /// A VLAN tag, or 0 for none.
    DefaultVlan(u16): 0..=4094, "a VLAN id, or 0 for none";
    /// A number of links.
    LinkCount(u32): 0..=u32::MAX, "a number of links";
}

words! {
    /// How a tag is written into frames.
    VlanProtocol, "a VLAN protocol":
    /// The usual one.
    Ctag = "802.1q",
    /// The provider's.
    Stag = "802.1ad",
}

words! {
    /// Who may talk to whom on one parent.
    MacvlanMode, "a macvlan mode":
    /// Nobody.
    Private = "private",
    /// All, through the switch outside.
    Vepa = "vepa",
    /// All, directly.
    Bridge = "bridge",
    /// One link takes over the parent.
    Passthru = "passthru",
    /// By a list of sources.
    Source = "source",
}

words! {
    /// On which layer packets are sorted.
    IpvlanMode, "an ipvlan mode":
    /// By hardware address.
    L2 = "l2",
    /// By address.
    L3 = "l3",
    /// By address, through the firewall's hooks.
    L3s = "l3s",
}

words! {
    /// How a bond spreads packets.
    BondMode, "a bond mode":
    /// In turn.
    BalanceRr = "balance-rr",
    /// One link, the others wait.
    ActiveBackup = "active-backup",
    /// By hash.
    BalanceXor = "balance-xor",
    /// On all.
    Broadcast = "broadcast",
    /// LACP.
    Lacp = "802.3ad",
    /// By load, outgoing.
    BalanceTlb = "balance-tlb",
    /// By load, both ways.
    BalanceAlb = "balance-alb",
}

words! {
    /// How often LACP partners speak.
    LacpRate, "an LACP rate":
    /// Every 30 seconds.
    Slow = "slow",
    /// Every second.
    Fast = "fast",
}

words! {
    /// What a bond's hash looks at.
    HashPolicy, "a hash policy":
    /// Hardware addresses.
    Layer2 = "layer2",
    /// Hardware and IP addresses.
    Layer23 = "layer2+3",
    /// IP addresses and ports.
    Layer34 = "layer3+4",
    /// The same, inside of tunnels.
    Encap23 = "encap2+3",
    /// The same, inside of tunnels.
    Encap34 = "encap3+4",
    /// VLAN and source address.
    VlanSource = "vlan+srcmac",
}

/// A struct of options, each with its name in the document.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty = $key:literal, $text:literal;)* })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $text] pub $field: Option<Spanned<$type>>,)*
        }

        impl $name {
            pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
                Self { $($field: fields.optional($key, $text),)* }
            }
        }
    )+};
}

options! {
    /// Options of a bridge.
    Bridge {
        stp: bool = "stp", "Whether the spanning tree is kept";
        vlan_filtering: bool = "vlan-filtering", "Whether VLAN tags are looked at";
        vlan_protocol: VlanProtocol = "vlan-protocol", "How tags are written";
        vlan_default_pvid: DefaultVlan = "vlan-default-pvid", "VLAN of frames without a tag";
        mcast_snooping: bool = "mcast-snooping", "Whether groups are learned";
        priority: BridgePriority = "priority", "Order in the spanning tree";
        forward_delay: Period = "forward-delay", "Time before a port forwards";
        hello_time: Period = "hello-time", "Time between greetings of the spanning tree";
        max_age: Period = "max-age", "Time after which a silent root is gone";
        ageing_time: Period = "ageing-time", "Time after which a learned address is forgotten";
    }
    /// Options of a macvlan.
    Macvlan {
        mode: MacvlanMode = "mode", "Who may talk to whom";
    }
    /// Options of an ipvlan.
    Ipvlan {
        mode: IpvlanMode = "mode", "On which layer packets are sorted";
    }
    /// Options of a bond.
    Bond {
        mode: BondMode = "mode", "How packets are spread";
        miimon: Millis = "miimon", "Milliseconds between looks at the carrier";
        updelay: Millis = "updelay", "Milliseconds before a link is used";
        downdelay: Millis = "downdelay", "Milliseconds before a link is given up";
        lacp_rate: LacpRate = "lacp-rate", "How often LACP partners speak";
        xmit_hash_policy: HashPolicy = "xmit-hash-policy", "What the hash looks at";
        primary: Name = "primary", "The link that is used while it works";
        min_links: LinkCount = "min-links", "Links that must work";
    }
    /// Options of a GRE tunnel.
    Gre {
        local: IpAddr = "local", "This end of the tunnel";
        remote: IpAddr = "remote", "The other end of the tunnel";
        key: GreKey = "key", "Tells tunnels with the same ends apart";
        ttl: Ttl = "ttl", "Hops that packets may take";
        tos: Tos = "tos", "Type of service of packets";
        pmtudisc: bool = "pmtudisc", "Whether the path's MTU is found out";
    }
    /// Options of a tun or tap device.
    Tap {
        owner: Uid = "owner", "The user who may open it";
        group: Uid = "group", "The group that may open it";
        multi_queue: bool = "multi-queue", "Whether it has several queues";
        vnet_hdr: bool = "vnet-hdr", "Whether frames have a header for offloads";
    }
}

/// Options of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veth {
    /// The other end.
    pub peer: Spanned<LinkRef>,
}

/// Options of a VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The tag.
    pub id: Spanned<VlanId>,
    /// How tags are written.
    pub protocol: Option<Spanned<VlanProtocol>>,
}

/// Options of a VRF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vrf {
    /// Its routing table.
    pub table: Spanned<Table>,
}

/// Options of a VXLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// The network.
    pub id: Spanned<Vni>,
    /// This end.
    pub local: Option<Spanned<IpAddr>>,
    /// The other end.
    pub remote: Option<Spanned<IpAddr>>,
    /// The multicast group of all ends.
    pub group: Option<Spanned<IpAddr>>,
    /// Destination port.
    pub port: Option<Spanned<Port>>,
    /// Hops that packets may take.
    pub ttl: Option<Spanned<Ttl>>,
    /// Type of service of packets.
    pub tos: Option<Spanned<Tos>>,
    /// Whether ends are learned from packets.
    pub learning: Option<Spanned<bool>>,
    /// Time after which a learned end is forgotten.
    pub ageing: Option<Spanned<Period>>,
    /// Whether ARP is answered for known ends.
    pub proxy: Option<Spanned<bool>>,
}
