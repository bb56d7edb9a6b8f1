//! What the kernel holds, by a reader of the demo's own: its judge must not rely on the code that it judges.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use homeostat_netlink::uapi::{
    FRA_PRIORITY, FRA_PROTOCOL, FRA_SRC, FRA_TABLE, IFA_ADDRESS, IFA_LOCAL, IFA_PROTO, IFLA_IFNAME,
    IFLA_MASTER, NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NHA_GATEWAY, NHA_ID, NHA_OIF, RTA_DST,
    RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTM_DELADDR, RTM_DELLINK,
    RTM_DELNEIGH, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_DELRULE, RTM_GETADDR, RTM_GETLINK,
    RTM_GETNEIGH, RTM_GETNEXTHOP, RTM_GETROUTE, RTM_GETRULE, RTM_NEWADDR, RTM_NEWLINK,
    RTM_NEWNEIGH, RTM_NEWNEXTHOP, RTM_NEWROUTE, RTM_NEWRULE,
};
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Message};

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Link,
    Address,
    Nexthop,
    Route,
    Rule,
    Neighbour,
}

/// What tells an object from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) name: String,
}

/// An object with its mark, and the message that tells of it.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Who put it there; nobody says so of links.
    pub(super) mark: u8,
    /// The fields that count.
    pub(super) fields: String,
    pub(super) body: Vec<u8>,
}

/// Whether an object came (or changed), or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Appeared,
    Vanished,
}

/// The names of links by their numbers. One that went is still known: others speak of it later.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<u32, String>);

/// Everything that carries somebody's mark, and all links.
pub(super) type KernelState = BTreeMap<Key, Object>;

/// Whether both hold the same.
pub(super) fn is_same(one: &KernelState, other: &KernelState) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.0 == other.0 && one.1.fields == other.1.fields && one.1.mark == other.1.mark
        })
}

/// The kinds with the fixed size of their messages; links first, since the others name them.
const DUMPS: [(u16, usize); 6] = [
    (RTM_GETLINK, 16),
    (RTM_GETADDR, 8),
    (RTM_GETNEXTHOP, 8),
    (RTM_GETROUTE, 12),
    (RTM_GETRULE, 12),
    (RTM_GETNEIGH, 12),
];

/// Looks at everything.
pub(super) fn look(connection: &mut Connection, names: &mut Names) -> Result<KernelState> {
    let mut picture = KernelState::new();
    for (kind, fixed) in DUMPS {
        let mut request = Batch::new();
        let mut message = request.message(kind, 0);
        message.fixed(&vec![0; fixed]);
        message.finish()?;
        let mut found = Vec::new();
        connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Object(message) => found.extend(read(&message, names)),
            Dumped::Restart => found.clear(),
        })?;
        picture.extend(found.into_iter().map(|(_, key, object)| (key, object)));
    }
    Ok(picture)
}

/// What a message tells; nothing, if it is of no interest.
pub(super) fn read(message: &Message<'_>, names: &mut Names) -> Option<(Change, Key, Object)> {
    let (change, kind) = sort(message.kind)?;
    let (name, mark, fields) = match kind {
        Kind::Link => link(message, names)?,
        Kind::Address => address(message, names)?,
        Kind::Nexthop => nexthop(message, names)?,
        Kind::Route => route(message, names)?,
        Kind::Rule => rule(message)?,
        Kind::Neighbour => neighbour(message, names)?,
    };
    let object = Object { mark, fields, body: message.payload.to_vec() };
    Some((change, Key { kind, name }, object))
}

fn sort(kind: u16) -> Option<(Change, Kind)> {
    Some(match kind {
        RTM_NEWLINK => (Change::Appeared, Kind::Link),
        RTM_DELLINK => (Change::Vanished, Kind::Link),
        RTM_NEWADDR => (Change::Appeared, Kind::Address),
        RTM_DELADDR => (Change::Vanished, Kind::Address),
        RTM_NEWNEXTHOP => (Change::Appeared, Kind::Nexthop),
        RTM_DELNEXTHOP => (Change::Vanished, Kind::Nexthop),
        RTM_NEWROUTE => (Change::Appeared, Kind::Route),
        RTM_DELROUTE => (Change::Vanished, Kind::Route),
        RTM_NEWRULE => (Change::Appeared, Kind::Rule),
        RTM_DELRULE => (Change::Vanished, Kind::Rule),
        RTM_NEWNEIGH => (Change::Appeared, Kind::Neighbour),
        RTM_DELNEIGH => (Change::Vanished, Kind::Neighbour),
        _ => return None,
    })
}

/// Name, mark and fields.
type Read = Option<(String, u8, String)>;

/// Bridges tell of their ports in a family of their own, which would make each a second link.
const UNSPECIFIED: u8 = 0;
const BRIDGE: u8 = 7;
/// The kernel itself, or nobody says who.
const NOBODY: [u8; 4] = [0, 1, 2, 3];

