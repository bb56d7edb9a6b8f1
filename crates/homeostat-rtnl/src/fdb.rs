//! Static entries of forwarding databases (`bridge fdb`): by which port a bridge reaches an address, and by which remote
//! end a VXLAN does. What a bridge or a VXLAN has learned counts as absent. The kernel keeps no mark, so the ledger says
//! what is ours.
//!
//! Quirk `entries-without-a-vlan-are-copied` (Linux 6.18): `bridge fdb add MAC dev va master static` also makes an entry
//! for each VLAN that the port has at that moment, and `bridge fdb del` without a VLAN deletes all of them.
//!
//! Quirk `a-static-entry-roams` (Linux 6.18): a frame with that source address that comes by another port moves a static
//! entry there, unless it is sticky.

#[cfg(feature = "document")]
pub(crate) mod section;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use homeostat_core::Owner;
use homeostat_netlink::uapi::{
    NDA_DST, NDA_LLADDR, NDA_MASTER, NDA_PORT, NDA_SRC_VNI, NDA_VLAN, NDA_VNI, NLM_F_APPEND,
    NLM_F_CREATE, NTF_EXT_LEARNED, NTF_MASTER, NTF_SELF, NTF_STICKY, NUD_NOARP, NUD_PERMANENT,
    NUD_REACHABLE, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH,
};
use homeostat_netlink::{
    Batch, Connection, Errno, Error, Malformed, Message, MessageWriter, Result,
};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::kinds::LinkKind;
use crate::link::observe::{LinkTable, ask};
use crate::link::{IfIndex, LinkName, Links};
use crate::message::{Encoded, Encoder, Put, put_ip, read_ip};
use crate::moment::Moment;
use crate::neighbour::Mac;
use crate::object::Object;
use crate::observe::{MOST_LOOKUPS, Observation, collect};

/// The family of messages about bridges.
pub(crate) const AF_BRIDGE: u8 = 7;

/// The lowest and the highest id that a VLAN can have.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// The numbers that a VXLAN network can have.
const VNIS: std::ops::RangeInclusive<u32> = 1..=0x00ff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct FdbKey {
    /// The port of a bridge, or the VXLAN.
    pub link: LinkName,
    pub mac: Mac,
    pub table: FdbTable,
}

/// Which forwarding database an entry is in, with what else it is found by there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FdbTable {
    /// Of the bridge that the link is a port of.
    Bridge {
        /// None, if the bridge does not look at VLANs.
        vlan: Option<u16>,
    },
    /// Of the link itself, a VXLAN.
    Vxlan {
        /// The network that frames come from, where one VXLAN has several.
        src_vni: Option<u32>,
        /// The remote end, of an entry for a group: that goes to many.
        remote: Option<Remote>,
    },
}

/// A remote end of a VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Remote {
    pub dst: IpAddr,
    /// None is the port of the VXLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The network that frames get there; none is that of the VXLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
}

impl Remote {
    /// An end that is reached by the port and the network of the VXLAN.
    #[must_use]
    pub fn new(dst: IpAddr) -> Self {
        Remote { dst, port: None, vni: None }
    }
}

/// The managed part of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fdb {
    /// The remote end, of an entry of a VXLAN for one address.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Whether it stays on its port although frames from its address come by another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// Whether the machine itself takes frames to the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

impl Fdb {
    /// An entry of a VXLAN for one address.
    #[must_use]
    pub fn to(remote: Remote) -> Self {
        Fdb { remote: Some(remote), ..Self::default() }
    }
}

/// Whether frames to an address go to many: a VXLAN has several remote ends for it. All zero stands for all that it has
/// no entry for.
fn is_of_many(mac: Mac) -> bool {
    mac == Mac([0; 6]) || mac.0[0] & 1 != 0
}

