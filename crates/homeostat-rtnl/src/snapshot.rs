//! Objects of other owners in full: made of the kernel's own message before a step takes an object over, and sent back
//! to the kernel when the object is given back. What this source does not manage (metrics, encapsulation, lifetimes,
//! the protocol) is in the message, and so comes back, too.

pub(crate) mod forwarding;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::Snapshot;
use homeostat_netlink::uapi::{
    FIB_RULE_INVERT, FRA_PAD, IFA_CACHEINFO, IFA_F_HOMEADDRESS, IFA_F_MANAGETEMPADDR,
    IFA_F_MCAUTOJOIN, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, IFA_FLAGS, IFA_PROTO, IFLA_ADDRESS,
    IFLA_BRPORT_BCAST_FLOOD, IFLA_BRPORT_COST, IFLA_BRPORT_FAST_LEAVE, IFLA_BRPORT_GROUP_FWD_MASK,
    IFLA_BRPORT_GUARD, IFLA_BRPORT_ISOLATED, IFLA_BRPORT_LEARNING, IFLA_BRPORT_LOCKED,
    IFLA_BRPORT_MAB, IFLA_BRPORT_MCAST_FLOOD, IFLA_BRPORT_MCAST_TO_UCAST, IFLA_BRPORT_MODE,
    IFLA_BRPORT_MULTICAST_ROUTER, IFLA_BRPORT_NEIGH_SUPPRESS, IFLA_BRPORT_NEIGH_VLAN_SUPPRESS,
    IFLA_BRPORT_PRIORITY, IFLA_BRPORT_PROTECT, IFLA_BRPORT_PROXYARP, IFLA_BRPORT_PROXYARP_WIFI,
    IFLA_BRPORT_UNICAST_FLOOD, IFLA_BRPORT_VLAN_TUNNEL, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND,
    IFLA_LINKINFO, IFLA_MASTER, NDA_CACHEINFO, NDA_MASTER, NDA_PROBES, NHA_OIF, NTF_MASTER,
    NTF_PROXY, NTF_SELF, RTA_CACHEINFO, RTA_EXPIRES, RTA_GATEWAY, RTA_IIF, RTA_MULTIPATH,
    RTA_NH_ID, RTA_OIF, RTA_VIA, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNEXTHOP,
    RTM_GETROUTE, RTM_GETRULE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWNEXTHOP, RTM_NEWROUTE,
    RTM_NEWRULE, RTNH_F_ONLINK, RTPROT_KERNEL,
};
use homeostat_netlink::{Attr, Batch, Connection, Error, Malformed, Message};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::fdb::AF_BRIDGE;
use crate::key::Key;
use crate::link::model::{Field, Link, LinkRef};
use crate::link::observe::SeenLink;
use crate::link::vlans::{Holder, Vlans};
use crate::link::{self, IfIndex, LinkName, Links};
use crate::message::{AF_INET, AF_INET6, Encoded, Encoder, LinkNames, NoLink};
use crate::neighbour::{Mac, Nature};
use crate::number::Protocol;
use crate::observe::collect;
use crate::{address, fdb, neighbour, nexthop, route, rule};

/// The flags of an address that a request can set.
const IFA_F_SETTABLE: u32 =
    IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_MCAUTOJOIN | IFA_F_NOPREFIXROUTE;

/// The kernel's message about an object, as the request that makes the object again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The message type.
    message: u16,
    /// The fixed part of the message.
    fixed: Vec<u8>,
    attrs: Vec<(u16, Vec<u8>)>,
    /// The names of the links that the message has by number: a link that is made again has another number.
    links: BTreeMap<u32, String>,
    /// When it was made, in seconds since the boot: lifetimes run down meanwhile.
    at: u64,
}

impl Copied {
    pub(crate) fn parse(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(&snapshot.0).ok()
    }

    fn snapshot(&self) -> Option<Snapshot> {
        serde_json::to_string(self).ok().map(Snapshot)
    }

