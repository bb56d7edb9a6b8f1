//! A switch.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use homeostat_netlink::uapi::{
    IFLA_BR_AGEING_TIME, IFLA_BR_FORWARD_DELAY, IFLA_BR_HELLO_TIME, IFLA_BR_MAX_AGE,
    IFLA_BR_MCAST_HASH_MAX, IFLA_BR_MCAST_IGMP_VERSION, IFLA_BR_MCAST_LAST_MEMBER_CNT,
    IFLA_BR_MCAST_LAST_MEMBER_INTVL, IFLA_BR_MCAST_MEMBERSHIP_INTVL, IFLA_BR_MCAST_MLD_VERSION,
    IFLA_BR_MCAST_QUERIER, IFLA_BR_MCAST_QUERIER_INTVL, IFLA_BR_MCAST_QUERY_INTVL,
    IFLA_BR_MCAST_QUERY_RESPONSE_INTVL, IFLA_BR_MCAST_QUERY_USE_IFADDR, IFLA_BR_MCAST_ROUTER,
    IFLA_BR_MCAST_SNOOPING, IFLA_BR_MCAST_STARTUP_QUERY_CNT, IFLA_BR_MCAST_STARTUP_QUERY_INTVL,
    IFLA_BR_PRIORITY, IFLA_BR_STP_STATE, IFLA_BR_VLAN_DEFAULT_PVID, IFLA_BR_VLAN_FILTERING,
    IFLA_BR_VLAN_PROTOCOL,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};

use crate::link::kinds::Refs;
use crate::link::kinds::behaviour::{Behaviour, Ports};
use crate::link::kinds::options::{AttrValue, OptionTable as _, Options, options};
use crate::link::kinds::vlan::VlanProtocol;
use crate::number::{ParseError, serde_as_text};

options! {
    /// Options of a bridge.
    Bridge [] {
        stp: bool = "stp", "Whether the spanning tree is kept";
        vlan_filtering: bool = "vlan-filtering", "Whether VLAN tags are looked at" => IFLA_BR_VLAN_FILTERING;
        vlan_protocol: VlanProtocol = "vlan-protocol", "How tags are written" => IFLA_BR_VLAN_PROTOCOL;
        vlan_default_pvid: u16 = "vlan-default-pvid", "VLAN of frames without a tag", ("a VLAN id, or 0 for none", 0..=4094) => IFLA_BR_VLAN_DEFAULT_PVID;
        mcast_snooping: bool = "mcast-snooping", "Whether groups are learned" => IFLA_BR_MCAST_SNOOPING;
        mcast_querier: bool = "mcast-querier", "Whether it asks for groups itself" => IFLA_BR_MCAST_QUERIER;
        mcast_query_use_ifaddr: bool = "mcast-query-use-ifaddr", "Whether it asks from its own address" => IFLA_BR_MCAST_QUERY_USE_IFADDR;
        mcast_router: u8 = "mcast-router", "Whether frames of all groups reach the host: 0 never, 1 once a router was heard of, 2 always", ("a number from 0 to 2", 0..=2) => IFLA_BR_MCAST_ROUTER;
        mcast_igmp_version: u8 = "mcast-igmp-version", "Version of IGMP", ("a version of IGMP", 2..=3) => IFLA_BR_MCAST_IGMP_VERSION;
        mcast_mld_version: u8 = "mcast-mld-version", "Version of MLD", ("a version of MLD", 1..=2) => IFLA_BR_MCAST_MLD_VERSION;
        mcast_hash_max: u32 = "mcast-hash-max", "Groups that it keeps at most", ("a number of groups", 1..=u32::MAX) => IFLA_BR_MCAST_HASH_MAX;
        mcast_last_member_count: u32 = "mcast-last-member-count", "Questions before a group is given up", ("a number of questions", 0..=u32::MAX) => IFLA_BR_MCAST_LAST_MEMBER_CNT;
        mcast_startup_query_count: u32 = "mcast-startup-query-count", "Questions at the start", ("a number of questions", 0..=u32::MAX) => IFLA_BR_MCAST_STARTUP_QUERY_CNT;
        mcast_last_member_interval: LongCentis = "mcast-last-member-interval", "Time between the last questions about a group" => IFLA_BR_MCAST_LAST_MEMBER_INTVL;
        mcast_membership_interval: LongCentis = "mcast-membership-interval", "Time after which a silent member is gone" => IFLA_BR_MCAST_MEMBERSHIP_INTVL;
        mcast_querier_interval: LongCentis = "mcast-querier-interval", "Time after which another silent querier is gone" => IFLA_BR_MCAST_QUERIER_INTVL;
        mcast_query_interval: LongCentis = "mcast-query-interval", "Time between questions" => IFLA_BR_MCAST_QUERY_INTVL;
        mcast_query_response_interval: LongCentis = "mcast-query-response-interval", "Time in which members answer" => IFLA_BR_MCAST_QUERY_RESPONSE_INTVL;
        mcast_startup_query_interval: LongCentis = "mcast-startup-query-interval", "Time between questions at the start" => IFLA_BR_MCAST_STARTUP_QUERY_INTVL;
        priority: u16 = "priority", "Order in the spanning tree", ("a bridge priority", 0..=u16::MAX) => IFLA_BR_PRIORITY;
        forward_delay: Centis = "forward-delay", "Time before a port forwards" => IFLA_BR_FORWARD_DELAY;
        hello_time: Centis = "hello-time", "Time between greetings of the spanning tree" => IFLA_BR_HELLO_TIME;
        max_age: Centis = "max-age", "Time after which a silent root is gone" => IFLA_BR_MAX_AGE;
        ageing_time: Centis = "ageing-time", "Time after which a learned address is forgotten" => IFLA_BR_AGEING_TIME;
    }
}