fn link(message: &Message<'_>, names: &mut Names) -> Read {
    let (fixed, attrs) = message.split::<16>().ok()?;
    let [family, _, _, _, i0, i1, i2, i3, f0, ..] = *fixed;
    let name = attrs.clone().first(IFLA_IFNAME).ok()??.str().ok()?.to_owned();
    if family != UNSPECIFIED {
        return None;
    }
    names.0.insert(u32::from_ne_bytes([i0, i1, i2, i3]), name.clone());
    let master = number(&attrs, IFLA_MASTER).map_or("-", |index| names.of(index));
    Some((name, 0, format!("up {} master {master}", f0 & 1)))
}

fn address(message: &Message<'_>, names: &Names) -> Read {
    let (&[_, length, _, _, i0, i1, i2, i3], attrs) = message.split::<8>().ok()?;
    let mark = mark(&attrs, IFA_PROTO)?;
    let ip = ip(&attrs, IFA_LOCAL).or_else(|| ip(&attrs, IFA_ADDRESS))?;
    let dev = names.of(u32::from_ne_bytes([i0, i1, i2, i3]));
    Some((format!("{ip}/{length} dev {dev}"), mark, String::new()))
}

fn nexthop(message: &Message<'_>, names: &Names) -> Read {
    let (fixed, attrs) = message.split::<8>().ok()?;
    let [_, _, protocol, ..] = *fixed;
    let id = number(&attrs, NHA_ID)?;
    let dev = number(&attrs, NHA_OIF).map_or("-", |index| names.of(index));
    let via = ip(&attrs, NHA_GATEWAY).map_or_else(String::new, |ip| ip.to_string());
    is_somebody(protocol).then(|| (format!("nexthop {id}"), protocol, format!("{via} {dev}")))
}

fn route(message: &Message<'_>, names: &Names) -> Read {
    let (&[family, length, _, _, _, protocol, _, kind, ..], attrs) = message.split::<12>().ok()?;
    let zero = if family == 2 { "0.0.0.0" } else { "::" };
    let to = ip(&attrs, RTA_DST).map_or_else(|| zero.to_owned(), |ip| ip.to_string());
    let table = number(&attrs, RTA_TABLE)?;
    let metric = number(&attrs, RTA_PRIORITY).unwrap_or(0);
    let via = ip(&attrs, RTA_GATEWAY).map_or_else(String::new, |ip| ip.to_string());
    let dev = number(&attrs, RTA_OIF).map_or("-", |index| names.of(index));
    let id = number(&attrs, RTA_NH_ID).unwrap_or(0);
    let fields = format!("type {kind} via {via} dev {dev} nexthop {id}");
    let name = format!("{to}/{length} table {table} metric {metric}");
    is_somebody(protocol).then_some((name, protocol, fields))
}

fn rule(message: &Message<'_>) -> Read {
    let (&[family, _, length, ..], attrs) = message.split::<12>().ok()?;
    let mark = mark(&attrs, FRA_PROTOCOL)?;
    let from = ip(&attrs, FRA_SRC).map_or_else(|| family.to_string(), |ip| ip.to_string());
    let priority = number(&attrs, FRA_PRIORITY).unwrap_or(0);
    let table = number(&attrs, FRA_TABLE).unwrap_or(0);
    Some((format!("{priority}: from {from}/{length} lookup {table}"), mark, String::new()))
}

fn neighbour(message: &Message<'_>, names: &Names) -> Read {
    let (&[family, _, _, _, i0, i1, i2, i3, s0, s1, ..], attrs) = message.split::<12>().ok()?;
    let mark = mark(&attrs, NDA_PROTOCOL).filter(|_| family != BRIDGE)?;
    let (to, dev) = (ip(&attrs, NDA_DST)?, names.of(u32::from_ne_bytes([i0, i1, i2, i3])));
    let mac = attrs.first(NDA_LLADDR).ok()?.map(|attr| attr.value.to_vec());
    let state = u16::from_ne_bytes([s0, s1]);
    Some((format!("{to} dev {dev}"), mark, format!("{mac:?} {state}")))
}

impl Names {
    fn of(&self, index: u32) -> &str {
        self.0.get(&index).map_or("?", String::as_str)
    }

    /// The number that a link has at last: the newest of those that had its name.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        self.0.iter().rev().find(|(_, known)| *known == name).map(|(index, _)| *index)
    }
}

fn is_somebody(mark: u8) -> bool {
    !NOBODY.contains(&mark)
}

fn mark(attrs: &Attrs<'_>, kind: u16) -> Option<u8> {
    attrs.clone().first(kind).ok()??.u8().ok().filter(|mark| is_somebody(*mark))
}

fn number(attrs: &Attrs<'_>, kind: u16) -> Option<u32> {
    attrs.clone().first(kind).ok()??.u32().ok()
}

fn ip(attrs: &Attrs<'_>, kind: u16) -> Option<IpAddr> {
    let attr = attrs.clone().first(kind).ok()??;
    let four = attr.array::<4>().map(IpAddr::from);
    four.or_else(|_| attr.array::<16>().map(IpAddr::from)).ok()
}
