//! What the kernel holds, by a reader of the demo's own: its judge must not rely on the code that it judges.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use homeostat_netlink::uapi::{
    FRA_PRIORITY, FRA_PROTOCOL, FRA_SRC, FRA_TABLE, IFA_ADDRESS, IFA_LOCAL, IFA_PROTO, IFLA_IFNAME,
    IFLA_MASTER, NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NHA_GATEWAY, NHA_ID, NHA_OIF, RTA_DST,
    RTA_GATEWAY, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTM_NEWADDR, RTM_NEWLINK,
    RTM_NEWNEIGH, RTM_NEWNEXTHOP, RTM_NEWROUTE, RTM_NEWRULE,
};
use homeostat_netlink::{Attrs, Batch, Connection, Dumped, Message};

/// What an object is. The kernel numbers the messages of a kind in a row: new, delete, get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub(super) enum Kind {
    Link = RTM_NEWLINK,
    Address = RTM_NEWADDR,
    Nexthop = RTM_NEWNEXTHOP,
    Route = RTM_NEWROUTE,
    Rule = RTM_NEWRULE,
    Neighbour = RTM_NEWNEIGH,
}

/// The kinds with the fixed size of their messages; links first, since the others name them.
const KINDS: [(Kind, usize); 6] = [
    (Kind::Link, 16),
    (Kind::Address, 8),
    (Kind::Nexthop, 8),
    (Kind::Route, 12),
    (Kind::Rule, 12),
    (Kind::Neighbour, 12),
];

impl Kind {
    /// The number of the message that deletes one.
    pub(super) fn delete(self) -> u16 {
        self as u16 + 1
    }
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) name: String,
}

/// An object with its mark, and the message that describes it.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Who put it there; zero for links, which have no mark.
    pub(super) mark: u8,
    /// The fields that count.
    pub(super) fields: String,
    pub(super) body: Vec<u8>,
}

/// Only the fields of the message count: that of a link has counters.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        (self.mark, &self.fields) == (other.mark, &other.fields)
    }
}

/// Whether an object came (or changed), or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Appeared,
    Vanished,
}

/// The names of links by their numbers. One that is gone is still known: later messages may name it.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<u32, String>);

/// Everything that carries a mark, and all links.
pub(super) type KernelState = BTreeMap<Key, Object>;

/// Looks at everything.
pub(super) fn look(connection: &mut Connection, names: &mut Names) -> Result<KernelState> {
    let mut state = KernelState::new();
    for (kind, fixed) in KINDS {
        let mut request = Batch::new();
        let mut message = request.message(kind as u16 + 2, 0);
        message.fixed(&vec![0; fixed]);
        message.finish()?;
        let mut found = Vec::new();
        connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Object(message) => found.extend(read(&message, names)),
            Dumped::Restart => found.clear(),
        })?;
        state.extend(found.into_iter().map(|(_, key, object)| (key, object)));
    }
    Ok(state)
}

/// Bridges report their ports in a family of their own, which would make each a second link.
const UNSPECIFIED: u8 = 0;
const BRIDGE: u8 = 7;
/// The marks of objects that the kernel made itself, or of which it does not say who made them.
const UNMARKED: [u8; 4] = [0, 1, 2, 3];