    pub(crate) fn of(message: &Message<'_>, links: &Links) -> Result<Self, Malformed> {
        let (fixed, attrs) = if matches!(message.kind, RTM_NEWADDR | RTM_NEWNEXTHOP) {
            let (fixed, attrs) = message.split::<8>()?;
            (fixed.to_vec(), attrs)
        } else {
            let (fixed, attrs) = message.split::<12>()?;
            (fixed.to_vec(), attrs)
        };
        let mut copied = Copied {
            message: message.kind,
            fixed,
            attrs: Vec::new(),
            links: BTreeMap::new(),
            at: seconds_since_boot(),
        };
        copied.clear_reported();
        let has_nexthop = attrs.clone().first(RTA_NH_ID)?.is_some();
        for attr in attrs {
            copied.attrs.extend(requested(message.kind, &attr?, has_nexthop)?);
        }
        let mut names = BTreeMap::new();
        copied.for_each_link(&mut |bytes| {
            let index = u32::from_ne_bytes(*bytes);
            if index != 0 {
                names.insert(index, links.name(IfIndex(index)).to_string());
            }
        });
        copied.links = names;
        Ok(copied)
    }

    /// Clears what the kernel only reports in the fixed part: flags, and the scope of a nexthop.
    fn clear_reported(&mut self) {
        let reported = match self.message {
            RTM_NEWADDR => self.fixed.get_mut(2),
            RTM_NEWNEXTHOP => self.fixed.get_mut(1),
            _ => None,
        };
        if let Some(reported) = reported {
            *reported = 0;
        }
        // A request says whose table is meant, and a report of a bridge does not.
        if self.fixed.first() == Some(&AF_BRIDGE)
            && let Some(flags) = self.fixed.get_mut(10).filter(|flags| **flags & NTF_SELF == 0)
        {
            *flags |= NTF_MASTER;
        }
        let settable = match self.message {
            RTM_NEWROUTE | RTM_NEWNEXTHOP => RTNH_F_ONLINK,
            RTM_NEWRULE => FIB_RULE_INVERT,
            _ => return,
        };
        if let Some(flags) = self.fixed.last_chunk_mut::<4>() {
            *flags = (u32::from_ne_bytes(*flags) & settable).to_ne_bytes();
        }
    }

    /// Visits the numbers of links.
    fn for_each_link(&mut self, visit: &mut dyn FnMut(&mut [u8; 4])) {
        if matches!(self.message, RTM_NEWADDR | RTM_NEWNEIGH)
            && let Some(index) = self.fixed.get_mut(4..8).and_then(<[u8]>::first_chunk_mut)
        {
            visit(index);
        }
        for (kind, value) in &mut self.attrs {
            match (self.message, *kind) {
                (RTM_NEWROUTE, RTA_OIF) | (RTM_NEWNEXTHOP, NHA_OIF) => {
                    if let Some(index) = value.first_chunk_mut() {
                        visit(index);
                    }
                }
                (RTM_NEWROUTE, RTA_MULTIPATH) => for_each_way(value, &mut |way| {
                    if let Some(index) = way.get_mut(4..8).and_then(<[u8]>::first_chunk_mut) {
                        visit(index);
                    }
                }),
                _ => {}
            }
        }
    }

    /// The request that makes the object now: with the present numbers of its links, and with the time that is left.
    fn now(&self, links: &Links) -> Result<Self, NoLink> {
        let (mut request, mut missing) = (self.clone(), None);
        request.for_each_link(&mut |bytes| {
            let Some(name) = self.links.get(&u32::from_ne_bytes(*bytes)) else { return };
            let name = LinkName::padded(name);
            match links.index(name) {
                Some(index) => *bytes = index.0.to_ne_bytes(),
                None => missing = Some(NoLink(name)),
            }
        });
        let passed = self.passed();
        for (kind, value) in &mut request.attrs {
            let times = match (self.message, *kind) {
                (RTM_NEWADDR, IFA_CACHEINFO) => 2,
                (RTM_NEWROUTE, RTA_EXPIRES) => 1,
                _ => continue,
            };
            for time in value.as_chunks_mut::<4>().0.iter_mut().take(times) {
                *time = time_left(u32::from_ne_bytes(*time), passed).to_ne_bytes();
            }
        }
        missing.map_or(Ok(request), Err)
    }

    /// The seconds that have passed since.
    fn passed(&self) -> u32 {
        u32::try_from(seconds_since_boot().saturating_sub(self.at)).unwrap_or(u32::MAX)
    }

