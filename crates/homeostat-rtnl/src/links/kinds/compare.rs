//! How a wished kind compares with one that is there, and what can be changed. Pure.

use super::macvlan::Macvlan;
use super::{LinkKind, is_alike};
use crate::links::words::MacvlanMode;

impl LinkKind {
    /// Whether every declared option is as wished.
    pub(crate) fn is_alike(&self, seen: &Self) -> bool {
        match (self, seen) {
            (LinkKind::Veth(wish), LinkKind::Veth(seen)) => wish == seen,
            (LinkKind::Bridge(wish), LinkKind::Bridge(seen)) => wish.is_alike(seen),
            (LinkKind::Vxlan(wish), LinkKind::Vxlan(seen)) => wish.is_alike(seen),
            (LinkKind::Macvlan(wish), LinkKind::Macvlan(seen)) => wish.is_alike(seen),
            (LinkKind::Ipvlan(wish), LinkKind::Ipvlan(seen)) => wish.is_alike(seen),
            (LinkKind::Vlan(wish), LinkKind::Vlan(seen)) => wish.is_alike(seen),
            (LinkKind::Bond(wish), LinkKind::Bond(seen)) => wish.is_alike(seen),
            (LinkKind::Gre(wish), LinkKind::Gre(seen)) => wish.is_alike(seen),
            (LinkKind::Tun(wish), LinkKind::Tun(seen))
            | (LinkKind::Tap(wish), LinkKind::Tap(seen)) => wish.is_alike(seen),
            (wish, seen) => wish == seen,
        }
    }

    /// Whether what differs can be changed while the link is there.
    pub(crate) fn changes_in_place(&self, seen: &Self) -> bool {
        match (self, seen) {
            (LinkKind::Bridge(_), LinkKind::Bridge(_))
            | (LinkKind::Ipvlan(_), LinkKind::Ipvlan(_)) => true,
            (LinkKind::Vxlan(wish), LinkKind::Vxlan(seen)) => wish.changes_in_place(seen),
            // Quirk `macvlan-passthru-fixed` (Linux 6.18): EINVAL, to it and from it.
            (LinkKind::Macvlan(wish), LinkKind::Macvlan(seen)) => {
                let passes = |macvlan: &Macvlan| macvlan.mode == Some(MacvlanMode::Passthru);
                wish.mode.is_none() || passes(wish) == passes(seen)
            }
            (LinkKind::Bond(wish), LinkKind::Bond(seen)) => {
                is_alike(wish.mode.as_ref(), seen.mode.as_ref())
            }
            (LinkKind::Gre(wish), LinkKind::Gre(seen)) => wish.is_ipv6() == seen.is_ipv6(),
            (wish, seen) => wish.is_alike(seen),
        }
    }

    /// The options that are still to be written where the kind is the same.
    pub(crate) fn left_of(&self, seen: &Self) -> Option<Self> {
        (!self.is_alike(seen)).then(|| self.without(seen))
    }

    /// The same kind without the options that are as wished: some are refused even unchanged.
    pub(crate) fn without(&self, seen: &Self) -> Self {
        match (self, seen) {
            (LinkKind::Bridge(wish), LinkKind::Bridge(seen)) => {
                LinkKind::Bridge(wish.without(seen))
            }
            (LinkKind::Vxlan(wish), LinkKind::Vxlan(seen)) => LinkKind::Vxlan(wish.without(seen)),
            (LinkKind::Macvlan(wish), LinkKind::Macvlan(seen)) => {
                LinkKind::Macvlan(wish.without(seen))
            }
            (LinkKind::Ipvlan(wish), LinkKind::Ipvlan(seen)) => {
                LinkKind::Ipvlan(wish.without(seen))
            }
            (LinkKind::Vlan(wish), LinkKind::Vlan(seen)) => LinkKind::Vlan(wish.without(seen)),
            (LinkKind::Bond(wish), LinkKind::Bond(seen)) => LinkKind::Bond(wish.without(seen)),
            (LinkKind::Gre(wish), LinkKind::Gre(seen)) => {
                LinkKind::Gre(wish.without(seen).over(seen))
            }
            (LinkKind::Tap(wish), LinkKind::Tap(seen)) => LinkKind::Tap(wish.without(seen)),
            (wish, _) => wish.clone(),
        }
    }
}