impl FdbKey {
    /// The lowest key that an entry of a link can have: links come first in the order of keys.
    pub(crate) fn lowest_on(link: LinkName) -> Self {
        FdbKey { link, mac: Mac([0; 6]), table: FdbTable::Bridge { vlan: None } }
    }

    /// An entry of the bridge that a link is a port of.
    #[must_use]
    pub fn of_port(link: LinkName, mac: Mac, vlan: Option<u16>) -> Self {
        FdbKey { link, mac, table: FdbTable::Bridge { vlan } }
    }

    /// An entry of a VXLAN for one address.
    #[must_use]
    pub fn of_vxlan(link: LinkName, mac: Mac, src_vni: Option<u32>) -> Self {
        FdbKey { link, mac, table: FdbTable::Vxlan { src_vni, remote: None } }
    }

    /// Sends frames to a remote end: the key and the object of such an entry.
    #[must_use]
    pub fn to(mut self, end: Remote) -> (Self, Fdb) {
        match &mut self.table {
            FdbTable::Vxlan { remote, .. } if is_of_many(self.mac) => {
                *remote = Some(end);
                (self, Fdb::default())
            }
            _ => (self, Fdb::to(end)),
        }
    }

    /// Reads what follows the word `fdb`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        let [mac, "dev", link, options @ ..] = words else { return None };
        let (mac, link) = (mac.parse().ok()?, link.parse().ok()?);
        let Some((&"self", options)) = options.split_first() else {
            let vlan = match options {
                [] => None,
                ["vlan", id] => Some(id.parse().ok()?),
                _ => return None,
            };
            return Some(FdbKey::of_port(link, mac, vlan));
        };
        let (mut from, mut remote) = (None, None::<Remote>);
        for option in options.chunks(2) {
            match (option, &mut remote) {
                (["src-vni", id], None) => from = Some(id.parse().ok()?),
                (["dst", ip], None) => remote = Some(Remote::new(ip.parse().ok()?)),
                (["port", port], Some(remote)) => remote.port = Some(port.parse().ok()?),
                (["vni", id], Some(remote)) => remote.vni = Some(id.parse().ok()?),
                _ => return None,
            }
        }
        let table = FdbTable::Vxlan { src_vni: from, remote };
        (remote.is_some() == is_of_many(mac)).then_some(FdbKey { link, mac, table })
    }

    /// By what a bridge or a VXLAN knows it: an entry of a bridge is on one port at a time.
    pub(crate) fn place(&self) -> Place {
        (self.mac, self.table)
    }
}

/// An address with what else an entry is found by, without the port that it is on.
pub(crate) type Place = (Mac, FdbTable);

impl fmt::Display for FdbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FdbKey { link, mac, table } = self;
        write!(f, "fdb {mac} dev {link}")?;
        match table {
            FdbTable::Bridge { vlan } => write_option(f, "vlan", vlan.as_ref()),
            FdbTable::Vxlan { src_vni, remote } => {
                write!(f, " self")?;
                write_option(f, "src-vni", src_vni.as_ref())?;
                let Some(Remote { dst, port, vni }) = remote else { return Ok(()) };
                write!(f, " dst {dst}")?;
                write_option(f, "port", port.as_ref())?;
                write_option(f, "vni", vni.as_ref())
            }
        }
    }
}

fn write_option(
    f: &mut fmt::Formatter<'_>,
    word: &str,
    value: Option<&impl fmt::Display>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {word} {value}"))
}

