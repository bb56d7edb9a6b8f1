//! What others have put into the forwarding table of a bridge for one of its ports (`bridge fdb`). The kernel drops it when
//! the port leaves the bridge.

use std::collections::BTreeSet;

use homeostat_netlink::uapi::{
    NDA_LLADDR, NDA_MASTER, NDA_VLAN, NLM_F_CREATE, NLM_F_EXCL, NTF_EXT_LEARNED, NTF_MASTER,
    NTF_SELF, NTF_STICKY, NUD_NOARP, NUD_PERMANENT, NUD_REACHABLE, RTM_DELNEIGH, RTM_GETNEIGH,
    RTM_NEWNEIGH,
};
use homeostat_netlink::{Answer, Batch, Connection, Errno, Error, Malformed, Message};
use serde::{Deserialize, Serialize};

use crate::link::IfIndex;
use crate::neighbour::Mac;
use crate::observe::collect;

/// The family of messages about bridges.
const AF_BRIDGE: u8 = 7;

/// Where frames to one address go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    address: Mac,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    state: u16,
    flags: u8,
}

/// By what a bridge knows an entry: the address, and the VLAN.
type Place = (Mac, Option<u16>);

/// An entry, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    port: IfIndex,
    bridge: IfIndex,
    entry: Entry,
}

impl Entry {
    /// Whether somebody has made it: the bridge has not learnt it.
    fn is_made(&self) -> bool {
        self.state & (NUD_NOARP | NUD_PERMANENT) != 0 || self.flags & NTF_EXT_LEARNED != 0
    }

    fn place(&self) -> Place {
        (self.address, self.vlan)
    }
}

/// The forwarding tables of all bridges.
pub(crate) fn read(connection: &mut Connection) -> Result<Vec<Seen>, Error> {
    const FIXED: [u8; 12] = [AF_BRIDGE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    collect(connection, RTM_GETNEIGH, &FIXED, decode)
}

fn decode(message: &Message<'_>) -> Result<Option<Seen>, Malformed> {
    let (fixed, attrs) = message.split::<12>()?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *fixed;
    let (mut address, mut bridge, mut vlan) = (None, None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NDA_LLADDR => address = attr.array().ok().map(Mac),
            NDA_MASTER => bridge = Some(IfIndex(attr.u32()?)),
            NDA_VLAN => vlan = Some(attr.u16()?),
            _ => {}
        }
    }
    let port = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    // Links have tables of their own, which stay with them.
    let is_of_a_bridge = family == AF_BRIDGE && flags & NTF_SELF == 0;
    let (Some(address), Some(bridge), true) = (address, bridge, is_of_a_bridge) else {
        return Ok(None);
    };
    let mut state = u16::from_ne_bytes([s0, s1]) & (NUD_NOARP | NUD_PERMANENT);
    if state == 0 {
        // Those of other programs get old, too, but stay; a request for an old one is refused.
        state = NUD_REACHABLE;
    }
    let flags = flags & (NTF_STICKY | NTF_EXT_LEARNED);
    let entry = Entry { address, vlan, state, flags };
    Ok(Some(Seen { port, bridge, entry }))
}

/// What somebody has made for a port. The kernel itself makes entries for the address of the port.
pub(crate) fn of_port(all: &[Seen], port: IfIndex, own: Option<Mac>) -> Vec<Entry> {
    let here = all.iter().filter(|seen| seen.port == port).map(|seen| &seen.entry);
    let made = here.filter(|entry| entry.is_made() && Some(entry.address) != own);
    let mut made: Vec<Entry> = made.cloned().collect();
    made.sort_by_key(Entry::place);
    made
}

/// Makes again what is not there. What somebody has made meanwhile for the same address stays.
pub(crate) fn put_back(
    connection: &mut Connection,
    port: IfIndex,
    bridge: IfIndex,
    entries: &[Entry],
) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut table = read(connection)?;
    table.retain(|seen| seen.bridge == bridge);
    let learnt = places(table.iter().filter(|seen| !seen.entry.is_made()));
    let made = places(table.iter().filter(|seen| seen.entry.is_made()));
    let missing = entries.iter().filter(|entry| !made.contains(&entry.place()));
    let (of_vlans, of_all): (Vec<&Entry>, Vec<&Entry>) =
        missing.partition(|entry| entry.vlan.is_some());
    let mut batch = Batch::new();
    for entry in of_vlans.iter().chain(&of_all) {
        let is_learnt = learnt.contains(&entry.place());
        let flags = if is_learnt { NLM_F_CREATE } else { NLM_F_CREATE | NLM_F_EXCL };
        entry.request(&mut batch, RTM_NEWNEIGH, port, flags)?;
    }
    // One that is refused does not keep the others from being made.
    let mut failed = None;
    connection.run(&mut batch, &mut |at, answer| {
        // The kernel makes one without a VLAN, and then one for each VLAN of the port until one is there already.
        let is_of_all = at >= of_vlans.len();
        if let Answer::Refused(refusal) = answer
            && !(is_of_all && refusal.errno == Errno::EXIST)
        {
            failed.get_or_insert(refusal);
        }
    })?;
    if !of_all.is_empty() {
        let had: BTreeSet<_> = entries.iter().map(Entry::place).chain(made).collect();
        delete_others(connection, port, &of_all, &had)?;
    }
    failed.map_or(Ok(()), |refusal| Err(Error::Refused(refusal)))
}

fn places<'a>(seen: impl Iterator<Item = &'a Seen>) -> BTreeSet<Place> {
    seen.map(|seen| seen.entry.place()).collect()
}

/// Deletes the entries that came with those without a VLAN, and were not there before.
fn delete_others(
    connection: &mut Connection,
    port: IfIndex,
    of_all: &[&Entry],
    had: &BTreeSet<Place>,
) -> Result<(), Error> {
    let came_along = |entry: &Entry| of_all.iter().any(|one| one.address == entry.address);
    let mut batch = Batch::new();
    for Seen { port: at, entry, .. } in read(connection)? {
        let is_new = entry.is_made() && came_along(&entry) && !had.contains(&entry.place());
        if at == port && is_new {
            entry.request(&mut batch, RTM_DELNEIGH, port, 0)?;
        }
    }
    connection.run(&mut batch, &mut |_, _| {})
}

impl Entry {
    fn request(
        &self,
        batch: &mut Batch,
        kind: u16,
        port: IfIndex,
        flags: u16,
    ) -> Result<(), Error> {
        let [i0, i1, i2, i3] = port.0.to_ne_bytes();
        let [s0, s1] = self.state.to_ne_bytes();
        let mut message = batch.message(kind, flags);
        message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, s0, s1, self.flags | NTF_MASTER, 0]);
        message.attr(NDA_LLADDR, &self.address.0);
        if let Some(vlan) = self.vlan {
            message.attr_u16(NDA_VLAN, vlan);
        }
        message.finish()
    }
}
