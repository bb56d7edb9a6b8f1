//! Turns changes into steps: when each has its turn, what it waits for, what goes with it. Pure: what it knows of
//! the kernel is in the moment.

#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use homeostat_core::{
    Change, ChangeList, Desired as _, Draft, Failure, Finding, Owner, Retry, Slot, Step as _,
    TakenOver, WaitsOn,
};

use crate::address::cascade::{Cascade, Leaving, Nets, Subnets};
use crate::address::{AddressKey, AddressMarks, is_fixed_alike};
use crate::desired::{DesiredState, RouteTemplate};
use crate::fdb::{FdbKey, FdbTable};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::cascade::IPV6_MIN_MTU;
use crate::link::kinds::LinkKind;
use crate::link::matching::Matched;
use crate::link::plan::LinkPlan;
use crate::moment::Moment;
use crate::nexthop;
use crate::object::Object;
use crate::route::Route;
use crate::route::gateways::no_gateway;
use crate::snapshot::{Copied, FormerLinks};
use crate::source::Rtnl;
use crate::step::{Delete, GiveBack, Phase, Step, Update};

/// The steps for all changes, and the keys that wait for something.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    former_links: &FormerLinks,
    changes: ChangeList<Key, Object>,
) -> Draft<Rtnl> {
    let mut planner = Planner::new(desired, moment, former_links, &changes);
    planner.put_on_renewed(&changes);
    for change in changes {
        match change {
            // `link::plan` has planned the changes of links.
            Change::Create { slot } | Change::Update { slot, .. } if desired.is_link(slot) => {}
            Change::Delete { ref key, .. }
            | Change::Release { ref key, .. }
            | Change::GiveBack { ref key, .. }
                if key.is_link() => {}
            Change::Create { slot } => planner.create(slot),
            Change::Update { slot, before, adopts } => planner.update(slot, before, adopts),
            // Nothing here is a value that always exists, so nothing is ever released.
            Change::Delete { key, before } | Change::Release { key, before, .. } => {
                planner.delete(key, before);
            }
            Change::GiveBack { key, before, taken } => planner.give_back(key, before, *taken),
        }
    }
    planner.finish()
}

/// Lets every step wait while a link is absent that the desired state names and does not create. A plan about a few keys
/// waits for the links of the others, too.
pub(crate) fn wait_for_all_links(draft: &mut Draft<Rtnl>, desired: &DesiredState, moment: &Moment) {
    let is_absent = |link: &LinkName| {
        let gets_name = matches!(moment.matched.get(link), Some(Matched::One { .. }));
        let is_here = moment.links.index(*link).is_some() || gets_name;
        !is_here && !desired.makes(*link) && !desired.is_optional(*link)
    };
    let absent = desired.links_needed().find(is_absent).map(|link| WaitsOn::link(link.to_string()));
    // The parent of a link may be in another namespace: the draft knows.
    let drafted = || {
        draft.findings.iter().find_map(|(_, finding)| match finding {
            Finding::Pending { on: on @ WaitsOn::Link { .. } } => Some(on.clone()),
            _ => None,
        })
    };
    let Some(on) = absent.or_else(drafted) else { return };
    let keys: BTreeSet<Key> = draft.steps.drain(..).map(|step| step.key(desired)).collect();
    for key in keys {
        draft.wait(key, on.clone());
    }
}

struct Planner<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    /// The addresses that are deleted.
    going: BTreeSet<AddressKey>,
    /// The others; needed only if one is deleted or recreated.
    subnets: OnceCell<Subnets>,
    /// The links that steps so far leave without IPv4.
    emptied: BTreeSet<LinkName>,
    /// The IPv6 addresses that are created: a link can have an IPv6 address only once, whatever its prefix length.
    wanted: BTreeSet<(LinkName, IpAddr)>,
    /// What the routes of a template wait for, IPv4 ones or not, computed when the first of them is planned.
    waits: HashMap<(usize, bool), Option<WaitsOn>>,
    /// What is lost with links that are created again.
    lost: BTreeSet<Slot>,
    /// What the last delete found; the next one often finds the same and shares it.
    last: Arc<Object>,
    /// The addresses that a check keeps from being there.
    withheld: BTreeMap<AddressKey, WaitsOn>,
    links: LinkPlan,
    draft: Draft<Rtnl>,
}

