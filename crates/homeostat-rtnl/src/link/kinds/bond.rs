//! Several links as one.

use homeostat_netlink::uapi::{
    BOND_MODE_8023AD, BOND_MODE_ACTIVEBACKUP, BOND_MODE_ALB, BOND_MODE_BROADCAST,
    BOND_MODE_ROUNDROBIN, BOND_MODE_TLB, BOND_MODE_XOR, BOND_XMIT_POLICY_ENCAP23,
    BOND_XMIT_POLICY_ENCAP34, BOND_XMIT_POLICY_LAYER2, BOND_XMIT_POLICY_LAYER23,
    BOND_XMIT_POLICY_LAYER34, BOND_XMIT_POLICY_VLAN_SRCMAC, IFLA_BOND_AD_LACP_RATE,
    IFLA_BOND_DOWNDELAY, IFLA_BOND_MIIMON, IFLA_BOND_MIN_LINKS, IFLA_BOND_MODE, IFLA_BOND_PRIMARY,
    IFLA_BOND_UPDELAY, IFLA_BOND_XMIT_HASH_POLICY,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Ports};
use crate::link::kinds::options::{OptionTable as _, Options, is_alike, named_values, options};
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
        self.lacp_rate.is_some()
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
    /// Whether one link of several is preferred.
    fn has_primary(self) -> bool {
        matches!(self, BondMode::ActiveBackup | BondMode::BalanceTlb | BondMode::BalanceAlb)
    }
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