    /// Whether the object would be gone by now, since its time has run out.
    pub(crate) fn is_over(&self) -> bool {
        let valid = self.attrs.iter().find_map(|(kind, value)| match (self.message, *kind) {
            (RTM_NEWADDR, IFA_CACHEINFO) => value.get(4..8)?.first_chunk(),
            (RTM_NEWROUTE, RTA_EXPIRES) => value.first_chunk(),
            _ => None,
        });
        valid.is_some_and(|valid| time_left(u32::from_ne_bytes(*valid), self.passed()) == 0)
    }
}

/// An attribute of a report as the request has it; none, if a request has no such attribute.
fn requested(
    message: u16,
    attr: &Attr<'_>,
    has_nexthop: bool,
) -> Result<Option<(u16, Vec<u8>)>, Malformed> {
    let mut value = attr.value.to_vec();
    Ok(match (message, attr.kind) {
        (RTM_NEWROUTE, RTA_CACHEINFO) => expires(attr).map(|left| (RTA_EXPIRES, left)),
        // The ways of a nexthop object are the object's.
        (RTM_NEWROUTE, RTA_OIF | RTA_GATEWAY | RTA_VIA | RTA_MULTIPATH) if has_nexthop => None,
        (RTM_NEWROUTE, RTA_MULTIPATH) => {
            for_each_way(&mut value, &mut |way| {
                if let Some(flags) = way.get_mut(2) {
                    *flags &= u8::try_from(RTNH_F_ONLINK).unwrap_or(0);
                }
            });
            Some((RTA_MULTIPATH, value))
        }
        (RTM_NEWROUTE, RTA_IIF | RTA_EXPIRES)
        | (RTM_NEWRULE, FRA_PAD)
        | (RTM_NEWNEIGH, NDA_CACHEINFO | NDA_PROBES | NDA_MASTER) => None,
        (RTM_NEWADDR, IFA_FLAGS) => {
            Some((IFA_FLAGS, (attr.u32()? & IFA_F_SETTABLE).to_ne_bytes().to_vec()))
        }
        (_, kind) => Some((kind, value)),
    })
}

/// The seconds that a route still has, of what the kernel reports in hundredths; none, if it stays for ever.
fn expires(attr: &Attr<'_>) -> Option<Vec<u8>> {
    let left = u32::from_ne_bytes(*attr.value.get(8..12)?.first_chunk()?);
    (left != 0 && left <= i32::MAX.unsigned_abs())
        .then(|| left.div_ceil(100).to_ne_bytes().to_vec())
}

fn time_left(seconds: u32, passed: u32) -> u32 {
    if seconds == u32::MAX { seconds } else { seconds.saturating_sub(passed) }
}

fn seconds_since_boot() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

/// Visits the ways of a route, each with its attributes.
fn for_each_way(ways: &mut [u8], visit: &mut dyn FnMut(&mut [u8])) {
    let mut rest = ways;
    while let Some(len) = rest.first_chunk().map(|len| usize::from(u16::from_ne_bytes(*len)))
        && len >= 8
        && len <= rest.len()
    {
        let next = len.next_multiple_of(4).min(rest.len());
        let (way, others) = std::mem::take(&mut rest).split_at_mut(next);
        visit(way);
        rest = others;
    }
}

/// Sends an object back as it was.
pub(crate) fn put_back(encoder: &mut Encoder<'_>, copied: &Copied, flags: u16) -> Encoded {
    let request = copied.now(encoder.links)?;
    let mut message = encoder.batch.message(request.message, flags);
    message.fixed(&request.fixed);
    for (kind, value) in &request.attrs {
        message.attr(*kind, value);
    }
    Ok(message.finish())
}

/// What our mark replaces of a link. The rest of a link that is ever written is managed, and so is known without a
/// snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerMark {
    pub(crate) alias: String,
    pub(crate) group: u32,
}

impl FormerMark {
    pub(crate) fn parse(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(&snapshot.0).ok()
    }
}

/// What a link was. The links that it refers to are not in it, but for its master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerLink {
    pub(crate) index: u32,
    #[serde(flatten)]
    pub(crate) mark: FormerMark,
    pub(crate) link: Link,
}

/// The links that are to be made again as they were.
pub(crate) type FormerLinks = BTreeMap<LinkName, FormerLink>;

impl FormerLink {
    pub(crate) fn parse(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(&snapshot.0).ok()
    }

