//! Writes links, one after the other: each message waits for the answer to the one before, since a
//! request by name that follows a refused creation could hit somebody else's link.

use homeostat_core::{Failure, Outcome, Owner, Retry, WaitsOn, Work};
use homeostat_netlink::{Batch, Connection, Errno, Error, Family};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::cascade::going_with;
use crate::link::desired::DesiredLink;
use crate::link::kinds::bond::Bond;
use crate::link::kinds::{LinkKind, Refs, tap};
use crate::link::message::{self, Parts};
use crate::link::model::{Field, Setting};
use crate::link::observe::{Asked, SeenLink, ask, find, look_up};
use crate::link::step::{Act, Cycle, LinkStep};
use crate::link::{IfIndex, LinkName, Links, alias, namespaces};
use crate::moment::Moment;
use crate::object::Object;
use crate::source::Rtnl;
use crate::step::Step;

/// Whether steps are about links; the phases of links have no other steps.
pub(crate) fn is_about(work: &Work<'_, Rtnl>) -> bool {
    matches!(work.steps.first(), Some(Step::Link(_)))
}

/// Runs steps of links, reports the outcome of each, and returns the links as they are then.
pub(crate) fn run(
    work: &Work<'_, Rtnl>,
    source: &Rtnl,
    connection: &mut Connection,
    links: Links,
    tell: &mut dyn FnMut(usize, Outcome<Object>),
) -> Links {
    let mut writer =
        LinkWriter { desired: work.desired, moment: work.moment, source, connection, links };
    for (at, step) in work.iter() {
        let Step::Link(step) = step else { continue };
        tell(at, writer.write(step).err().unwrap_or(Outcome::Applied { now: None }));
    }
    writer.links
}

/// What becomes of a step that does not go through.
type Written<T = ()> = Result<T, Outcome<Object>>;

struct LinkWriter<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    source: &'a Rtnl,
    connection: &'a mut Connection,
    /// The links as they are after every step so far.
    links: Links,
}

