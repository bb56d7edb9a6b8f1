//! Turns changes of links into steps, in the order in which links can exist. Pure.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{
    Change, ChangeList, Desired as _, Failure, Finding, Owner, Retry, TakenOver, WaitsOn,
};

use crate::address::is_link_local;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::cascade::{
    Cascades, Consequences, Effects, NewMac, first_mtu, going_with, takes_foreign,
};
use crate::link::kinds::LinkKind;
use crate::link::kinds::behaviour::Occupies;
use crate::link::matching::Matched;
use crate::link::model::{Field, Link, LinkRef, Setting, changes_in_place, link_agrees};
use crate::link::observe::SeenLink;
use crate::link::parking::{self, Aside, Parked, Parking, ToPark, is_parkable, occupies};
use crate::link::sysctls::SysctlSet;
use crate::link::{IfIndex, LinkName};
use crate::moment::Moment;
use crate::object::Object;
use crate::snapshot::{FormerLinks, FormerMark};
use crate::step::{Act, Cycle, LinkStep};

/// What becomes of links in this pass.
#[derive(Default)]
pub(crate) struct LinkPlan {
    pub(crate) steps: Vec<LinkStep>,
    pub(crate) findings: Vec<(Key, Finding)>,
    /// Links that are made, so that others may rest on them.
    made: BTreeSet<LinkName>,
    /// Links that go and are made again: what was on them is lost.
    pub(crate) renewed: BTreeSet<LinkName>,
}

impl LinkPlan {
    /// Whether a link will be there when addresses and routes have their turn.
    pub(crate) fn will_have(&self, moment: &Moment, link: LinkName) -> bool {
        self.made.contains(&link)
            || moment.links.index(link).is_some() && !self.renewed.contains(&link)
    }
}

/// The steps for all changes of links; other changes are passed over.
pub(crate) fn draft(
    desired: &DesiredState,
    moment: &Moment,
    former: &FormerLinks,
    changes: &ChangeList<Key, Object>,
) -> LinkPlan {
    let (links, fields) = (BTreeMap::new(), BTreeMap::new());
    let leaving = leaving(desired, moment, changes);
    let cascades = Cascades { desired, moment, leaving, is_beyond: false };
    let (plan, returns) = (LinkPlan::default(), Returns::new(desired, moment));
    let departing = changes.others().iter().filter_map(|change| match change {
        Change::Delete { key: Key::Link(name), .. } => Some(*name),
        _ => None,
    });
    let departing = departing.collect();
    let mut planner =
        LinkPlanner { desired, moment, cascades, returns, departing, links, fields, plan };
    for slot in changes.creates().iter().filter(|slot| desired.is_link(**slot)) {
        planner.take(&Change::Create { slot: *slot });
    }
    for change in changes.others() {
        planner.take(change);
    }
    planner.replace_newer(former);
    planner.renew();
    planner.write_bridge_fields_again();
    planner.put_links();
    planner.put_fields();
    planner.finish()
}

/// What changing a link of ours does.
pub(crate) fn effects_of_change(declared: &Link, before: &Link, cycle: Cycle) -> Effects {
    let joins = declared.master.filter(|master| before.master != Some(*master));
    let mtu = declared.mtu.or(before.mtu);
    let falls = declared.up == Some(false) || cycle == Cycle::DownFirst;
    let mac = declared.mac.filter(|mac| before.mac != Some(*mac));
    Effects {
        goes: false,
        falls: falls && before.up == Some(true),
        rises: declared.up == Some(true) && before.up != Some(true),
        loses_carrier: false,
        mac: mac.map_or(NewMac::Same, NewMac::Changed),
        mtu: mtu.filter(|_| mtu != before.mtu || joins.is_some()),
        joins,
        leaves: joins.is_some(),
    }
}

/// A fresh link has nothing to lose, but its bridge may have.
pub(crate) fn effects_of_new(declared: &Link, moment: &Moment) -> Effects {
    let mtu = declared.master.map(|_| first_mtu(declared, &moment.table));
    let mac = declared.mac.map_or(NewMac::Any, NewMac::Changed);
    Effects { mac, mtu, joins: declared.master, ..Effects::default() }
}

/// It goes, and a fresh one takes its place.
fn effects_of_again(declared: &Link, moment: &Moment) -> Effects {
    Effects { goes: true, ..effects_of_new(declared, moment) }
}

