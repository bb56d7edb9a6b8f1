//! What is known of routes, rules and addresses between two full observations. Of routes it is a bit for each declared
//! one that exists, is ours and is as declared, and the few exceptions. Pure: dumps and events are its arguments.
//!
//! The kernel has no exact read of one of them, so an observation of a few keys is answered from here. The shadow may be
//! stale; the kernel checks every write (create only if absent, delete only if ours), and the next full
//! observation corrects it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Desired as _, Slot};

use crate::desired::DesiredState;
use crate::moment::Addresses;
use crate::number::Protocol;
use crate::route::gateways::Gateways;
use crate::route::{Route, RouteKey, route_agrees};
use crate::rule::KnownRules;

/// With more uncertain routes than this, a full observation costs less.
const MOST_UNCERTAIN: usize = 4096;

/// A route without its key, and the protocol that marks whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkedRoute {
    pub(crate) route: Route,
    pub(crate) protocol: Protocol,
}

/// What an event says of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteEvent {
    /// It was added, beside whatever else has its key.
    Added,
    /// It replaced another.
    Replaced,
    Removed,
}

/// What is known of the routes on declared keys, and of ours on other keys.
#[derive(Debug)]
pub(crate) struct Shadow {
    desired: Arc<DesiredState>,
    ours: Protocol,
    /// By slot: whether the route exists, is ours, is as declared, and is the only one with its key.
    good: Vec<u64>,
    near: Option<Slot>,
    others: BTreeMap<RouteKey, Vec<MarkedRoute>>,
    /// Keys on which something happened that was not announced in full.
    uncertain: BTreeSet<RouteKey>,
    /// All rules, if they were dumped: the kernel announces every change of them.
    pub(crate) rules: Option<KnownRules>,
    /// All addresses, likewise.
    pub(crate) addresses: Option<Addresses>,
    /// The gateways that declared routes follow, as long as no event was about one.
    pub(crate) gateways: Option<Gateways>,
}

impl Shadow {
    pub(crate) fn new(desired: Arc<DesiredState>, ours: Protocol) -> Self {
        let good = vec![0; desired.len().div_ceil(64)];
        let (others, uncertain) = (BTreeMap::new(), BTreeSet::new());
        let (rules, addresses, gateways) = (None, None, None);
        Shadow { desired, ours, good, near: None, others, uncertain, rules, addresses, gateways }
    }

    pub(crate) fn desired(&self) -> &Arc<DesiredState> {
        &self.desired
    }

    /// Adds a route that a dump shows.
    pub(crate) fn add_dumped(&mut self, key: &RouteKey, route: &Route, protocol: Protocol) {
        let slot = self.desired.route_slot(key, self.near);
        self.near = slot.or(self.near);
        let is_ours = protocol == self.ours;
        if slot.is_none() && !is_ours {
            return;
        }
        let is_alone = !self.others.contains_key(key) && slot.is_none_or(|slot| !self.is_set(slot));
        if let Some(slot) = slot.filter(|slot| is_alone && is_ours && self.agrees(*slot, route)) {
            self.set(slot);
            return;
        }
        let mut there = self.take(key, slot);
        there.push(MarkedRoute { route: route.clone(), protocol });
        self.others.insert(*key, there);
    }

    /// Updates what is known of a key by an event.
    pub(crate) fn apply_event(&mut self, key: &RouteKey, marked: MarkedRoute, event: RouteEvent) {
        let slot = self.desired.route_slot(key, None);
        let mut there = self.take(key, slot);
        let same = there.iter().position(|one| is_same(one, &marked));
        match (event, same, there.len()) {
            (RouteEvent::Added, None, 0) | (RouteEvent::Replaced, _, 0 | 1) => there = vec![marked],
            (RouteEvent::Added, Some(_), 1) | (RouteEvent::Removed, None, 0) => {}
            (RouteEvent::Removed, Some(at), _) => drop(there.remove(at)),
            // The event does not say which of several routes it is about.
            _ => drop(self.uncertain.insert(*key)),
        }
        self.put(key, slot, there);
    }

