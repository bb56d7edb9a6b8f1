//! One write, and how it explains itself. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::{
    Action, Desired as _, Line, Owner, Reversibility, Slot, Summary, Taken, Taking, WaitsOn,
};
use serde_json::Value;

use crate::address::AddressKey;
use crate::address::cascade::Cascade;
use crate::desired::{At, DesiredState};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::wireguard;
use crate::link::model::{Field, Link, LinkRef, Setting};
use crate::link::parking::{Aside, Parking};
use crate::net::Family;
use crate::nexthop;
use crate::object::{Object, explained};
use crate::snapshot::{Copied, FormerMark};

/// What no desired state says of a link.
pub(crate) const LINK_DATA: &str =
    "its number, what it has learned, and what programs have attached to it";

/// When a step has its turn; the numbers are the phases of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// An address goes whose place is wanted with another prefix length.
    ClearWay,
    /// Links are made and changed.
    PutLinks,
    /// Addresses are made and changed.
    PutAddresses,
    /// Nexthops are made and changed.
    PutNexthops,
    /// Groups of nexthops are made and changed.
    PutGroups,
    /// Routes are made and changed.
    PutRoutes,
    /// Neighbours and forwarding entries are made and changed.
    PutNeighbours,
    /// Rules are made and changed.
    PutRules,
    DeleteRules,
    DeleteNeighbours,
    DeleteRoutes,
    /// Groups of nexthops go.
    DeleteGroups,
    DeleteNexthops,
    /// Addresses go, secondary ones first.
    DeleteAddresses,
    DeleteLinks,
    /// Routes are made whose gateway is reached by another link once addresses are gone.
    PutMoved,
    /// Routes and neighbours are made again that went along with an address or a nexthop.
    PutAgain,
}

impl Phase {
    /// When an object is created or updated.
    pub(crate) fn put(object: &Object) -> Self {
        match object {
            Object::Nexthop(nexthop) if nexthop.is_group() => Phase::PutGroups,
            Object::Nexthop(_) => Phase::PutNexthops,
            Object::Rule(_) => Phase::PutRules,
            Object::Neighbour(_) | Object::Fdb(_) => Phase::PutNeighbours,
            Object::Address(_) => Phase::PutAddresses,
            Object::Route(_) => Phase::PutRoutes,
            Object::Link(_) | Object::Setting(_) => Phase::PutLinks,
        }
    }

    /// When an object is deleted: what is put last is deleted first.
    pub(crate) fn delete(object: &Object) -> Self {
        match Phase::put(object) {
            Phase::PutGroups => Phase::DeleteGroups,
            Phase::PutNexthops => Phase::DeleteNexthops,
            Phase::PutRules => Phase::DeleteRules,
            Phase::PutNeighbours => Phase::DeleteNeighbours,
            Phase::PutAddresses => Phase::DeleteAddresses,
            Phase::PutRoutes => Phase::DeleteRoutes,
            _ => Phase::DeleteLinks,
        }
    }
}

/// One write. As small as a slot where a million of them are usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create what is declared and absent.
    Create {
        slot: Slot,
        phase: Phase,
        /// Whether the ledger records it as ours, since the kernel keeps no mark.
        is_recorded: bool,
    },
    /// Make what exists as it is declared.
    Update(Box<Update>),
    /// Delete what is ours and not declared.
    Delete(Box<Delete>),
    /// Give back what was taken over from another owner.
    GiveBack(Box<GiveBack>),
    /// Create, change or delete a link, or a field of one.
    Link(Box<LinkStep>),
}

/// The return of an object to its former owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveBack {
    pub key: Key,
    pub before: Object,
    /// What its former owner had there.
    pub original: Object,
    pub(crate) copied: Copied,
    pub phase: Phase,
    /// What is deleted along, if it is deleted and created again since the kernel keeps an attribute for good;
    /// otherwise one request changes it in place.
    pub recreate: Option<Cascade>,
}