/// The object that a message is about; nothing, if it is of no interest.
pub(super) fn read(message: &Message<'_>, names: &mut Names) -> Option<(Change, Key, Object)> {
    let (kind, size, change) = KINDS.iter().find_map(|(kind, size)| match message.kind {
        number if number == *kind as u16 => Some((*kind, *size, Change::Appeared)),
        number if number == kind.delete() => Some((*kind, *size, Change::Vanished)),
        _ => None,
    })?;
    let (fixed, attrs) = message.payload.split_at_checked(size)?;
    let attrs = &Attrs::new(attrs);
    let byte = |at: usize| fixed.get(at).copied().unwrap_or_default();
    let (family, length) = (byte(0), byte(1));
    let (name, mark, fields) = match kind {
        Kind::Link => {
            let name = attrs.clone().first(IFLA_IFNAME).ok()??.str().ok()?.to_owned();
            if family != UNSPECIFIED {
                return None;
            }
            names.0.insert(index(fixed)?, name.clone());
            (name, None, format!("up {} master {}", byte(8) & 1, names.of(attrs, IFLA_MASTER)))
        }
        Kind::Address => {
            let ip = ip(attrs, IFA_LOCAL).or_else(|| ip(attrs, IFA_ADDRESS))?;
            let dev = names.name(index(fixed)?);
            (format!("{ip}/{length} dev {dev}"), mark(attrs, IFA_PROTO), String::new())
        }
        Kind::Nexthop => {
            let (via, dev) = (ip_text(attrs, NHA_GATEWAY), names.of(attrs, NHA_OIF));
            let id = number(attrs, NHA_ID)?;
            (format!("nexthop {id}"), Some(byte(2)), format!("{via} {dev}"))
        }
        Kind::Route => {
            let zero = if family == 2 { "0.0.0.0" } else { "::" };
            let to = ip(attrs, RTA_DST).map_or_else(|| zero.to_owned(), |ip| ip.to_string());
            let table = number(attrs, RTA_TABLE)?;
            let metric = number(attrs, RTA_PRIORITY).unwrap_or(0);
            let (via, dev) = (ip_text(attrs, RTA_GATEWAY), names.of(attrs, RTA_OIF));
            let id = number(attrs, RTA_NH_ID).unwrap_or(0);
            let fields = format!("type {} via {via} dev {dev} nexthop {id}", byte(7));
            (format!("{to}/{length} table {table} metric {metric}"), Some(byte(5)), fields)
        }
        Kind::Rule => {
            let from = ip(attrs, FRA_SRC).map_or_else(|| family.to_string(), |ip| ip.to_string());
            let priority = number(attrs, FRA_PRIORITY).unwrap_or(0);
            let table = number(attrs, FRA_TABLE).unwrap_or(0);
            let name = format!("{priority}: from {from}/{} lookup {table}", byte(2));
            (name, mark(attrs, FRA_PROTOCOL), String::new())
        }
        Kind::Neighbour if family == BRIDGE => return None,
        Kind::Neighbour => {
            let (to, dev) = (ip(attrs, NDA_DST)?, names.name(index(fixed)?));
            let mac = attrs.clone().first(NDA_LLADDR).ok()?.map(|attr| attr.value.to_vec());
            let state = u16::from_ne_bytes([byte(8), byte(9)]);
            (format!("{to} dev {dev}"), mark(attrs, NDA_PROTOCOL), format!("{mac:?} {state}"))
        }
    };
    let mark = match (kind, mark) {
        (Kind::Link, _) => 0,
        (_, mark) => mark.filter(|mark| !UNMARKED.contains(mark))?,
    };
    let object = Object { mark, fields, body: message.payload.to_vec() };
    Some((change, Key { kind, name }, object))
}

/// The number of the link that a message about a link, an address or a neighbour is about.
pub(super) fn index(body: &[u8]) -> Option<u32> {
    body.get(4..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

impl Names {
    fn name(&self, index: u32) -> &str {
        self.0.get(&index).map_or("?", String::as_str)
    }

    /// The name of the link that an attribute refers to.
    fn of(&self, attrs: &Attrs<'_>, kind: u16) -> &str {
        number(attrs, kind).map_or("-", |index| self.name(index))
    }

    /// The number that a link has at last: the newest of those that had its name.
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        self.0.iter().rev().find(|(_, known)| *known == name).map(|(index, _)| *index)
    }
}

fn mark(attrs: &Attrs<'_>, kind: u16) -> Option<u8> {
    attrs.clone().first(kind).ok()??.u8().ok()
}

fn number(attrs: &Attrs<'_>, kind: u16) -> Option<u32> {
    attrs.clone().first(kind).ok()??.u32().ok()
}

fn ip(attrs: &Attrs<'_>, kind: u16) -> Option<IpAddr> {
    let attr = attrs.clone().first(kind).ok()??;
    let four = attr.array::<4>().map(IpAddr::from);
    four.or_else(|_| attr.array::<16>().map(IpAddr::from)).ok()
}

fn ip_text(attrs: &Attrs<'_>, kind: u16) -> String {
    ip(attrs, kind).map_or_else(String::new, |ip| ip.to_string())
}
