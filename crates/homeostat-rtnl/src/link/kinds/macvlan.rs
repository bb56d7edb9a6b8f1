//! Another hardware or IP address on a link.

use homeostat_netlink::uapi::{
    IFLA_IPVLAN_MODE, IFLA_MACVLAN_MODE, IPVLAN_MODE_L2, IPVLAN_MODE_L3, IPVLAN_MODE_L3S,
    MACVLAN_MODE_BRIDGE, MACVLAN_MODE_PASSTHRU, MACVLAN_MODE_PRIVATE, MACVLAN_MODE_SOURCE,
    MACVLAN_MODE_VEPA,
};

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

impl Options for Macvlan {
    /// Quirk `macvlan-passthru-fixed` (Linux 6.18): EINVAL, to it and from it.
    fn changes_in_place(&self, seen: &Self) -> bool {
        let passes = |macvlan: &Macvlan| macvlan.mode == Some(MacvlanMode::Passthru);
        self.mode.is_none() || passes(self) == passes(seen)
    }
}

impl Options for Ipvlan {
    fn changes_in_place(&self, _seen: &Self) -> bool {
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