    fn of(seen: &SeenLink, links: &Links) -> Self {
        let master = seen.master.map(|master| links.name(master));
        let mut link = Link { master, ..seen.link.clone() };
        if let Some(peer) = link.kind.peer_mut() {
            // Which end it is cannot be changed, and one that is elsewhere has no name here.
            *peer = LinkRef::here(seen.name);
        }
        let mark = FormerMark { alias: seen.alias.clone().unwrap_or_default(), group: seen.group };
        FormerLink { index: seen.index.0, mark, link }
    }
}

/// The place of a link in a bridge, bond or VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) master: LinkName,
    /// The kernel's word for the kind of the master.
    kind: String,
    /// What was set there.
    options: Vec<(u16, Vec<u8>)>,
    /// The VLANs that it had, if it is a port of a bridge.
    #[serde(default)]
    vlans: Option<Vlans>,
    /// What others had in the forwarding table for it, if it is a port of a bridge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    forwarding: Vec<forwarding::Entry>,
    /// The hardware address, for which the kernel makes entries by itself.
    #[serde(skip)]
    mac: Option<Mac>,
}

/// What a request can set of a port of a bridge, as far as it is the same later.
const PORT_OPTIONS: [u16; 21] = [
    IFLA_BRPORT_PRIORITY,
    IFLA_BRPORT_COST,
    IFLA_BRPORT_MODE,
    IFLA_BRPORT_GUARD,
    IFLA_BRPORT_PROTECT,
    IFLA_BRPORT_FAST_LEAVE,
    IFLA_BRPORT_LEARNING,
    IFLA_BRPORT_UNICAST_FLOOD,
    IFLA_BRPORT_PROXYARP,
    IFLA_BRPORT_PROXYARP_WIFI,
    IFLA_BRPORT_MULTICAST_ROUTER,
    IFLA_BRPORT_MCAST_TO_UCAST,
    IFLA_BRPORT_MCAST_FLOOD,
    IFLA_BRPORT_BCAST_FLOOD,
    IFLA_BRPORT_GROUP_FWD_MASK,
    IFLA_BRPORT_NEIGH_SUPPRESS,
    IFLA_BRPORT_VLAN_TUNNEL,
    IFLA_BRPORT_ISOLATED,
    IFLA_BRPORT_LOCKED,
    IFLA_BRPORT_MAB,
    IFLA_BRPORT_NEIGH_VLAN_SUPPRESS,
];

impl Place {
    pub(crate) fn parse(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(&snapshot.0).ok()
    }

    pub(crate) fn of(message: &Message<'_>, links: &Links) -> Result<Option<Self>, Malformed> {
        let (_, attrs) = message.split::<16>()?;
        let Some(master) = attrs.clone().first(IFLA_MASTER)? else { return Ok(None) };
        let master = links.name(IfIndex(master.u32()?));
        let mac = attrs.clone().first(IFLA_ADDRESS)?.and_then(|mac| mac.array().ok()).map(Mac);
        let (options, vlans, forwarding) = (Vec::new(), None, Vec::new());
        let mut place = Place { master, kind: String::new(), options, vlans, forwarding, mac };
        let Some(info) = attrs.first(IFLA_LINKINFO)? else { return Ok(Some(place)) };
        if let Some(kind) = info.attrs().first(IFLA_INFO_SLAVE_KIND)? {
            kind.str().unwrap_or_default().clone_into(&mut place.kind);
        }
        let options = info.attrs().first(IFLA_INFO_SLAVE_DATA)?.filter(|_| place.kind == "bridge");
        for attr in options.into_iter().flat_map(|options| options.attrs()) {
            let attr = attr?;
            if PORT_OPTIONS.contains(&attr.kind) {
                place.options.push((attr.kind, attr.value.to_vec()));
            }
        }
        Ok(Some(place))
    }

    /// Sets what was set there.
    pub(crate) fn set(&self, batch: &mut Batch, link: IfIndex) -> Result<(), Error> {
        link::message::change_port(batch, link, &self.kind, &self.options)
    }

    pub(crate) fn has_options(&self) -> bool {
        !self.options.is_empty()
    }

