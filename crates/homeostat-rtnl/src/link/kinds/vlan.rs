//! A tagged part of a link, and a routing table of its own. Neither can be changed.

#[cfg(feature = "document")]
use homeostat_document::{Fields, Number};
use homeostat_netlink::uapi::{
    ETH_P_8021AD, ETH_P_8021Q, IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL, IFLA_VRF_TABLE,
};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::link::kinds::Refs;
use crate::link::kinds::options::{
    Be16, OptionTable as _, Options, from_table, named_values, options,
};
use crate::link::model::BadLink;
#[cfg(feature = "document")]
use crate::number::Table;

#[cfg(feature = "document")]
const VLAN_ID: Number<u16> = Number { what: "a VLAN id", least: 1, most: 4094 };

options! {
    /// Options of a VLAN.
    Vlan [
        id: u16 = "id", "The tag", VLAN_ID;
    ] {
        protocol: VlanProtocol = "protocol", "How tags are written" => IFLA_VLAN_PROTOCOL;
    }
}

/// Options of a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// Its routing table.
    pub table: u32,
}

impl Options for Vlan {
    fn check(&mut self) -> Result<(), BadLink> {
        if (1..=4094).contains(&self.id) { Ok(()) } else { Err(BadLink::VlanId) }
    }

    fn encode(&self, data: &mut MessageWriter<'_>, _refs: &Refs) {
        data.attr_u16(IFLA_VLAN_ID, self.id);
        self.put_attrs(data);
    }

    fn decode(data: Attrs<'_>, _refs: &mut Refs) -> Result<Self, Malformed> {
        let mut vlan = Vlan::default();
        for attr in data {
            let attr = attr?;
            if attr.kind == IFLA_VLAN_ID {
                vlan.id = attr.u16()?;
            }
            vlan.read_attr(&attr)?;
        }
        Ok(vlan)
    }

    from_table!(without);
}

impl Options for Vrf {
    fn check(&mut self) -> Result<(), BadLink> {
        if self.table == 0 { Err(BadLink::Table) } else { Ok(()) }
    }

    fn encode(&self, data: &mut MessageWriter<'_>, _refs: &Refs) {
        data.attr_u32(IFLA_VRF_TABLE, self.table);
    }

    fn decode(data: Attrs<'_>, _refs: &mut Refs) -> Result<Self, Malformed> {
        let table = data.first(IFLA_VRF_TABLE)?.map(|attr| attr.u32()).transpose()?;
        Ok(Vrf { table: table.unwrap_or_default() })
    }

    #[cfg(feature = "document")]
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let Table(table) = fields.required("table", "Its routing table")?;
        Some(Vrf { table })
    }
}

named_values! {
    /// How a VLAN tag is written into frames.
    VlanProtocol(Be16), "a VLAN protocol":
    /// The usual one.
    Ctag = "802.1q", Be16(ETH_P_8021Q);
    /// The provider's.
    Stag = "802.1ad", Be16(ETH_P_8021AD);
}
