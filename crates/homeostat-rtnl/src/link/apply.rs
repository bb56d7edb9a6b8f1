//! Writes links, one after the other: each message waits for the answer to the one before, since a
//! request by name that follows a refused creation could hit a foreign link.

use std::collections::BTreeSet;

use homeostat_core::{Failure, Outcome, Owner, Retry, WaitsOn, Work};
use homeostat_netlink::uapi::IFLA_BRPORT_VLAN_TUNNEL;
use homeostat_netlink::{Batch, Connection, Errno, Error, Family};

use crate::address;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::cascade::going_with;
use crate::link::kinds::behaviour::{Occupies, OwnMac};
use crate::link::kinds::bond::Bond;
use crate::link::kinds::{LinkKind, Refs, tap};
use crate::link::matching::Matched;
use crate::link::message::{self, Parts};
use crate::link::model::{Field, Link, Setting};
use crate::link::observe::{SeenLink, ask, find, look_up};
use crate::link::parking::{self, Parked, Parking, ToPark};
use crate::link::port::PortOption;
use crate::link::refused::name_options;
use crate::link::vlans::{self, Holder, Vlans};
use crate::link::{IfIndex, LinkName, Links, alias, namespaces, vnis, wireguard};
use crate::message::{Encoder, Put};
use crate::moment::Moment;
use crate::object::Object;
use crate::snapshot::{self, FormerMark};
use crate::source::Rtnl;
use crate::step::Step;
use crate::step::{Act, Cycle, LinkStep};

/// Runs steps of links, reports the outcome of each, and returns the links as they are then.
pub(crate) fn run(
    work: &Work<'_, Rtnl>,
    source: &Rtnl,
    connection: &mut Connection,
    links: Links,
    report: &mut dyn FnMut(usize, Outcome<Object>),
) -> Links {
    let releasing = work.steps.iter().filter_map(|step| match step {
        Step::Link(step) => match (&step.key, &step.act) {
            (Key::LinkField(name, Field::Name), Act::Release { restore: Some(_) }) => Some(*name),
            _ => None,
        },
        _ => None,
    });
    let releasing = releasing.collect();
    let (desired, moment) = (work.desired, work.moment);
    let mut writer = LinkWriter { desired, moment, source, connection, links, releasing };
    let (mut at, mut rest) = (work.first, work.steps);
    while let Some(step) = rest.first() {
        let going = rest.iter().take(TOGETHER).map_while(|step| writer.deleted(step));
        let going: Vec<&SeenLink> = going.collect();
        let done = if going.len() > 1 && writer.delete_together(&going) {
            (at..at + going.len()).for_each(|at| report(at, Outcome::Applied { now: None }));
            going.len()
        } else {
            if let Step::Link(step) = step {
                report(at, writer.write(step).err().unwrap_or(Outcome::Applied { now: None }));
            }
            1
        };
        at += done;
        rest = rest.get(done..).unwrap_or_default();
    }
    writer.links
}

/// How many links are deleted at once: all other requests about links wait that long.
const TOGETHER: usize = 256;

/// The group of links that are about to be deleted is above this one.
const LEAVING: u32 = 0x686f_0000;

/// What becomes of a step that does not go through.
type Written<T = ()> = Result<T, Outcome<Object>>;

struct LinkWriter<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    source: &'a Rtnl,
    connection: &'a mut Connection,
    /// The links as they are after every step so far.
    links: Links,
    /// The links that get their former names back.
    releasing: BTreeSet<LinkName>,
}