    /// Gives it the VLANs that it had there, once it is there again. A kernel without VLANs of bridges had none.
    pub(crate) fn set_vlans(
        &self,
        connection: &mut Connection,
        link: IfIndex,
    ) -> Result<(), Error> {
        let Some(vlans) = &self.vlans else { return Ok(()) };
        let seen = link::vlans::read(connection, Some(link))?.remove(&link).unwrap_or_default();
        let mut batch = Batch::new();
        link::vlans::change(&mut batch, link, Holder::Port, &seen, vlans)?;
        connection.ask(&mut batch, &mut |_| {})
    }

    /// Has the bridge forward as it did, once the port is there again and has its VLANs.
    pub(crate) fn set_forwarding(
        &self,
        connection: &mut Connection,
        link: IfIndex,
        bridge: IfIndex,
    ) -> Result<(), Error> {
        forwarding::put_back(connection, link, bridge, &self.forwarding)
    }

    /// Notes what the bridge has of a port, of what all bridges have.
    pub(crate) fn note(&mut self, link: IfIndex, all: &Bridged) {
        if self.kind != "bridge" {
            return;
        }
        let has_vlans = !all.vlans.is_empty();
        self.vlans = has_vlans.then(|| all.vlans.get(&link).cloned().unwrap_or_default());
        self.forwarding = forwarding::of_port(&all.forwarding, link, self.mac);
    }
}

/// What bridges have of their ports.
pub(crate) struct Bridged {
    vlans: BTreeMap<IfIndex, Vlans>,
    forwarding: Vec<forwarding::Seen>,
}

impl Bridged {
    pub(crate) fn read(connection: &mut Connection) -> Result<Self, Error> {
        let vlans = link::vlans::read(connection, None)?;
        Ok(Bridged { vlans, forwarding: forwarding::read(connection)? })
    }
}

/// The places of these links.
fn places(
    connection: &mut Connection,
    keys: &BTreeSet<Key>,
    links: &Links,
) -> Result<Vec<(Key, Snapshot)>, Error> {
    let is_place = |key: &Key| matches!(key, Key::LinkField(_, Field::Master));
    if !keys.iter().any(is_place) {
        return Ok(Vec::new());
    }
    let bridged = Bridged::read(connection)?;
    collect(connection, RTM_GETLINK, &[0; 16], |message| {
        let (index, name) = link::message::index_and_name(message)?;
        let key = Key::LinkField(name, Field::Master);
        let mut place = if keys.contains(&key) { Place::of(message, links)? } else { None };
        if let Some(place) = &mut place {
            place.note(index, &bridged);
        }
        let snapshot = place.and_then(|place| serde_json::to_string(&place).ok());
        Ok(snapshot.map(|snapshot| (key, Snapshot(snapshot))))
    })
}

/// The links that are there.
pub(crate) fn links(connection: &mut Connection) -> Result<Links, Error> {
    let links = collect(connection, RTM_GETLINK, &[0; 16], |message| {
        link::message::index_and_name(message).map(Some)
    })?;
    Ok(links.into_iter().map(|(index, name)| (name, index)).collect())
}

/// An object that a dump reports: its key, whose it is, and the links that it hangs on.
struct Reported {
    key: Key,
    protocol: Protocol,
    links: Vec<LinkName>,
    /// Whether it goes through a nexthop object, whose link it hangs on.
    has_nexthop: bool,
}

impl Reported {
    fn new(key: Key, protocol: Protocol, links: impl IntoIterator<Item = LinkName>) -> Self {
        Reported { key, protocol, links: links.into_iter().collect(), has_nexthop: false }
    }
}

