//! One write to an address or a route, and how it explains itself. Pure.

use std::sync::Arc;

use homeostat_core::{Action, Desired as _, Line, Owner, Slot, Summary, Taken};

use crate::address::cascade::Cascade;
use crate::address::{AddressKey, AddressMarks};
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::step::LinkStep;
use crate::object::{Object, explained};

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
    /// Neighbours are made and changed.
    PutNeighbours,
    /// Rules are made and changed.
    PutRules,
    /// Rules go.
    DeleteRules,
    /// Neighbours go.
    DeleteNeighbours,
    /// Routes go.
    DeleteRoutes,
    /// Groups of nexthops go.
    DeleteGroups,
    /// Nexthops go.
    DeleteNexthops,
    /// Addresses go, secondary ones first.
    DeleteAddresses,
    /// Links go.
    DeleteLinks,
    /// Routes are made whose gateway is reached by another link once addresses are gone.
    PutMoved,
    /// Routes are made again that went along with an address or a nexthop.
    PutAgain,
}

/// One write. As small as a slot where a million of them are usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make what is declared and absent.
    Create {
        /// The desired state.
        slot: Slot,
        /// When.
        phase: Phase,
        /// Where it is marked as ours.
        marks: AddressMarks,
    },
    /// Make what is there as it is declared.
    Update(Box<Update>),
    /// Take away what is ours and not declared.
    Delete(Box<Delete>),
    /// Make, change or take away a link, or a field of one.
    Link(Box<LinkStep>),
}

/// How something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In one request.
    InPlace,
    /// Taken away and made again, since the kernel keeps the attribute for good.
    Anew,
}

/// A change to what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The desired state.
    pub slot: Slot,
    /// What is there.
    pub before: Object,
    /// Whose it was, if it is taken over.
    pub adopts: Option<Owner>,
    /// How.
    pub way: Way,
    /// Where it is marked as ours.
    pub marks: AddressMarks,
    /// When.
    pub phase: Phase,
    /// What goes along.
    pub cascade: Cascade,
}

/// A removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// What goes.
    pub key: Key,
    /// What is there; removals of many alike share it.
    pub before: Arc<Object>,
    /// When.
    pub phase: Phase,
    /// Whether it is the second half of a change.
    pub is_rest: bool,
    /// What goes along, if anything can.
    pub cascade: Option<Box<Cascade>>,
}

impl Step {
    fn after(&self, desired: &DesiredState) -> Option<serde_json::Value> {
        let object = desired.object(homeostat_core::Step::<DesiredState>::slot(self)?);
        Some(explained(&object))
    }

    fn before(&self) -> Option<serde_json::Value> {
        let before = match self {
            Step::Create { .. } | Step::Link(_) => return None,
            Step::Update(update) => &update.before,
            Step::Delete(delete) => &*delete.before,
        };
        Some(explained(before))
    }