impl LinkWriter<'_> {
    fn write(&mut self, step: &LinkStep) -> Written {
        match (&step.key, &step.act) {
            (Key::LinkField(name, field), Act::Set(cycle)) => {
                let Some(declared) = self.desired.links.field(*name, *field) else { return Ok(()) };
                self.set(*name, *field, &declared.setting, *cycle)
            }
            (Key::LinkField(name, field), Act::Release { restore: Some(original) }) => {
                self.set(*name, *field, original, Cycle::Stay)
            }
            (Key::Link(name), Act::Delete) => self.delete(*name),
            (Key::Link(name), act) => {
                let Some(declared) = self.desired.links.link(*name) else { return Ok(()) };
                match act {
                    Act::Create => self.create(declared),
                    Act::Update(cycle) => self.update(declared, *cycle),
                    Act::Replace => self.delete(*name).and_then(|()| self.create(declared)),
                    Act::Finish => self.set_primary(declared),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Sends one request and waits for its answer.
    fn ask(&mut self, write: impl FnOnce(&mut Batch) -> homeostat_netlink::Result<()>) -> Asked {
        ask(self.connection, write, &mut |_| {})
    }

    fn find(&mut self, name: LinkName) -> Option<SeenLink> {
        find(self.connection, name)
    }

    fn index(&self, name: LinkName) -> Written<IfIndex> {
        self.links
            .index(name)
            .ok_or_else(|| Outcome::Pending { on: WaitsOn::Link(name.to_string()) })
    }

    /// Deletes exactly the link that was seen: one that took its name since has another number.
    fn delete(&mut self, name: LinkName) -> Written {
        let Some(seen) = self.moment.table.get(name) else { return Ok(()) };
        let (index, kind) = (seen.index, seen.link.kind.clone());
        match self.ask(|batch| message::delete(batch, index)) {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::NODEV => {}
            asked => asked.map_err(|error| failed(&error, &kind))?,
        }
        for name in going_with(&self.moment.table, name) {
            self.links.forget(name);
        }
        Ok(())
    }

    /// Makes a link. Should anything fail on the way, it is taken away again: half a link is none.
    fn create(&mut self, declared: &DesiredLink) -> Written {
        self.make(declared)?;
        let Some(seen) = self.find(declared.name) else {
            let why = "it was made, and is not there".to_owned();
            return Err(Outcome::Unknown { why });
        };
        self.links.insert(declared.name, seen.index);
        if let (Some(name), Some(index)) = (declared.peer_here(), seen.peer()) {
            self.links.insert(name, index);
        }
        let finished =
            self.finish_new(declared, &seen).and_then(|()| self.mark_other_end(declared));
        if finished.is_err() && self.ask(|batch| message::delete(batch, seen.index)).is_ok() {
            self.links.forget(declared.name);
        }
        finished
    }

    /// Sends the creating message; it carries the group that marks what is ours.
    fn make(&mut self, declared: &DesiredLink) -> Written {
        let (name, link) = (declared.name, &declared.link);
        if matches!(link.kind, LinkKind::Tun(_) | LinkKind::Tap(_)) {
            if let Some(taken) = self.taken(name) {
                return Err(taken);
            }
            let here = self.source.netns().map_err(Outcome::Failed)?;
            return tap::create(&here, name, &link.kind).map_err(Outcome::Failed);
        }
        let refs = self.refs(declared)?;
        let asked = match self.parent_space(declared) {
            None => self.ask(|batch| message::create(batch, name, link, &refs, None)),
            Some(space) => {
                let here = self.source.netns().map_err(Outcome::Failed)?;
                let target = Some(namespaces::fd(&here));
                let there = Connection::open_in(&space, Family::Route);
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
            asked => asked.map_err(|error| failed(&error, &link.kind)),
        }
    }

    /// Why a name cannot be given to a link, if another has it.
    fn taken(&mut self, name: LinkName) -> Option<Outcome<Object>> {
        let holder = look_up(self.connection, name)?.name;
        Some(if holder == name {
            quicker()
        } else {
            Outcome::Failed(alternative_name_of(name, holder))
        })
    }

    /// The namespace of the parent, if that is another one.
    fn parent_space(
        &self,
        declared: &DesiredLink,
    ) -> Option<std::sync::Arc<homeostat_netns::Netns>> {
        let name = declared.link.parent.as_ref()?.namespace.as_deref()?;
        let space = self.moment.namespaces.get(name).filter(|space| !space.is_here)?;
        Some(std::sync::Arc::clone(&space.netns))
    }

    /// What a link refers to, by number.
    fn refs(&self, declared: &DesiredLink) -> Written<Refs> {
        let parent = declared.link.parent.as_ref().map(|parent| {
            let is_here = self.moment.namespaces.is_here(parent.namespace.as_deref());
            let there = || self.moment.namespaces.index(parent);
            let index = if is_here { self.links.index(parent.name) } else { there() };
            index.ok_or_else(|| Outcome::Pending { on: WaitsOn::Link(parent.name.to_string()) })
        });
        let space = declared.peer().and_then(|peer| peer.namespace.as_deref());
        let space = space.and_then(|name| self.moment.namespaces.get(name));
        let peer_netns = space.map(|space| namespaces::fd(&space.netns));
        let (parent, group) = (parent.transpose()?, self.source.group());
        Ok(Refs { parent, primary: None, peer_netns, group })
    }
}

fn failed(error: &Error, kind: &LinkKind) -> Outcome<Object> {
    match error {
        Error::AnswerLost | Error::Timeout(_) => Outcome::Unknown { why: error.to_string() },
        error => Outcome::Failed(link_failure(error, kind)),
    }
}

fn quicker() -> Outcome<Object> {
    Outcome::Conflict { owner: Owner::foreign("somebody who was quicker") }
}

impl LinkWriter<'_> {
    /// Gives a fresh link its mark, its master and its state.
    ///
    /// Quirk `an-alias-comes-after-the-link` (Linux 6.18): the creating message ignores the alias and
    /// honours the group.
    pub(super) fn finish_new(&mut self, declared: &DesiredLink, seen: &SeenLink) -> Written {
        let words = declared.link.alias.as_deref().unwrap_or_default();
        let alias = Some(alias::join(words, self.source.owner()));
        let is_tap = matches!(declared.link.kind, LinkKind::Tun(_) | LinkKind::Tap(_));
        // What the creating message set is as declared; nothing made it set those.
        let mtu = declared.link.mtu.filter(|mtu| Some(*mtu) != seen.link.mtu);
        let mac = declared.link.mac.filter(|_| is_tap);
        let group = Some(self.source.group()).filter(|group| *group != seen.group);
        let parts = Parts { mtu, mac, alias, group, kind: None };
        self.change(seen.index, &parts, &declared.link.kind)?;
        if let Some(master) = declared.link.master {
            self.enslave(seen.index, Some(master), &declared.link.kind)?;
        }
        match declared.link.up {
            // A bond sets its links up by itself.
            Some(up) => self.switch(seen.index, up, &declared.link.kind),
            None => Ok(()),
        }
    }

    /// Writes into the alias of a pair's other end, in another namespace, whose it is.
    pub(super) fn mark_other_end(&mut self, declared: &DesiredLink) -> Written {
        let Some(peer) = declared.peer() else { return Ok(()) };
        let space = peer.namespace.as_deref().and_then(|name| self.moment.namespaces.get(name));
        let Some(space) = space.filter(|space| !space.is_here) else { return Ok(()) };
        let kind = &declared.link.kind;
        let there = Connection::open_in(&space.netns, Family::Route);
        let mut there = there.map_err(|error| failed(&error, kind))?;
        let Some(end) = find(&mut there, peer.name) else { return Ok(()) };
        let alias = Some(alias::of_other_end(declared.name, self.source.owner()));
        let parts = Parts { alias, ..Parts::default() };
        let write = |batch: &mut Batch| message::change(batch, end.index, &parts, &Refs::default());
        ask(&mut there, write, &mut |_| {}).map_err(|error| failed(&error, kind))
    }

    pub(super) fn update(&mut self, declared: &DesiredLink, cycle: Cycle) -> Written {
        let Some(seen) = self.moment.table.get(declared.name) else {
            return Err(Outcome::Pending { on: WaitsOn::Link(declared.name.to_string()) });
        };
        let (index, link, kind) = (seen.index, &declared.link, &declared.link.kind);
        let falls = link.up == Some(false) || cycle == Cycle::DownFirst;
        if falls && seen.is_up() {
            self.switch(index, false, kind)?;
        }
        let parts = self.parts(declared, seen);
        if !parts.is_empty() {
            let refs = self.refs(declared)?;
            self.ask(|batch| message::change(batch, index, &parts, &refs))
                .map_err(|error| failed(&error, kind))?;
        }
        if let Some(master) = link.master.filter(|name| self.links.index(*name) != seen.master) {
            self.enslave(index, Some(master), kind)?;
        }
        let rises = link.up.unwrap_or(seen.is_up());
        let must_rise = rises && (!seen.is_up() || cycle == Cycle::DownFirst);
        if must_rise { self.switch(index, true, kind) } else { Ok(()) }
    }

    /// What one message can change.
    fn parts(&self, declared: &DesiredLink, seen: &SeenLink) -> Parts {
        let link = &declared.link;
        let old = seen.alias.as_deref().unwrap_or_default();
        let words = link.alias.as_deref().unwrap_or(alias::split(old).0);
        let marked = alias::join(words, self.source.owner());
        let moves = link.parent.is_some() && link.parent != seen.link.parent;
        let options = link.kind.left_of(&seen.link.kind);
        Parts {
            mtu: link.mtu.filter(|mtu| Some(*mtu) != seen.link.mtu),
            mac: link.mac.filter(|mac| Some(*mac) != seen.link.mac),
            alias: Some(marked).filter(|marked| marked != old),
            group: Some(self.source.group()).filter(|group| *group != seen.group),
            kind: options.or_else(|| moves.then(|| link.kind.without(&seen.link.kind))),
        }
    }

    /// Sets what a bond prefers, once that is one of its links.
    pub(super) fn set_primary(&mut self, declared: &DesiredLink) -> Written {
        let LinkKind::Bond(bond) = &declared.link.kind else { return Ok(()) };
        let Some(primary) = bond.primary else { return Ok(()) };
        let (index, primary) = (self.index(declared.name)?, Some(self.index(primary)?));
        let only = LinkKind::Bond(Bond { primary: bond.primary, ..Bond::default() });
        let parts = Parts { kind: Some(only), ..Parts::default() };
        let refs = Refs { primary, ..Refs::default() };
        let asked = self.ask(|batch| message::change(batch, index, &parts, &refs));
        asked.map_err(|error| failed(&error, &declared.link.kind))
    }

    pub(super) fn set(
        &mut self,
        name: LinkName,
        field: Field,
        value: &Setting,
        cycle: Cycle,
    ) -> Written {
        let index = self.index(name)?;
        let seen = self.moment.table.get(name).filter(|seen| seen.index == index);
        let kind = LinkKind::Other { name: name.to_string() };
        let was_up = seen.is_some_and(SeenLink::is_up);
        let parts = match (field, value) {
            (Field::Up, Setting::Flag(up)) => return self.switch(index, *up, &kind),
            (Field::Master, Setting::Text(master)) => {
                if cycle == Cycle::DownFirst {
                    self.switch(index, false, &kind)?;
                }
                self.enslave(index, master.parse().ok(), &kind)?;
                let rises = cycle == Cycle::DownFirst && was_up;
                return if rises { self.switch(index, true, &kind) } else { Ok(()) };
            }
            (Field::Mtu, Setting::Number(mtu)) => Parts { mtu: Some(*mtu), ..Parts::default() },
            (Field::Mac, Setting::Text(mac)) => Parts { mac: mac.parse().ok(), ..Parts::default() },
            (Field::Alias, Setting::Text(words)) => {
                let old = seen.and_then(|seen| seen.alias.as_deref());
                Parts { alias: Some(alias::reworded(old, words)), ..Parts::default() }
            }
            _ => return Ok(()),
        };
        self.change(index, &parts, &kind)
    }

    fn change(&mut self, index: IfIndex, parts: &Parts, kind: &LinkKind) -> Written {
        let asked = self.ask(|batch| message::change(batch, index, parts, &Refs::default()));
        asked.map_err(|error| failed(&error, kind))
    }

    fn enslave(&mut self, index: IfIndex, master: Option<LinkName>, kind: &LinkKind) -> Written {
        let master = master.map(|master| self.index(master)).transpose()?;
        let asked = self.ask(|batch| message::enslave(batch, index, master));
        asked.map_err(|error| failed(&error, kind))
    }

    fn switch(&mut self, index: IfIndex, up: bool, kind: &LinkKind) -> Written {
        let asked = self.ask(|batch| message::switch(batch, index, up));
        asked.map_err(|error| failed(&error, kind))
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

/// A name that is the alternative name of another link, which an ordinary list does not show.
fn alternative_name_of(name: LinkName, holder: LinkName) -> Failure {
    let error = format!("`{name}` is an alternative name of link `{holder}`");
    let help = format!("take it away: ip link property del dev {holder} altname {name}");
    Failure::new(error, Retry::Soon).with_help(help)
}

fn is_unknown_kind(refusal: &homeostat_netlink::Refusal) -> bool {
    let says_so = |text: &str| text.starts_with(UNKNOWN_KIND);
    refusal.errno == Errno::OPNOTSUPP && refusal.text.as_deref().is_some_and(says_so)
}
