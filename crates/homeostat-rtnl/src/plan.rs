//! Turns changes into steps. Pure: what it knows of the kernel is in the moment.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use homeostat_core::{Change, ChangeList, Desired as _, Draft, Owner, Pending, Slot, WaitsOn};

use crate::address::is_fixed_alike;
use crate::cascade::Cascade;
use crate::desired::{DesiredState, Shape};
use crate::key::{AddressKey, Key};
use crate::link::LinkName;
use crate::links::cascade::IPV6_MIN_MTU;
use crate::links::plan::LinkPlan;
use crate::marks::AddressMarks;
use crate::model::Object;
use crate::moment::Moment;
use crate::route::Route;
use crate::source::Rtnl;
use crate::step::{Delete, Phase, Step, Update, Way};

pub(crate) mod other;

/// The steps for all changes, and the desired states that wait for a link.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Object>,
) -> Draft<Rtnl> {
    let mut planner = Planner::new(desired, moment, &changes);
    planner.put_on_renewed(&changes);
    for change in changes {
        match change {
            // What is about links has been planned before.
            Change::Create { slot } | Change::Update { slot, .. } if desired.is_link(slot) => {}
            Change::Delete { ref key, .. } | Change::Release { ref key, .. } if key.is_link() => {}
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
    desired: &'a DesiredState,
    moment: &'a Moment,
    /// The addresses that go.
    going: BTreeSet<AddressKey>,
    /// Where IPv6 addresses are declared and absent: the kernel holds one of a kind for each link.
    wanted: BTreeSet<(LinkName, IpAddr)>,
    /// For each shape of routes, what it waits for.
    waits: Vec<Option<WaitsOn>>,
    /// What the last removal found, which the next one often shares.
    last: Arc<Object>,
    links: LinkPlan,
    draft: Draft<Rtnl>,
}

impl<'a> Planner<'a> {
    fn new(
        desired: &'a DesiredState,
        moment: &'a Moment,
        changes: &ChangeList<Key, Object>,
    ) -> Self {
        let going = changes.others().iter().filter_map(|change| match change {
            Change::Delete { key: Key::Address(key), .. } => Some(*key),
            _ => None,
        });
        let wanted = changes.creates().iter();
        let wanted = wanted.filter_map(|slot| desired.address_at(*slot).map(|desired| desired.key));
        let wanted = wanted.filter(|key| key.ip().is_ipv6());
        let links = crate::links::plan::draft(desired, moment, changes);
        let shapes = desired.shapes.iter();
        let has = |link: LinkName| links.will_have(moment, link);
        Planner {
            desired,
            moment,
            going: going.collect(),
            wanted: wanted.map(|key| (key.link(), key.ip())).collect(),
            waits: shapes.map(|shape| missing(desired, (&has, moment), shape)).collect(),
            last: Arc::new(Object::Route(Route::default())),
            links,
            draft: Draft::default(),
        }
    }

    /// What a desired state waits for.
    fn waits_for(&self, slot: Slot) -> Option<WaitsOn> {
        if let Some(desired) = self.desired.address_at(slot) {
            let has = |link| self.links.will_have(self.moment, link);
            return missing_link(&has, desired.key.link()).or_else(|| self.too_small(&desired.key));
        }
        if let Some(desired) = self.desired.other_at(slot) {
            let has = |link| self.links.will_have(self.moment, link);
            return other::waits_for(desired, self.desired, &has);
        }
        self.waits.get(self.desired.shape_of(slot)?).cloned().flatten()
    }

    /// Quirk `a-low-mtu-takes-ipv6` (Linux 6.18): only the loopback link can have IPv6 addresses with any MTU.
    fn too_small(&self, key: &AddressKey) -> Option<WaitsOn> {
        let link = key.link();
        let seen = self.moment.table.get(link).and_then(|seen| seen.link.mtu);
        let mtu = self.desired.links.mtu(link).or(seen)?;
        let is_too_small = key.ip().is_ipv6() && mtu < IPV6_MIN_MTU && link.as_str() != "lo";
        is_too_small.then(|| {
            WaitsOn::Condition(format!(
                "an MTU of {IPV6_MIN_MTU} or more on link {link}, which has {mtu}"
            ))
        })
    }

    fn is_pending(&mut self, slot: Slot) -> bool {
        let Some(on) = self.waits_for(slot) else { return false };
        self.draft.pending.push(Pending { key: self.desired.key(slot), on });
        true
    }

    fn phase(&self, slot: Slot) -> Phase {
        match self.desired.other_at(slot) {
            Some(desired) => other::put_phase(&desired.object),
            None if self.desired.address_at(slot).is_some() => Phase::PutAddresses,
            None => Phase::PutRoutes,
        }
    }

    /// Where the object in a slot is marked as ours: routes always in the kernel.
    fn marks(&self, slot: Slot) -> AddressMarks {
        let is_address = self.desired.address_at(slot).is_some();
        if is_address { self.moment.address_marks } else { AddressMarks::Kernel }
    }

    /// What was on links that are made again is lost with them: it is made again in the same pass.
    fn put_on_renewed(&mut self, changes: &ChangeList<Key, Object>) {
        if self.links.renewed.is_empty() {
            return;
        }
        let others = changes.others().iter().filter_map(slot_of);
        let planned: BTreeSet<Slot> = changes.creates().iter().copied().chain(others).collect();
        let (desired, mut lost) = (self.desired, Vec::new());
        desired.on_links(|link| self.links.renewed.contains(&link), &mut |key| lost.push(key));
        let lost: BTreeSet<Slot> = lost.iter().filter_map(|key| desired.slot(key, None)).collect();
        lost.difference(&planned).for_each(|slot| self.create(*slot));
    }

    /// Whether what stands in a slot is lost with a link that is made again.
    fn is_lost(&self, slot: Slot) -> bool {
        let is_renewed = |link: LinkName| self.links.renewed.contains(&link);
        let mut lost = false;
        let key = self.desired.key(slot);
        self.desired.on_links(is_renewed, &mut |other| lost |= other == key);
        lost
    }

    fn create(&mut self, slot: Slot) {
        if !self.is_pending(slot) {
            let (phase, marks) = (self.phase(slot), self.marks(slot));
            self.draft.steps.push(Step::Create { slot, phase, marks });
        }
    }

    fn update(&mut self, slot: Slot, before: Object, adopts: Option<Owner>) {
        if !self.links.renewed.is_empty() && self.is_lost(slot) {
            return self.create(slot);
        }
        if self.is_pending(slot) {
            return;
        }
        let mut update = Update {
            slot,
            before,
            adopts,
            way: Way::InPlace,
            marks: self.marks(slot),
            phase: self.phase(slot),
            cascade: Cascade::default(),
        };
        if let (Some(desired), Object::Address(before)) =
            (self.desired.address_at(slot), &update.before)
            && desired.key.ip().is_ipv4()
            && (!is_fixed_alike(&desired.address, before) || self.keeps_its_mark(&update))
        {
            update.way = Way::Anew;
            update.cascade = self.cascade(&desired.key);
        }
        if let Some(desired) = self.desired.other_at(slot)
            && other::is_anew(desired, &update.before)
        {
            update.way = Way::Anew;
            update.cascade = other::cascade(&desired.key, self.moment);
        }
        let rest = other::rest(self.desired.other_at(slot), &update);
        self.draft.steps.push(Step::Update(Box::new(update)));
        self.draft.steps.extend(rest);
    }

    /// Whether an address that is taken over would stay somebody else's.
    fn keeps_its_mark(&self, update: &Update) -> bool {
        update.adopts.is_some() && self.moment.address_marks == AddressMarks::Fixed
    }

    fn delete(&mut self, key: Key, before: Object) {
        let (phase, cascade) = (other::delete_phase(&before), other::cascade(&key, self.moment));
        if *self.last != before {
            self.last = Arc::new(before);
        }
        let before = Arc::clone(&self.last);
        let cascade = (cascade != Cascade::default()).then(|| Box::new(cascade));
        let mut delete = Delete { key, before, phase, is_rest: false, cascade };
        if let Key::Address(key) = delete.key {
            delete.cascade = Some(Box::new(self.cascade(&key)));
            let is_in_the_way = self.wanted.contains(&(key.link(), key.ip()));
            delete.phase = if is_in_the_way { Phase::ClearWay } else { Phase::DeleteAddresses };
        }
        self.draft.steps.push(Step::Delete(Box::new(delete)));
    }

    fn cascade(&self, key: &AddressKey) -> Cascade {
        Cascade::of(key, &self.going, (self.desired, self.moment))
    }

    /// The declared routes that go with addresses are made again when those are gone; what is to be made
    /// anyhow is made then. So are those that go with nexthops.
    fn make_again(&mut self) {
        let mut lost = BTreeSet::new();
        for step in &self.draft.steps {
            // What takes foreign objects along may be held, and then nothing goes.
            if let Some((key, cascade)) = step.lost_with(self.desired)
                && cascade.takes.is_empty()
            {
                cascade.lost_routes(&key, self.desired, &mut lost);
            }
            self.lost_with_nexthop(step, &mut lost);
        }
        for step in &mut self.draft.steps {
            if let Step::Create { slot, phase, .. } = step
                && lost.remove(slot)
            {
                *phase = Phase::PutAgain;
            }
        }
        let mut again: Vec<Slot> = lost.into_iter().collect();
        again.retain(|slot| self.waits_for(*slot).is_none());
        again.sort_by_key(|slot| self.phase(*slot));
        for slot in again {
            let (phase, marks) = (Phase::PutAgain, self.marks(slot));
            self.draft.steps.push(Step::Create { slot, phase, marks });
        }
    }

    /// The declared routes that go with a nexthop that is made anew, but for those that are changed after
    /// it: that makes them again.
    fn lost_with_nexthop(&self, step: &Step, lost: &mut BTreeSet<Slot>) {
        let Step::Update(update) = step else { return };
        let Key::Nexthop(id) = self.desired.key(update.slot) else { return };
        if update.way != Way::Anew || !update.cascade.takes.is_empty() {
            return;
        }
        let steps = self.draft.steps.iter();
        let changed = steps.filter_map(|step| match step {
            Step::Update(update) => Some(update.slot),
            _ => None,
        });
        let changed: BTreeSet<Slot> = changed.collect();
        let is_through = |route: &Route| route.nexthop == Some(id);
        self.desired.routes_like(is_through, &mut |key| {
            let slot = self.desired.slot(&key, None);
            lost.extend(slot.filter(|slot| !changed.contains(slot)));
        });
    }

    /// Secondary addresses that go are taken away before their primary one takes them along.
    fn finish(mut self) -> Draft<Rtnl> {
        self.make_again();
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
        let LinkPlan { steps, pending, refused, .. } = self.links;
        self.draft.steps.extend(steps.into_iter().map(|step| Step::Link(Box::new(step))));
        self.draft.pending.extend(pending);
        self.draft.refused.extend(refused);
        self.draft
    }
}

/// Whether a link will be there when what is on links has its turn.
pub(crate) type Has<'a> = &'a dyn Fn(LinkName) -> bool;

/// A link that is not there and without which a route cannot be: one of its own, or that of the only
/// address that its gateway or its source needs; or a nexthop that waits itself.
fn missing(desired: &DesiredState, ground: (Has<'_>, &Moment), shape: &Shape) -> Option<WaitsOn> {
    let (route, (has, _)) = (&shape.route, ground);
    let link = route.links().find_map(|link| missing_link(has, link));
    let reaches = |gateway| move |address: &AddressKey| address.net().contains(gateway);
    let is_source = |src| move |address: &AddressKey| address.ip() == src;
    link.or_else(|| route.gateways().find_map(|via| waits_with(ground, shape, reaches(via))))
        .or_else(|| route.src.and_then(|src| waits_with(ground, shape, is_source(src))))
        .or_else(|| other::waiting_nexthop(route.nexthop?, desired, has))
}

/// The absent link of the declared addresses that would serve, if no other serves.
fn waits_with(
    (has, moment): (Has<'_>, &Moment),
    shape: &Shape,
    serves: impl Fn(&AddressKey) -> bool,
) -> Option<WaitsOn> {
    let serving = || shape.rests_on.iter().filter(|address| serves(address));
    let is_served = serving().any(|address| missing_link(has, address.link()).is_none())
        || moment.addresses.iter().any(|standing| serves(&standing.key));
    let waits = serving().find_map(|address| missing_link(has, address.link()));
    waits.filter(|_| !is_served)
}

fn missing_link(has: Has<'_>, link: LinkName) -> Option<WaitsOn> {
    (!has(link)).then(|| WaitsOn::Link(link.to_string()))
}

/// The desired state that a change is about.
fn slot_of(change: &Change<Key, Object>) -> Option<Slot> {
    match change {
        Change::Create { slot } | Change::Update { slot, .. } => Some(*slot),
        Change::Delete { .. } | Change::Release { .. } => None,
    }
}

#[cfg(test)]
mod tests;
