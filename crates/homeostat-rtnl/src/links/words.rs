//! Options that have names: each with the text of the document and the number of the kernel.

use homeostat_netlink::uapi::{
    BOND_MODE_8023AD, BOND_MODE_ACTIVEBACKUP, BOND_MODE_ALB, BOND_MODE_BROADCAST,
    BOND_MODE_ROUNDROBIN, BOND_MODE_TLB, BOND_MODE_XOR, BOND_XMIT_POLICY_ENCAP23,
    BOND_XMIT_POLICY_ENCAP34, BOND_XMIT_POLICY_LAYER2, BOND_XMIT_POLICY_LAYER23,
    BOND_XMIT_POLICY_LAYER34, BOND_XMIT_POLICY_VLAN_SRCMAC, ETH_P_8021AD, ETH_P_8021Q,
    IPVLAN_MODE_L2, IPVLAN_MODE_L3, IPVLAN_MODE_L3S, MACVLAN_MODE_BRIDGE, MACVLAN_MODE_PASSTHRU,
    MACVLAN_MODE_PRIVATE, MACVLAN_MODE_SOURCE, MACVLAN_MODE_VEPA,
};
use serde::{Deserialize, Serialize};

/// An enum whose variants have a text and a number.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident($int:ty), $what:literal: $($(#[$of:meta])* $word:ident = $text:literal, $number:expr;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $text)] $word,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$word,)+];

            pub(crate) fn to_kernel(self) -> $int {
                match self {
                    $(Self::$word => $number,)+
                }
            }

            /// None, if the kernel knows one more than we do.
            pub(crate) fn from_kernel(number: $int) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.to_kernel() == number)
            }
        }

        impl $crate::links::kinds::Alike for $name {}

        #[cfg(feature = "document")]
        homeostat_document::word_values! { $name, $what: $($text = $name::$word),+ }
    };
}

words! {
    /// How a VLAN tag is written into frames.
    VlanProtocol(u16), "a VLAN protocol":
    /// The usual one.
    Ctag = "802.1q", ETH_P_8021Q;
    /// The provider's.
    Stag = "802.1ad", ETH_P_8021AD;
}

words! {
    /// Who may talk to whom on one parent.
    MacvlanMode(u32), "a macvlan mode":
    /// Nobody.
    Private = "private", MACVLAN_MODE_PRIVATE;
    /// All, through the switch outside.
    Vepa = "vepa", MACVLAN_MODE_VEPA;
    /// All, directly.
    Bridge = "bridge", MACVLAN_MODE_BRIDGE;
    /// One link takes over the parent.
    Passthru = "passthru", MACVLAN_MODE_PASSTHRU;
    /// By a list of sources.
    Source = "source", MACVLAN_MODE_SOURCE;
}

words! {
    /// On which layer packets are sorted.
    IpvlanMode(u16), "an ipvlan mode":
    /// By hardware address.
    L2 = "l2", IPVLAN_MODE_L2;
    /// By address.
    L3 = "l3", IPVLAN_MODE_L3;
    /// By address, through the firewall's hooks.
    L3s = "l3s", IPVLAN_MODE_L3S;
}

words! {
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

words! {
    /// How often LACP partners speak.
    LacpRate(u8), "an LACP rate":
    /// Every 30 seconds.
    Slow = "slow", 0;
    /// Every second.
    Fast = "fast", 1;
}

words! {
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

impl BondMode {
    /// Whether one link of several is preferred.
    pub(crate) fn has_primary(self) -> bool {
        matches!(self, BondMode::ActiveBackup | BondMode::BalanceTlb | BondMode::BalanceAlb)
    }
}