/// A change to what exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub slot: Slot,
    pub before: Object,
    /// Whose it was, if it is taken over.
    pub adopts: Option<Owner>,
    /// Whether the ledger records it as ours, since the kernel keeps no mark.
    pub is_recorded: bool,
    pub phase: Phase,
    /// What is deleted along, if it is deleted and created again since the kernel keeps an attribute for good;
    /// otherwise one request changes it in place.
    pub recreate: Option<Cascade>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub key: Key,
    /// What exists; removals of many alike share it.
    pub before: Arc<Object>,
    pub phase: Phase,
    /// Whether it is the second half of a change.
    pub is_rest: bool,
    /// What is deleted along, if anything can be.
    pub cascade: Option<Box<Cascade>>,
}

impl Step {
    fn note(&self) -> Option<String> {
        match self {
            Step::Create { phase: Phase::PutAgain, .. } => {
                Some("made again at once, since it goes with an address or a nexthop".to_owned())
            }
            Step::Create { .. } | Step::Link(_) => None,
            Step::GiveBack(_) => Some("given back to its former owner".to_owned()),
            Step::Update(update) if let Some(owner) = &update.adopts => Some(match update.before {
                Object::Address(_) => format!("taken over from {owner}; it will stay for good"),
                _ => format!("taken over from {owner}"),
            }),
            Step::Update(_) | Step::Delete(_) => self.cascade().and_then(|cascade| {
                let many = cascade.again.len();
                (many > 0).then(|| format!("{many} secondary made again at once"))
            }),
        }
    }

    /// The address that is deleted, if only for a moment, and what is deleted along.
    pub(crate) fn lost_with(&self, desired: &DesiredState) -> Option<(AddressKey, &Cascade)> {
        let cascade = self.cascade()?;
        match homeostat_core::Step::<DesiredState>::key(self, desired) {
            Key::Address(key) => Some((key, cascade)),
            _ => None,
        }
    }

    /// What is deleted along.
    fn cascade(&self) -> Option<&Cascade> {
        match self {
            Step::Create { .. } | Step::Link(_) => None,
            Step::Update(update) => update.recreate.as_ref(),
            Step::GiveBack(step) => step.recreate.as_ref(),
            Step::Delete(delete) => delete.cascade.as_deref(),
        }
    }
}

impl homeostat_core::Step<DesiredState> for Step {
    fn key(&self, desired: &DesiredState) -> Key {
        match self {
            Step::Create { slot, .. } => desired.key(*slot),
            Step::Update(update) => desired.key(update.slot),
            Step::Delete(delete) => delete.key.clone(),
            Step::GiveBack(step) => step.key.clone(),
            Step::Link(step) => step.key.clone(),
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Create { slot, .. } => Some(*slot),
            Step::Update(update) => Some(update.slot),
            Step::Delete(_) | Step::GiveBack(_) => None,
            Step::Link(step) => step.slot,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Create { phase: Phase::PutAgain, .. } => Action::Replace,
            Step::Create { .. } => Action::Create,
            Step::Update(update) if update.recreate.is_some() => Action::Replace,
            Step::Update(_) => Action::Update,
            Step::Delete(_) | Step::GiveBack(_) => Action::Delete,
            Step::Link(step) => step.action(),
        }
    }

    fn phase(&self) -> u8 {
        let phase = match self {
            Step::Create { phase, .. } => *phase,
            Step::Update(update) => update.phase,
            Step::Delete(delete) => delete.phase,
            Step::GiveBack(step) => step.phase,
            Step::Link(step) => step.phase(),
        };
        phase as u8
    }

    fn needs(&self, desired: &DesiredState, need: &mut dyn FnMut(Key)) {
        let slot = homeostat_core::Step::<DesiredState>::slot(self);
        match slot.and_then(|slot| desired.at(slot)) {
            Some(At::Route(_, template)) => {
                template.rests_on.iter().for_each(|key| need(Key::Address(*key)));
                template.route.nexthop.into_iter().for_each(|id| need(Key::Nexthop(id)));
                template.route.links().for_each(|link| desired.needed_for(link, need));
            }
            Some(At::Other(other)) => match (&other.key, &other.object) {
                (Key::Address(key), _) => desired.needed_for(key.link, need),
                (Key::Neighbour(key), _) => desired.needed_for(key.link, need),
                // Its VLAN, too.
                (Key::Fdb(key), _) => {
                    desired.needed_for(key.link, need);
                    desired.fields_of(key.link).for_each(need);
                }
                (_, Object::Nexthop(nexthop)) => nexthop::needs(nexthop, desired, need),
                _ => {}
            },
            None => {}
        }
    }

