//! Several links as one.

use homeostat_netlink::uapi::{
    IFLA_BOND_AD_LACP_RATE, IFLA_BOND_DOWNDELAY, IFLA_BOND_MIIMON, IFLA_BOND_MIN_LINKS,
    IFLA_BOND_MODE, IFLA_BOND_PRIMARY, IFLA_BOND_UPDELAY, IFLA_BOND_XMIT_HASH_POLICY,
};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};

use crate::link::{IfIndex, LinkName};
use crate::links::kinds::{LinkKind, Refs, Told, options};
use crate::links::words::{BondMode, HashPolicy, LacpRate};

options! {
    /// Options of a bond.
    Bond [] {
        /// How packets are spread.
        mode: BondMode,
        /// Milliseconds between looks at the carrier.
        miimon: u32,
        /// Milliseconds before a link is used.
        updelay: u32,
        /// Milliseconds before a link is given up.
        downdelay: u32,
        /// How often LACP partners speak.
        lacp_rate: LacpRate,
        /// What the hash looks at.
        xmit_hash_policy: HashPolicy,
        /// The link that is used while it works.
        primary: LinkName,
        /// Links that must work.
        min_links: u32,
    }
}

impl Bond {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>, refs: &Refs) {
        self.mode.map(|mode| data.attr_u8(IFLA_BOND_MODE, mode.to_kernel()));
        self.miimon.map(|millis| data.attr_u32(IFLA_BOND_MIIMON, millis));
        self.updelay.map(|millis| data.attr_u32(IFLA_BOND_UPDELAY, millis));
        self.downdelay.map(|millis| data.attr_u32(IFLA_BOND_DOWNDELAY, millis));
        let policy = self.xmit_hash_policy.map(HashPolicy::to_kernel);
        policy.map(|policy| data.attr_u8(IFLA_BOND_XMIT_HASH_POLICY, policy));
        self.lacp_rate.map(|rate| data.attr_u8(IFLA_BOND_AD_LACP_RATE, rate.to_kernel()));
        self.min_links.map(|count| data.attr_u32(IFLA_BOND_MIN_LINKS, count));
        let primary = refs.primary.filter(|_| self.primary.is_some());
        primary.map(|IfIndex(index)| data.attr_u32(IFLA_BOND_PRIMARY, index));
    }

    /// Whether something is left that the kernel takes only while the bond is down.
    pub(crate) fn needs_down(&self) -> bool {
        self.lacp_rate.is_some()
    }
}

pub(crate) fn decode(data: Attrs<'_>) -> Result<Told, Malformed> {
    let (mut bond, mut primary) = (Bond::default(), None);
    for attr in data {
        let attr = attr?;
        match attr.kind {
            IFLA_BOND_MODE => bond.mode = BondMode::from_kernel(attr.u8()?),
            IFLA_BOND_MIIMON => bond.miimon = Some(attr.u32()?),
            IFLA_BOND_UPDELAY => bond.updelay = Some(attr.u32()?),
            IFLA_BOND_DOWNDELAY => bond.downdelay = Some(attr.u32()?),
            IFLA_BOND_AD_LACP_RATE => bond.lacp_rate = LacpRate::from_kernel(attr.u8()?),
            IFLA_BOND_XMIT_HASH_POLICY => {
                bond.xmit_hash_policy = HashPolicy::from_kernel(attr.u8()?);
            }
            IFLA_BOND_MIN_LINKS => bond.min_links = Some(attr.u32()?),
            IFLA_BOND_PRIMARY => primary = Some(IfIndex(attr.u32()?)),
            _ => {}
        }
    }
    Ok(Told { kind: LinkKind::Bond(bond), lower: None, primary })
}