/// Why a declared entry can never be.
pub(crate) fn check(key: &FdbKey, desired: &Fdb) -> Result<(), Impossible> {
    let refuse = |why| Err(Impossible::Fdb(why));
    let is_vni = |vni: Option<u32>| vni.is_none_or(|vni| VNIS.contains(&vni));
    match key.table {
        FdbTable::Bridge { vlan } => match () {
            () if desired.remote.is_some() => refuse("a bridge has no remote ends"),
            () if key.mac == Mac([0; 6]) => {
                refuse("a bridge has no entry for the address of zeros")
            }
            () if vlan.is_some_and(|vlan| !VLANS.contains(&vlan)) => {
                refuse("VLAN ids are from 1 to 4094")
            }
            () if desired.sticky && desired.local => {
                refuse("an entry of the machine itself is on no port that it could stay on")
            }
            () => Ok(()),
        },
        FdbTable::Vxlan { src_vni, remote } => {
            let Some(end) = remote.or(desired.remote) else {
                return refuse("an entry of a VXLAN has a remote end");
            };
            match () {
                () if remote.is_some() == desired.remote.is_some()
                    || remote.is_some() != is_of_many(key.mac) =>
                {
                    refuse("a group has many remote ends, any other address has one")
                }
                () if !is_vni(src_vni) || !is_vni(end.vni) => {
                    refuse("a VXLAN network id is a number from 1 to 16777215")
                }
                () if desired.sticky || desired.local => {
                    refuse("`sticky` and `local` are for ports of bridges")
                }
                () => Ok(()),
            }
        }
    }
}

/// Puts an entry there. An entry for a group is added to those that the address has.
pub(crate) fn put(encoder: &mut Encoder<'_>, key: &FdbKey, entry: &Fdb, put: Put) -> Encoded {
    let flags = match key.table {
        FdbTable::Vxlan { remote: Some(_), .. } => NLM_F_CREATE | NLM_F_APPEND,
        _ => put.flags(),
    };
    request(encoder, RTM_NEWNEIGH, flags, key, entry)
}

/// Deletes an entry.
pub(crate) fn delete(encoder: &mut Encoder<'_>, key: &FdbKey, before: &Fdb) -> Encoded {
    request(encoder, RTM_DELNEIGH, 0, key, before)
}

fn request(encoder: &mut Encoder<'_>, kind: u16, flags: u16, key: &FdbKey, entry: &Fdb) -> Encoded {
    let [i0, i1, i2, i3] = encoder.index(key.link)?.0.to_ne_bytes();
    let is_vxlan = matches!(key.table, FdbTable::Vxlan { .. });
    let state = if is_vxlan || entry.local { NUD_PERMANENT } else { NUD_NOARP };
    let [s0, s1] = state.to_ne_bytes();
    let whose = if is_vxlan { NTF_SELF } else { NTF_MASTER };
    let sticky = if entry.sticky { NTF_STICKY } else { 0 };
    let mut message = encoder.batch.message(kind, flags);
    message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, s0, s1, whose | sticky, 0]);
    message.attr(NDA_LLADDR, &key.mac.0);
    match key.table {
        FdbTable::Bridge { vlan } => _ = vlan.map(|vlan| message.attr_u16(NDA_VLAN, vlan)),
        FdbTable::Vxlan { src_vni, remote } => {
            src_vni.map(|vni| message.attr_u32(NDA_SRC_VNI, vni));
            if let Some(remote) = remote.or(entry.remote) {
                put_remote(&mut message, remote);
            }
        }
    }
    Ok(message.finish())
}

fn put_remote(message: &mut MessageWriter<'_>, Remote { dst, port, vni }: Remote) {
    put_ip(message, NDA_DST, dst);
    port.map(|port| message.attr_be16(NDA_PORT, port));
    vni.map(|vni| message.attr_u32(NDA_VNI, vni));
}

/// Asks for the entry that has this place, on whatever port it is.
fn get(batch: &mut Batch, key: &FdbKey, index: IfIndex) -> Result<()> {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    let (whose, attr) = match key.table {
        FdbTable::Bridge { vlan } => (NTF_MASTER, vlan.map(|vlan| vlan.to_ne_bytes().to_vec())),
        FdbTable::Vxlan { src_vni, .. } => {
            (NTF_SELF, src_vni.map(|vni| vni.to_ne_bytes().to_vec()))
        }
    };
    let mut message = batch.message(RTM_GETNEIGH, 0);
    message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, 0, 0, whose, 0]);
    message.attr(NDA_LLADDR, &key.mac.0);
    if let Some(value) = attr {
        let kind = if whose == NTF_MASTER { NDA_VLAN } else { NDA_VNI };
        message.attr(kind, &value);
    }
    message.finish()
}

