//! Another hardware or IP address on a link.

use homeostat_netlink::uapi::{IFLA_IPVLAN_MODE, IFLA_MACVLAN_MODE};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};

use crate::links::kinds::options;
use crate::links::words::{IpvlanMode, MacvlanMode};

options! {
    /// Options of a macvlan.
    Macvlan [] {
        mode: MacvlanMode = "mode", "Who may talk to whom";
    }
}

options! {
    /// Options of an ipvlan.
    Ipvlan [] {
        mode: IpvlanMode = "mode", "On which layer packets are sorted";
    }
}

impl Macvlan {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        self.mode.map(|mode| data.attr_u32(IFLA_MACVLAN_MODE, mode.to_kernel()));
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let mode = data.first(IFLA_MACVLAN_MODE)?.map(|attr| attr.u32()).transpose()?;
        Ok(Macvlan { mode: mode.and_then(MacvlanMode::from_kernel) })
    }
}

impl Ipvlan {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        self.mode.map(|mode| data.attr_u16(IFLA_IPVLAN_MODE, mode.to_kernel()));
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let mode = data.first(IFLA_IPVLAN_MODE)?.map(|attr| attr.u16()).transpose()?;
        Ok(Ipvlan { mode: mode.and_then(IpvlanMode::from_kernel) })
    }
}