impl<'a> Planner<'a> {
    fn new(
        desired: &'a DesiredState,
        moment: &'a Moment,
        former_links: &FormerLinks,
        changes: &ChangeList<Key, Object>,
    ) -> Self {
        let going = changes.others().iter().filter_map(|change| match change {
            Change::Delete { key: Key::Address(key), .. } => Some(*key),
            _ => None,
        });
        let wanted =
            changes.creates().iter().filter_map(|slot| match desired.other_at(*slot)?.key {
                Key::Address(key) if key.ip.is_ipv6() => Some((key.link, key.ip)),
                _ => None,
            });
        Planner {
            desired,
            moment,
            going: going.collect(),
            subnets: OnceCell::new(),
            emptied: BTreeSet::new(),
            wanted: wanted.collect(),
            waits: HashMap::new(),
            lost: BTreeSet::new(),
            last: Arc::new(Object::Route(Route::default())),
            withheld: withheld_addresses(changes.withheld()),
            links: crate::link::plan::draft(desired, moment, former_links, changes),
            draft: Draft::default(),
        }
    }

    /// What the object in a slot waits for. The routes of a template wait for the same.
    fn waits_for(&mut self, slot: Slot) -> Option<WaitsOn> {
        let Planner { desired, moment, links, waits, withheld, going, .. } = self;
        let has = |link| links.will_have(moment, link);
        if let Some(number) = desired.template_of(slot) {
            let template = desired.templates.get(number)?;
            let absent = Absent { withheld, going };
            let is_ipv4 = desired.is_ipv4_route(slot);
            let missing = || missing(desired, &has, moment, template, is_ipv4, absent);
            return waits.entry((number, is_ipv4)).or_insert_with(missing).clone();
        }
        let declared = desired.other_at(slot)?;
        match (&declared.key, &declared.object) {
            (Key::Address(key), _) => missing_link(&has, key.link).or_else(|| self.too_small(key)),
            (_, Object::Nexthop(nexthop)) => nexthop::waits_for(nexthop, desired, &has),
            (Key::Neighbour(key), _) => missing_link(&has, key.link),
            (Key::Fdb(key), _) => missing_link(&has, key.link).or_else(|| self.in_no_bridge(key)),
            // The kernel takes any name of a link in a rule, and binds it when such a link is created.
            _ => None,
        }
    }

    /// Quirk `a-low-mtu-takes-ipv6` (Linux 6.18): only the loopback link can have IPv6 addresses with any MTU.
    fn too_small(&self, key: &AddressKey) -> Option<WaitsOn> {
        let link = key.link;
        let seen = self.moment.table.get(link).and_then(|seen| seen.link.mtu);
        let mtu = self.desired.mtu(link).or(seen)?;
        let is_too_small = key.ip.is_ipv6() && mtu < IPV6_MIN_MTU && link.as_str() != "lo";
        is_too_small.then(|| {
            WaitsOn::Condition(format!(
                "an MTU of {IPV6_MIN_MTU} or more on link {link}, which has {mtu}"
            ))
        })
    }

    /// A port has entries only while it is one.
    fn in_no_bridge(&self, key: &FdbKey) -> Option<WaitsOn> {
        let link = key.link;
        let is_port = || {
            self.desired.master(link).is_some()
                || self.moment.table.get(link).is_some_and(|seen| seen.master.is_some())
        };
        let waits = matches!(key.table, FdbTable::Bridge { .. }) && !is_port();
        waits.then(|| WaitsOn::Condition(format!("a bridge that {link} is a port of")))
    }

    /// Any other link takes a request for an entry with a remote end, and leaves the remote end out.
    fn is_no_vxlan(&self, slot: Slot) -> bool {
        let Some(Key::Fdb(key)) = self.desired.other_at(slot).map(|other| &other.key) else {
            return false;
        };
        let declared = self.desired.link(key.link);
        let seen = || self.moment.table.get(key.link).map(|seen| &seen.link);
        let kind = declared.or_else(seen).map(|link| &link.kind);
        matches!(key.table, FdbTable::Vxlan { .. })
            && kind.is_some_and(|kind| !matches!(kind, LinkKind::Vxlan(_)))
    }