/// Reads what is on the keys, in full, but for what carries a former protocol of our own.
pub(crate) fn take(
    connection: &mut Connection,
    keys: &BTreeSet<Key>,
    former: &BTreeSet<Protocol>,
) -> Result<BTreeMap<Key, Snapshot>, Error> {
    let mut found = BTreeMap::new();
    let links = collect(connection, RTM_GETLINK, &[0; 16], |message| {
        link::message::decode(message).map(Some)
    })?;
    let names: Links = links.iter().map(|seen| (seen.name, seen.index)).collect();
    for seen in &links {
        let key = Key::LinkField(seen.name, Field::Mtu);
        if let Some(mtu) = seen.link.mtu.filter(|_| keys.contains(&key)) {
            found.insert(key, Snapshot(mtu.to_string()));
        }
    }
    for seen in links.iter().filter(|seen| keys.contains(&Key::Link(seen.name))) {
        let snapshot = serde_json::to_string(&FormerLink::of(seen, &names)).ok().map(Snapshot);
        found.extend(snapshot.map(|snapshot| (Key::Link(seen.name), snapshot)));
    }
    let links = names;
    found.extend(places(connection, keys, &links)?);
    let ordered = keys.iter().filter_map(|key| match key {
        Key::AddressOrder(link) => Some(*link),
        _ => None,
    });
    found.extend(address::order::take(connection, &links, ordered)?);
    let bridges = keys.iter().filter_map(|key| match key {
        Key::Ports(bridge) => Some(*bridge),
        _ => None,
    });
    found.extend(link::ports::take(connection, &links, bridges)?);
    let kinds = |dump: Dump| keys.iter().any(|key| dump_of(key) == Some(dump));
    let all = dump(connection, &links, &kinds, &mut |seen| {
        keys.contains(&seen.key) && !former.contains(&seen.protocol)
    })?;
    found.extend(all);
    Ok(found)
}

/// The IPv6 addresses of a link that it loses when it is set down, and that the kernel does not make again by itself.
pub(crate) fn lost_when_down(
    connection: &mut Connection,
    links: &Links,
    link: LinkName,
) -> Result<BTreeMap<Key, Snapshot>, Error> {
    dump(connection, links, &|dump| dump == Dump::Addresses, &mut |seen| match seen.key {
        Key::Address(key) => {
            key.link == link && key.ip.is_ipv6() && !address::is_link_local(key.ip)
        }
        _ => false,
    })
}

/// What a link that is set down and up again has lost: IPv6 addresses, and nexthops and routes of any owner but the
/// kernel. In the order in which they can be put back.
pub(crate) fn lost_for_a_moment(
    connection: &mut Connection,
    links: &Links,
    link: LinkName,
) -> Result<Vec<Copied>, Error> {
    let kinds = |dump: Dump| matches!(dump, Dump::Addresses | Dump::Nexthops | Dump::Routes);
    let lost = dump(connection, links, &kinds, &mut |seen| {
        if let Key::Address(key) = seen.key {
            return key.link == link && key.ip.is_ipv6() && !address::is_link_local(key.ip);
        }
        // One through a nexthop object does not say its link. What was not lost is still there then.
        let may_be_lost = seen.has_nexthop || seen.links.contains(&link);
        may_be_lost && seen.protocol != Protocol(RTPROT_KERNEL)
    })?;
    let mut lost: Vec<Copied> = lost.values().filter_map(Copied::parse).collect();
    lost.sort_by_key(|copied| match copied.message {
        RTM_NEWADDR => 0,
        RTM_NEWNEXTHOP => 1,
        _ => 2,
    });
    Ok(lost)
}

/// Reads what other owners have on the links of these keys.
pub(crate) fn take_along(
    connection: &mut Connection,
    keys: &BTreeSet<Key>,
    ours: Protocol,
) -> Result<BTreeMap<Key, Snapshot>, Error> {
    let links = links(connection)?;
    let mut on: BTreeSet<LinkName> = BTreeSet::new();
    // Whose a forwarding entry is, it does not say; those of a port are recorded with its place.
    let marked = |dump: Dump| dump != Dump::Fdb;
    dump(connection, &links, &marked, &mut |seen| {
        if keys.contains(&seen.key) {
            on.extend(seen.links.iter().copied());
        }
        false
    })?;
    dump(connection, &links, &marked, &mut |seen| {
        let is_foreign = seen.protocol != ours && seen.protocol != Protocol(RTPROT_KERNEL);
        let hangs_on = seen.has_nexthop || seen.links.iter().any(|link| on.contains(link));
        is_foreign && (hangs_on || keys.contains(&seen.key))
    })
}

/// A dump that objects are copied from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dump {
    Addresses,
    Nexthops,
    Routes,
    Rules,
    Neighbours,
    Fdb,
}

