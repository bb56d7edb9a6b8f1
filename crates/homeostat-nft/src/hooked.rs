//! Which links chains and flowtables hook into, from their attributes. Pure.

use std::collections::BTreeSet;

use homeostat_netlink::uapi::{
    NFTA_CHAIN_HOOK, NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_HOOK_DEVS, NFTA_HOOK_DEV, NFTA_HOOK_DEVS,
};
use homeostat_netlink::{Attrs, Malformed};

use crate::tlv::text;

/// `NFTA_DEVICE_NAME`: what a list of links is made of.
const DEVICE_NAME: u16 = 1;

/// What hooks into links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooking {
    Chain,
    Flowtable,
}

impl Hooking {
    /// The names of the links; none where the attributes are not understood.
    pub(crate) fn links(self, attrs: &[u8]) -> BTreeSet<&str> {
        self.read(attrs).unwrap_or_default()
    }

    fn read(self, attrs: &[u8]) -> Result<BTreeSet<&str>, Malformed> {
        let (hook, many) = match self {
            Hooking::Chain => (NFTA_CHAIN_HOOK, NFTA_HOOK_DEVS),
            Hooking::Flowtable => (NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_HOOK_DEVS),
        };
        let mut names = BTreeSet::new();
        let Some(hook) = Attrs::new(attrs).first(hook)? else { return Ok(names) };
        // A flowtable has its list under the number by which a chain has one name.
        if self == Hooking::Chain {
            names.insert(text(&hook.attrs(), NFTA_HOOK_DEV)?);
        }
        if let Some(list) = hook.attrs().first(many)? {
            for device in list.attrs() {
                let device = device?;
                names.extend((device.kind == DEVICE_NAME).then(|| device.str()).transpose()?);
            }
        }
        names.remove("");
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::uapi::NLA_F_NESTED;

    use super::*;
    use crate::tlv::Tlvs;

    fn nested(kind: u16, inside: Tlvs) -> Tlvs {
        let mut out = Tlvs::default();
        out.put(kind | NLA_F_NESTED, &inside.into_bytes());
        out
    }

    fn list(kind: u16) -> Tlvs {
        let mut names = Tlvs::default();
        names.put_name(DEVICE_NAME, "eth0");
        names.put_name(DEVICE_NAME, "eth1");
        nested(kind, names)
    }

    #[test]
    fn one_link_and_lists_of_them_are_found() {
        let mut one = Tlvs::default();
        one.put(1, &[0; 4]);
        one.put_name(NFTA_HOOK_DEV, "eth0");
        let check = |kind: Hooking, attrs: Tlvs, expected: &[&str]| {
            let bytes = attrs.into_bytes();
            assert_eq!(kind.links(&bytes).into_iter().collect::<Vec<_>>(), expected);
        };
        check(Hooking::Chain, nested(NFTA_CHAIN_HOOK, one), &["eth0"]);
        check(Hooking::Chain, nested(NFTA_CHAIN_HOOK, list(NFTA_HOOK_DEVS)), &["eth0", "eth1"]);
        let devices = nested(NFTA_FLOWTABLE_HOOK, list(NFTA_FLOWTABLE_HOOK_DEVS));
        check(Hooking::Flowtable, devices, &["eth0", "eth1"]);
        check(Hooking::Chain, Tlvs::default(), &[]);
        assert!(Hooking::Chain.links(&[8, 0]).is_empty(), "malformed");
    }
}