/// An entry as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenFdb {
    pub(crate) key: FdbKey,
    pub(crate) entry: Fdb,
    /// The bridge or the VXLAN whose it is.
    pub(crate) whose: IfIndex,
    pub(crate) nature: Nature,
}

/// How an entry came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It was configured, for good.
    Static,
    /// A program learned it and keeps it up to date.
    LearnedElsewhere,
    /// It was learned from frames.
    Learned,
    /// The kernel makes it by itself.
    Derived,
}

/// An entry of a bridge or of a VXLAN; none, if it is of another kind. Other links have lists of the addresses that they
/// take, which are reported along with these.
pub(crate) fn decode(message: &Message<'_>, links: &Links) -> Result<Option<SeenFdb>, Malformed> {
    let (fixed, attrs) = message.split::<12>()?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *fixed;
    if family != AF_BRIDGE {
        return Ok(None);
    }
    let index = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    let state = u16::from_ne_bytes([s0, s1]);
    let (mut mac, mut bridge, mut vlan, mut from) = (None, None, None, None);
    let (mut dst, mut port, mut vni) = (None, None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NDA_LLADDR => mac = attr.array().ok().map(Mac),
            NDA_MASTER => bridge = Some(IfIndex(attr.u32()?)),
            NDA_VLAN => vlan = Some(attr.u16()?),
            NDA_DST => dst = Some(read_ip(&attr)?),
            NDA_PORT => port = Some(attr.be16()?),
            NDA_VNI => vni = Some(attr.u32()?),
            NDA_SRC_VNI => from = Some(attr.u32()?),
            _ => {}
        }
    }
    let (Some(mac), link) = (mac, links.name(index)) else { return Ok(None) };
    let is_static = state & (NUD_NOARP | NUD_PERMANENT) != 0;
    let learned = match () {
        () if flags & NTF_EXT_LEARNED != 0 => Some(Nature::LearnedElsewhere),
        () if !is_static => Some(Nature::Learned),
        () => None,
    };
    Ok(match (flags & NTF_SELF != 0, bridge, dst) {
        (false, Some(whose), _) => {
            let (sticky, local) = (flags & NTF_STICKY != 0, state & NUD_PERMANENT != 0);
            let entry = Fdb { remote: None, sticky, local };
            let derived = (index == whose).then_some(Nature::Derived);
            let nature = derived.or(learned).unwrap_or(Nature::Static);
            Some(SeenFdb { key: FdbKey::of_port(link, mac, vlan), entry, whose, nature })
        }
        (true, _, Some(dst)) => {
            let (key, entry) = FdbKey::of_vxlan(link, mac, from).to(Remote { dst, port, vni });
            // The remote end or group of the VXLAN itself.
            let is_own = state & NUD_REACHABLE != 0 && state & NUD_PERMANENT != 0;
            let derived = (is_own && mac == Mac([0; 6])).then_some(Nature::Derived);
            let nature = derived.or(learned).unwrap_or(Nature::Static);
            Some(SeenFdb { key, entry, whose: index, nature })
        }
        _ => None,
    })
}

