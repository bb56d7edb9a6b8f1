//! A tagged part of a link, and a routing table of its own. Neither can be changed.

use homeostat_netlink::uapi::{IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL, IFLA_VRF_TABLE};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::links::kinds::options;
use crate::links::normalize::BadLink;
use crate::links::words::VlanProtocol;
#[cfg(feature = "document")]
use crate::number::Table;
#[cfg(feature = "document")]
use homeostat_document::{Fields, Number};

#[cfg(feature = "document")]
const VLAN_ID: Number<u16> = Number { what: "a VLAN id", least: 1, most: 4094 };

options! {
    /// Options of a VLAN.
    Vlan [
        id: u16 = "id", "The tag", VLAN_ID;
    ] {
        protocol: VlanProtocol = "protocol", "How tags are written";
    }
}

/// Options of a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// Its routing table.
    pub table: u32,
}

impl Vlan {
    pub(super) fn check(&self) -> Result<(), BadLink> {
        if (1..=4094).contains(&self.id) { Ok(()) } else { Err(BadLink::VlanId) }
    }

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
    pub(super) fn check(&self) -> Result<(), BadLink> {
        if self.table == 0 { Err(BadLink::Table) } else { Ok(()) }
    }

    #[cfg(feature = "document")]
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let Table(table) = fields.required("table", "Its routing table")?;
        Some(Vrf { table })
    }

    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        data.attr_u32(IFLA_VRF_TABLE, self.table);
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let table = data.first(IFLA_VRF_TABLE)?.map(|attr| attr.u32()).transpose()?;
        Ok(Vrf { table: table.unwrap_or_default() })
    }
}
