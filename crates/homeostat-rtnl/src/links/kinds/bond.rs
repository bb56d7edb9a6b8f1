//! Several links as one.

use homeostat_netlink::uapi::{
    IFLA_BOND_AD_LACP_RATE, IFLA_BOND_DOWNDELAY, IFLA_BOND_MIIMON, IFLA_BOND_MIN_LINKS,
    IFLA_BOND_MODE, IFLA_BOND_PRIMARY, IFLA_BOND_UPDELAY, IFLA_BOND_XMIT_HASH_POLICY,
};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};

use crate::link::{IfIndex, LinkName};
use crate::links::kinds::{LinkKind, Refs, Told, options};
use crate::links::normalize::BadLink;
use crate::links::words::{BondMode, HashPolicy, LacpRate};
#[cfg(feature = "document")]
use homeostat_document::Number;

#[cfg(feature = "document")]
const MILLIS: Number<u32> = Number { what: "a number of milliseconds", least: 0, most: u32::MAX };
#[cfg(feature = "document")]
const LINKS: Number<u32> = Number { what: "a number of links", least: 0, most: u32::MAX };

options! {
    /// Options of a bond.
    Bond [] {
        mode: BondMode = "mode", "How packets are spread";
        miimon: u32 = "miimon", "Milliseconds between looks at the carrier", MILLIS;
        updelay: u32 = "updelay", "Milliseconds before a link is used", MILLIS;
        downdelay: u32 = "downdelay", "Milliseconds before a link is given up", MILLIS;
        lacp_rate: LacpRate = "lacp-rate", "How often LACP partners speak";
        xmit_hash_policy: HashPolicy = "xmit-hash-policy", "What the hash looks at";
        primary: LinkName = "primary", "The link that is used while it works";
        min_links: u32 = "min-links", "Links that must work", LINKS;
    }
}

impl Bond {
    /// Quirk `bond-delays-in-miimons` (Linux 6.1): delays are kept in multiples of `miimon`, rounded down.
    pub(super) fn check(&mut self) -> Result<(), BadLink> {
        let miimon = self.miimon.filter(|millis| *millis != 0);
        for delay in [&mut self.updelay, &mut self.downdelay].into_iter().flatten() {
            *delay -= *delay % miimon.ok_or(BadLink::DelayWithoutMiimon)?;
        }
        if self.lacp_rate.is_some() && self.mode != Some(BondMode::Lacp) {
            return Err(BadLink::RateWithoutLacp);
        }
        if self.primary.is_some() && !self.mode.is_some_and(BondMode::has_primary) {
            return Err(BadLink::NoPrimary);
        }
        Ok(())
    }

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