    fn note(&self) -> Option<String> {
        match self {
            Step::Create { phase: Phase::PutAgain, .. } => {
                Some("made again at once, since it goes with an address or a nexthop".to_owned())
            }
            Step::Create { .. } | Step::Link(_) => None,
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

    /// Whether it is the second half of a change.
    fn is_rest(&self) -> bool {
        matches!(self, Step::Delete(delete) if delete.is_rest)
    }

    /// The address that goes, and what goes along.
    pub(crate) fn lost_with(&self, desired: &DesiredState) -> Option<(AddressKey, &Cascade)> {
        let is_lasting = match self {
            Step::Create { .. } | Step::Link(_) => return None,
            Step::Update(update) => update.way == Way::InPlace,
            Step::Delete(_) => false,
        };
        let key = homeostat_core::Step::<DesiredState>::key(self, desired);
        match (key, self.cascade()) {
            (Key::Address(key), Some(cascade)) if !is_lasting => Some((key, cascade)),
            _ => None,
        }
    }

    /// What goes along.
    fn cascade(&self) -> Option<&Cascade> {
        match self {
            Step::Create { .. } | Step::Link(_) => None,
            Step::Update(update) => Some(&update.cascade),
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
            Step::Link(step) => step.key.clone(),
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Step::Create { slot, .. } => Some(*slot),
            Step::Update(update) => Some(update.slot),
            Step::Delete(_) => None,
            Step::Link(step) => step.slot,
        }
    }

    fn action(&self) -> Action {
        match self {
            Step::Create { phase: Phase::PutAgain, .. } => Action::Replace,
            Step::Create { .. } => Action::Create,
            Step::Update(update) if update.way == Way::Anew => Action::Replace,
            Step::Update(_) => Action::Update,
            Step::Delete(_) => Action::Delete,
            Step::Link(step) => step.action(),
        }
    }

    fn phase(&self) -> u8 {
        let phase = match self {
            Step::Create { phase, .. } => *phase,
            Step::Update(update) => update.phase,
            Step::Delete(delete) => delete.phase,
            Step::Link(step) => step.phase(),
        };
        phase as u8
    }

    fn needs(&self, desired: &DesiredState, need: &mut dyn FnMut(Key)) {
        let Some(slot) = homeostat_core::Step::<DesiredState>::slot(self) else { return };
        if let Some((_, template)) = desired.route_at(slot) {
            template.rests_on.iter().for_each(|key| need(Key::Address(*key)));
            template.route.nexthop.into_iter().for_each(|id| need(Key::Nexthop(id)));
            template.route.links().for_each(|link| desired.links.needed_for(link, need));
        }
        if let Some(address) = desired.address_at(slot) {
            desired.links.needed_for(address.key.link(), need);
        }
        if let Some(other) = desired.other_at(slot) {
            crate::plan::needs(other, desired, need);
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
                let family = if key.ip().is_ipv4() { "IPv4" } else { "IPv6" };
                format!("{family} addresses of {}", key.link())
            }
            Key::Route(key) => format!("routes to {} in table {}", key.dst(), key.table()),
            Key::Nexthop(_) => "nexthops".to_owned(),
            Key::Rule(key) => format!("{} rules", key.family()),
            Key::Neighbour(key) => format!("neighbours on {}", key.link()),
            Key::Link(_) | Key::LinkField(..) => return None,
        })
    }

    fn is_recorded(&self) -> bool {
        match self {
            Step::Create { marks, .. } => *marks == AddressMarks::Ledger,
            Step::Link(_) => true,
            Step::Update(update) => update.marks == AddressMarks::Ledger,
            Step::Delete(_) => false,
        }
    }

    fn takes(&self) -> &[Taken] {
        match self {
            Step::Link(step) => &step.takes,
            _ => self.cascade().map_or(&[], |cascade| &cascade.takes),
        }
    }

    fn disturbs(&self, desired: &DesiredState, disturb: &mut dyn FnMut(Key)) {
        if let Step::Link(step) = self {
            return step.disturbs(desired, disturb);
        }
        if self.action() != Action::Create {
            crate::plan::disturbs(self, desired, disturb);
        }
        let (Some(cascade), Key::Address(key)) = (self.cascade(), self.key(desired)) else {
            return;
        };
        cascade.again.iter().for_each(|slot| disturb(desired.key(*slot)));
        if self.action() != Action::Update {
            desired.routes_like(|route| cascade.includes(&key, route), disturb);
        }
    }

    /// The second half of an update counts with the first.
    fn count(&self, summary: &mut Summary) {
        if !self.is_rest() {
            summary.count(self.action());
        }
    }

    fn explain(&self, desired: &DesiredState, tell: &mut dyn FnMut(Line)) {
        if let Step::Link(step) = self {
            return step.explain(desired, tell);
        }
        if self.is_rest() {
            return;
        }
        tell(Line {
            action: self.action(),
            key: self.key(desired).to_string(),
            before: self.before(),
            after: self.after(desired),
            note: self.note(),
            text: None,
        });
    }
}
