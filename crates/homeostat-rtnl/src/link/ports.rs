//! The numbers of the ports of a bridge, which are part of what spanning trees compare. The kernel gives a port that joins
//! the lowest free one: ports that were away get theirs by joining in the order of their numbers.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Failure, Outcome, Retry, Snapshot};
use homeostat_netlink::uapi::{
    IFLA_BRPORT_NO, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND, IFLA_LINKINFO, IFLA_MASTER,
    RTM_GETLINK,
};
use homeostat_netlink::{Batch, Connection, Error, Malformed, Message};

use crate::apply::failure;
use crate::key::Key;
use crate::link::kinds::Refs;
use crate::link::message::{self, Parts};
use crate::link::{IfIndex, LinkName, Links};
use crate::object::Object;
use crate::observe::collect;
use crate::snapshot::{Bridged, Place};

/// A port of a bridge.
struct Port {
    bridge: IfIndex,
    name: LinkName,
    index: IfIndex,
    number: u16,
    place: Option<Place>,
}

/// The numbers of the ports of these bridges, as a snapshot of each.
pub(crate) fn take(
    connection: &mut Connection,
    links: &Links,
    bridges: impl Iterator<Item = LinkName>,
) -> Result<Vec<(Key, Snapshot)>, Error> {
    let bridges: Vec<_> = bridges.filter_map(|name| Some((name, links.index(name)?))).collect();
    if bridges.is_empty() {
        return Ok(Vec::new());
    }
    let ports = ports(connection, links)?;
    let of = |(name, index): &(LinkName, IfIndex)| {
        let here = ports.iter().filter(|port| port.bridge == *index);
        let numbers: BTreeMap<String, u16> =
            here.map(|port| (port.name.to_string(), port.number)).collect();
        let text = serde_json::to_string(&numbers).ok().filter(|_| !numbers.is_empty())?;
        Some((Key::Ports(*name), Snapshot(text)))
    };
    Ok(bridges.iter().filter_map(of).collect())
}

/// Gives the ports of a bridge the numbers that they had, once all of them are back.
pub(crate) fn put_right(
    connection: &mut Connection,
    bridge: LinkName,
    snapshot: &Snapshot,
) -> Result<Outcome<Object>, Failure> {
    let former: BTreeMap<String, u16> = serde_json::from_str(&snapshot.0).unwrap_or_default();
    let links = crate::snapshot::links(connection).map_err(|error| failure(&error))?;
    let Some(index) = links.index(bridge) else { return Ok(Outcome::Applied { now: None }) };
    let mut ports = ports(connection, &links).map_err(|error| failure(&error))?;
    ports.retain(|port| port.bridge == index);
    let is_port = |name: &LinkName| ports.iter().any(|port| port.name == *name);
    let mut names = former.keys().map(|name| LinkName::padded(name));
    if let Some(absent) = names.find(|name| links.index(*name).is_some() && !is_port(name)) {
        return Err(Failure::new(format!("`{absent}` is not in it any more"), Retry::Soon));
    }
    let wanted = |port: &Port| former.get(port.name.as_str()).copied();
    let (mut moved, kept): (Vec<&Port>, Vec<&Port>) =
        ports.iter().partition(|port| wanted(port).is_some_and(|number| number != port.number));
    moved.sort_by_key(|port| wanted(port));
    let mut taken: BTreeSet<u16> = kept.iter().map(|port| port.number).collect();
    for port in &moved {
        let lowest = (1..=u16::MAX).find(|number| !taken.contains(number));
        if lowest != wanted(port) {
            let why = format!(
                "port `{}` has number {}: the kernel gives the lowest free one",
                port.name, port.number
            );
            return Err(Failure::new(why, Retry::Never));
        }
        taken.extend(lowest);
    }
    let mut batch = Batch::new();
    let joins = moved.iter().map(|port| (port, index));
    let all = moved.iter().map(|port| (port, IfIndex(0))).chain(joins);
    for (port, master) in all {
        let place = Parts { master: Some(master), ..Parts::default() };
        let written = message::change(&mut batch, port.index, &place, &Refs::default());
        written.map_err(|error| failure(&error))?;
        if let Some(place) = port.place.as_ref().filter(|_| master == index) {
            place.set(&mut batch, port.index).map_err(|error| failure(&error))?;
        }
    }
    // What became of it is seen by the next look.
    connection.run(&mut batch, &mut |_, _| {}).map_err(|error| failure(&error))?;
    for (port, place) in moved.iter().filter_map(|port| Some((port, port.place.as_ref()?))) {
        let set = place.set_vlans(connection, port.index);
        let set = set.and_then(|()| place.set_forwarding(connection, port.index, index));
        set.map_err(|error| failure(&error))?;
    }
    Ok(Outcome::Applied { now: None })
}

fn ports(connection: &mut Connection, links: &Links) -> Result<Vec<Port>, Error> {
    let bridged = Bridged::read(connection)?;
    let mut ports = collect(connection, RTM_GETLINK, &[0; 16], |message| port(message, links))?;
    for port in &mut ports {
        if let Some(place) = &mut port.place {
            place.note(port.index, &bridged);
        }
    }
    Ok(ports)
}

fn port(message: &Message<'_>, links: &Links) -> Result<Option<Port>, Malformed> {
    let (_, attrs) = message.split::<16>()?;
    let (master, info) = (attrs.clone().first(IFLA_MASTER)?, attrs.first(IFLA_LINKINFO)?);
    let (Some(master), Some(info)) = (master, info) else { return Ok(None) };
    let kind = info.attrs().first(IFLA_INFO_SLAVE_KIND)?;
    let data = info.attrs().first(IFLA_INFO_SLAVE_DATA)?;
    let is_bridge = kind.is_some_and(|kind| kind.str().is_ok_and(|kind| kind == "bridge"));
    let Some(data) = data.filter(|_| is_bridge) else { return Ok(None) };
    let Some(number) = data.attrs().first(IFLA_BRPORT_NO)? else { return Ok(None) };
    let (index, name) = message::index_and_name(message)?;
    let (bridge, number) = (IfIndex(master.u32()?), number.u16()?);
    Ok(Some(Port { bridge, name, index, number, place: Place::of(message, links)? }))
}