pub(crate) const BEHAVIOUR: Behaviour =
    Behaviour { ports: Ports::SetItsValues, ..Behaviour::PLAIN };

impl Options for Bridge {
    fn changes_in_place(&self, _seen: &Self) -> bool {
        true
    }

    fn encode(&self, data: &mut MessageWriter<'_>, _refs: &Refs) {
        self.stp.map(|stp| data.attr_u32(IFLA_BR_STP_STATE, stp.into()));
        self.put_attrs(data);
    }

    fn decode_attr(&mut self, attr: &Attr<'_>, _refs: &mut Refs) -> Result<(), Malformed> {
        if attr.kind == IFLA_BR_STP_STATE {
            self.stp = Some(attr.u32()? != 0);
        }
        self.read_attr(attr)
    }
}

/// Hundredths of a second, in which a bridge keeps its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Centis(pub u32);

serde_as_text!(Centis);

impl From<Duration> for Centis {
    fn from(time: Duration) -> Self {
        Centis(u32::try_from(time.as_millis() / 10).unwrap_or(u32::MAX))
    }
}

impl AttrValue for Centis {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        data.attr_u32(kind, self.0);
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(Centis(attr.u32()?)))
    }

    /// Quirk `bridge-times-in-ticks` (Linux 6.18): with 250 ticks a second an odd number of
    /// hundredths reads back one lower (`ip link set br0 type bridge hello_time 199`).
    fn is_alike(&self, seen: &Self) -> bool {
        self.0 == seen.0 || self.0.checked_sub(1) == Some(seen.0)
    }
}

/// The same in a longer attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongCentis(pub Centis);

serde_as_text!(LongCentis);

impl AttrValue for LongCentis {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        data.attr(kind, &u64::from(self.0.0).to_ne_bytes());
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        let time = u32::try_from(u64::from_ne_bytes(attr.array()?)).unwrap_or(u32::MAX);
        Ok(Some(LongCentis(Centis(time))))
    }

    fn is_alike(&self, seen: &Self) -> bool {
        self.0.is_alike(&seen.0)
    }
}

impl fmt::Display for LongCentis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for LongCentis {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse().map(LongCentis)
    }
}

impl fmt::Display for Centis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 100 {
            0 => write!(f, "{}s", self.0 / 100),
            _ => write!(f, "{}ms", u64::from(self.0) * 10),
        }
    }
}

impl FromStr for Centis {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok());
        let seconds = || text.strip_suffix('s').and_then(|number| number.parse().ok());
        let time = millis.map(Duration::from_millis).or_else(|| seconds().map(Duration::from_secs));
        ParseError::unless(time.map(Centis::from), text, "no time such as 15s or 150ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_from_its_own_text() {
        for (text, centis) in [("15s", 1500), ("150ms", 15), ("1990ms", 199), ("0s", 0)] {
            let time: Centis = text.parse().unwrap();
            assert_eq!((time.0, time.to_string().as_str()), (centis, text));
        }
        assert!("15".parse::<Centis>().is_err() && "s".parse::<Centis>().is_err());
    }

    #[test]
    fn a_tick_less_is_as_declared_and_a_tick_more_is_not() {
        let desired = Centis(199);
        assert!(desired.is_alike(&Centis(199)) && desired.is_alike(&Centis(198)));
        assert!(!desired.is_alike(&Centis(197)) && !desired.is_alike(&Centis(200)));
    }
}
