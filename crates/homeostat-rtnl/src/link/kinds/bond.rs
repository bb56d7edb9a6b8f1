//! Several links as one.

use std::net::Ipv4Addr;

use homeostat_netlink::uapi::{
    BOND_MODE_8023AD, BOND_MODE_ACTIVEBACKUP, BOND_MODE_ALB, BOND_MODE_BROADCAST,
    BOND_MODE_ROUNDROBIN, BOND_MODE_TLB, BOND_MODE_XOR, BOND_XMIT_POLICY_ENCAP23,
    BOND_XMIT_POLICY_ENCAP34, BOND_XMIT_POLICY_LAYER2, BOND_XMIT_POLICY_LAYER23,
    BOND_XMIT_POLICY_LAYER34, BOND_XMIT_POLICY_VLAN_SRCMAC, IFLA_BOND_AD_LACP_RATE,
    IFLA_BOND_AD_SELECT, IFLA_BOND_ARP_INTERVAL, IFLA_BOND_ARP_IP_TARGET, IFLA_BOND_DOWNDELAY,
    IFLA_BOND_FAIL_OVER_MAC, IFLA_BOND_MIIMON, IFLA_BOND_MIN_LINKS, IFLA_BOND_MODE,
    IFLA_BOND_NUM_PEER_NOTIF, IFLA_BOND_PEER_NOTIF_DELAY, IFLA_BOND_PRIMARY,
    IFLA_BOND_PRIMARY_RESELECT, IFLA_BOND_UPDELAY, IFLA_BOND_XMIT_HASH_POLICY,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Ports};
use crate::link::kinds::options::{
    AttrValue, OptionTable as _, Options, is_alike, named_values, options,
};
use crate::link::{IfIndex, LinkName};

options! {
    /// Options of a bond.
    Bond [] {
        mode: BondMode = "mode", "How packets are spread" => IFLA_BOND_MODE;
        miimon: u32 = "miimon", "Milliseconds between looks at the carrier", ("a number of milliseconds", 0..=u32::MAX) => IFLA_BOND_MIIMON;
        updelay: u32 = "updelay", "Milliseconds before a link is used", ("a number of milliseconds", 0..=u32::MAX) => IFLA_BOND_UPDELAY;
        downdelay: u32 = "downdelay", "Milliseconds before a link is given up", ("a number of milliseconds", 0..=u32::MAX) => IFLA_BOND_DOWNDELAY;
        lacp_rate: LacpRate = "lacp-rate", "How often LACP partners speak" => IFLA_BOND_AD_LACP_RATE;
        xmit_hash_policy: HashPolicy = "xmit-hash-policy", "What the hash looks at" => IFLA_BOND_XMIT_HASH_POLICY;
        primary: LinkName = "primary", "The link that is used while it works";
        min_links: u32 = "min-links", "Links that must work", ("a number of links", 0..=u32::MAX) => IFLA_BOND_MIN_LINKS;
        num_grat_arp: u8 = "num-grat-arp", "Announcements after another link is used", ("a number of announcements", 0..=u8::MAX) => IFLA_BOND_NUM_PEER_NOTIF;
        peer_notif_delay: u32 = "peer-notif-delay", "Milliseconds between those announcements", ("a number of milliseconds", 0..=u32::MAX) => IFLA_BOND_PEER_NOTIF_DELAY;
        arp_interval: u32 = "arp-interval", "Milliseconds between ARP requests to the targets", ("a number of milliseconds", 0..=0x7fff_ffff) => IFLA_BOND_ARP_INTERVAL;
        arp_targets: ArpTargets = "arp-targets", "The addresses that are asked by ARP whether a link works" => IFLA_BOND_ARP_IP_TARGET;
        fail_over_mac: FailOverMac = "fail-over-mac", "Whose hardware address the bond has" => IFLA_BOND_FAIL_OVER_MAC;
        primary_reselect: PrimaryReselect = "primary-reselect", "When the primary link is used again" => IFLA_BOND_PRIMARY_RESELECT;
        ad_select: AdSelect = "ad-select", "Which group of links is used" => IFLA_BOND_AD_SELECT;
    }
}

pub(crate) const BEHAVIOUR: Behaviour =
    Behaviour { ports: Ports::GetItsValues, ..Behaviour::PLAIN };