impl SeenFdb {
    /// Says the port and the network of a remote end if a declaration does, although they are those of the VXLAN: the
    /// kernel leaves them out then.
    pub(crate) fn in_words_of(mut self, desired: &DesiredState, table: &LinkTable) -> Self {
        let FdbTable::Vxlan { remote, .. } = self.key.table else { return self };
        let kind = table.get(self.key.link).map(|seen| &seen.link.kind);
        let (Some(end), Some(LinkKind::Vxlan(vxlan))) = (remote.or(self.entry.remote), kind) else {
            return self;
        };
        let ports = [end.port, end.port.or(vxlan.port)];
        let vnis = [end.vni, end.vni.or(Some(vxlan.id))];
        for (port, vni) in ports.iter().flat_map(|port| vnis.iter().map(move |vni| (*port, *vni))) {
            let key = FdbKey { table: plain(self.key.table), ..self.key };
            let (key, entry) = key.to(Remote { port, vni, ..end });
            if desired.get(&Key::from(key)).is_some_and(|it| it.object == Object::Fdb(entry)) {
                (self.key, self.entry) = (key, entry);
                break;
            }
        }
        self
    }
}

/// The same without a remote end.
fn plain(table: FdbTable) -> FdbTable {
    match table {
        FdbTable::Vxlan { src_vni, .. } => FdbTable::Vxlan { src_vni, remote: None },
        table @ FdbTable::Bridge { .. } => table,
    }
}

/// The entries of a link, or of all links.
pub(crate) fn read(
    connection: &mut Connection,
    of: Option<IfIndex>,
    links: &Links,
) -> Result<Vec<SeenFdb>, Error> {
    let [i0, i1, i2, i3] = of.map_or(0, |IfIndex(index)| index).to_ne_bytes();
    let fixed = [AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0];
    collect(connection, RTM_GETNEIGH, &fixed, |message| decode(message, links))
}

/// Reads all entries, if one is declared or recorded.
pub(crate) fn observe_all(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
) -> Result<(), Error> {
    let view = observation.view;
    let is_one = |key: &Key| matches!(key, Key::Fdb(_));
    let is_used = view.desired.others.iter().any(|declared| is_one(&declared.key))
        || view.records.keys().any(is_one);
    if !is_used {
        return Ok(());
    }
    let found = read(observation.connection, None, &moment.links)?;
    report(observation, moment, found);
    Ok(())
}

/// Looks up the entries that have some keys: one by one, those for groups with all of their link, and all of them if they
/// are too many or if the kernel is older than Linux 5.0.
pub(crate) fn observe_some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<(), Error> {
    let wanted = keys.iter().filter_map(|key| match key {
        Key::Fdb(key) => Some((**key, moment.links.index(key.link)?)),
        _ => None,
    });
    let (of_groups, others): (Vec<_>, Vec<_>) =
        wanted.partition(|(key, _)| matches!(key.table, FdbTable::Vxlan { remote: Some(_), .. }));
    let whole: BTreeSet<IfIndex> = of_groups.iter().map(|(_, index)| *index).collect();
    let others = others.into_iter().filter(|(_, index)| !whole.contains(index));
    let others: Vec<_> = others.collect();
    if others.len() + whole.len() > MOST_LOOKUPS {
        return observe_all(observation, moment);
    }
    // An entry that has moved answers for both ports.
    let mut found: BTreeMap<FdbKey, SeenFdb> = BTreeMap::new();
    let by_key = |seen: SeenFdb| (seen.key, seen);
    for index in whole {
        let all = read(observation.connection, Some(index), &moment.links)?;
        found.extend(all.into_iter().map(by_key));
    }
    for (key, index) in others {
        let links = &moment.links;
        let asked = ask(observation.connection, |batch| get(batch, &key, index), &mut |message| {
            found.extend(decode(&message, links).ok().flatten().map(by_key));
        });
        match asked {
            // The link may also have left its bridge.
            Err(Error::Refused(refusal))
                if matches!(refusal.errno, Errno::NOENT | Errno::INVAL | Errno::NODEV) => {}
            Err(Error::Refused(_)) => return observe_all(observation, moment),
            asked => asked?,
        }
    }
    report(observation, moment, found.into_values());
    Ok(())
}