    /// Whether nothing has to be done about a key, as far as is known.
    pub(crate) fn is_settled(&self, key: &RouteKey) -> bool {
        let is_known = !self.uncertain.contains(key);
        is_known
            && match self.desired.route_slot(key, None) {
                Some(slot) => self.is_set(slot),
                None => !self.others.contains_key(key),
            }
    }

    /// The routes that have a key; none, if that is uncertain.
    pub(crate) fn routes_on(&self, key: &RouteKey) -> Option<Vec<MarkedRoute>> {
        if self.uncertain.contains(key) {
            return None;
        }
        let slot = self.desired.route_slot(key, None).filter(|slot| self.is_set(*slot));
        let declared = slot.and_then(|slot| self.declared(slot));
        Some(match declared {
            Some(marked) => vec![marked],
            None => self.others.get(key).cloned().unwrap_or_default(),
        })
    }

    /// Forgets a key that is about to be dumped.
    pub(crate) fn forget(&mut self, key: &RouteKey) {
        self.take(key, self.desired.route_slot(key, None));
        self.uncertain.remove(key);
    }

    /// Marks every route as uncertain that may have been deleted without an event. False, if they are too many.
    /// `templates` are those of declared routes; `is_touched` judges routes that are not as declared.
    pub(crate) fn mark_uncertain(
        &mut self,
        templates: impl IntoIterator<Item = u32>,
        is_touched: impl Fn(&Route) -> bool,
    ) -> bool {
        let desired = Arc::clone(&self.desired);
        let templates = templates.into_iter();
        for template in templates.filter_map(|number| desired.templates.get(number as usize)) {
            if template.routes.len() + self.uncertain.len() > MOST_UNCERTAIN {
                return false;
            }
            self.uncertain.extend(desired.routes_of(template));
        }
        let touched =
            |marked: &Vec<MarkedRoute>| marked.iter().any(|marked| is_touched(&marked.route));
        let others = self.others.iter().filter(|(_, marked)| touched(marked));
        self.uncertain.extend(others.map(|(key, _)| *key));
        self.uncertain.len() <= MOST_UNCERTAIN
    }

    fn put(&mut self, key: &RouteKey, slot: Option<Slot>, there: Vec<MarkedRoute>) {
        let is_ours = |marked: &MarkedRoute| marked.protocol == self.ours;
        match (slot, there.as_slice()) {
            (_, []) => {}
            (Some(slot), [only]) if is_ours(only) && self.agrees(slot, &only.route) => {
                self.set(slot);
            }
            (None, there) if !there.iter().any(is_ours) => {}
            _ => drop(self.others.insert(*key, there)),
        }
    }

    fn take(&mut self, key: &RouteKey, slot: Option<Slot>) -> Vec<MarkedRoute> {
        if let Some(slot) = slot.filter(|slot| self.is_set(*slot)) {
            self.clear(slot);
            return self.declared(slot).into_iter().collect();
        }
        self.others.remove(key).unwrap_or_default()
    }

    fn declared(&self, slot: Slot) -> Option<MarkedRoute> {
        let template = self.desired.template_at(slot)?;
        Some(MarkedRoute { route: template.route.clone(), protocol: self.ours })
    }

    fn agrees(&self, slot: Slot, route: &Route) -> bool {
        self.desired.template_at(slot).is_some_and(|template| route_agrees(&template.route, route))
    }

    fn is_set(&self, slot: Slot) -> bool {
        self.good.get(slot.index() / 64).is_some_and(|word| word & bit(slot) != 0)
    }

    fn set(&mut self, slot: Slot) {
        if let Some(word) = self.good.get_mut(slot.index() / 64) {
            *word |= bit(slot);
        }
    }

    fn clear(&mut self, slot: Slot) {
        if let Some(word) = self.good.get_mut(slot.index() / 64) {
            *word &= !bit(slot);
        }
    }
}

fn bit(slot: Slot) -> u64 {
    1 << (slot.index() % 64)
}

/// Whether an event is about the known route. That may be a declared route, which leaves attributes open.
fn is_same(known: &MarkedRoute, event: &MarkedRoute) -> bool {
    known.protocol == event.protocol && route_agrees(&known.route, &event.route)
}