/// The dump that has a key in it.
fn dump_of(key: &Key) -> Option<Dump> {
    match key {
        Key::Route(_) => Some(Dump::Routes),
        Key::Rule(_) => Some(Dump::Rules),
        Key::Address(_) => Some(Dump::Addresses),
        Key::Nexthop(_) => Some(Dump::Nexthops),
        Key::Neighbour(_) => Some(Dump::Neighbours),
        Key::Fdb(_) => Some(Dump::Fdb),
        Key::Link(_)
        | Key::LinkField(..)
        | Key::LinkSysctls(..)
        | Key::AddressOrder(_)
        | Key::Ports(_) => None,
    }
}

impl Copied {
    /// Whether the kernel has made it by itself.
    pub(crate) fn is_the_kernels(&self) -> bool {
        let protocol = self.attrs.iter().find(|(kind, _)| *kind == IFA_PROTO);
        let made = |value: &Vec<u8>| matches!(value.as_slice(), [1..=3]);
        self.message == RTM_NEWADDR && protocol.is_some_and(|(_, value)| made(value))
    }
}

/// Dumps the wanted kinds, and takes snapshots of the wanted objects.
fn dump(
    connection: &mut Connection,
    links: &Links,
    is_wanted_dump: &dyn Fn(Dump) -> bool,
    is_wanted: &mut dyn FnMut(&Reported) -> bool,
) -> Result<BTreeMap<Key, Snapshot>, Error> {
    const PROXIES: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NTF_PROXY, 0];
    const FDB: [u8; 12] = [AF_BRIDGE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut found = BTreeMap::new();
    let of_family = |family: u8| [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (v4, v6) = (of_family(AF_INET), of_family(AF_INET6));
    let dumps: [(Dump, u16, &[u8]); 9] = [
        (Dump::Addresses, RTM_GETADDR, &[0; 8]),
        (Dump::Nexthops, RTM_GETNEXTHOP, &[0; 8]),
        (Dump::Routes, RTM_GETROUTE, &v4),
        (Dump::Routes, RTM_GETROUTE, &v6),
        (Dump::Rules, RTM_GETRULE, &v4),
        (Dump::Rules, RTM_GETRULE, &v6),
        (Dump::Neighbours, RTM_GETNEIGH, &[0; 12]),
        (Dump::Neighbours, RTM_GETNEIGH, &PROXIES),
        (Dump::Fdb, RTM_GETNEIGH, &FDB),
    ];
    for (dump, kind, fixed) in dumps.into_iter().filter(|(dump, ..)| is_wanted_dump(*dump)) {
        let all = collect(connection, kind, fixed, |message| {
            let Some(seen) = reported(dump, message, links)?.filter(&mut *is_wanted) else {
                return Ok(None);
            };
            Ok(Copied::of(message, links)?.snapshot().map(|snapshot| (seen.key, snapshot)))
        })?;
        found.extend(all);
    }
    Ok(found)
}

fn reported(
    dump: Dump,
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<Reported>, Malformed> {
    Ok(match dump {
        Dump::Addresses => address::decode(message, links)?.map(|seen| {
            // The kernel marks what it makes by itself with 1 to 3.
            let is_made = matches!(seen.protocol, Protocol(1..=3));
            let protocol = if is_made { Protocol(RTPROT_KERNEL) } else { seen.protocol };
            Reported::new(Key::Address(seen.key), protocol, [seen.key.link])
        }),
        Dump::Nexthops => nexthop::decode(message, links)?
            .map(|seen| Reported::new(Key::Nexthop(seen.id), seen.protocol, seen.nexthop.dev)),
        Dump::Routes => {
            route::message::decode(message, &mut LinkNames::new(links))?.map(|seen| Reported {
                has_nexthop: seen.route.nexthop.is_some(),
                ..Reported::new(Key::Route(seen.key), seen.protocol, seen.route.links())
            })
        }
        Dump::Rules => rule::decode(message)?
            .map(|seen| Reported::new(Key::from(seen.key), seen.protocol, None)),
        Dump::Fdb => fdb::decode(message, links)?
            .filter(|seen| seen.nature == fdb::Nature::Static)
            .map(|seen| Reported::new(Key::from(seen.key), Protocol(0), [seen.key.link])),
        Dump::Neighbours => neighbour::decode(message, links)?
            .filter(|seen| !matches!(seen.nature, Nature::Learned | Nature::Derived))
            .map(|seen| Reported::new(Key::Neighbour(seen.key), seen.protocol, [seen.key.link])),
    })
}