impl Options for Bond {
    /// Quirk `bond-delays-in-miimons` (Linux 6.1): delays are kept in multiples of `miimon`, rounded down.
    fn check(&mut self) -> Result<(), &'static str> {
        const DELAY_WITHOUT_MIIMON: &str =
            "delays of a bond are multiples of `miimon`, which is not set";
        let miimon = self.miimon.filter(|millis| *millis != 0);
        for delay in [&mut self.updelay, &mut self.downdelay].into_iter().flatten() {
            *delay -= *delay % miimon.ok_or(DELAY_WITHOUT_MIIMON)?;
        }
        let watches = self.arp_interval.filter(|millis| *millis != 0);
        if let Some(delay) = &mut self.peer_notif_delay {
            *delay -= *delay % miimon.ok_or(DELAY_WITHOUT_MIIMON)?;
        }
        if miimon.is_some() && watches.is_some() {
            return Err(
                "a bond looks at carriers (`miimon`) or asks by ARP (`arp-interval`), not both",
            );
        }
        if watches.is_some() && self.mode.is_some_and(|mode| !mode.may_ask_by_arp()) {
            return Err("bonds of mode 802.3ad, balance-tlb and balance-alb do not ask by ARP");
        }
        if self.arp_targets.as_ref().is_some_and(|targets| !(1..=16).contains(&targets.0.len())) {
            return Err("a bond asks 1 to 16 targets by ARP");
        }
        if let Some(ArpTargets(targets)) = &mut self.arp_targets {
            targets.sort_unstable();
            targets.dedup();
        }
        if self.primary_reselect.is_some() && !self.mode.is_some_and(BondMode::has_primary) {
            return Err("only bonds with a primary link select it again");
        }
        if self.ad_select.is_some() && self.mode != Some(BondMode::Lacp) {
            return Err("groups of links are for bonds of mode 802.3ad");
        }
        if self.lacp_rate.is_some() && self.mode != Some(BondMode::Lacp) {
            return Err("an LACP rate is for bonds of mode 802.3ad");
        }
        if self.primary.is_some() && !self.mode.is_some_and(BondMode::has_primary) {
            return Err(
                "only bonds of mode active-backup, balance-tlb and balance-alb have a primary link",
            );
        }
        Ok(())
    }

    fn changes_in_place(&self, seen: &Self) -> bool {
        is_alike(self.mode.as_ref(), seen.mode.as_ref())
    }

    fn module(&self) -> Option<&'static str> {
        Some("bonding")
    }

    fn needs_down(&self) -> bool {
        self.lacp_rate.is_some() || self.ad_select.is_some()
    }

    fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.put_attrs(data);
        let primary = refs.primary.filter(|_| self.primary.is_some());
        primary.map(|IfIndex(index)| data.attr_u32(IFLA_BOND_PRIMARY, index));
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, refs: &mut Refs) -> Result<(), Malformed> {
        if attr.kind == IFLA_BOND_PRIMARY {
            refs.primary = Some(IfIndex(attr.u32()?));
        }
        self.read_attr(attr)
    }
}

named_values! {
    /// How a bond spreads packets.
    BondMode(u8), "a bond mode":
    /// In turn.
    BalanceRr = "balance-rr", BOND_MODE_ROUNDROBIN;
    /// One link, the others wait.
    ActiveBackup = "active-backup", BOND_MODE_ACTIVEBACKUP;
    /// By hash.
    BalanceXor = "balance-xor", BOND_MODE_XOR;
    /// On all.
    Broadcast = "broadcast", BOND_MODE_BROADCAST;
    /// LACP.
    Lacp = "802.3ad", BOND_MODE_8023AD;
    /// By load, outgoing.
    BalanceTlb = "balance-tlb", BOND_MODE_TLB;
    /// By load, both ways.
    BalanceAlb = "balance-alb", BOND_MODE_ALB;
}

impl BondMode {
    fn may_ask_by_arp(self) -> bool {
        !matches!(self, BondMode::Lacp | BondMode::BalanceTlb | BondMode::BalanceAlb)
    }

    /// Whether one link of several is preferred.
    fn has_primary(self) -> bool {
        matches!(self, BondMode::ActiveBackup | BondMode::BalanceTlb | BondMode::BalanceAlb)
    }
}

/// The addresses that a bond asks by ARP, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ArpTargets(pub Vec<Ipv4Addr>);

impl AttrValue for ArpTargets {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        data.nest_unmarked(kind, |all| {
            for (number, target) in (0..).zip(&self.0) {
                all.attr(number, &target.octets());
            }
        });
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        let mut targets = Vec::new();
        for target in attr.attrs() {
            targets.push(Ipv4Addr::from(target?.array::<4>()?));
        }
        targets.sort_unstable();
        Ok(Some(ArpTargets(targets)))
    }
}

#[cfg(feature = "document")]
impl homeostat_document::Shape for ArpTargets {
    fn read(
        node: &homeostat_document::Node,
        checker: &mut homeostat_document::Checker,
    ) -> Option<Self> {
        Vec::<Ipv4Addr>::read(node, checker).map(Self)
    }

    fn schema(definitions: &mut homeostat_document::Definitions) -> homeostat_document::Json {
        Vec::<Ipv4Addr>::schema(definitions)
    }
}

named_values! {
    /// Whose hardware address a bond has.
    FailOverMac(u8), "a policy for the hardware address":
    /// All links have that of the bond.
    None = "none", 0;
    /// The bond has that of the link that is used.
    Active = "active", 1;
    /// The link that is used has that of the bond.
    Follow = "follow", 2;
}

named_values! {
    /// When the primary link of a bond is used again.
    PrimaryReselect(u8), "a policy for the primary link":
    /// As soon as it works.
    Always = "always", 0;
    /// If it is faster.
    Better = "better", 1;
    /// If the one that is used fails.
    Failure = "failure", 2;
}

named_values! {
    /// Which group of links a bond uses.
    AdSelect(u8), "a policy for groups of links":
    /// The first that was there.
    Stable = "stable", 0;
    /// The fastest.
    Bandwidth = "bandwidth", 1;
    /// That with the most links.
    Count = "count", 2;
}

named_values! {
    /// How often LACP partners speak.
    LacpRate(u8), "an LACP rate":
    /// Every 30 seconds.
    Slow = "slow", 0;
    /// Every second.
    Fast = "fast", 1;
}

named_values! {
    /// What a bond's hash looks at.
    HashPolicy(u8), "a hash policy":
    /// Hardware addresses.
    Layer2 = "layer2", BOND_XMIT_POLICY_LAYER2;
    /// Hardware and IP addresses.
    Layer23 = "layer2+3", BOND_XMIT_POLICY_LAYER23;
    /// IP addresses and ports.
    Layer34 = "layer3+4", BOND_XMIT_POLICY_LAYER34;
    /// Hardware and IP addresses inside of tunnels.
    Encap23 = "encap2+3", BOND_XMIT_POLICY_ENCAP23;
    /// IP addresses and ports inside of tunnels.
    Encap34 = "encap3+4", BOND_XMIT_POLICY_ENCAP34;
    /// VLAN and source address.
    VlanSource = "vlan+srcmac", BOND_XMIT_POLICY_VLAN_SRCMAC;
}