fn report(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    found: impl IntoIterator<Item = SeenFdb>,
) {
    let view = observation.view;
    for seen in found {
        let SeenFdb { key, entry, whose, nature } = seen.in_words_of(view.desired, &moment.table);
        let place = key.place();
        let key = Key::from(key);
        let is_recorded = view.records.contains_key(&key);
        // What was learned gives way, and so does one of ours that is on another port by now.
        let mut declared = view.desired.relations.fdb_at(&place).peekable();
        if declared.peek().is_some()
            && (nature == Nature::Learned
                || is_recorded
                || declared.any(|key| view.records.contains_key(&key)))
        {
            moment.yielding.insert((whose, place));
        }
        let owner = match nature {
            Nature::Learned => continue,
            Nature::LearnedElsewhere => Owner::foreign("a program that learns addresses"),
            Nature::Derived => Owner::Kernel,
            // The kernel makes such an entry for the address of each port.
            Nature::Static if entry.local && !is_recorded => Owner::Kernel,
            Nature::Static => Owner::Unmarked,
        };
        observation.report(key, Object::Fdb(entry), owner);
    }
}

/// Whether the entry that has a place gives way to a declared one.
pub(crate) fn is_replacing(key: &FdbKey, moment: &Moment, desired: &DesiredState) -> bool {
    let whose = match key.table {
        FdbTable::Bridge { .. } => {
            let declared = desired.master(key.link).and_then(|master| moment.links.index(master));
            declared.or_else(|| moment.table.get(key.link)?.master)
        }
        FdbTable::Vxlan { .. } => moment.links.index(key.link),
    };
    whose.is_some_and(|whose| moment.yielding.contains(&(whose, key.place())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> FdbKey {
        let Key::Fdb(key) = text.parse().unwrap() else { panic!("{text}") };
        *key
    }

    #[test]
    fn an_entry_is_what_its_table_can_have() {
        let end = Fdb::to(Remote::new([192, 0, 2, 1].into()));
        let sticky = Fdb { sticky: true, ..Fdb::default() };
        let local = Fdb { local: true, ..Fdb::default() };
        for (text, entry, is_fine) in [
            ("fdb 02:00:00:00:00:09 dev va", Fdb::default(), true),
            ("fdb 02:00:00:00:00:09 dev va vlan 4094", sticky, true),
            ("fdb 02:00:00:00:00:09 dev va", local, true),
            (
                "fdb 02:00:00:00:00:09 dev va",
                Fdb { sticky: true, local: true, remote: None },
                false,
            ),
            ("fdb 02:00:00:00:00:09 dev va vlan 4095", Fdb::default(), false),
            ("fdb 02:00:00:00:00:09 dev va", end, false),
            ("fdb 00:00:00:00:00:00 dev va", Fdb::default(), false),
            ("fdb 02:00:00:00:00:09 dev vx self", end, true),
            ("fdb 02:00:00:00:00:09 dev vx self", Fdb::default(), false),
            ("fdb 02:00:00:00:00:09 dev vx self", Fdb { sticky: true, ..end }, false),
            ("fdb 02:00:00:00:00:09 dev vx self src-vni 0", end, false),
            ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1", Fdb::default(), true),
            ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1", end, false),
            ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1 vni 16777216", Fdb::default(), false),
        ] {
            assert_eq!(check(&key(text), &entry).is_ok(), is_fine, "{text} {entry:?}");
        }
    }

    #[test]
    fn what_is_recorded_of_an_entry_reads_back() {
        let remote = Remote { dst: [192, 0, 2, 1].into(), port: Some(4790), vni: Some(20) };
        for (entry, text) in [
            (Fdb::default(), "{}"),
            (Fdb { sticky: true, ..Fdb::default() }, r#"{"sticky":true}"#),
            (Fdb::to(remote), r#"{"dst":"192.0.2.1","port":4790,"vni":20}"#),
        ] {
            assert_eq!(serde_json::to_string(&entry).unwrap(), text);
            assert_eq!(serde_json::from_str::<Fdb>(text).unwrap(), entry, "{text}");
        }
    }
}
