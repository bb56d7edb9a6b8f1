//! Turns changes into steps: when each has its turn, what it waits for, what goes with it. Pure: what it knows of
//! the kernel is in the moment.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use homeostat_core::{Change, ChangeList, Desired as _, Draft, Owner, Slot, WaitsOn};

use crate::address::cascade::Cascade;
use crate::address::{AddressKey, AddressMarks, is_fixed_alike};
use crate::desired::{Declared, DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::cascade::IPV6_MIN_MTU;
use crate::link::plan::LinkPlan;
use crate::moment::Moment;
use crate::nexthop::{self, NexthopId};
use crate::object::Object;
use crate::route::Route;
use crate::source::Rtnl;
use crate::step::{Delete, Phase, Step, Update, Way};

/// The steps for all changes, and the keys that wait for something.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: ChangeList<Key, Object>,
) -> Draft<Rtnl> {
    let mut planner = Planner::new(desired, moment, &changes);
    planner.put_on_renewed(&changes);
    for change in changes {
        match change {
            // `link::plan` has planned the changes of links.
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
    /// The addresses that are deleted.
    going: BTreeSet<AddressKey>,
    /// The IPv6 addresses that are created: a link can have an IPv6 address only once, whatever its prefix length.
    wanted: BTreeSet<(LinkName, IpAddr)>,
    /// What the routes of a template wait for, computed when the first of them is planned.
    waits: HashMap<usize, Option<WaitsOn>>,
    /// What the last delete found; the next one often finds the same and shares it.
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
        let links = crate::link::plan::draft(desired, moment, changes);
        Planner {
            desired,
            moment,
            going: going.collect(),
            wanted: wanted.map(|key| (key.link(), key.ip())).collect(),
            waits: HashMap::new(),
            last: Arc::new(Object::Route(Route::default())),
            links,
            draft: Draft::default(),
        }
    }

    /// What the object in a slot waits for. The routes of a template wait for the same.
    fn waits_for(&mut self, slot: Slot) -> Option<WaitsOn> {
        let Planner { desired, moment, links, waits, .. } = self;
        let has = |link| links.will_have(moment, link);
        if let Some(number) = desired.template_of(slot) {
            let template = desired.templates.get(number)?;
            let missing = || missing(desired, &has, moment, template);
            return waits.entry(number).or_insert_with(missing).clone();
        }
        if let Some(other) = desired.other_at(slot) {
            return waits_for(other, desired, &has);
        }
        let address = desired.address_at(slot)?;
        missing_link(&has, address.key.link()).or_else(|| self.too_small(&address.key))
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
        self.draft.wait(self.desired.key(slot), on);
        true
    }

    fn phase(&self, slot: Slot) -> Phase {
        match self.desired.other_at(slot) {
            Some(desired) => put_phase(&desired.object),
            None if self.desired.address_at(slot).is_some() => Phase::PutAddresses,
            None => Phase::PutRoutes,
        }
    }

    /// Where the object in a slot is marked as ours: routes always in the kernel.
    fn marks(&self, slot: Slot) -> AddressMarks {
        let is_address = self.desired.address_at(slot).is_some();
        if is_address { self.moment.address_marks } else { AddressMarks::Kernel }
    }

    /// Creates in the same pass what is lost with links that are created again.
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

    /// Whether the object in a slot is lost with a link that is created again.
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
            && is_anew(desired, &update.before)
        {
            update.way = Way::Anew;
            update.cascade = cascade(&desired.key, self.moment);
        }
        let rest = rest(self.desired.other_at(slot), &update);
        self.draft.steps.push(Step::Update(Box::new(update)));
        self.draft.steps.extend(rest);
    }

    /// Whether an address that is adopted in place would keep its foreign mark.
    fn keeps_its_mark(&self, update: &Update) -> bool {
        update.adopts.is_some() && self.moment.address_marks == AddressMarks::Fixed
    }

    fn delete(&mut self, key: Key, before: Object) {
        let (phase, cascade) = (delete_phase(&before), cascade(&key, self.moment));
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
        Cascade::of(key, &self.going, self.desired, self.moment)
    }

    /// Creates declared routes again that the kernel deletes along with addresses and nexthops, after those are
    /// deleted. Routes that the pass creates anyway are created then, too.
    fn make_again(&mut self) {
        let mut lost = BTreeSet::new();
        for step in &self.draft.steps {
            // A step that takes foreign objects along may be held, and then nothing is lost.
            if let Some((key, cascade)) = step.lost_with(self.desired)
                && cascade.takes.is_empty()
            {
                cascade.lost_routes(&key, self.desired, &mut lost);
            }
            self.lost_with_nexthop(step, &mut lost);
        }
        let moving = self.moving_templates();
        for step in &mut self.draft.steps {
            let Step::Create { slot, phase, .. } = step else { continue };
            let template = self.desired.template_of(*slot);
            if lost.remove(slot) {
                *phase = Phase::PutAgain;
            } else if !moving.is_empty() && template.is_some_and(|number| moving.contains(&number))
            {
                *phase = Phase::PutMoved;
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

    /// The templates of routes whose gateway is in the network of an address that is deleted. A route without a link
    /// of its own is created on the link by which its gateway is reached at that moment: that is the former one
    /// until the address there is gone.
    fn moving_templates(&self) -> BTreeSet<usize> {
        let is_leaving = |gateway| self.going.iter().any(|address| address.net().contains(gateway));
        let is_moving = |template: &RouteTemplate| {
            template.route.links().next().is_none() && template.route.gateways().any(is_leaving)
        };
        if self.going.is_empty() {
            return BTreeSet::new();
        }
        let templates = self.desired.templates.iter().enumerate();
        templates.filter(|(_, template)| is_moving(template)).map(|(number, _)| number).collect()
    }

    /// The declared routes that are lost with a nexthop that is deleted and created again. Those that the pass
    /// updates after it are created by that update.
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

    /// Secondary addresses are deleted before their primary one, which would take them along.
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
        if self.draft.steps.iter().any(|step| generality(step) > 0) {
            self.draft.steps.sort_by_key(generality);
        }
        let LinkPlan { steps, findings, .. } = self.links;
        self.draft.steps.extend(steps.into_iter().map(|step| Step::Link(Box::new(step))));
        self.draft.findings.extend(findings);
        self.draft
    }
}

/// Whether a link will exist when addresses and routes are written.
pub(crate) type Has<'a> = &'a dyn Fn(LinkName) -> bool;

/// What a route waits for: an absent link of its own, the absent link of the only address that its gateway or its
/// source needs, or a nexthop that waits itself.
fn missing(
    desired: &DesiredState,
    has: Has<'_>,
    moment: &Moment,
    template: &RouteTemplate,
) -> Option<WaitsOn> {
    let route = &template.route;
    let waits_with =
        |serves: &dyn Fn(&AddressKey) -> bool| waits_with(has, moment, template, serves);
    let link = route.links().find_map(|link| missing_link(has, link));
    link.or_else(|| {
        route.gateways().find_map(|via| waits_with(&|address| address.net().contains(via)))
    })
    .or_else(|| route.src.and_then(|src| waits_with(&|address| address.ip() == src)))
    .or_else(|| waiting_nexthop(route.nexthop?, desired, has))
}

/// The absent link of declared addresses of which one is needed, unless another one exists.
fn waits_with(
    has: Has<'_>,
    moment: &Moment,
    template: &RouteTemplate,
    serves: &dyn Fn(&AddressKey) -> bool,
) -> Option<WaitsOn> {
    let serving = || template.rests_on.iter().filter(|address| serves(address));
    let is_served = serving().any(|address| missing_link(has, address.link()).is_none())
        || moment.addresses.iter().any(|observed| serves(&observed.key));
    let waits = serving().find_map(|address| missing_link(has, address.link()));
    waits.filter(|_| !is_served)
}

fn missing_link(has: Has<'_>, link: LinkName) -> Option<WaitsOn> {
    (!has(link)).then(|| WaitsOn::Link(link.to_string()))
}

/// The slot that a change is about, if it is declared.
fn slot_of(change: &Change<Key, Object>) -> Option<Slot> {
    match change {
        Change::Create { slot } | Change::Update { slot, .. } => Some(*slot),
        Change::Delete { .. } | Change::Release { .. } => None,
    }
}

/// The phase in which an object is created or updated.
pub(crate) fn put_phase(object: &Object) -> Phase {
    match object {
        Object::Nexthop(nexthop) if nexthop.is_group() => Phase::PutGroups,
        Object::Nexthop(_) => Phase::PutNexthops,
        Object::Rule(_) => Phase::PutRules,
        Object::Neighbour(_) => Phase::PutNeighbours,
        Object::Address(_) => Phase::PutAddresses,
        Object::Route(_) => Phase::PutRoutes,
        Object::Link(_) | Object::Setting(_) => Phase::PutLinks,
    }
}

/// The phase in which an object is deleted.
pub(crate) fn delete_phase(object: &Object) -> Phase {
    match object {
        Object::Nexthop(nexthop) if nexthop.is_group() => Phase::DeleteGroups,
        Object::Nexthop(_) => Phase::DeleteNexthops,
        Object::Rule(_) => Phase::DeleteRules,
        Object::Neighbour(_) => Phase::DeleteNeighbours,
        Object::Address(_) => Phase::DeleteAddresses,
        Object::Route(_) => Phase::DeleteRoutes,
        Object::Link(_) | Object::Setting(_) => Phase::DeleteLinks,
    }
}

/// What a nexthop, rule or neighbour waits for. A rule waits for no link: the kernel takes any name, and binds it
/// when a link of that name is created.
pub(crate) fn waits_for(
    declared: &Declared,
    desired: &DesiredState,
    has: Has<'_>,
) -> Option<WaitsOn> {
    match (&declared.key, &declared.object) {
        (_, Object::Nexthop(nexthop)) => {
            let link = nexthop.dev.and_then(|link| missing_link(has, link));
            let mut members = nexthop.group.iter();
            link.or_else(|| members.find_map(|member| waiting_nexthop(member.id, desired, has)))
        }
        (Key::Neighbour(key), _) => missing_link(has, key.link()),
        _ => None,
    }
}

/// A declared nexthop as what others wait for, if it waits for its link.
pub(crate) fn waiting_nexthop(
    id: NexthopId,
    desired: &DesiredState,
    has: Has<'_>,
) -> Option<WaitsOn> {
    let key = Key::Nexthop(id);
    let declared = desired.other_at(desired.slot(&key, None)?)?;
    let Object::Nexthop(nexthop) = &declared.object else { return None };
    let is_waiting = |id: NexthopId| waiting_link(id, desired, has).is_some();
    let waits = waiting_link(id, desired, has).is_some()
        || nexthop.group.iter().any(|member| is_waiting(member.id));
    waits.then(|| WaitsOn::Key(key.to_string()))
}

/// The absent link of a declared nexthop that is no group: groups have no groups in them.
fn waiting_link(id: NexthopId, desired: &DesiredState, has: Has<'_>) -> Option<WaitsOn> {
    let declared = desired.other_at(desired.slot(&Key::Nexthop(id), None)?)?;
    let Object::Nexthop(nexthop) = &declared.object else { return None };
    missing_link(has, nexthop.dev?)
}

/// Whether an object has to be deleted first to become as declared.
pub(crate) fn is_anew(declared: &Declared, before: &Object) -> bool {
    match (&declared.object, before) {
        (Object::Nexthop(desired), Object::Nexthop(seen)) => !nexthop::is_same_kind(desired, seen),
        _ => false,
    }
}

/// The second half of an update: a rule cannot be changed in place, so the former one is deleted once the other one
/// exists.
pub(crate) fn rest(declared: Option<&Declared>, update: &Update) -> Option<Step> {
    let key = declared.map(|declared| &declared.key).filter(|key| matches!(key, Key::Rule(_)))?;
    let (before, phase) = (Arc::new(update.before.clone()), Phase::DeleteRules);
    let delete = Delete { key: key.clone(), before, phase, is_rest: true, cascade: None };
    Some(Step::Delete(Box::new(delete)))
}

/// Rules are deleted in this order: a request for a rule with fewer selectors could hit one with more.
pub(crate) fn generality(step: &Step) -> usize {
    match step {
        Step::Delete(delete) => match &delete.key {
            Key::Rule(key) => usize::MAX - key.count(),
            _ => 0,
        },
        _ => 0,
    }
}

/// What the kernel deletes along with an object.
pub(crate) fn cascade(key: &Key, moment: &Moment) -> Cascade {
    match key {
        Key::Nexthop(id) => nexthop::of_delete(*id, moment),
        _ => Cascade::default(),
    }
}

/// The keys that have to exist before a nexthop, rule or neighbour.
pub(crate) fn needs(declared: &Declared, desired: &DesiredState, need: &mut dyn FnMut(Key)) {
    declared.links().for_each(|link| desired.links.needed_for(link, need));
    let Object::Nexthop(nexthop) = &declared.object else { return };
    nexthop.group.iter().for_each(|member| need(Key::Nexthop(member.id)));
    let addresses = desired.addresses.iter().map(|desired| desired.key);
    let below = addresses.filter(|key| nexthop::rests_on(nexthop, key));
    below.for_each(|key| need(Key::Address(key)));
}

/// The declared keys that may change along with a step that is no create.
pub(crate) fn disturbs(step: &Step, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
    let key = homeostat_core::Step::key(step, desired);
    let goes = match step {
        Step::Create { .. } | Step::Link(_) => false,
        Step::Update(update) => update.way == Way::Anew,
        Step::Delete(_) => true,
    };
    match key {
        Key::Nexthop(id) if goes => nexthop::dependants(id, desired, disturb),
        // Deleting a rule may delete others of ours for a moment.
        Key::Rule(_) => rules(desired, disturb),
        _ => {}
    }
}

fn rules(desired: &DesiredState, tell: &mut dyn FnMut(Key)) {
    let keys = desired.others.iter().map(|desired| &desired.key);
    keys.filter(|key| matches!(key, Key::Rule(_))).cloned().for_each(tell);
}

#[cfg(test)]
mod other_tests {
    use super::*;
    use crate::link::IfIndex;
    use crate::nexthop::{Member, Nexthop};

    fn desired() -> DesiredState {
        let mut builder = DesiredState::builder();
        let member = Member { id: NexthopId(10), weight: 1 };
        let way = Nexthop::via([10, 0, 0, 2].into(), "va".parse().unwrap());
        builder.nexthop(NexthopId(10), way).unwrap();
        builder.nexthop(NexthopId(20), Nexthop::group(vec![member])).unwrap();
        for text in ["address 10.0.0.1/24 dev va", "address 10.1.0.1/24 dev va"] {
            let Ok(Key::Address(key)) = text.parse() else { panic!("{text}") };
            builder.address(key, crate::address::Address::default()).unwrap();
        }
        builder.build().unwrap()
    }

    fn at<'w>(desired: &'w DesiredState, key: &str) -> &'w Declared {
        desired.other_at(desired.slot(&key.parse().unwrap(), None).unwrap()).unwrap()
    }

    #[test]
    fn a_group_needs_its_members_and_a_nexthop_the_address_that_reaches_its_gateway() {
        let desired = desired();
        let needed = |key: &str| {
            let mut needed = Vec::new();
            needs(at(&desired, key), &desired, &mut |key| needed.push(key.to_string()));
            needed
        };
        assert_eq!(needed("nexthop 20"), ["nexthop 10"]);
        assert_eq!(needed("nexthop 10"), ["address 10.0.0.1/24 dev va"]);
    }

    #[test]
    fn a_group_waits_for_a_member_that_waits_for_its_link() {
        let (desired, mut moment) = (desired(), Moment::default());
        let waits = |key: &str, moment: &Moment| {
            let has = |link| moment.links.index(link).is_some();
            waits_for(at(&desired, key), &desired, &has)
        };
        assert_eq!(waits("nexthop 10", &moment).unwrap().to_string(), "link va");
        assert_eq!(waits("nexthop 20", &moment).unwrap().to_string(), "nexthop 10");
        Arc::make_mut(&mut moment.links).insert("va".parse().unwrap(), IfIndex(7));
        assert_eq!(waits("nexthop 20", &moment), None);
    }
}
