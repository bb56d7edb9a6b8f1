//! Turns changes of links into steps, in the order in which links can exist. Pure.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{
    Change, ChangeList, Desired as _, Failure, Finding, Owner, Retry, Taken, TakenOver, WaitsOn,
};

use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::cascade::{Cascades, Effects, NewMac, first_mtu, going_with, takes_foreign};
use crate::link::kinds::LinkKind;
use crate::link::model::{Field, Link, LinkRef, Setting, changes_in_place, link_agrees};
use crate::link::observe::SeenLink;
use crate::moment::Moment;
use crate::object::Object;
use crate::snapshot::FormerMark;
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
    changes: &ChangeList<Key, Object>,
) -> LinkPlan {
    let (links, fields) = (BTreeMap::new(), BTreeMap::new());
    let leaving = leaving(desired, moment, changes);
    let cascades = Cascades { desired, moment, leaving, is_beyond: false };
    let plan = LinkPlan::default();
    let mut planner = LinkPlanner { desired, moment, cascades, links, fields, plan };
    for slot in changes.creates().iter().filter(|slot| desired.is_link(**slot)) {
        planner.take(&Change::Create { slot: *slot });
    }
    for change in changes.others() {
        planner.take(change);
    }
    planner.renew();
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

const GONE: Effects = Effects {
    goes: true,
    falls: false,
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
        let (takes, touches) = self.cascades.of(name, &GONE);
        self.push(Key::Link(name), Some(before.clone()), Act::Delete, None, takes, touches);
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
        let (takes, touches) = self.cascades.of(name, &effects);
        let before = Some(Object::Link(Box::new(before.clone())));
        let act = Act::GiveBack { link: Box::new(link), leaves, mark };
        self.push(Key::Link(name), before, act, None, takes, touches);
    }

    fn push(
        &mut self,
        key: Key,
        before: Option<Object>,
        act: Act,
        adopts: Option<Owner>,
        takes: Vec<Taken>,
        touches: Vec<LinkName>,
    ) {
        let slot = self.desired.slot(&key, None);
        self.plan.steps.push(LinkStep { key, slot, before, act, adopts, takes, touches });
    }

    fn put_links(&mut self) {
        let links = std::mem::take(&mut self.links);
        let mut links: Vec<(LinkName, Need)> = links.into_iter().collect();
        links.sort_by_cached_key(|(name, _)| (self.desired.link_depth(*name), *name));
        for (name, need) in links {
            let Some(declared) = self.desired.link(name) else { continue };
            if let Some(on) = self.blocker(declared) {
                self.plan.findings.push((Key::Link(name), Finding::Pending { on }));
            } else if let Some(failure) = self.taken_name(declared, &need) {
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
        let (before, adopts, act) = match need {
            Need::Make => (None, None, Act::Create),
            Need::Change { before, adopts } => {
                let cycle = self.cycle(declared, &before);
                (Some(before), adopts, Act::Update(cycle))
            }
            Need::MakeAgain { before } => (Some(before), None, Act::Replace),
        };
        let effects = match (&act, &before) {
            (Act::Replace, _) => GONE,
            (Act::Update(cycle), Some(before)) => effects_of_change(declared, before, *cycle),
            _ => effects_of_new(declared, self.moment),
        };
        let (takes, touches) = self.cascades.of(name, &effects);
        self.push(Key::Link(name), before.map(Object::Link), act, adopts, takes, touches);
    }

    /// Quirk `bonds-want-it-down` (Linux 6.1): a link that is up cannot be put into a bond, and a bond
    /// that is up keeps its LACP rate. A VRF sets links down and up by itself.
    fn cycle(&self, declared: &Link, before: &Link) -> Cycle {
        let left = declared.kind.left_of(&before.kind);
        let options = matches!(left, Some(LinkKind::Bond(bond)) if bond.needs_down());
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
        kinds.any(|kind| matches!(kind, LinkKind::Bond(_) | LinkKind::Vrf(_)))
    }

    fn release(&mut self, key: &Key, before: &Object, restore: Option<&Object>) {
        let (Key::LinkField(name, field), Object::Setting(before)) = (key, before) else { return };
        let restore = match restore {
            Some(Object::Setting(restore)) if restore != before => Some(restore.setting.clone()),
            _ => None,
        };
        let effects = restore.as_ref().map(|value| self.effects_of(*name, *field, value));
        let (takes, touches) = self.cascades.of(*name, &effects.unwrap_or_default());
        let before = Some(Object::Setting(before.clone()));
        self.push(key.clone(), before, Act::Release { restore }, None, takes, touches);
    }

    fn put_fields(&mut self) {
        for ((name, field), before) in std::mem::take(&mut self.fields) {
            let key = Key::LinkField(name, field);
            let Some(setting) = self.desired.field(name, field) else { continue };
            let master = setting.link_name().filter(|_| field == Field::Master);
            let mut needed = std::iter::once(name).chain(master);
            let absent = needed.find(|link| !self.plan.will_have(self.moment, *link));
            if let Some(link) = absent {
                let on = WaitsOn::Link(link.to_string());
                self.plan.findings.push((key, Finding::Pending { on }));
                continue;
            }
            let is_up = self.moment.table.get(name).is_some_and(SeenLink::is_up);
            let must_fall = master.is_some_and(|master| self.wants_it_down(master)) && is_up;
            let cycle = if must_fall { Cycle::DownFirst } else { Cycle::Stay };
            let mut effects = self.effects_of(name, field, setting);
            effects.falls |= must_fall;
            let (takes, touches) = self.cascades.of(name, &effects);
            let before = before.filter(|_| !self.plan.renewed.contains(&name));
            let before = before.map(|setting| Object::Setting(setting.into()));
            self.push(key, before, Act::Set(cycle), None, takes, touches);
        }
    }

    /// What writing a field does.
    fn effects_of(&self, name: LinkName, field: Field, value: &Setting) -> Effects {
        let seen = self.moment.table.get(name);
        let mut effects = Effects::default();
        match (field, value) {
            (Field::Up, Setting::Flag(false)) => {
                effects.falls = seen.is_some_and(SeenLink::is_up);
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
            }
            _ => {}
        }
        effects
    }

    /// What goes with links that are made again is made again too. Where another owner would lose
    /// something, a guard may hold the step: then nothing is made ready for what may not happen.
    fn renew(&mut self) {
        let again = self.links.iter().filter(|(_, need)| matches!(need, Need::MakeAgain { .. }));
        let certain = again.map(|(name, _)| *name);
        let certain = certain.filter(|name| !takes_foreign(&self.cascades.of(*name, &GONE).0));
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
                let before = self.moment.table.get(name).map(|seen| seen.setting(field));
                self.fields.entry((name, field)).or_insert(before);
            }
        }
    }

    /// What a link waits for.
    fn blocker(&self, declared: &Link) -> Option<WaitsOn> {
        let is_there = |name| self.plan.will_have(self.moment, name);
        let master = declared.master.filter(|master| !is_there(*master));
        let master = master.map(|master| WaitsOn::Link(master.to_string()));
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
                    Some(_) => Some(WaitsOn::Link(format!("{name} in namespace {space}"))),
                }
            }
            _ => (!self.plan.will_have(self.moment, name)).then(|| WaitsOn::Link(name.to_string())),
        }
    }

    /// The kernel says only that something exists, not which end.
    fn taken_name(&self, declared: &Link, need: &Need) -> Option<Failure> {
        let peer = declared.kind.peer().filter(|_| matches!(need, Need::Make))?;
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
            let made = matches!(step.act, Act::Create | Act::Update(_) | Act::Replace);
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
            ..step.clone()
        };
        let last: Vec<LinkStep> = self.plan.steps.iter().filter(prefers).map(finishing).collect();
        self.plan.steps.extend(last);
        self.plan
    }
}
