//! The kinds of links, option by option.

use anyhow::Result;
use homeostat_document as doc;
use homeostat_document::{Kind, Period, Spanned};
use homeostat_rtnl as rtnl;
use homeostat_rtnl::{Centis, LinkKind};
use serde::de::DeserializeOwned;

use super::reference;
use crate::sources::rtnl::addresses::link_name;

/// What the kernel is asked for.
pub(super) fn kind(declared: &Kind) -> Result<LinkKind> {
    Ok(match declared {
        Kind::Veth(veth) => LinkKind::Veth(rtnl::Veth { peer: reference(&veth.peer)? }),
        Kind::Bridge(bridge) => LinkKind::Bridge(self::bridge(bridge)?),
        Kind::Vxlan(vxlan) => LinkKind::Vxlan(self::vxlan(vxlan)),
        Kind::Macvlan(macvlan) => {
            let mode = word(macvlan.mode.map(|mode| mode.word()))?;
            LinkKind::Macvlan(rtnl::Macvlan { mode })
        }
        Kind::Ipvlan(ipvlan) => {
            let mode = word(ipvlan.mode.map(|mode| mode.word()))?;
            LinkKind::Ipvlan(rtnl::Ipvlan { mode })
        }
        Kind::Vlan(vlan) => {
            let protocol = word(vlan.protocol.map(|protocol| protocol.word()))?;
            LinkKind::Vlan(rtnl::Vlan { id: vlan.id.get(), protocol })
        }
        Kind::Dummy => LinkKind::Dummy,
        Kind::Bond(bond) => LinkKind::Bond(self::bond(bond)?),
        Kind::Vrf(vrf) => LinkKind::Vrf(rtnl::Vrf { table: vrf.table.get() }),
        Kind::Gre(gre) => LinkKind::Gre(self::gre(gre)),
        Kind::Ifb => LinkKind::Ifb,
        Kind::Tun(tap) => LinkKind::Tun(self::tap(tap)),
        Kind::Tap(tap) => LinkKind::Tap(self::tap(tap)),
    })
}

/// The document and the kernel's side have the same words.
fn word<T: DeserializeOwned>(word: Option<&str>) -> Result<Option<T>> {
    Ok(word.map(|word| serde_json::from_value(word.into())).transpose()?)
}

fn flag(declared: Option<Spanned<bool>>) -> Option<bool> {
    declared.map(|flag| flag.value)
}

fn time(declared: Option<Spanned<Period>>) -> Option<Centis> {
    declared.map(|time| Centis::from(time.get()))
}

fn bridge(declared: &doc::Bridge) -> Result<rtnl::Bridge> {
    Ok(rtnl::Bridge {
        stp: flag(declared.stp),
        vlan_filtering: flag(declared.vlan_filtering),
        vlan_protocol: word(declared.vlan_protocol.map(|protocol| protocol.word()))?,
        vlan_default_pvid: declared.vlan_default_pvid.map(|pvid| pvid.get()),
        mcast_snooping: flag(declared.mcast_snooping),
        priority: declared.priority.map(|priority| priority.get()),
        forward_delay: time(declared.forward_delay),
        hello_time: time(declared.hello_time),
        max_age: time(declared.max_age),
        ageing_time: time(declared.ageing_time),
    })
}

fn vxlan(declared: &doc::Vxlan) -> rtnl::Vxlan {
    let seconds = |time: Spanned<Period>| u32::try_from(time.get().as_secs()).unwrap_or(u32::MAX);
    rtnl::Vxlan {
        id: declared.id.get(),
        local: declared.local.map(|end| end.value),
        remote: declared.remote.map(|end| end.value),
        group: declared.group.map(|end| end.value),
        port: declared.port.map(|port| port.get()),
        ttl: declared.ttl.map(|ttl| ttl.get()),
        tos: declared.tos.map(|tos| tos.get()),
        learning: flag(declared.learning),
        ageing: declared.ageing.map(seconds),
        proxy: flag(declared.proxy),
    }
}

fn bond(declared: &doc::Bond) -> Result<rtnl::Bond> {
    Ok(rtnl::Bond {
        mode: word(declared.mode.map(|mode| mode.word()))?,
        miimon: declared.miimon.map(|millis| millis.get()),
        updelay: declared.updelay.map(|millis| millis.get()),
        downdelay: declared.downdelay.map(|millis| millis.get()),
        lacp_rate: word(declared.lacp_rate.map(|rate| rate.word()))?,
        xmit_hash_policy: word(declared.xmit_hash_policy.map(|policy| policy.word()))?,
        primary: declared.primary.as_ref().map(|primary| link_name(primary)).transpose()?,
        min_links: declared.min_links.map(|count| count.get()),
    })
}

fn gre(declared: &doc::Gre) -> rtnl::Gre {
    rtnl::Gre {
        local: declared.local.map(|end| end.value),
        remote: declared.remote.map(|end| end.value),
        key: declared.key.map(|key| key.get()),
        ttl: declared.ttl.map(|ttl| ttl.get()),
        tos: declared.tos.map(|tos| tos.get()),
        pmtudisc: flag(declared.pmtudisc),
    }
}

fn tap(declared: &doc::Tap) -> rtnl::Tap {
    rtnl::Tap {
        owner: declared.owner.map(|owner| owner.get()),
        group: declared.group.map(|group| group.get()),
        multi_queue: flag(declared.multi_queue),
        vnet_hdr: flag(declared.vnet_hdr),
    }
}