    fn group(&self, desired: &DesiredState) -> Option<String> {
        if let Step::Delete(delete) = self
            && delete.phase == Phase::ClearWay
        {
            return None;
        }
        Some(match self.key(desired) {
            Key::Address(key) => {
                format!("{} addresses of {}", Family::of(key.ip), key.link)
            }
            Key::Route(key) => format!("routes to {} in table {}", key.dst, key.table),
            Key::Nexthop(_) => "nexthops".to_owned(),
            Key::Rule(key) => format!("{} rules", key.family),
            Key::Neighbour(key) => format!("neighbours on {}", key.link),
            Key::Fdb(key) => format!("forwarding entries of {}", key.link),
            Key::Link(_)
            | Key::LinkField(..)
            | Key::LinkSysctls(..)
            | Key::AddressOrder(_)
            | Key::Ports(_) => return None,
        })
    }

    fn is_recorded(&self) -> bool {
        match self {
            Step::Create { is_recorded, .. } => *is_recorded,
            Step::Link(_) => true,
            Step::Update(update) => update.is_recorded,
            Step::Delete(_) | Step::GiveBack(_) => false,
        }
    }

    fn reversibility(&self, _desired: &DesiredState) -> Reversibility {
        if let Step::Link(step) = self
            && matches!(step.act, Act::Park(_) | Act::Succeed(_))
        {
            return Reversibility::Reversible;
        }
        let is_foreign = |taken: &Taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel);
        // Everything but links can be made again as it was recorded.
        let is_recorded = |taken: &Taken| taken.key.parse().is_ok_and(|key: Key| !key.is_link());
        let mut taken = self.takes().iter();
        if let Some(taken) = taken.find(|taken| is_foreign(taken) && !is_recorded(taken)) {
            let why = format!("`{}` of {} goes along and does not return", taken.key, taken.owner);
            return Reversibility::Irreversible(why.into());
        }
        match self {
            Step::Link(step)
                if matches!(step.act, Act::Delete | Act::Replace) && step.records.is_empty() =>
            {
                Reversibility::Irreversible(format!("{LINK_DATA} are lost").into())
            }
            _ => Reversibility::Reversible,
        }
    }

    fn parking(&self) -> Option<homeostat_core::Parking<Self>> {
        use homeostat_core::Parking::{By, Instead, Nothing};
        let Step::Link(step) = self else { return None };
        let wrapped = |step: LinkStep| Step::Link(Box::new(step));
        Some(match step.parking()? {
            By(step) => By(wrapped(step)),
            Instead(step) => Instead(wrapped(step)),
            Nothing => Nothing,
        })
    }

    fn records(&self, desired: &DesiredState, record: &mut dyn FnMut(Key, Taking)) {
        let Step::Link(step) = self else {
            // One that comes back has another place among the addresses of its link.
            let is_deleted = self.cascade().is_some() || matches!(self, Step::Delete(_));
            if let Key::Address(key) = self.key(desired)
                && is_deleted
            {
                record(Key::AddressOrder(key.link), Taking::Around);
            }
            return;
        };
        let goes = matches!(step.act, Act::Delete | Act::Replace);
        for key in step.records.iter().cloned() {
            let taking = match key {
                Key::Link(name) if goes && Some(name) != step.joins => Taking::Itself,
                Key::Link(_) | Key::LinkField(..) | Key::LinkSysctls(..) | Key::Ports(_) => {
                    Taking::Below
                }
                Key::AddressOrder(_) => Taking::Around,
                _ => Taking::Along,
            };
            record(key, taking);
        }
    }

    fn takes(&self) -> &[Taken] {
        match self {
            Step::Link(step) => &step.takes,
            _ => self.cascade().map_or(&[], |cascade| &cascade.takes),
        }
    }

    fn harmless_part(&self) -> Option<Self> {
        match self {
            Step::Link(step) => step.harmless.clone().map(Step::Link),
            _ => None,
        }
    }

    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        let is_deleted = match self {
            Step::Link(step) => return step.disturbs(desired, disturb),
            Step::Create { .. } => return,
            Step::Update(update) => update.recreate.is_some(),
            Step::GiveBack(step) => step.recreate.is_some(),
            Step::Delete(_) => true,
        };
        match (self.key(desired), self.cascade()) {
            (Key::Nexthop(id), _) if is_deleted => nexthop::dependants(id, desired, disturb),
            // Deleting a rule may delete others of ours for a moment.
            (Key::Rule(key), _) => {
                for priority in BTreeSet::from([None, key.priority]) {
                    desired.rules_at(key.family, priority).for_each(&mut *disturb);
                }
            }
            (Key::Address(key), Some(cascade)) => {
                cascade.again.iter().for_each(|slot| disturb(desired.key(*slot)));
                let routes = desired.routes_of_all(cascade.templates(&key, desired));
                routes.for_each(|route| disturb(Key::Route(route)));
                let neighbours = cascade.neighbours(&key, desired);
                neighbours.for_each(|neighbour| disturb(Key::Neighbour(neighbour)));
            }
            _ => {}
        }
    }

    /// The second half of an update counts with the first.
    fn count(&self, summary: &mut Summary) {
        if !matches!(self, Step::Delete(delete) if delete.is_rest) {
            summary.count(self.action());
        }
    }

    fn explain(&self, desired: &DesiredState, put: &mut dyn FnMut(Line)) {
        let before = match self {
            Step::Link(step) => return step.explain(desired, put),
            Step::Create { .. } => None,
            Step::Update(update) => Some(&update.before),
            Step::Delete(delete) if delete.is_rest => return,
            Step::Delete(delete) => Some(&*delete.before),
            Step::GiveBack(step) => Some(&step.before),
        };
        let slot = homeostat_core::Step::<DesiredState>::slot(self);
        let after = match self {
            Step::GiveBack(step) => Some(explained(&step.original)),
            _ => slot.map(|slot| explained(&desired.object(slot))),
        };
        let line = Line::new(self.action(), self.key(desired).to_string());
        put(Line { before: before.map(explained), after, note: self.note(), ..line });
    }
}