    fn is_pending(&mut self, slot: Slot) -> bool {
        let Some(on) = self.waits_for(slot) else { return false };
        self.draft.wait(self.desired.key(slot), on);
        true
    }

    fn phase(&self, slot: Slot) -> Phase {
        self.desired.other_at(slot).map_or(Phase::PutRoutes, |other| Phase::put(&other.object))
    }

    /// Whether the ledger is needed to know the object in a slot as ours: routes always carry their mark.
    fn is_recorded(&self, slot: Slot) -> bool {
        let key = self.desired.other_at(slot).map(|other| &other.key);
        match key {
            Some(Key::Address(_)) => self.moment.address_marks == AddressMarks::Ledger,
            Some(Key::Fdb(_)) => true,
            _ => false,
        }
    }

    /// Creates in the same pass what is lost with links that are created again.
    fn put_on_renewed(&mut self, changes: &ChangeList<Key, Object>) {
        let moving = self.entries_of_moving_ports();
        if self.links.renewed.is_empty() && moving.is_empty() {
            return;
        }
        let others = changes.others().iter().filter_map(|change| match change {
            Change::Create { slot } | Change::Update { slot, .. } => Some(*slot),
            Change::Delete { .. } | Change::Release { .. } | Change::GiveBack { .. } => None,
        });
        let planned: BTreeSet<Slot> = changes.creates().iter().copied().chain(others).collect();
        let (desired, mut lost) = (self.desired, moving);
        desired
            .on_links(self.links.renewed.clone(), &mut |key| lost.extend(desired.slot(&key, None)));
        lost.difference(&planned).for_each(|slot| self.create(*slot));
        self.lost = lost;
    }

    /// A bridge forgets the entries of a port that leaves it.
    fn entries_of_moving_ports(&self) -> BTreeSet<Slot> {
        let is_moving = |link: LinkName| {
            let master = self.desired.master(link);
            let seen = self.moment.table.get(link).and_then(|seen| seen.master);
            master.is_some_and(|master| seen.is_some() && seen != self.moment.links.index(master))
        };
        let ports = self.desired.relations.ports_with_fdb().filter(|link| is_moving(*link));
        let entries = ports.flat_map(|link| self.desired.fdb_on(link));
        let is_of_bridge = |key: &&Key| matches!(key, Key::Fdb(key) if matches!(key.table, FdbTable::Bridge { .. }));
        let lost = entries.filter(is_of_bridge);
        lost.filter_map(|key| self.desired.slot(key, None)).collect()
    }

    fn create(&mut self, slot: Slot) {
        if self.is_no_vxlan(slot) {
            let why = Failure::new("its link is no VXLAN, and `dst` is for one", Retry::OnChange);
            let why = why.with_help("name the VXLAN in `dev`, or leave `dst` out");
            return self.draft.refuse(self.desired.key(slot), why);
        }
        if !self.is_pending(slot) {
            let (phase, is_recorded) = (self.phase(slot), self.is_recorded(slot));
            self.draft.steps.push(Step::Create { slot, phase, is_recorded });
        }
    }

    fn update(&mut self, slot: Slot, before: Object, adopts: Option<Owner>) {
        if self.lost.contains(&slot) {
            return self.create(slot);
        }
        if self.is_pending(slot) {
            return;
        }
        if matches!(&before, Object::Address(address) if address.is_duplicate) {
            return self.draft.refuse(self.desired.key(slot), duplicate());
        }
        let declared = self.desired.other_at(slot);
        let recreate = match (declared.map(|one| (&one.key, &one.object)), &before) {
            (Some((Key::Address(key), Object::Address(desired))), Object::Address(before)) => {
                // An address that is adopted in place would keep its foreign mark.
                let keeps_mark =
                    adopts.is_some() && self.moment.address_marks == AddressMarks::Fixed;
                let is_fixed = !is_fixed_alike(desired, before) || keeps_mark;
                (key.ip.is_ipv4() && is_fixed).then(|| self.cascade(key))
            }
            (Some((Key::Nexthop(id), Object::Nexthop(desired))), Object::Nexthop(before)) => {
                let is_fixed = !nexthop::is_same_kind(desired, before);
                is_fixed.then(|| nexthop::of_delete(*id, self.moment))
            }
            _ => None,
        };
        // A rule cannot be changed in place: the former one is deleted once the other one exists.
        let rest = declared.filter(|one| matches!(one.key, Key::Rule(_))).map(|one| Delete {
            key: one.key.clone(),
            before: Arc::new(before.clone()),
            phase: Phase::DeleteRules,
            is_rest: true,
            cascade: None,
        });
        let (phase, is_recorded) = (self.phase(slot), self.is_recorded(slot));
        let update = Update { slot, before, adopts, is_recorded, phase, recreate };
        self.draft.steps.push(Step::Update(Box::new(update)));
        self.draft.steps.extend(rest.map(|rest| Step::Delete(Box::new(rest))));
    }

