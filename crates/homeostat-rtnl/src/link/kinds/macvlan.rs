//! Another hardware or IP address on a link.

use homeostat_netlink::uapi::{
    IFLA_IPVLAN_MODE, IFLA_MACVLAN_MODE, IPVLAN_MODE_L2, IPVLAN_MODE_L3, IPVLAN_MODE_L3S,
    MACVLAN_MODE_BRIDGE, MACVLAN_MODE_PASSTHRU, MACVLAN_MODE_PRIVATE, MACVLAN_MODE_SOURCE,
    MACVLAN_MODE_VEPA,
};

use crate::link::kinds::behaviour::{Behaviour, MtuOnParent, Occupies, OwnMac, Parent};
use crate::link::kinds::options::{Options, named_values, options};

options! {
    /// Options of a macvlan.
    Macvlan [] {
        mode: MacvlanMode = "mode", "Who may talk to whom" => IFLA_MACVLAN_MODE;
    }
}

options! {
    /// Options of an ipvlan.
    Ipvlan [] {
        mode: IpvlanMode = "mode", "On which layer packets are sorted" => IFLA_IPVLAN_MODE;
    }
}

pub(crate) const MACVLAN: Behaviour = Behaviour {
    parent: Parent::Required,
    mtu: MtuOnParent::Lowered,
    occupies: Occupies::ParentPackets,
    ..Behaviour::PLAIN
};

pub(crate) const IPVLAN: Behaviour =
    Behaviour { mtu: MtuOnParent::Same, mac: OwnMac::None, ..MACVLAN };

impl Macvlan {
    fn is_passthru(&self) -> bool {
        self.mode == Some(MacvlanMode::Passthru)
    }
}

impl Options for Macvlan {
    /// Quirk `macvlan-passthru-fixed` (Linux 6.18): EINVAL, to it and from it.
    fn changes_in_place(&self, seen: &Self) -> bool {
        self.mode.is_none() || self.is_passthru() == seen.is_passthru()
    }

    fn excludes(&self, other: &Self) -> bool {
        self.is_passthru() || other.is_passthru()
    }
}

impl Options for Ipvlan {
    fn changes_in_place(&self, _seen: &Self) -> bool {
        true
    }

    /// All ipvlans of one parent share their mode.
    fn excludes(&self, _other: &Self) -> bool {
        true
    }
}

named_values! {
    /// Who may talk to whom on one parent.
    MacvlanMode(u32), "a macvlan mode":
    /// No link to any other.
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

named_values! {
    /// On which layer packets are sorted.
    IpvlanMode(u16), "an ipvlan mode":
    /// By hardware address.
    L2 = "l2", IPVLAN_MODE_L2;
    /// By address.
    L3 = "l3", IPVLAN_MODE_L3;
    /// By address, through the firewall's hooks.
    L3s = "l3s", IPVLAN_MODE_L3S;
}
