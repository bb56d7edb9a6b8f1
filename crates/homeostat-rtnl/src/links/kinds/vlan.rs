//! A tagged part of a link, and a routing table of its own. Neither can be changed.

use homeostat_netlink::uapi::{IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL, IFLA_VRF_TABLE};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::links::kinds::options;
use crate::links::words::VlanProtocol;

options! {
    /// Options of a VLAN.
    Vlan [
        /// The tag.
        id: u16,
    ] {
        /// How tags are written.
        protocol: VlanProtocol,
    }
}

/// Options of a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// Its routing table.
    pub table: u32,
}

impl Vlan {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        data.attr_u16(IFLA_VLAN_ID, self.id);
        let protocol = self.protocol.map(VlanProtocol::to_kernel);
        protocol.map(|protocol| data.attr_be16(IFLA_VLAN_PROTOCOL, protocol));
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let mut vlan = Vlan::default();
        for attr in data {
            let attr = attr?;
            match attr.kind {
                IFLA_VLAN_ID => vlan.id = attr.u16()?,
                IFLA_VLAN_PROTOCOL => vlan.protocol = VlanProtocol::from_kernel(attr.be16()?),
                _ => {}
            }
        }
        Ok(vlan)
    }
}

impl Vrf {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        data.attr_u32(IFLA_VRF_TABLE, self.table);
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let table = data.first(IFLA_VRF_TABLE)?.map(|attr| attr.u32()).transpose()?;
        Ok(Vrf { table: table.unwrap_or_default() })
    }
}
