//! Turns changes into steps. Pure: what it knows of the kernel is in the moment.

use std::collections::BTreeSet;
use std::net::IpAddr;

use homeostat_core::{Change, Desired as _, Draft, Owner, Pending, Slot};

use crate::cascade::Cascade;
use crate::key::{AddressKey, Key};
use crate::link::LinkName;
use crate::model::{Object, Route};
use crate::moment::Moment;
use crate::normalize::is_fixed_alike;
use crate::source::Rtnl;
use crate::step::{Delete, Phase, Step, Update, Way};
use crate::wish::Wish;

/// The steps for all changes, and the wishes that wait for a link.
pub(crate) fn draft(
    wish: &Wish,
    moment: &Moment,
    changes: Vec<Change<Key, Object>>,
) -> Draft<Rtnl> {
    let mut planner = Planner::new(wish, moment, &changes);
    for change in changes {
        match change {
            Change::Create { slot } => planner.create(slot),
            Change::Update { slot, before, adopts } => planner.update(slot, before, adopts),
            // Nothing here is a value that always exists, so nothing is ever released.
            Change::Delete { key, before } | Change::Release { key, before, .. } => {
                planner.delete(key, before);
            }
        }
    }
    planner.finish()
}

struct Planner<'a> {
    wish: &'a Wish,
    moment: &'a Moment,
    /// The addresses that go.
    going: BTreeSet<AddressKey>,
    /// Where IPv6 addresses are wished and absent: the kernel holds one of a kind for each link.
    wanted: BTreeSet<(LinkName, IpAddr)>,
    /// For each shape of routes, the link that it waits for.
    waits: Vec<Option<LinkName>>,
    draft: Draft<Rtnl>,
}

impl<'a> Planner<'a> {
    fn new(wish: &'a Wish, moment: &'a Moment, changes: &[Change<Key, Object>]) -> Self {
        let going = changes.iter().filter_map(|change| match change {
            Change::Delete { key: Key::Address(key), .. } => Some(*key),
            _ => None,
        });
        let wanted = changes.iter().filter_map(|change| match change {
            Change::Create { slot } => wish.address_at(*slot).map(|wish| wish.key),
            _ => None,
        });
        let wanted = wanted.filter(|key| key.ip().is_ipv6());
        let shapes = wish.shapes.iter();
        Planner {
            wish,
            moment,
            going: going.collect(),
            wanted: wanted.map(|key| (key.link(), key.ip())).collect(),
            waits: shapes.map(|shape| missing(moment, &shape.route)).collect(),
            draft: Draft::default(),
        }
    }

    /// The link that a wish waits for.
    fn waits_for(&self, slot: Slot) -> Option<LinkName> {
        if let Some(wish) = self.wish.address_at(slot) {
            let link = wish.key.link();
            return self.moment.links.index(link).is_none().then_some(link);
        }
        self.waits.get(self.wish.shape_of(slot)?).copied().flatten()
    }

    fn is_pending(&mut self, slot: Slot) -> bool {
        let Some(link) = self.waits_for(slot) else { return false };
        let on = format!("link {link}");
        self.draft.pending.push(Pending { key: self.wish.key(slot), on });
        true
    }

    fn phase(&self, slot: Slot) -> Phase {
        match self.wish.address_at(slot) {
            Some(_) => Phase::PutAddresses,
            None => Phase::PutRoutes,
        }
    }

    fn create(&mut self, slot: Slot) {
        if !self.is_pending(slot) {
            let phase = self.phase(slot);
            self.draft.steps.push(Step::Create { slot, phase });
        }
    }

    fn update(&mut self, slot: Slot, before: Object, adopts: Option<Owner>) {
        if self.is_pending(slot) {
            return;
        }
        let mut update = Update {
            slot,
            before,
            adopts,
            way: Way::InPlace,
            phase: self.phase(slot),
            cascade: Cascade::default(),
        };
        if let (Some(wish), Object::Address(before)) = (self.wish.address_at(slot), &update.before)
            && wish.key.ip().is_ipv4()
            && !is_fixed_alike(&wish.address, before)
        {
            update.way = Way::Anew;
            update.cascade = self.cascade(&wish.key);
        }
        self.draft.steps.push(Step::Update(Box::new(update)));
    }

    fn delete(&mut self, key: Key, before: Object) {
        let (phase, cascade) = (Phase::DeleteRoutes, Cascade::default());
        let mut delete = Delete { key, before, phase, cascade };
        if let Key::Address(key) = delete.key {
            delete.cascade = self.cascade(&key);
            let is_in_the_way = self.wanted.contains(&(key.link(), key.ip()));
            delete.phase = if is_in_the_way { Phase::ClearWay } else { Phase::DeleteAddresses };
        }
        self.draft.steps.push(Step::Delete(Box::new(delete)));
    }

    fn cascade(&self, key: &AddressKey) -> Cascade {
        Cascade::of(key, &self.going, (self.wish, self.moment))
    }

    /// Secondary addresses that go are taken away before their primary one takes them along.
    fn finish(mut self) -> Draft<Rtnl> {
        let moment = self.moment;
        let is_primary = |step: &Step| match step {
            Step::Delete(delete) if delete.phase == Phase::DeleteAddresses => match delete.key {
                Key::Address(key) => moment.is_primary(&key),
                Key::Route(_) => false,
            },
            _ => false,
        };
        if self.draft.steps.iter().any(is_primary) {
            self.draft.steps.sort_by_key(is_primary);
        }
        self.draft
    }
}

/// A link of the route that is not there.
fn missing(moment: &Moment, route: &Route) -> Option<LinkName> {
    route.links().find(|link| moment.links.index(*link).is_none())
}

#[cfg(test)]
mod tests;