impl<'a> LinkWriter<'a> {
    fn write(&mut self, step: &LinkStep) -> Written {
        match (&step.key, &step.act) {
            (Key::LinkField(name, Field::Name), Act::Set(_)) => {
                match self.moment.matched.get(name) {
                    Some(Matched::One { index, .. }) => self.set_name(*index, *name),
                    _ => Err(pending(*name)),
                }
            }
            (Key::LinkField(name, Field::Name), Act::Release { restore: Some(original) }) => {
                let Some(seen) = self.moment.table.get(*name) else { return Ok(()) };
                original.link_name().map_or(Ok(()), |former| self.set_name(seen.index, former))
            }
            (Key::LinkField(name, field), Act::Set(cycle)) => {
                let Some(setting) = self.desired.field(*name, *field) else { return Ok(()) };
                self.set(*name, *field, setting, *cycle)
            }
            (Key::LinkField(name, field), Act::Release { restore: Some(original) }) => {
                match self.set(*name, *field, original, Cycle::Stay) {
                    // What a link had in a bridge goes with the bridge.
                    Err(_) if field.is_of_bridge() && self.part_of_bridge(*name).is_none() => {
                        Ok(())
                    }
                    written => written,
                }
            }
            (Key::Link(name), Act::Delete) => self.delete(*name),
            (Key::Link(_), Act::Park(parking)) => self.park(parking),
            (Key::Link(name), Act::GiveBack { link, leaves, mark }) => {
                let Some(seen) = self.moment.table.get(*name) else { return Ok(()) };
                if *leaves {
                    self.enslave(seen.index, None, &link.kind)?;
                }
                self.write_over(seen, link, mark, Cycle::Stay)
            }
            (Key::Link(name), Act::UpdatePart(part, cycle)) => self.update(*name, part, *cycle),
            (Key::Link(name), act) => {
                let Some(link) = self.desired.link(*name) else { return Ok(()) };
                match act {
                    Act::Create => self.create(*name, link),
                    Act::Update(cycle) => self.update(*name, link, *cycle),
                    Act::Replace => self.delete(*name).and_then(|()| self.create(*name, link)),
                    Act::Succeed(parking) => {
                        self.park(parking).and_then(|()| self.create(*name, link))
                    }
                    Act::Return { parked, over } => self.bring_back(*name, link, *parked, *over),
                    Act::Finish => self.set_primary(*name, link),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn index(&self, name: LinkName) -> Written<IfIndex> {
        self.links.index(name).ok_or_else(|| pending(name))
    }

    /// Changes a link of this kind; one request carries all parts.
    fn change(&mut self, index: IfIndex, parts: &Parts, refs: &Refs, kind: &LinkKind) -> Written {
        let write = |batch: &mut Batch| message::change(batch, index, parts, refs);
        let asked = ask(self.connection, write, &mut |_| {});
        asked.map_err(|error| match (&parts.kind, failed(&error, kind)) {
            (Some(sent), Outcome::Failed(failure)) => {
                Outcome::Failed(name_options(failure, &error, sent, write))
            }
            (_, outcome) => outcome,
        })
    }

    fn switch(&mut self, index: IfIndex, up: bool, kind: &LinkKind) -> Written {
        let parts = Parts { up: Some(up), ..Parts::default() };
        self.change(index, &parts, &Refs::default(), kind)
    }

    /// Puts a link into a bridge, bond or VRF, or takes it out.
    fn enslave(&mut self, index: IfIndex, master: Option<LinkName>, kind: &LinkKind) -> Written {
        let master = master.map_or(Ok(IfIndex(0)), |master| self.index(master))?;
        let parts = Parts { master: Some(master), ..Parts::default() };
        self.change(index, &parts, &Refs::default(), kind)
    }

    /// The link that a step deletes.
    fn deleted(&self, step: &Step) -> Option<&'a SeenLink> {
        match step {
            Step::Link(step) if step.act == Act::Delete => self.moment.table.get(step.key.link()?),
            _ => None,
        }
    }

    /// Puts links into a group that has no others, and deletes the group. False, if that did not work: then they are
    /// still there, and ours by their alias.
    ///
    /// Quirk `a-link-takes-its-time` (Linux 6.18): the kernel waits about 20 ms for all that may still use a link before
    /// it is gone, and once for a group: `ip link del group 99`.
    fn delete_together(&mut self, going: &[&SeenLink]) -> bool {
        let is_free = |group: &u32| self.moment.table.values().all(|seen| seen.group != *group);
        let mut groups = LEAVING.wrapping_add(std::process::id())..u32::MAX;
        let Some(group) = groups.find(is_free) else { return false };
        let parts = Parts { group: Some(group), ..Parts::default() };
        let move_all = |batch: &mut Batch| {
            let mut indexes = going.iter().map(|seen| seen.index);
            indexes.try_for_each(|index| message::change(batch, index, &parts, &Refs::default()))
        };
        let moved = ask(self.connection, move_all, &mut |_| {});
        let delete = |batch: &mut Batch| message::delete_group(batch, group);
        let deleted = moved.and_then(|()| ask(self.connection, delete, &mut |_| {}));
        if deleted.is_ok() {
            for name in going.iter().flat_map(|seen| going_with(&self.moment.table, seen.name)) {
                self.links.forget(name);
            }
        }
        deleted.is_ok()
    }

    /// Deletes exactly the link that was seen: one that took its name since has another number.
    fn delete(&mut self, name: LinkName) -> Written {
        let Some(seen) = self.moment.table.get(name) else { return Ok(()) };
        match ask(self.connection, |batch| message::delete(batch, seen.index), &mut |_| {}) {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::NODEV => {}
            asked => asked.map_err(|error| failed(&error, &seen.link.kind))?,
        }
        for name in going_with(&self.moment.table, name) {
            self.links.forget(name);
        }
        Ok(())
    }

    /// Puts links aside. What fails is tried again by the next pass, whatever was done until then.
    fn park(&mut self, parking: &Parking) -> Written {
        let table = &self.moment.table;
        for port in parking.releases.iter().filter_map(|name| table.get(*name)) {
            self.enslave(port.index, None, &port.link.kind)?;
        }
        for ToPark { name, is_end, leaves } in &parking.links {
            let Some(seen) = table.get(*name) else { continue };
            let (index, kind) = (seen.index, &seen.link.kind);
            if leaves.is_some() {
                self.enslave(index, None, kind)?;
            }
            self.switch(index, false, kind)?;
            let cleared = address::delete_on_link(self.connection, index, &|_, _| true);
            cleared.map_err(|error| failed(&error, kind))?;
            let alias = Parked::from_link(seen, *is_end).alias(self.source.owner());
            self.rename(index, parking::name_of(index), alias, kind)?;
        }
        Ok(())
    }

    fn rename(&mut self, index: IfIndex, to: LinkName, alias: String, kind: &LinkKind) -> Written {
        let parts = Parts { name: Some(to), alias: Some(alias), ..Parts::default() };
        self.change(index, &parts, &Refs::default(), kind)?;
        self.links.insert(to, index);
        Ok(())
    }

    /// Gives a link another name. A declared link that has it and gets another one in this pass gives way for now.
    ///
    /// Quirk `a-link-that-is-up-keeps-its-name` (Linux 6.1): `ip link set va name wan0` is refused with `EBUSY` while `va`
    /// is up. It goes down for a moment, and gets back what it loses by that. Linux 6.18 renames it.
    fn set_name(&mut self, index: IfIndex, to: LinkName) -> Written {
        let kind = LinkKind::Other { name: to.to_string() };
        let released = self.moment.table.get(to).filter(|_| self.releasing.contains(&to));
        let other = self.moment.others_named.get(&to).copied().or(released.map(|seen| seen.index));
        // It may have given way already.
        let holder = other.and_then(|_| find(self.connection, to)).map(|seen| seen.index);
        if let Some(other) = other.filter(|other| holder == Some(*other)) {
            let aside = LinkName::padded(&format!("rename{}", other.0));
            match self.try_name(other, aside) {
                Ok(()) => self.links.insert(aside, other),
                // It is gone by now.
                Err(Error::Refused(refusal)) if refusal.errno == Errno::NODEV => {}
                Err(error) => return Err(failed(&error, &kind)),
            }
        }
        match self.try_name(index, to) {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::EXIST => {
                let refused = failed(&Error::Refused(refusal), &kind);
                return Err(self.taken(to).unwrap_or(refused));
            }
            named => named.map_err(|error| failed(&error, &kind))?,
        }
        self.links.insert(to, index);
        Ok(())
    }

    fn try_name(&mut self, index: IfIndex, to: LinkName) -> homeostat_netlink::Result<()> {
        let parts = |up, name| Parts { name, up, ..Parts::default() };
        match change_link(self.connection, index, &parts(None, Some(to))) {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::BUSY => {}
            asked => return asked,
        }
        let links = snapshot::links(self.connection)?;
        let lost = snapshot::lost_for_a_moment(self.connection, &links, links.name(index))?;
        change_link(self.connection, index, &parts(Some(false), None))?;
        let named = change_link(self.connection, index, &parts(None, Some(to)));
        change_link(self.connection, index, &parts(Some(true), None))?;
        named?;
        // The links are those of before: what was lost knows this one by its former name.
        for copied in lost {
            let write = |batch: &mut Batch| {
                let (protocol, address_marks) = (self.source.protocol, self.source.address_marks);
                let mut encoder =
                    Encoder { batch, links: &links, protocol, address_marks, echo: 0 };
                snapshot::put_back(&mut encoder, &copied, Put::Create.flags()).unwrap_or(Ok(()))
            };
            match ask(self.connection, write, &mut |_| {}) {
                Err(Error::Refused(refusal)) if refusal.errno == Errno::EXIST => {}
                asked => asked?,
            }
        }
        Ok(())
    }

    /// Lets a parked link take its place again.
    fn bring_back(&mut self, name: LinkName, link: &Link, parked: LinkName, over: bool) -> Written {
        let table = &self.moment.table;
        let seen = table.get(parked).and_then(|seen| Some((seen, Parked::of(seen)?)));
        let Some((seen, was)) = seen else { return Err(pending(parked)) };
        if over {
            self.delete(name)?;
        }
        let words = link.alias.as_deref().unwrap_or(&was.words);
        let mark = FormerMark {
            alias: alias::join(words, self.source.owner()),
            group: self.source.group(),
        };
        self.rename(seen.index, name, mark.alias.clone(), &link.kind)?;
        let end = table.peer(seen).and_then(|end| Some((end, Parked::of(end)?)));
        if let Some((end, was)) = &end {
            self.rename(end.index, was.name, was.words.clone(), &link.kind)?;
        }
        // What it was seen to refer to may have another name by now.
        let mut seen = seen.clone();
        match (seen.link.kind.peer_mut(), seen.lower.filter(|lower| lower.nsid.is_none())) {
            (Some(peer), Some(end)) => peer.name = self.links.name(end.index),
            (None, Some(below)) => {
                let name = self.links.name(below.index);
                seen.link.parent.iter_mut().for_each(|parent| parent.name = name);
            }
            (_, None) => {}
        }
        // What is not declared is as it was.
        let mut link = link.clone();
        link.up = link.up.or(Some(was.up));
        link.master = link.master.or(was.master.filter(|it| self.links.index(*it).is_some()));
        self.write_over(&seen, &link, &mark, Cycle::Stay)?;
        end.map_or(Ok(()), |(end, was)| {
            if let Some(master) = was.master.filter(|it| self.links.index(*it).is_some()) {
                self.enslave(end.index, Some(master), &end.link.kind)?;
            }
            if was.up { self.switch(end.index, true, &end.link.kind) } else { Ok(()) }
        })
    }

    /// Creates a link. If anything fails on the way, it is deleted again: half a link is none.
    fn create(&mut self, name: LinkName, link: &Link) -> Written {
        let link = &self.as_it_was(name, link);
        self.free_parent(link)?;
        self.make(name, link)?;
        let Some(seen) = find(self.connection, name) else {
            let why = "it was made, and is not there".to_owned();
            return Err(Outcome::Unknown { why });
        };
        self.links.insert(name, seen.index);
        if let (Some(name), Some(index)) = (link.peer_here(), seen.peer()) {
            self.links.insert(name, index);
        }
        let finished =
            self.finish_new(link, &seen).and_then(|()| self.mark_other_end(name, &link.kind));
        let delete = |batch: &mut Batch| message::delete(batch, seen.index);
        if finished.is_err() && ask(self.connection, delete, &mut |_| {}).is_ok() {
            self.links.forget(name);
        }
        finished
    }

    /// Takes the link below out of its bridge, if it was recorded without one: what no desired state says of a link is
    /// put right after the pass, and a macvlan that is made again cannot wait for that.
    ///
    /// Quirk `a-port-has-no-macvlans` (Linux 6.18): `ip link add m0 link x0 type macvlan` is refused with `EBUSY` while
    /// `x0` is the port of a bridge.
    fn free_parent(&mut self, link: &Link) -> Written {
        let takes_packets = link.kind.behaviour().occupies == Occupies::ParentPackets;
        let parent = link.parent.as_ref().filter(|it| takes_packets && it.namespace.is_none());
        let Some(name) = parent.map(|parent| parent.name) else { return Ok(()) };
        let former = self.source.former_links.get(&name);
        let was_free = former.is_some_and(|former| former.link.master.is_none());
        let Some(seen) = find(self.connection, name).filter(|_| was_free) else { return Ok(()) };
        if seen.master.is_none() {
            return Ok(());
        }
        self.enslave(seen.index, None, &seen.link.kind)
    }

    /// A link that is made again has the hardware address that it had, but for those that take it from their ports.
    fn as_it_was(&self, name: LinkName, link: &Link) -> Link {
        let behaviour = link.kind.behaviour();
        let has_own = behaviour.mac != OwnMac::None && !behaviour.ports.give_carrier();
        let former = self.source.former_links.get(&name).filter(|_| has_own);
        let mac = former.and_then(|former| former.link.mac);
        Link { mac: link.mac.or(mac), ..link.clone() }
    }

    /// Sends the creating message; it carries the group that marks what is ours.
    fn make(&mut self, name: LinkName, link: &Link) -> Written {
        if link.kind.behaviour().is_tun {
            if let Some(taken) = self.taken(name) {
                return Err(taken);
            }
            let here = self.source.netns().map_err(Outcome::Failed)?;
            return tap::create(&here, name, &link.kind).map_err(Outcome::Failed);
        }
        let mut refs = self.refs(link)?;
        let former = |name: LinkName| self.source.former_links.get(&name);
        let number = |name: LinkName| {
            former(name).map(|it| IfIndex(it.index)).filter(|number| !self.links.knows(*number))
        };
        let end = link.peer_here();
        refs.number = number(name);
        refs.peer_number = end.and_then(number);
        refs.peer_mac = end.and_then(former).and_then(|end| end.link.mac);
        let parent_space = link.parent.as_ref().and_then(|parent| parent.namespace.as_deref());
        let asked = match parent_space.and_then(|name| self.moment.namespaces.elsewhere(name)) {
            None => {
                let write = |batch: &mut Batch| message::create(batch, name, link, &refs, None);
                ask(self.connection, write, &mut |_| {})
            }
            Some(space) => {
                let here = self.source.netns().map_err(Outcome::Failed)?;
                let target = Some(namespaces::fd(&here));
                let there = Connection::open_in(&space.netns, Family::Route);
                let mut there = there.map_err(|error| failed(&error, &link.kind))?;
                let write = |batch: &mut Batch| message::create(batch, name, link, &refs, target);
                ask(&mut there, write, &mut |_| {})
            }
        };
        match asked {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::EXIST => {
                let refused = failed(&Error::Refused(refusal), &link.kind);
                Err(self.taken(name).unwrap_or(refused))
            }
            asked => asked.map_err(|error| match failed(&error, &link.kind) {
                Outcome::Failed(failure) if !is_unknown_kind_error(&error) => {
                    let write = |batch: &mut Batch| message::create(batch, name, link, &refs, None);
                    Outcome::Failed(name_options(failure, &error, &link.kind, write))
                }
                outcome => outcome,
            }),
        }
    }

    /// Why a name cannot be given to a link, if another has it.
    fn taken(&mut self, name: LinkName) -> Option<Outcome<Object>> {
        let holder = look_up(self.connection, name)?.name;
        Some(if holder == name {
            Outcome::Conflict { owner: Owner::foreign("another program, which was quicker") }
        } else {
            // An ordinary list does not show alternative names.
            let error = format!("`{name}` is an alternative name of link `{holder}`");
            let help = format!("take it away: ip link property del dev {holder} altname {name}");
            Outcome::Failed(Failure::new(error, Retry::Soon).with_help(help))
        })
    }

    /// What a link refers to, by number.
    fn refs(&self, link: &Link) -> Written<Refs> {
        let parent = link.parent.as_ref().map(|parent| {
            if self.moment.namespaces.is_here(parent.namespace.as_deref()) {
                return self.index(parent.name);
            }
            self.moment.namespaces.index(parent).ok_or_else(|| pending(parent.name))
        });
        let space = link.kind.peer().and_then(|peer| peer.namespace.as_deref());
        let space = space.and_then(|name| self.moment.namespaces.get(name));
        let peer_netns = space.map(|space| namespaces::fd(&space.netns));
        let (parent, group) = (parent.transpose()?, self.source.group());
        Ok(Refs { parent, peer_netns, group, ..Refs::default() })
    }

    /// Gives a fresh link its mark, its master and its state.
    ///
    /// Quirk `an-alias-comes-after-the-link` (Linux 6.18): the creating message ignores the alias and
    /// honours the group.
    fn finish_new(&mut self, link: &Link, seen: &SeenLink) -> Written {
        let words = link.alias.as_deref().unwrap_or_default();
        let parts = Parts {
            // The creating message has set the others; tun and tap links have none.
            mtu: link.mtu.filter(|mtu| Some(*mtu) != seen.link.mtu),
            txqueuelen: link.txqueuelen.filter(|len| Some(*len) != seen.link.txqueuelen),
            mac: link.mac.filter(|_| link.kind.behaviour().is_tun),
            alias: Some(alias::join(words, self.source.owner())),
            group: Some(self.source.group()).filter(|group| *group != seen.group),
            ..Parts::default()
        };
        self.change(seen.index, &parts, &Refs::default(), &link.kind)?;
        self.configure(seen.index, &link.kind, &seen.link.kind)?;
        if let Some(master) = link.master {
            self.enslave(seen.index, Some(master), &link.kind)?;
        }
        // A bond sets its links up by itself.
        link.up.map_or(Ok(()), |up| self.switch(seen.index, up, &link.kind))
    }

    /// Writes into the alias of a pair's other end, in another namespace, whose it is.
    fn mark_other_end(&mut self, name: LinkName, kind: &LinkKind) -> Written {
        let Some(peer) = kind.peer() else { return Ok(()) };
        let space = peer.namespace.as_deref();
        let space = space.and_then(|name| self.moment.namespaces.elsewhere(name));
        let Some(space) = space else { return Ok(()) };
        let there = Connection::open_in(&space.netns, Family::Route);
        let mut there = there.map_err(|error| failed(&error, kind))?;
        let Some(end) = find(&mut there, peer.name) else { return Ok(()) };
        let alias = Some(alias::of_other_end(name, self.source.owner()));
        let parts = Parts { alias, ..Parts::default() };
        let write = |batch: &mut Batch| message::change(batch, end.index, &parts, &Refs::default());
        ask(&mut there, write, &mut |_| {}).map_err(|error| failed(&error, kind))
    }

    fn update(&mut self, name: LinkName, link: &Link, cycle: Cycle) -> Written {
        let Some(seen) = self.moment.table.get(name) else { return Err(pending(name)) };
        let old = seen.alias.as_deref().unwrap_or_default();
        let words = link.alias.as_deref().unwrap_or(alias::split(old).0);
        let alias = alias::join(words, self.source.owner());
        let mark = FormerMark { alias, group: self.source.group() };
        self.write_over(seen, link, &mark, cycle)
    }

    /// Changes a link to what is declared, with this mark.
    fn write_over(
        &mut self,
        seen: &SeenLink,
        link: &Link,
        mark: &FormerMark,
        cycle: Cycle,
    ) -> Written {
        let (index, kind) = (seen.index, &link.kind);
        let falls = link.up == Some(false) || cycle == Cycle::DownFirst;
        if falls && seen.is_up() {
            self.switch(index, false, kind)?;
        }
        let mut parts = parts(link, seen, mark);
        if kind.wireguard().is_some() && parts.kind.take().is_some() {
            self.configure(index, kind, &seen.link.kind)?;
        }
        self.set_vnis(index, kind, &seen.link.kind)?;
        if parts != Parts::default() {
            let refs = self.refs(link)?;
            self.change(index, &parts, &refs, kind)?;
        }
        if let Some(master) = link.master.filter(|name| self.links.index(*name) != seen.master) {
            self.enslave(index, Some(master), kind)?;
        }
        let rises = link.up.unwrap_or(seen.is_up());
        let must_rise = rises && (!seen.is_up() || cycle == Cycle::DownFirst);
        if must_rise { self.switch(index, true, kind) } else { Ok(()) }
    }

    /// Writes what a link is made of beside itself.
    fn configure(&mut self, index: IfIndex, kind: &LinkKind, seen: &LinkKind) -> Written {
        self.set_vnis(index, kind, seen)?;
        let Some(desired) = kind.wireguard() else { return Ok(()) };
        let seen = seen.wireguard().cloned().unwrap_or_default();
        let connection = self.source.connect_to(Family::Generic);
        let configured = connection.and_then(|mut connection| {
            wireguard::configure(&mut connection, index, desired, &seen)
        });
        configured.map_err(Outcome::Failed)
    }

    /// Makes the networks of a VXLAN those that are declared.
    fn set_vnis(&mut self, index: IfIndex, kind: &LinkKind, seen: &LinkKind) -> Written {
        let Some(desired) = kind.vnis() else { return Ok(()) };
        let seen = seen.vnis().cloned().unwrap_or_default();
        if seen == *desired {
            return Ok(());
        }
        let write = |batch: &mut Batch| vnis::change(batch, index, &seen, desired);
        ask(self.connection, write, &mut |_| {}).map_err(|error| failed(&error, kind))
    }

    /// Sets what a bond prefers, once that is one of its links.
    fn set_primary(&mut self, name: LinkName, link: &Link) -> Written {
        let Some(primary) = link.kind.primary() else { return Ok(()) };
        let refs = Refs { primary: Some(self.index(primary)?), ..Refs::default() };
        let only = LinkKind::Bond(Bond { primary: Some(primary), ..Bond::default() });
        let parts = Parts { kind: Some(only), ..Parts::default() };
        self.change(self.index(name)?, &parts, &refs, &link.kind)
    }

    /// A link as it is now, if it is a bridge or a port of one. Steps of this pass may have changed that.
    fn part_of_bridge(&mut self, name: LinkName) -> Option<(IfIndex, Holder)> {
        let seen = find(self.connection, name)?;
        if seen.link.kind.is_bridge() {
            return Some((seen.index, Holder::Bridge));
        }
        let master = self.links.name(seen.master?);
        let master = find(self.connection, master).filter(|it| Some(it.index) == seen.master)?;
        master.link.kind.is_bridge().then_some((seen.index, Holder::Port))
    }

    /// Makes the VLANs of a link those that are declared. What it has now is asked for: a link that has just joined has
    /// the default VLAN of its bridge.
    fn set_vlans(&mut self, name: LinkName, desired: &Vlans) -> Written {
        let Some((index, holder)) = self.part_of_bridge(name) else {
            let on = WaitsOn::Condition(format!("`{name}` to be in a bridge"));
            return Err(Outcome::Pending { on });
        };
        let seen = vlans::read(self.connection, Some(index));
        let seen = seen.map_err(|error| vlans_failed(&error))?.remove(&index).unwrap_or_default();
        if seen == *desired {
            return Ok(());
        }
        if holder == Holder::Port && desired.has_networks() {
            // The kernel refuses networks on a port that is not for a tunnel.
            let options = [(IFLA_BRPORT_VLAN_TUNNEL, vec![1])];
            let write = |batch: &mut Batch| message::change_port(batch, index, "bridge", &options);
            ask(self.connection, write, &mut |_| {}).map_err(|error| vlans_failed(&error))?;
        }
        let write = |batch: &mut Batch| vlans::change(batch, index, holder, &seen, desired);
        ask(self.connection, write, &mut |_| {}).map_err(|error| vlans_failed(&error))
    }

    /// Sets an option of a port of a bridge.
    fn set_port(&mut self, name: LinkName, option: PortOption, value: &Setting) -> Written {
        let Some((index, Holder::Port)) = self.part_of_bridge(name) else {
            let on = WaitsOn::Condition(format!("`{name}` to be in a bridge"));
            return Err(Outcome::Pending { on });
        };
        let options: Vec<_> = option.encode(value).into_iter().collect();
        let write = |batch: &mut Batch| message::change_port(batch, index, "bridge", &options);
        let kind = LinkKind::Other { name: name.to_string() };
        ask(self.connection, write, &mut |_| {}).map_err(|error| failed(&error, &kind))
    }

    fn set(&mut self, name: LinkName, field: Field, value: &Setting, cycle: Cycle) -> Written {
        let index = self.index(name)?;
        let seen = self.moment.table.get(name).filter(|seen| seen.index == index);
        let kind = LinkKind::Other { name: name.to_string() };
        let parts = match (field, value) {
            (Field::Vlans, Setting::Vlans(vlans)) => return self.set_vlans(name, vlans),
            (Field::Port(option), value) => return self.set_port(name, option, value),
            (Field::Up, Setting::Flag(up)) => Parts { up: Some(*up), ..Parts::default() },
            (Field::Master, _) => {
                if cycle == Cycle::DownFirst {
                    self.switch(index, false, &kind)?;
                }
                self.enslave(index, value.link_name(), &kind)?;
                let rises = cycle == Cycle::DownFirst && seen.is_some_and(SeenLink::is_up);
                return if rises { self.switch(index, true, &kind) } else { Ok(()) };
            }
            (Field::Mtu, Setting::Number(mtu)) => Parts { mtu: Some(*mtu), ..Parts::default() },
            (Field::TxQueueLen, Setting::Number(len)) => {
                Parts { txqueuelen: Some(*len), ..Parts::default() }
            }
            (Field::Mac, Setting::Text(mac)) => Parts { mac: mac.parse().ok(), ..Parts::default() },
            (Field::Alias, Setting::Text(words)) => {
                let old = seen.and_then(|seen| seen.alias.as_deref());
                Parts { alias: Some(alias::reworded(old, words)), ..Parts::default() }
            }
            _ => return Ok(()),
        };
        self.change(index, &parts, &Refs::default(), &kind)
    }
}

fn change_link(
    connection: &mut Connection,
    index: IfIndex,
    parts: &Parts,
) -> homeostat_netlink::Result<()> {
    let write = |batch: &mut Batch| message::change(batch, index, parts, &Refs::default());
    ask(connection, write, &mut |_| {})
}

/// What one message can change.
fn parts(link: &Link, seen: &SeenLink, mark: &FormerMark) -> Parts {
    let moves = link.parent.is_some() && link.parent != seen.link.parent;
    let options = link.kind.left_of(&seen.link.kind);
    let old = seen.alias.as_deref().unwrap_or_default();
    Parts {
        mtu: link.mtu.filter(|mtu| Some(*mtu) != seen.link.mtu),
        txqueuelen: link.txqueuelen.filter(|len| Some(*len) != seen.link.txqueuelen),
        mac: link.mac.filter(|mac| Some(*mac) != seen.link.mac),
        alias: Some(mark.alias.clone()).filter(|alias| alias != old),
        group: Some(mark.group).filter(|group| *group != seen.group),
        kind: options.or_else(|| moves.then(|| link.kind.without(&seen.link.kind))),
        ..Parts::default()
    }
}

fn pending(link: LinkName) -> Outcome<Object> {
    Outcome::Pending { on: WaitsOn::link(link.to_string()) }
}

fn failed(error: &Error, kind: &LinkKind) -> Outcome<Object> {
    match error {
        Error::AnswerLost | Error::Timeout(_) => Outcome::Unknown { why: error.to_string() },
        error => Outcome::Failed(link_failure(error, kind)),
    }
}

/// Why VLANs could not be set.
fn vlans_failed(error: &Error) -> Outcome<Object> {
    match error {
        Error::AnswerLost | Error::Timeout(_) => Outcome::Unknown { why: error.to_string() },
        Error::Refused(refusal) if refusal.errno == Errno::OPNOTSUPP => {
            let error = format!("the bridges of this kernel have no VLANs: {refusal}");
            let help = "it is built without CONFIG_BRIDGE_VLAN_FILTERING: take another kernel, or \
                        leave out `vlans`";
            Outcome::Failed(Failure::new(error, Retry::OnChange).with_help(help))
        }
        error => Outcome::Failed(crate::apply::failure(error)),
    }
}

/// The kernel's words for a kind that it lacks.
const UNKNOWN_KIND: &str = "Unknown device type";

/// Why a link could not be made or changed.
fn link_failure(error: &Error, kind: &LinkKind) -> Failure {
    match error {
        Error::Refused(refusal) if is_unknown_kind(refusal) => {
            let error = format!("the kernel has no links of kind `{}`: {refusal}", kind.name());
            let help = format!("load the module that brings them: modprobe {}", kind.module());
            Failure::new(error, Retry::OnChange).with_help(help)
        }
        Error::Refused(refusal) if refusal.errno == Errno::BUSY => {
            crate::apply::failure(error).with_help("perhaps it has to be down for that, or unused")
        }
        error => crate::apply::failure(error),
    }
}

fn is_unknown_kind_error(error: &Error) -> bool {
    matches!(error, Error::Refused(refusal) if is_unknown_kind(refusal))
}

fn is_unknown_kind(refusal: &homeostat_netlink::Refusal) -> bool {
    let says_so = |text: &str| text.starts_with(UNKNOWN_KIND);
    refusal.errno == Errno::OPNOTSUPP && refusal.text.as_deref().is_some_and(says_so)
}