/// One write to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStep {
    /// The link, or a field of it.
    pub key: Key,
    /// The desired state, if it is declared.
    pub slot: Option<Slot>,
    pub before: Option<Object>,
    pub act: Act,
    /// Whose it was, if it is taken over.
    pub adopts: Option<Owner>,
    /// What goes along.
    pub takes: Vec<Taken>,
    /// The links whose addresses and routes may be others afterwards.
    pub touches: Vec<LinkName>,
    /// The links whose own values may be others afterwards.
    pub alters: Vec<LinkName>,
    /// The bridge, bond or VRF that is there and that it is put into.
    pub joins: Option<LinkName>,
    /// How it can be put aside, if it goes.
    pub aside: Aside,
    /// What the kernel forgets by it, of this link and of others.
    pub forgets: Vec<Key>,
    /// What is recorded before, so that it can be made again.
    pub records: Vec<Key>,
    /// What of it others lose nothing by.
    pub harmless: Option<Box<LinkStep>>,
}

/// What is done to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Create,
    /// It is changed while it is there.
    Update(Cycle),
    /// Some of its values are changed; the rest is held back.
    UpdatePart(Box<Link>, Cycle),
    /// It is taken away and made again.
    Replace,
    /// It is put aside.
    Park(Parking),
    /// It is put aside, and another one is made under its name.
    Succeed(Parking),
    /// One that was put aside takes its place again.
    Return {
        /// The name that it has now.
        parked: LinkName,
        /// Whether another one has its name meanwhile, which goes.
        over: bool,
    },
    /// It gets what could not be set before others were there.
    Finish,
    Delete,
    /// It returns to its former owner: what is declared of it as that owner had it, and without our mark.
    GiveBack {
        /// What was declared, as it was before.
        link: Box<Link>,
        /// Whether it leaves the bridge, bond or VRF that we put it into.
        leaves: bool,
        /// What our mark replaced.
        mark: FormerMark,
    },
    /// A field of it is written.
    Set(Cycle),
    /// A field of it is given up.
    Release {
        /// What is put back.
        restore: Option<Setting>,
    },
}

/// Whether a link has to be down for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// It stays as it is.
    Stay,
    /// It is set down before, and up again if it is declared so.
    DownFirst,
}

