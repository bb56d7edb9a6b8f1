//! Changes links that are there, and gives fresh ones what their creation could not.

use homeostat_core::{Outcome, WaitsOn};
use homeostat_netlink::{Batch, Connection, Family};

use super::{Hand, Written, ask, failed, find};
use crate::link::{IfIndex, LinkName};
use crate::links::alias;
use crate::links::desired::DesiredLink;
use crate::links::encode::{self, Parts};
use crate::links::field::{Field, Setting};
use crate::links::kinds::bond::Bond;
use crate::links::kinds::{LinkKind, Refs};
use crate::links::step::Cycle;
use crate::links::table::SeenLink;

impl Hand<'_> {
    /// Gives a fresh link its mark, its master and its state.
    ///
    /// Quirk `an-alias-comes-after-the-link` (Linux 6.18): the creating message ignores the alias and
    /// honours the group.
    pub(super) fn dress(&mut self, declared: &DesiredLink, seen: &SeenLink) -> Written {
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

    /// Tells who looks at the other end of a pair, in another namespace, whose it is.
    pub(super) fn name_other_end(&mut self, declared: &DesiredLink) -> Written {
        let Some(peer) = declared.peer() else { return Ok(()) };
        let space = peer.namespace.as_deref().and_then(|name| self.moment.elsewhere.get(name));
        let Some(space) = space.filter(|space| !space.is_here) else { return Ok(()) };
        let kind = &declared.link.kind;
        let there = Connection::open_in(&space.netns, Family::Route);
        let mut there = there.map_err(|error| failed(&error, kind))?;
        let Some(end) = find(&mut there, peer.name) else { return Ok(()) };
        let alias = Some(alias::of_other_end(declared.name, self.source.owner()));
        let parts = Parts { alias, ..Parts::default() };
        let write = |batch: &mut Batch| encode::change(batch, end.index, &parts, &Refs::default());
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
            self.ask(|batch| encode::change(batch, index, &parts, &refs))
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
    pub(super) fn prefer(&mut self, declared: &DesiredLink) -> Written {
        let LinkKind::Bond(bond) = &declared.link.kind else { return Ok(()) };
        let Some(primary) = bond.primary else { return Ok(()) };
        let (index, primary) = (self.index(declared.name)?, Some(self.index(primary)?));
        let only = LinkKind::Bond(Bond { primary: bond.primary, ..Bond::default() });
        let parts = Parts { kind: Some(only), ..Parts::default() };
        let refs = Refs { primary, ..Refs::default() };
        let asked = self.ask(|batch| encode::change(batch, index, &parts, &refs));
        asked.map_err(|error| failed(&error, &declared.link.kind))
    }

    pub(super) fn set(
        &mut self,
        (name, field): (LinkName, Field),
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
        let asked = self.ask(|batch| encode::change(batch, index, parts, &Refs::default()));
        asked.map_err(|error| failed(&error, kind))
    }

    fn enslave(&mut self, index: IfIndex, master: Option<LinkName>, kind: &LinkKind) -> Written {
        let master = master.map(|master| self.index(master)).transpose()?;
        let asked = self.ask(|batch| encode::enslave(batch, index, master));
        asked.map_err(|error| failed(&error, kind))
    }

    fn switch(&mut self, index: IfIndex, up: bool, kind: &LinkKind) -> Written {
        let asked = self.ask(|batch| encode::switch(batch, index, up));
        asked.map_err(|error| failed(&error, kind))
    }
}
