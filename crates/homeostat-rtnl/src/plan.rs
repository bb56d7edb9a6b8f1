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

pub(crate) mod other;

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
    /// For each shape of routes, what it waits for.
    waits: Vec<Option<String>>,
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
            waits: shapes.map(|shape| missing(wish, moment, &shape.route)).collect(),
            draft: Draft::default(),
        }
    }

    /// What a wish waits for.
    fn waits_for(&self, slot: Slot) -> Option<String> {
        if let Some(wish) = self.wish.address_at(slot) {
            return missing_link(self.moment, wish.key.link());
        }
        if let Some(wish) = self.wish.other_at(slot) {
            return other::waits_for(wish, self.wish, self.moment);
        }
        self.waits.get(self.wish.shape_of(slot)?).cloned().flatten()
    }

    fn is_pending(&mut self, slot: Slot) -> bool {
        let Some(on) = self.waits_for(slot) else { return false };
        self.draft.pending.push(Pending { key: self.wish.key(slot), on });
        true
    }

    fn phase(&self, slot: Slot) -> Phase {
        match self.wish.other_at(slot) {
            Some(wish) => other::put_phase(&wish.object),
            None if self.wish.address_at(slot).is_some() => Phase::PutAddresses,
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
        if let Some(wish) = self.wish.other_at(slot)
            && other::is_anew(wish, &update.before)
        {
            update.way = Way::Anew;
            update.cascade = other::cascade(&wish.key, self.moment);
        }
        let rest = other::rest(self.wish.other_at(slot), &update);
        self.draft.steps.push(Step::Update(Box::new(update)));
        self.draft.steps.extend(rest);
    }

    fn delete(&mut self, key: Key, before: Object) {
        let (phase, cascade) = (other::delete_phase(&before), other::cascade(&key, self.moment));
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
                _ => false,
            },
            _ => false,
        };
        if self.draft.steps.iter().any(is_primary) {
            self.draft.steps.sort_by_key(is_primary);
        }
        if self.draft.steps.iter().any(|step| other::generality(step) > 0) {
            self.draft.steps.sort_by_key(other::generality);
        }
        self.draft
    }
}

/// A link of the route that is not there, or a nexthop that waits itself.
fn missing(wish: &Wish, moment: &Moment, route: &Route) -> Option<String> {
    let link = route.links().find_map(|link| missing_link(moment, link));
    link.or_else(|| other::waiting_nexthop(route.nexthop?, wish, moment))
}

fn missing_link(moment: &Moment, link: LinkName) -> Option<String> {
    moment.links.index(link).is_none().then(|| format!("link {link}"))
}

#[cfg(test)]
mod tests;