    fn delete(&mut self, key: Key, before: Object) {
        let mut phase = Phase::delete(&before);
        let cascade = match &key {
            Key::Address(key) => {
                if self.wanted.contains(&(key.link, key.ip)) {
                    phase = Phase::ClearWay;
                }
                Some(self.cascade(key))
            }
            Key::Nexthop(id) => Some(nexthop::of_delete(*id, self.moment)),
            _ => None,
        };
        if *self.last != before {
            self.last = Arc::new(before);
        }
        let (before, cascade) = (Arc::clone(&self.last), cascade.map(Box::new));
        let delete = Delete { key, before, phase, is_rest: false, cascade };
        self.draft.steps.push(Step::Delete(Box::new(delete)));
    }

    /// Gives back what still is what we wrote; anything else is deleted.
    fn give_back(&mut self, key: Key, before: Object, taken: TakenOver<Object>) {
        let TakenOver { wrote, original, snapshot } = taken;
        let copied = Copied::parse(&snapshot).filter(|_| wrote.agrees(&before));
        let Some(copied) = copied.filter(|copied| !copied.is_over()) else {
            return self.delete(key, before);
        };
        let recreate = match (&key, &original, &before) {
            (Key::Address(key), Object::Address(original), Object::Address(before)) => {
                let keeps_mark = self.moment.address_marks == AddressMarks::Fixed;
                let is_fixed = !is_fixed_alike(original, before) || keeps_mark;
                (key.ip.is_ipv4() && is_fixed).then(|| self.cascade(key))
            }
            (Key::Nexthop(id), Object::Nexthop(original), Object::Nexthop(before)) => {
                let is_fixed = !nexthop::is_same_kind(original, before);
                is_fixed.then(|| nexthop::of_delete(*id, self.moment))
            }
            // Quirk `a-neighbour-keeps-its-protocol` (Linux 6.18): `ip neigh replace` without a protocol leaves the
            // former one.
            (Key::Neighbour(_), ..) => Some(Cascade::default()),
            _ => None,
        };
        let phase = Phase::delete(&before);
        let step = GiveBack { key, before, original, copied, phase, recreate };
        self.draft.steps.push(Step::GiveBack(Box::new(step)));
    }

    fn cascade(&mut self, key: &AddressKey) -> Cascade {
        let all = || Subnets::new(&self.going, self.desired, self.moment);
        let mut cascade = Cascade::of(key, self.subnets.get_or_init(all), self.moment);
        cascade.link_already_listed = cascade.empties_link && !self.emptied.insert(key.link);
        cascade
    }

