//! A switch.

use homeostat_netlink::uapi::{
    IFLA_BR_AGEING_TIME, IFLA_BR_FORWARD_DELAY, IFLA_BR_HELLO_TIME, IFLA_BR_MAX_AGE,
    IFLA_BR_MCAST_SNOOPING, IFLA_BR_PRIORITY, IFLA_BR_STP_STATE, IFLA_BR_VLAN_DEFAULT_PVID,
    IFLA_BR_VLAN_FILTERING, IFLA_BR_VLAN_PROTOCOL,
};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};

use crate::links::kinds::options;
use crate::links::kinds::time::Centis;
use crate::links::words::VlanProtocol;
#[cfg(feature = "document")]
use homeostat_document::Number;

#[cfg(feature = "document")]
const DEFAULT_VLAN: Number<u16> = Number { what: "a VLAN id, or 0 for none", least: 0, most: 4094 };
#[cfg(feature = "document")]
const PRIORITY: Number<u16> = Number { what: "a bridge priority", least: 0, most: u16::MAX };

options! {
    /// Options of a bridge.
    Bridge [] {
        stp: bool = "stp", "Whether the spanning tree is kept";
        vlan_filtering: bool = "vlan-filtering", "Whether VLAN tags are looked at";
        vlan_protocol: VlanProtocol = "vlan-protocol", "How tags are written";
        vlan_default_pvid: u16 = "vlan-default-pvid", "VLAN of frames without a tag", DEFAULT_VLAN;
        mcast_snooping: bool = "mcast-snooping", "Whether groups are learned";
        priority: u16 = "priority", "Order in the spanning tree", PRIORITY;
        forward_delay: Centis = "forward-delay", "Time before a port forwards";
        hello_time: Centis = "hello-time", "Time between greetings of the spanning tree";
        max_age: Centis = "max-age", "Time after which a silent root is gone";
        ageing_time: Centis = "ageing-time", "Time after which a learned address is forgotten";
    }
}

impl Bridge {
    pub(crate) fn encode(&self, data: &mut MessageWriter<'_>) {
        let times = [
            (IFLA_BR_FORWARD_DELAY, self.forward_delay),
            (IFLA_BR_HELLO_TIME, self.hello_time),
            (IFLA_BR_MAX_AGE, self.max_age),
            (IFLA_BR_AGEING_TIME, self.ageing_time),
        ];
        for (kind, time) in times {
            time.map(|time| data.attr_u32(kind, time.0));
        }
        self.stp.map(|stp| data.attr_u32(IFLA_BR_STP_STATE, stp.into()));
        self.priority.map(|priority| data.attr_u16(IFLA_BR_PRIORITY, priority));
        self.vlan_filtering.map(|on| data.attr_u8(IFLA_BR_VLAN_FILTERING, on.into()));
        let protocol = self.vlan_protocol.map(VlanProtocol::to_kernel);
        protocol.map(|protocol| data.attr_be16(IFLA_BR_VLAN_PROTOCOL, protocol));
        self.vlan_default_pvid.map(|pvid| data.attr_u16(IFLA_BR_VLAN_DEFAULT_PVID, pvid));
        self.mcast_snooping.map(|on| data.attr_u8(IFLA_BR_MCAST_SNOOPING, on.into()));
    }

    pub(crate) fn decode(data: Attrs<'_>) -> Result<Self, Malformed> {
        let mut bridge = Bridge::default();
        for attr in data {
            let attr = attr?;
            match attr.kind {
                IFLA_BR_FORWARD_DELAY => bridge.forward_delay = Some(Centis(attr.u32()?)),
                IFLA_BR_HELLO_TIME => bridge.hello_time = Some(Centis(attr.u32()?)),
                IFLA_BR_MAX_AGE => bridge.max_age = Some(Centis(attr.u32()?)),
                IFLA_BR_AGEING_TIME => bridge.ageing_time = Some(Centis(attr.u32()?)),
                IFLA_BR_STP_STATE => bridge.stp = Some(attr.u32()? != 0),
                IFLA_BR_PRIORITY => bridge.priority = Some(attr.u16()?),
                IFLA_BR_VLAN_FILTERING => bridge.vlan_filtering = Some(attr.u8()? != 0),
                IFLA_BR_VLAN_PROTOCOL => {
                    bridge.vlan_protocol = VlanProtocol::from_kernel(attr.be16()?);
                }
                IFLA_BR_VLAN_DEFAULT_PVID => bridge.vlan_default_pvid = Some(attr.u16()?),
                IFLA_BR_MCAST_SNOOPING => bridge.mcast_snooping = Some(attr.u8()? != 0),
                _ => {}
            }
        }
        Ok(bridge)
    }
}
