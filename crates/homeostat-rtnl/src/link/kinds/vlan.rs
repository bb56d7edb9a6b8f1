//! A tagged part of a link, and a routing table of its own. Neither can be changed.

use homeostat_netlink::uapi::{
    ETH_P_8021AD, ETH_P_8021Q, IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL, IFLA_VRF_TABLE,
};

use crate::link::kinds::behaviour::{Behaviour, MtuOnParent, Occupies, Parent, Ports};
use crate::link::kinds::options::{Be16, Options, named_values, options};

options! {
    /// Options of a VLAN.
    Vlan [
        id: u16 = "id", "The tag", ("a VLAN id", 1..=4094) => IFLA_VLAN_ID;
    ] {
        protocol: VlanProtocol = "protocol", "How tags are written" => IFLA_VLAN_PROTOCOL;
    }
}

options! {
    /// Options of a VRF.
    Vrf [
        table: u32 = "table", "Its routing table, or `auto`" as VrfTable => IFLA_VRF_TABLE;
    ] {}
}

/// The table of a VRF in a document. A number of its own is found once all VRFs are known.
#[cfg(feature = "document")]
pub(crate) struct VrfTable(Option<crate::number::Table>);

#[cfg(feature = "document")]
impl VrfTable {
    /// What stands for a table that is to be found.
    pub(crate) const AUTO: u32 = 0;
    const WORD: &'static str = "auto";
}

#[cfg(feature = "document")]
impl From<VrfTable> for u32 {
    fn from(VrfTable(table): VrfTable) -> u32 {
        table.map_or(VrfTable::AUTO, |table| table.0)
    }
}

#[cfg(feature = "document")]
impl homeostat_document::Shape for VrfTable {
    fn read(
        node: &homeostat_document::Node,
        checker: &mut homeostat_document::Checker,
    ) -> Option<Self> {
        match &node.value {
            homeostat_document::Value::Text(text) if text == Self::WORD => Some(VrfTable(None)),
            _ => crate::number::Table::read(node, checker).map(|table| VrfTable(Some(table))),
        }
    }

    fn schema(definitions: &mut homeostat_document::Definitions) -> homeostat_document::Json {
        crate::number::Table::schema(definitions)
    }
}

pub(crate) const VLAN: Behaviour = Behaviour {
    parent: Parent::Required,
    mtu: MtuOnParent::Lowered,
    follows_state: true,
    occupies: Occupies::Parent,
    ..Behaviour::PLAIN
};

impl Options for Vlan {
    fn excludes(&self, other: &Self) -> bool {
        self.id == other.id
    }

    fn module(&self) -> Option<&'static str> {
        Some("8021q")
    }

    fn check(&mut self) -> Result<(), &'static str> {
        if (1..=4094).contains(&self.id) {
            Ok(())
        } else {
            Err("a VLAN id is a number from 1 to 4094")
        }
    }
}

pub(crate) const VRF: Behaviour = Behaviour { ports: Ports::KeepTheirValues, ..Behaviour::PLAIN };

impl Options for Vrf {
    fn check(&mut self) -> Result<(), &'static str> {
        if self.table == 0 { Err("a VRF needs a routing table") } else { Ok(()) }
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