impl LinkStep {
    /// What happens to the key.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.act {
            Act::Create | Act::Return { over: false, .. } => Action::Create,
            // The field of a link that is made in the same pass.
            Act::Set(_) if self.before.is_none() => Action::Create,
            Act::Update(_) | Act::UpdatePart(..) | Act::Finish | Act::Set(_) => Action::Update,
            Act::Replace | Act::Succeed(_) | Act::Return { over: true, .. } => Action::Replace,
            Act::Park(_) | Act::Delete | Act::GiveBack { .. } | Act::Release { .. } => {
                Action::Delete
            }
        }
    }

    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.act {
            // What keeps another one from being made goes before that; what is not declared is before all that is.
            Act::Delete if matches!(self.aside, Aside::Recorded(_)) => Phase::PutLinks,
            Act::Park(_) | Act::Delete | Act::GiveBack { .. } => Phase::DeleteLinks,
            // What is deleted from it knows it by that name.
            Act::Release { .. } if matches!(self.key, Key::LinkField(_, Field::Name)) => {
                Phase::DeleteLinks
            }
            _ => Phase::PutLinks,
        }
    }

    pub(crate) fn explain(&self, desired: &DesiredState, put: &mut dyn FnMut(Line)) {
        let restored = match &self.act {
            Act::Release { restore: Some(restore) } => {
                Some(Object::Setting(restore.clone().into()))
            }
            Act::GiveBack { link, .. } => Some(Object::Link(link.clone())),
            _ => None,
        };
        let declared = match &self.act {
            Act::UpdatePart(link, _) => Some(Object::Link(link.clone())),
            _ => self.slot.map(|slot| desired.object(slot)),
        };
        let provides = self.provides(declared.as_ref());
        let declared = declared.or(restored);
        let effect = self.effect(declared.as_ref()).map(str::to_owned);
        let notes: Vec<_> = self.note().into_iter().chain(effect).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        let after = declared.as_ref().map(explained);
        let before =
            self.before.as_ref().map(explained).map(|before| shown(before, after.as_ref()));
        let text = wireguard::plan_text(before.as_ref(), after.as_ref());
        let line = Line::new(self.action(), self.key.to_string());
        put(Line { before, after, note, provides, text, ..line });
    }

    /// What others may feel of it, although it destroys nothing of theirs.
    fn effect(&self, after: Option<&Object>) -> Option<&'static str> {
        let is_flag = |object: Option<&Object>, flag: bool| match object {
            Some(Object::Link(link)) => link.up == Some(flag),
            Some(Object::Setting(one)) => one.setting == Setting::Flag(flag),
            _ => false,
        };
        let master = |object: Option<&Object>| match object {
            Some(Object::Link(link)) => link.master,
            Some(Object::Setting(one)) => one.setting.link_name(),
            _ => None,
        };
        let (before, has) = (self.before.as_ref(), |field| match self.key {
            Key::Link(_) => true,
            Key::LinkField(_, one) => one == field,
            _ => false,
        });
        if has(Field::Up) && is_flag(before, true) && is_flag(after, false) {
            return Some("programs that use it see it lose its carrier");
        }
        let is_there = before.is_some() || matches!(self.key, Key::LinkField(..));
        let moves = master(after).is_some() && master(before) != master(after);
        (has(Field::Master) && is_there && moves)
            .then_some("its packets go to its master, and its own addresses get none")
    }

    /// The link that it makes; a pair is made with its other end.
    fn provides(&self, declared: Option<&Object>) -> Vec<WaitsOn> {
        let (Key::Link(name), Some(Object::Link(link))) = (&self.key, declared) else {
            return Vec::new();
        };
        let peer = link.kind.peer().map(|LinkRef { name, namespace }| WaitsOn::Link {
            name: name.to_string(),
            namespace: namespace.as_deref().map(str::to_owned),
        });
        std::iter::once(WaitsOn::link(name.to_string())).chain(peer).collect()
    }

    fn note(&self) -> Option<String> {
        if let Some(owner) = &self.adopts {
            return Some(format!("taken over from {owner}"));
        }
        Some(match &self.act {
            Act::GiveBack { .. } => "given back to its former owner".to_owned(),
            Act::Release { restore: Some(_) } => "released, original restored".to_owned(),
            Act::Release { restore: None } => "released, the value stays".to_owned(),
            Act::Update(Cycle::DownFirst) | Act::Set(Cycle::DownFirst) => {
                "it is down for a moment".to_owned()
            }
            Act::UpdatePart(_, Cycle::Stay) => "the rest is held back".to_owned(),
            Act::UpdatePart(_, Cycle::DownFirst) => {
                "it is down for a moment, and the rest is held back".to_owned()
            }
            Act::Finish => "once its links are there".to_owned(),
            Act::Park(_) => "put aside until the trial ends".to_owned(),
            Act::Succeed(_) => "the former one is put aside until the trial ends".to_owned(),
            Act::Return { .. } => "the former one returns".to_owned(),
            Act::Delete | Act::Replace if !self.records.is_empty() => {
                "recorded, to be made again if the trial is rolled back".to_owned()
            }
            _ => return None,
        })
    }

    /// How it is put off, or done so that it can be undone.
    fn parking(&self) -> Option<homeostat_core::Parking<Self>> {
        use homeostat_core::Parking::{By, Instead, Nothing};
        // A bridge loses its hardware address with its last port. One that is taken over has its record in the ledger.
        let joins = self.joins.filter(|_| self.adopts.is_none()).map(Key::Link);
        let with = |act: Act, keys: &mut dyn Iterator<Item = Key>| {
            let forgets = self.forgets.iter().cloned();
            let records = keys.chain(joins.clone()).chain(forgets).collect();
            LinkStep { act, records, ..self.clone() }
        };
        match (&self.act, &self.aside) {
            (Act::Delete, Aside::Already) => Some(Nothing),
            (Act::Delete, Aside::Parked(parking)) => {
                Some(By(with(Act::Park(parking.clone()), &mut parking.records())))
            }
            (Act::Replace, Aside::Parked(parking)) => {
                Some(Instead(with(Act::Succeed(parking.clone()), &mut parking.records())))
            }
            (act @ (Act::Delete | Act::Replace), Aside::Recorded(keys)) => {
                let is_done = !self.records.is_empty();
                (!is_done).then(|| Instead(with(act.clone(), &mut keys.iter().cloned())))
            }
            (Act::Delete | Act::Replace, _) => None,
            // What the desired state before it does not say is put back by its record.
            _ if self.records.is_empty() => {
                let is_changed = matches!(self.act, Act::Update(_) | Act::UpdatePart(..));
                let is_changed = is_changed && matches!(self.key, Key::Link(_));
                let is_changed = is_changed && self.adopts.is_none();
                let own = is_changed.then(|| self.key.clone());
                let step = with(self.act.clone(), &mut own.into_iter());
                (!step.records.is_empty()).then_some(Instead(step))
            }
            _ => None,
        }
    }

    /// Names declared keys that may be others afterwards.
    pub(crate) fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        if !self.touches.is_empty() {
            desired.on_links(self.touches.iter().copied().collect(), disturb);
        }
        let links = self.alters.iter().filter(|link| desired.link(**link).is_some());
        let links = links.map(|link| Key::Link(*link));
        // Fields go with a link that goes along, such as the other end of a pair.
        let fields = self.alters.iter().flat_map(|link| desired.fields_of(*link));
        links.chain(fields).filter(|key| *key != self.key).for_each(disturb);
    }
}

/// The part of a link that is declared: the kernel reports every option.
fn shown(before: Value, after: Option<&Value>) -> Value {
    let Value::Object(fields) = before else { return before };
    let is_declared = |name: &str| after.is_some_and(|after| after.get(name).is_some());
    let declared = fields.into_iter().filter(|(name, _)| name == "kind" || is_declared(name));
    Value::Object(declared.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_declared_fields_of_an_observed_link_are_shown() {
        let before = json!({ "kind": "bridge", "mtu": 1500, "stp": false, "up": true });
        let after = json!({ "kind": "bridge", "mtu": 1400 });
        let expected = json!({ "kind": "bridge", "mtu": 1500 });
        assert_eq!(shown(before.clone(), Some(&after)), expected);
        assert_eq!(shown(before, None), json!({ "kind": "bridge" }));
        assert_eq!(shown(json!(1500), Some(&json!(1400))), json!(1500));
    }
}