    /// Creates declared routes and neighbours again that the kernel deletes along with addresses and nexthops, after
    /// those are deleted. Those that the pass creates anyway are created then, too.
    fn make_again(&mut self) {
        let (mut leaving, mut certain) = (Leaving::default(), Vec::new());
        for step in &self.draft.steps {
            // A step that takes foreign objects along may be held, and then nothing is lost.
            if let Some((key, cascade)) = step.lost_with(self.desired)
                && cascade.takes.is_empty()
            {
                leaving.add(&key, cascade);
                certain.push(key);
            }
        }
        let mut lost = leaving.lost(self.desired);
        self.lost_with_nexthops(&mut lost);
        self.take_from_former_links(&certain, &mut lost);
        let moving = self.moving_templates();
        for step in &mut self.draft.steps {
            let is_create = matches!(step, Step::Create { .. });
            let (slot, phase) = match step {
                Step::Create { slot, phase, .. } => (*slot, phase),
                Step::Update(update) => (update.slot, &mut update.phase),
                Step::Delete(_) | Step::GiveBack(_) | Step::Link(_) => continue,
            };
            let template = self.desired.template_of(slot);
            if lost.remove(&slot) && is_create {
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
            let is_recorded = self.is_recorded(slot);
            self.draft.steps.push(Step::Create { slot, phase: Phase::PutAgain, is_recorded });
        }
    }

    /// The templates of routes whose gateway is in the network of an address that is deleted. A route without a link
    /// of its own is created on the link by which its gateway is reached at that moment: that is the former one
    /// until the address there is gone.
    fn moving_templates(&self) -> BTreeSet<usize> {
        if self.going.is_empty() {
            return BTreeSet::new();
        }
        let mut nets = Nets::default();
        self.going.iter().for_each(|address| nets.insert(address.net()));
        let is_moving = |template: &RouteTemplate| {
            template.route.links().next().is_none()
                && template.route.gateways().any(|gateway| nets.contain(gateway))
        };
        let templates = self.desired.templates.iter().enumerate();
        templates.filter(|(_, template)| is_moving(template)).map(|(number, _)| number).collect()
    }

    /// Deletes declared routes from a link that their gateway is not reached by any more, and adds them to the lost
    /// ones: they are created again on the link that has the network of their gateway then.
    ///
    /// Quirk `a-route-stays-where-its-gateway-was` (Linux 6.18): the link of a route without one is found out once.
    /// `ip route add 10.9.0.0/16 via 10.1.0.9`, then moving `10.1.0.1/24` from `va` to `vb`, leaves the route on `va`
    /// if `va` has another address.
    fn take_from_former_links(&mut self, certain: &[AddressKey], lost: &mut BTreeSet<Slot>) {
        let (desired, mut left) = (self.desired, BTreeMap::new());
        for address in certain.iter().filter(|address| self.going.contains(address)) {
            let link = address.link;
            let left: &Nets = left.entry(link).or_insert_with(|| self.nets_left_on(link));
            let templates: BTreeSet<u32> =
                desired.relations.with_gateway_in(address.net()).collect();
            let templates = templates.iter().filter_map(|at| desired.templates.get(*at as usize));
            for template in templates {
                let RouteTemplate { route, rests_on, .. } = template;
                let is_free = route.links().next().is_none() && route.hops.is_empty();
                let is_left = route.via.is_some_and(|via| left.contain(via));
                if !is_free || is_left || !rests_on.iter().any(|near| near.link != link) {
                    continue;
                }
                let before = Arc::new(Object::Route(Route { dev: Some(link), ..route.clone() }));
                for key in desired.routes_of(template) {
                    let Some(slot) = desired.route_slot(&key, None) else { continue };
                    if lost.insert(slot) {
                        let (key, before) = (Key::Route(key), Arc::clone(&before));
                        let phase = Phase::PutMoved;
                        let delete = Delete { key, before, phase, is_rest: true, cascade: None };
                        self.draft.steps.push(Step::Delete(Box::new(delete)));
                    }
                }
            }
        }
    }

    /// The networks of the addresses that a link has and keeps, or gets.
    fn nets_left_on(&self, link: LinkName) -> Nets {
        let mut nets = Nets::default();
        let seen = self.moment.addresses.on(link).map(|(key, _)| *key);
        let seen = seen.filter(|key| !self.going.contains(key));
        let declared = self.desired.addresses_on(link);
        let declared = declared.filter(|key| !self.going.contains(key));
        seen.chain(declared).for_each(|key| nets.insert(key.net()));
        nets
    }

    /// The declared routes that are lost with nexthops that are deleted and created again. Those that the pass
    /// updates after them are created by that update.
    fn lost_with_nexthops(&self, lost: &mut BTreeSet<Slot>) {
        let (mut going, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for step in &self.draft.steps {
            let Step::Update(update) = step else { continue };
            changed.insert(update.slot);
            let is_certain = |cascade: &Cascade| cascade.takes.is_empty();
            if let Key::Nexthop(id) = self.desired.key(update.slot)
                && update.recreate.as_ref().is_some_and(is_certain)
            {
                going.insert(id);
            }
        }
        let templates = self.desired.relations.carried(&BTreeSet::new(), &going);
        let routes = self.desired.routes_of_all(templates);
        let slots = routes.filter_map(|key| self.desired.route_slot(&key, None));
        lost.extend(slots.filter(|slot| !changed.contains(slot)));
    }

    /// Secondary addresses are deleted before their primary one, which would take them along.
    fn finish(mut self) -> Draft<Rtnl> {
        self.make_again();
        let moment = self.moment;
        let is_primary = |step: &Step| match step {
            Step::Delete(delete) if let Key::Address(key) = &delete.key => {
                delete.phase == Phase::DeleteAddresses && moment.is_primary(key)
            }
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

/// The kernel tries an address again only if it is added again.
fn duplicate() -> Failure {
    let words = "another host on the link has this address: duplicate address detection failed";
    let help = "take it from one of the two, then delete it here: it is added and tried again";
    Failure::new(words, Retry::OnChange).with_help(help)
}

/// Whether a link will exist when addresses and routes are written.
pub(crate) type Has<'a> = &'a dyn Fn(LinkName) -> bool;

fn withheld_addresses(withheld: &BTreeMap<Key, WaitsOn>) -> BTreeMap<AddressKey, WaitsOn> {
    let addresses = withheld.iter().filter_map(|(key, on)| match key {
        Key::Address(key) => Some((*key, on.clone())),
        _ => None,
    });
    addresses.collect()
}

/// Declared addresses that routes cannot count on.
#[derive(Clone, Copy)]
struct Absent<'a> {
    /// A check keeps them from being there.
    withheld: &'a BTreeMap<AddressKey, WaitsOn>,
    /// They are deleted.
    going: &'a BTreeSet<AddressKey>,
}

/// What a route waits for: an absent link of its own, the absent link of the only address that its gateway or its
/// source needs, or a nexthop that waits itself.
fn missing(
    desired: &DesiredState,
    has: Has<'_>,
    moment: &Moment,
    template: &RouteTemplate,
    is_ipv4: bool,
    absent_addresses: Absent<'_>,
) -> Option<WaitsOn> {
    let route = &template.route;
    let waits_with = |serves: &dyn Fn(&AddressKey) -> bool| {
        waits_with(has, moment, template, absent_addresses, serves)
    };
    let absent = || route.links().filter(|link| !has(*link));
    let link = absent().find(|link| !desired.is_optional(*link)).or_else(|| absent().next());
    let link = link.map(|link| WaitsOn::link(link.to_string()));
    let followed = route.rare.gateway_of.filter(|_| !moment.gateways.have(is_ipv4, route));
    link.or_else(|| followed.map(no_gateway))
        .or_else(|| {
            route.gateways().find_map(|via| waits_with(&|address| address.net().contains(via)))
        })
        .or_else(|| route.src.and_then(|src| waits_with(&|address| address.ip == src)))
        .or_else(|| nexthop::waiting(route.nexthop?, desired, has))
}

/// The absent link of declared addresses of which one is needed, or the check that keeps it away, unless another one exists.
fn waits_with(
    has: Has<'_>,
    moment: &Moment,
    template: &RouteTemplate,
    absent: Absent<'_>,
    serves: &dyn Fn(&AddressKey) -> bool,
) -> Option<WaitsOn> {
    let Absent { withheld, going } = absent;
    let serving = || template.rests_on.iter().filter(|address| serves(address));
    let missing = |address: &AddressKey| {
        missing_link(has, address.link).or_else(|| withheld.get(address).cloned())
    };
    let stays =
        |address: &&AddressKey| !(going.contains(*address) && withheld.contains_key(*address));
    let is_served = serving().any(|address| missing(address).is_none())
        || moment.addresses.keys().filter(stays).any(serves);
    let waits = serving().find_map(missing);
    waits.filter(|_| !is_served)
}

pub(crate) fn missing_link(has: Has<'_>, link: LinkName) -> Option<WaitsOn> {
    (!has(link)).then(|| WaitsOn::link(link.to_string()))
}

/// Rules are deleted in this order: a request for a rule with fewer selectors could hit one with more.
fn generality(step: &Step) -> usize {
    match step {
        Step::Delete(delete) if let Key::Rule(key) = &delete.key => usize::MAX - key.count(),
        _ => 0,
    }
}