const GONE: Effects = Effects {
    goes: true,
    falls: false,
    rises: false,
    loses_carrier: false,
    mac: NewMac::Same,
    mtu: None,
    joins: None,
    leaves: false,
};

/// The links that go, go down or get another master.
fn leaving(
    desired: &DesiredState,
    moment: &Moment,
    changes: &ChangeList<Key, Object>,
) -> BTreeSet<LinkName> {
    let mut leaving = BTreeSet::new();
    for change in changes.others() {
        match change {
            Change::Delete { key: Key::Link(name), .. } => {
                leaving.extend(going_with(&moment.table, *name));
            }
            Change::Update { slot, before, .. } => {
                let key = desired.other_at(*slot).map(|one| &one.key);
                match (key, before) {
                    (Some(Key::Link(name)), Object::Link(before)) => {
                        let leaves = desired.link(*name).is_some_and(|declared| {
                            declared.up == Some(false)
                                || declared.master.is_some() && declared.master != before.master
                                || !changes_in_place(declared, before)
                        });
                        leaving.extend(leaves.then_some(*name));
                    }
                    (Some(Key::LinkField(name, Field::Up | Field::Master)), _) => {
                        leaving.insert(*name);
                    }
                    _ => {}
                }
            }
            Change::Release { key: Key::LinkField(name, Field::Up | Field::Master), .. } => {
                leaving.insert(*name);
            }
            _ => {}
        }
    }
    leaving
}

/// The parked links that take their places again.
#[derive(Default)]
struct Returns {
    /// By their numbers, with the names that they get.
    names: BTreeMap<IfIndex, LinkName>,
}

impl Returns {
    /// One that was parked returns if it can become what is declared under its name, whatever has that name meanwhile: while
    /// the desired state is that for which it was parked, it cannot.
    fn new(desired: &DesiredState, moment: &Moment) -> Self {
        let mut returns = Returns::default();
        let parked = moment.table.parked().filter(|(seen, _)| seen.owner == Owner::Ours);
        let (ends, links): (Vec<_>, Vec<_>) = parked.partition(|(_, parked)| parked.is_end);
        let declared = links
            .into_iter()
            .filter_map(|(seen, parked)| Some((parked.name, desired.link(parked.name)?, seen)));
        let mut declared: Vec<_> = declared.collect();
        // The link below it comes first, and of several the oldest.
        declared.sort_by_key(|(name, _, seen)| (desired.link_depth(*name), seen.index));
        for (name, declared, seen) in declared {
            let mut former = seen.link.clone();
            let end = seen.peer().and_then(|end| ends.iter().find(|(seen, _)| seen.index == end));
            match (former.kind.peer_mut(), end) {
                (Some(peer), Some((_, parked))) => peer.name = parked.name,
                (Some(_), None) => {}
                (None, _) => {
                    let below = seen.parent().and_then(|parent| returns.names.get(&parent));
                    if let (Some(name), Some(parent)) = (below, &mut former.parent) {
                        parent.name = *name;
                    }
                }
            }
            if returns.of(name).is_none() && changes_in_place(declared, &former) {
                returns.names.insert(seen.index, name);
                returns.names.extend(end.map(|(seen, parked)| (seen.index, parked.name)));
            }
        }
        returns
    }

    fn of(&self, name: LinkName) -> Option<IfIndex> {
        self.names.iter().find(|(_, returning)| **returning == name).map(|(index, _)| *index)
    }
}

/// What a link needs.
enum Need {
    Make,
    Change { before: Box<Link>, adopts: Option<Owner> },
    MakeAgain { before: Box<Link> },
}

struct LinkPlanner<'a> {
    desired: &'a DesiredState,
    moment: &'a Moment,
    cascades: Cascades<'a>,
    returns: Returns,
    /// The links that are not declared any more.
    departing: BTreeSet<LinkName>,
    links: BTreeMap<LinkName, Need>,
    /// Fields that are written, with what is there.
    fields: BTreeMap<(LinkName, Field), Option<Setting>>,
    plan: LinkPlan,
}

impl LinkPlanner<'_> {
    fn take(&mut self, change: &Change<Key, Object>) {
        match change {
            Change::Create { slot } => match self.desired.other_at(*slot).map(|one| &one.key) {
                Some(Key::Link(name)) => _ = self.links.insert(*name, Need::Make),
                Some(Key::LinkField(name, field)) => _ = self.fields.insert((*name, *field), None),
                _ => {}
            },
            Change::Update { slot, before, adopts } => {
                match (self.desired.other_at(*slot).map(|one| &one.key), before) {
                    (Some(Key::Link(name)), Object::Link(before)) => {
                        self.change(*name, before, adopts.clone());
                    }
                    (Some(Key::LinkField(name, field)), Object::Setting(before)) => {
                        self.fields.insert((*name, *field), Some(before.setting.clone()));
                    }
                    _ => {}
                }
            }
            Change::Delete { key: Key::Link(name), before } => self.delete(*name, before),
            Change::GiveBack { key: Key::Link(name), before: Object::Link(before), taken } => {
                self.give_back(*name, before, taken);
            }
            Change::Delete { key, before } | Change::GiveBack { key, before, .. } => {
                self.release(key, before, None);
            }
            Change::Release { key, before, restore, .. } => {
                self.release(key, before, restore.as_ref());
            }
        }
    }

    fn change(&mut self, name: LinkName, before: &Link, adopts: Option<Owner>) {
        let Some(declared) = self.desired.link(name) else { return };
        let before = Box::new(before.clone());
        let need = match (changes_in_place(declared, &before), adopts) {
            (true, Some(owner)) if declared.kind.wireguard().is_some() => {
                let words = format!("it belongs to {owner}, and its keys could not be given back");
                let failure = Failure::new(words, Retry::OnChange).with_help("remove it first");
                self.plan.findings.push((Key::Link(name), Finding::refused(failure)));
                return;
            }
            (true, adopts) => Need::Change { before, adopts },
            (false, None) => Need::MakeAgain { before },
            (false, Some(owner)) => {
                let words = format!(
                    "it belongs to {owner} and would have to be made again to be as declared"
                );
                let failure = Failure::new(words, Retry::OnChange).with_help("remove it first");
                self.plan.findings.push((Key::Link(name), Finding::refused(failure)));
                return;
            }
        };
        self.links.insert(name, need);
    }

    fn delete(&mut self, name: LinkName, before: &Object) {
        let seen = self.moment.table.get(name);
        if seen.is_some_and(|seen| self.returns.names.contains_key(&seen.index)) {
            return;
        }
        let aside = match seen {
            Some(seen) if Parked::of(seen).is_some() => Aside::Already,
            Some(seen) => self.aside(seen, &BTreeSet::from([name])),
            None => Aside::Not,
        };
        let consequences = self.cascades.of(name, &GONE);
        self.push(Key::Link(name), Some(before.clone()), Act::Delete, None, consequences);
        if let Some(step) = self.plan.steps.last_mut() {
            step.aside = aside;
        }
    }

    /// How some links of ours can be put aside, of which one is the first to go.
    fn aside(&self, first: &SeenLink, going: &BTreeSet<LinkName>) -> Aside {
        let table = &self.moment.table;
        if !parking::is_parkable(first) {
            return Aside::Not;
        }
        let ours = || going.iter().filter_map(|name| table.get(*name)).filter(|it| is_parkable(it));
        // Whether each is only the other end of one.
        let mut links: BTreeMap<LinkName, bool> = BTreeMap::new();
        for seen in ours() {
            links.insert(seen.name, false);
            let end = table.peer(seen).filter(|end| matches!(end.owner, Owner::Unmarked));
            if let Some(end) = end {
                links.entry(end.name).or_insert(true);
            }
        }
        if ours().any(|seen| self.is_in_the_way(seen)) {
            let of = |name: LinkName| {
                let master = table.get(name).and_then(|seen| table.master(seen));
                let of = [
                    Key::Link(name),
                    Key::LinkField(name, Field::Master),
                    Key::LinkSysctls(name, SysctlSet::All),
                    Key::AddressOrder(name),
                ];
                of.into_iter().chain(master.map(|master| Key::Ports(master.name)))
            };
            return Aside::Recorded(links.into_keys().flat_map(of).collect());
        }
        let stays = |other: &&SeenLink| {
            !links.contains_key(&other.name) && !self.departing.contains(&other.name)
        };
        let all = links.keys().filter_map(|name| table.get(*name));
        let ports = all.flat_map(|seen| table.ports(seen)).filter(stays).map(|port| port.name);
        let releases = ports.collect();
        let to_park = links.iter().filter_map(|(name, is_end)| {
            let leaves = table.master(table.get(*name)?).filter(stays).map(|master| master.name);
            Some(ToPark { name: *name, is_end: *is_end, leaves })
        });
        let addresses = links.keys().flat_map(|name| self.moment.addresses.on(*name));
        let link_local = addresses.map(|(key, _)| *key).filter(|key| is_link_local(key.ip));
        let link_local = link_local.collect();
        Aside::Parked(Parking { links: to_park.collect(), releases, link_local })
    }

    /// Whether a declared link cannot be made while this one is there.
    fn is_in_the_way(&self, old: &SeenLink) -> bool {
        let occupied = old.link.kind.behaviour().occupies;
        if occupied == Occupies::Nothing && old.end_elsewhere().is_none() {
            return false;
        }
        let is_there = |name: LinkName, declared: &Link| {
            let seen = self.moment.table.get(name).filter(|seen| seen.owner == Owner::Ours);
            seen.is_some_and(|seen| changes_in_place(declared, &seen.link))
        };
        let has_end = |declared: &Link| {
            let Some((_, end)) = old.end_elsewhere() else { return false };
            let peer = declared.kind.peer().filter(|peer| peer.namespace.is_some());
            peer.is_some_and(|peer| self.moment.namespaces.index(peer) == Some(end))
        };
        let mut missing =
            self.desired.links().filter(|(name, declared)| !is_there(*name, declared));
        let parent = old.link.parent.as_ref().filter(|parent| parent.namespace.is_none());
        let is_port = |parent: LinkName| {
            let field = self.desired.field(parent, Field::Master).and_then(Setting::link_name);
            self.desired.link(parent).and_then(|link| link.master).or(field).is_some()
        };
        missing.any(|(_, declared)| occupies(&old.link, declared) || has_end(declared))
            || occupied == Occupies::ParentPackets
                && parent.is_some_and(|parent| is_port(parent.name))
    }

    /// A link that another owner made is never deleted. If it is not what we wrote any more, only our mark goes.
    fn give_back(&mut self, name: LinkName, before: &Link, from: &TakenOver<Object>) {
        let (Object::Link(wrote), Object::Link(original)) = (&from.wrote, &from.original) else {
            return;
        };
        let Some(mark) = FormerMark::parse(&from.snapshot) else { return };
        let is_ours_still = link_agrees(wrote, before);
        let link = if is_ours_still {
            original.declared_as_in(wrote)
        } else {
            Link::new(before.kind.without(&before.kind))
        };
        let leaves = is_ours_still && wrote.master.is_some() && original.master.is_none();
        let mut effects = effects_of_change(&link, before, Cycle::Stay);
        effects.leaves |= leaves;
        let consequences = self.cascades.of(name, &effects);
        let before = Some(Object::Link(Box::new(before.clone())));
        let act = Act::GiveBack { link: Box::new(link), leaves, mark };
        self.push(Key::Link(name), before, act, None, consequences);
    }

    fn push(
        &mut self,
        key: Key,
        before: Option<Object>,
        act: Act,
        adopts: Option<Owner>,
        consequences: Consequences,
    ) {
        let slot = self.desired.slot(&key, None);
        let (aside, records) = (Aside::Not, Vec::new());
        let master = match key {
            Key::Link(name) => self.desired.link(name).and_then(|link| link.master),
            Key::LinkField(name, Field::Master) => {
                self.desired.field(name, Field::Master).and_then(Setting::link_name)
            }
            _ => None,
        };
        let joins = master.filter(|master| self.moment.table.get(*master).is_some());
        let Consequences { takes, touches, alters, forgets } = consequences;
        self.plan.steps.push(LinkStep {
            key,
            slot,
            before,
            act,
            adopts,
            takes,
            touches,
            alters,
            joins,
            aside,
            forgets,
            records,
            harmless: None,
        });
    }

    fn put_links(&mut self) {
        let links = std::mem::take(&mut self.links);
        // What keeps another one from being made goes first.
        let going = links.iter().filter(|(_, need)| matches!(need, Need::MakeAgain { .. }));
        let going: Vec<&SeenLink> =
            going.filter_map(|(name, _)| self.moment.table.get(*name)).collect();
        let waits = |name: LinkName| {
            let declared = self.desired.link(name);
            let is_in_the_way = |old: &&SeenLink, declared: &Link| {
                old.name != name && occupies(&old.link, declared)
            };
            declared.is_some_and(|declared| going.iter().any(|old| is_in_the_way(old, declared)))
        };
        let mut links: Vec<(LinkName, Need)> = links.into_iter().collect();
        links.sort_by_cached_key(|(name, _)| (self.desired.link_depth(*name), waits(*name), *name));
        for (name, need) in links {
            let Some(declared) = self.desired.link(name) else { continue };
            if let Some(on) = self.blocker(declared) {
                self.plan.findings.push((Key::Link(name), Finding::Pending { on }));
            } else if let Some(failure) = self.taken_name(name, declared, &need) {
                self.plan.findings.push((Key::Link(name), Finding::refused(failure)));
            } else {
                self.put_link(name, declared, need);
            }
        }
    }

    fn put_link(&mut self, name: LinkName, declared: &Link, need: Need) {
        let is_new = !matches!(need, Need::Change { .. });
        if is_new {
            self.plan.made.insert(name);
            self.plan.made.extend(declared.peer_here());
        }
        let returns = self.returns.of(name).map(parking::name_of);
        let (before, adopts, act) = match need {
            Need::Make if let Some(parked) = returns => {
                (None, None, Act::Return { parked, over: false })
            }
            Need::MakeAgain { before } if let Some(parked) = returns => {
                (Some(before), None, Act::Return { parked, over: true })
            }
            Need::Make => (None, None, Act::Create),
            Need::Change { before, adopts } => {
                let cycle = self.cycle(declared, &before);
                (Some(before), adopts, Act::Update(cycle))
            }
            Need::MakeAgain { before } => (Some(before), None, Act::Replace),
        };
        let effects = match (&act, &before) {
            (Act::Replace | Act::Return { over: true, .. }, _) => {
                effects_of_again(declared, self.moment)
            }
            (Act::Update(cycle), Some(before)) => effects_of_change(declared, before, *cycle),
            _ => effects_of_new(declared, self.moment),
        };
        let consequences = self.cascades.of(name, &effects);
        let part = before.as_deref().filter(|_| adopts.is_none());
        let part = part.filter(|_| takes_foreign(&consequences.takes));
        let part = part.and_then(|before| self.harmless_part(name, declared, before));
        let replaced = self.moment.table.get(name).filter(|_| act == Act::Replace);
        let aside = replaced.map(|seen| self.aside(seen, &going_with(&self.moment.table, name)));
        self.push(Key::Link(name), before.map(Object::Link), act, adopts, consequences);
        let Some(step) = self.plan.steps.last_mut() else { return };
        step.aside = aside.unwrap_or(Aside::Not);
        step.harmless = part.map(|(part, cycle, consequences)| {
            let Consequences { takes, touches, alters, forgets } = consequences;
            let act = Act::UpdatePart(part, cycle);
            let aside = Aside::Not;
            Box::new(LinkStep { act, takes, touches, alters, aside, forgets, ..step.clone() })
        });
    }

    /// What of a change others lose nothing by: it is written while the rest is held back.
    fn harmless_part(
        &self,
        name: LinkName,
        declared: &Link,
        before: &Link,
    ) -> Option<(Box<Link>, Cycle, Consequences)> {
        let parts: [fn(&mut Link, &Link); 7] = [
            |part, declared| part.alias.clone_from(&declared.alias),
            |part, declared| part.up = declared.up,
            |part, declared| part.mtu = declared.mtu,
            |part, declared| part.txqueuelen = declared.txqueuelen,
            |part, declared| part.mac = declared.mac,
            |part, declared| part.master = declared.master,
            |part, declared| {
                part.kind = declared.kind.clone();
                part.parent.clone_from(&declared.parent);
            },
        ];
        let mut part = Link::new(before.kind.without(&before.kind));
        let (mut cycle, mut consequences) = (Cycle::Stay, Consequences::default());
        for add in parts {
            let mut more = part.clone();
            add(&mut more, declared);
            let its_cycle = self.cycle(&more, before);
            let its = self.cascades.of(name, &effects_of_change(&more, before, its_cycle));
            if changes_in_place(&more, before) && !takes_foreign(&its.takes) {
                (part, cycle, consequences) = (more, its_cycle, its);
            }
        }
        (!link_agrees(&part, before)).then(|| (Box::new(part), cycle, consequences))
    }

    /// Quirk `bonds-want-it-down` (Linux 6.1): a link that is up cannot be put into a bond, and a bond
    /// that is up keeps its LACP rate. A VRF sets links down and up by itself.
    fn cycle(&self, declared: &Link, before: &Link) -> Cycle {
        let left = declared.kind.left_of(&before.kind);
        let options = left.is_some_and(|left| left.needs_down());
        let joins = declared
            .master
            .filter(|master| before.master != Some(*master) || self.plan.renewed.contains(master));
        let is_up = before.up == Some(true);
        let must_fall =
            is_up && (options || joins.is_some_and(|master| self.wants_it_down(master)));
        if must_fall { Cycle::DownFirst } else { Cycle::Stay }
    }

    fn wants_it_down(&self, master: LinkName) -> bool {
        let declared = self.desired.link(master).map(|link| &link.kind);
        let seen = self.moment.table.get(master).map(|seen| &seen.link.kind);
        let mut kinds = declared.into_iter().chain(seen);
        kinds.any(|kind| kind.behaviour().ports.go_down_first())
    }

    fn release(&mut self, key: &Key, before: &Object, restore: Option<&Object>) {
        let (Key::LinkField(name, field), Object::Setting(before)) = (key, before) else { return };
        let restore = match restore {
            Some(Object::Setting(restore)) if restore != before => Some(restore.setting.clone()),
            _ => None,
        };
        let effects = restore.as_ref().map(|value| self.effects_of(*name, *field, value));
        let consequences = self.cascades.of(*name, &effects.unwrap_or_default());
        let before = Some(Object::Setting(before.clone()));
        self.push(key.clone(), before, Act::Release { restore }, None, consequences);
    }

    fn put_fields(&mut self) {
        for ((name, field), before) in std::mem::take(&mut self.fields) {
            let key = Key::LinkField(name, field);
            let Some(setting) = self.desired.field(name, field) else { continue };
            if field == Field::Name && before.is_some() {
                self.take_name(name, before);
                continue;
            }
            let master = setting.link_name().filter(|_| field == Field::Master);
            let mut needed = std::iter::once(name).chain(master);
            let absent = needed.find(|link| !self.plan.will_have(self.moment, *link));
            if let Some(link) = absent {
                let on = WaitsOn::link(link.to_string());
                self.plan.findings.push((key, Finding::Pending { on }));
                continue;
            }
            if field.is_of_bridge() && !self.will_have_in_bridge(name, field) {
                let on = WaitsOn::Condition(format!("`{name}` to be in a bridge"));
                self.plan.findings.push((key, Finding::Pending { on }));
                continue;
            }
            let is_up = self.moment.table.get(name).is_some_and(SeenLink::is_up);
            let must_fall = master.is_some_and(|master| self.wants_it_down(master)) && is_up;
            let cycle = if must_fall { Cycle::DownFirst } else { Cycle::Stay };
            let mut effects = self.effects_of(name, field, setting);
            effects.falls |= must_fall;
            let consequences = self.cascades.of(name, &effects);
            let before = before.filter(|_| !self.plan.renewed.contains(&name));
            let before = before.map(|setting| Object::Setting(setting.into()));
            self.push(key, before, Act::Set(cycle), None, consequences);
        }
    }

    /// Gives the link that matches its name, unless another has it and keeps it.
    fn take_name(&mut self, name: LinkName, before: Option<Setting>) {
        let (key, moment) = (Key::LinkField(name, Field::Name), self.moment);
        let moves = |index: &IfIndex| {
            let is_it = |matched: &Matched| matches!(matched, Matched::One { index: it, .. } if it == index);
            moment.matched.values().any(is_it)
        };
        if moment.others_named.get(&name).is_some_and(|other| !moves(other)) {
            let words = format!("another link has the name `{name}`, and does not match");
            let help = format!("rename that one: ip link set {name} name NAME");
            let failure = Failure::new(words, Retry::OnChange).with_help(help);
            self.plan.findings.push((key, Finding::refused(failure)));
            return;
        }
        let before = before.map(|setting| Object::Setting(setting.into()));
        self.push(key, before, Act::Set(Cycle::Stay), None, Consequences::default());
    }

    /// What writing a field does.
    fn effects_of(&self, name: LinkName, field: Field, value: &Setting) -> Effects {
        let seen = self.moment.table.get(name);
        let mut effects = Effects::default();
        match (field, value) {
            (Field::Up, Setting::Flag(up)) => {
                let is_up = seen.is_some_and(SeenLink::is_up);
                (effects.falls, effects.rises) = (is_up && !*up, *up && !is_up);
            }
            (Field::Mtu, Setting::Number(mtu)) => {
                effects.mtu = Some(*mtu);
                let master = self.desired.field(name, Field::Master);
                effects.joins = master.and_then(Setting::link_name);
            }
            (Field::Mac, Setting::Text(mac)) => {
                effects.mac = mac.parse().map_or(NewMac::Any, NewMac::Changed);
            }
            (Field::Master, _) => {
                (effects.joins, effects.leaves) = (value.link_name(), true);
                let mtu = self.desired.mtu(name).or(seen.and_then(|seen| seen.link.mtu));
                effects.mtu = mtu.filter(|_| effects.joins.is_some());
                // The other end of a pair that is made in this plan has another address than the one that was seen.
                if self.plan.made.contains(&name) && self.desired.mac(name).is_none() {
                    effects.mac = NewMac::Any;
                }
            }
            _ => {}
        }
        effects
    }

    /// Links of ours that are not those that return go, even if they are as declared.
    fn replace_newer(&mut self, former: &FormerLinks) {
        let again =
            former.iter().filter(|(_, former)| !self.moment.links.knows(IfIndex(former.index)));
        let names = self.returns.names.values().chain(again.map(|(name, _)| name));
        for name in names {
            let there = self.moment.table.get(*name).filter(|there| there.owner == Owner::Ours);
            let Some(there) = there.filter(|_| self.desired.link(*name).is_some()) else {
                continue;
            };
            let before = Box::new(there.link.clone());
            self.links.insert(*name, Need::MakeAgain { before });
        }
    }

    /// What goes with links that are made again is made again too. Where another owner would lose
    /// something, a guard may hold the step: then nothing is made ready for what may not happen.
    fn renew(&mut self) {
        let again = self.links.iter().filter(|(_, need)| matches!(need, Need::MakeAgain { .. }));
        let certain = again.map(|(name, _)| *name);
        let certain = certain.filter(|name| {
            let declared = self.desired.link(*name);
            let effects = declared.map_or(GONE, |declared| effects_of_again(declared, self.moment));
            !takes_foreign(&self.cascades.of(*name, &effects).takes)
        });
        let certain: Vec<LinkName> = certain.collect();
        for name in certain {
            let going = going_with(&self.moment.table, name);
            for other in going.iter().filter(|other| **other != name) {
                if self.desired.link(*other).is_some() {
                    self.links.insert(*other, Need::Make);
                }
            }
            self.plan.renewed.extend(going);
        }
        self.enslave_again();
    }

    /// Links that stay lose a master that is made again, and so do fields.
    fn enslave_again(&mut self) {
        let renewed = &self.plan.renewed;
        if renewed.is_empty() {
            return;
        }
        let is_lost = |master: Option<LinkName>| master.is_some_and(|name| renewed.contains(&name));
        for (name, _) in self.desired.links().filter(|(_, link)| is_lost(link.master)) {
            let seen = self.moment.table.get(name).filter(|seen| seen.owner == Owner::Ours);
            if let Some(seen) = seen.filter(|_| !renewed.contains(&name)) {
                let before = Box::new(seen.link.clone());
                self.links.entry(name).or_insert(Need::Change { before, adopts: None });
            }
        }
        for (name, field, setting) in self.desired.fields() {
            let is_master = field == Field::Master && is_lost(setting.link_name());
            if renewed.contains(&name) || is_master {
                let before = self.moment.setting(name, field);
                self.fields.entry((name, field)).or_insert(before);
            }
        }
    }

    /// A link that joins a bridge has nothing there of what is declared, whatever it had in another one.
    fn write_bridge_fields_again(&mut self) {
        let desired = self.desired;
        let is_lost = |master: &LinkName| self.plan.renewed.contains(master);
        let links = self.links.iter().filter(|(name, need)| match need {
            Need::Make | Need::MakeAgain { .. } => true,
            Need::Change { before, .. } => {
                let master = desired.link(**name).and_then(|link| link.master);
                master.is_some_and(|master| before.master != Some(master) || is_lost(&master))
            }
        });
        let joining = links.map(|(name, _)| *name);
        let masters = self.fields.keys().filter(|(_, field)| *field == Field::Master);
        let joining: BTreeSet<LinkName> = joining.chain(masters.map(|(name, _)| *name)).collect();
        for key in joining.into_iter().flat_map(|name| desired.fields_of(name)) {
            if let Key::LinkField(name, field) = key
                && field.is_of_bridge()
            {
                let before = self.moment.setting(name, field);
                self.fields.entry((name, field)).or_insert(before);
            }
        }
    }

    /// Whether a link is a port of a bridge, or a bridge where that has the field, too, once the steps of this plan are
    /// done.
    fn will_have_in_bridge(&self, name: LinkName, field: Field) -> bool {
        let is_bridge = |name: LinkName| {
            let seen = || self.moment.table.get(name).map(|seen| &seen.link.kind);
            let kind = self.desired.link(name).map(|link| &link.kind).or_else(seen);
            kind.is_some_and(LinkKind::is_bridge)
        };
        let seen = || self.moment.table.get(name).and_then(|seen| seen.link.master);
        let declared = self.desired.master(name).or_else(seen);
        field == Field::Vlans && is_bridge(name) || declared.is_some_and(is_bridge)
    }

    /// What a link waits for.
    fn blocker(&self, declared: &Link) -> Option<WaitsOn> {
        let is_there = |name| self.plan.will_have(self.moment, name);
        let master = declared.master.filter(|master| !is_there(*master));
        let master = master.map(|master| WaitsOn::link(master.to_string()));
        let parent = || declared.parent.as_ref().and_then(|parent| self.absent(parent));
        let space = || {
            let space = declared.kind.peer()?.namespace.as_deref()?;
            self.moment
                .namespaces
                .get(space)
                .is_none()
                .then(|| WaitsOn::Namespace(space.to_owned()))
        };
        master.or_else(parent).or_else(space)
    }

    /// What is missing of a link, here or elsewhere.
    fn absent(&self, link: &LinkRef) -> Option<WaitsOn> {
        let name = link.name;
        match link.namespace.as_deref() {
            Some(space) if !self.moment.namespaces.is_here(Some(space)) => {
                match self.moment.namespaces.get(space) {
                    None => Some(WaitsOn::Namespace(space.to_owned())),
                    Some(found) if found.has(name) => None,
                    Some(_) => Some(WaitsOn::Link {
                        name: name.to_string(),
                        namespace: Some(space.to_owned()),
                    }),
                }
            }
            _ => (!self.plan.will_have(self.moment, name)).then(|| WaitsOn::link(name.to_string())),
        }
    }

    /// The kernel says only that something exists, not which end.
    fn taken_name(&self, name: LinkName, declared: &Link, need: &Need) -> Option<Failure> {
        let is_new = matches!(need, Need::Make) && self.returns.of(name).is_none();
        let peer = declared.kind.peer().filter(|_| is_new)?;
        let name = peer.name;
        let space = peer.namespace.as_deref();
        let is_taken = match space.and_then(|space| self.moment.namespaces.elsewhere(space)) {
            Some(space) => space.has(name),
            None => self.moment.links.index(name).is_some() && !self.plan.renewed.contains(&name),
        };
        let words = || format!("the name `{name}` of its other end is taken there");
        is_taken.then(|| Failure::new(words(), Retry::OnChange).with_help("rename one of the two"))
    }

    /// Puts the steps in order; what a bond prefers is set once it has its links.
    fn finish(mut self) -> LinkPlan {
        let desired = self.desired;
        self.plan.steps.sort_by_cached_key(|step| desired.key_depth(&step.key));
        let prefers = |step: &&LinkStep| {
            let made = matches!(
                step.act,
                Act::Create | Act::Update(_) | Act::Replace | Act::Return { .. }
            );
            let link = match step.key {
                Key::Link(name) => desired.link(name),
                _ => None,
            };
            made && link.is_some_and(|link| link.kind.primary().is_some())
        };
        let finishing = |step: &LinkStep| LinkStep {
            act: Act::Finish,
            adopts: None,
            takes: Vec::new(),
            touches: Vec::new(),
            alters: Vec::new(),
            ..step.clone()
        };
        let last: Vec<LinkStep> = self.plan.steps.iter().filter(prefers).map(finishing).collect();
        self.plan.steps.extend(last);
        self.plan
    }
}
