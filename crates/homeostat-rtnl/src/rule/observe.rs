//! Looks at the rules, and finds out which key each of them stands on.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::Desired as _;
use homeostat_netlink::Error;
use homeostat_netlink::uapi::RTM_GETRULE;

use crate::desired::DesiredState;
use crate::key::Key;
use crate::moment::Moment;
use crate::net::Family;
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::Observation;
use crate::route::observe::route_owner;
use crate::rule::message::{SeenRule, Whole, decode};
use crate::rule::{Rule, RuleKey};

/// A rule that is there, in the kernel's order.
#[derive(Clone, Debug)]
pub(crate) struct ObservedRule {
    /// Where it really is.
    pub(crate) place: RuleKey,
    /// The key that it stands on: that of a desired state without a priority, if it fulfils one.
    pub(crate) key: RuleKey,
    pub(crate) rule: Rule,
    pub(crate) protocol: Protocol,
    pub(crate) fate: Fate,
}

impl ObservedRule {
    /// A rule as it would stand there.
    pub(super) fn declared(key: &RuleKey, rule: &Rule, protocol: Protocol) -> Self {
        ObservedRule { place: *key, key: *key, rule: *rule, protocol, fate: Fate::Stays }
    }

    /// All that makes it what it is.
    pub(super) fn whole(&self) -> Whole<'_> {
        (&self.place, &self.rule, self.protocol)
    }
}

/// What becomes of a rule in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is as declared, or out of sight.
    Stays,
    /// It is ours and goes, if only since it is one too many.
    Goes,
    /// It is somebody else's.
    Foreign,
}

impl Observation<'_, '_> {
    pub(crate) fn rules(&mut self, moment: &mut Moment) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            let fixed = [family.to_kernel(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let found = self.collect(RTM_GETRULE, &fixed, decode)?;
            moment.rules.extend(found.iter().map(|seen| stand(seen, self.view.desired)));
        }
        let focus = self.view.focus;
        decide(&mut moment.rules, self.source.protocol, self.view.desired);
        for observed in reported(&moment.rules) {
            let owner = route_owner(observed.protocol, self.source.protocol);
            self.report(Key::from(observed.key), Object::Rule(observed.rule), owner);
        }
        // What is out of focus is not written, whatever should become of it.
        let hidden = moment.rules.iter_mut().filter(|one| one.fate == Fate::Goes);
        for observed in hidden.filter(|one| !focus.covers(&Key::from(one.key))) {
            observed.fate = Fate::Stays;
        }
        Ok(())
    }
}

impl From<RuleKey> for Key {
    fn from(key: RuleKey) -> Key {
        Key::Rule(Box::new(key))
    }
}

/// The key that a rule stands on.
fn stand(seen: &SeenRule, desired: &DesiredState) -> ObservedRule {
    let SeenRule { key: place, rule, protocol } = *seen;
    let is_declared = |key: RuleKey| desired.slot(&key.into(), None).is_some();
    let anywhere = RuleKey { priority: None, ..place };
    let key = if !is_declared(place) && is_declared(anywhere) { anywhere } else { place };
    ObservedRule { place, key, rule, protocol, fate: Fate::Foreign }
}

/// The first of ours that is as declared stays; the others of ours go. A foreign rule stands on the
/// key of a desired state without a priority only if it is as declared: otherwise there is room beside it.
fn decide(rules: &mut [ObservedRule], ours: Protocol, desired: &DesiredState) {
    let mut kept = BTreeSet::new();
    for observed in &mut *rules {
        let slot = desired.slot(&observed.key.into(), None);
        let agrees = slot.is_some_and(|slot| desired.object(slot) == Object::Rule(observed.rule));
        if observed.protocol != ours {
            observed.key = if agrees { observed.key } else { observed.place };
        } else if agrees && kept.insert(observed.key) {
            observed.fate = Fate::Stays;
        } else {
            observed.fate = Fate::Goes;
        }
    }
    // A desired state without a priority is fulfilled by one rule; those at other places have no desired state.
    let going = rules.iter_mut().filter(|one| one.fate == Fate::Goes && one.key != one.place);
    for observed in going {
        if !kept.insert(observed.key) {
            observed.key = observed.place;
        }
    }
}

/// What is reported of each key: of ours one that has to go, so that it is put right; else ours; else
/// the first foreign one. In the kernel's order.
fn reported(rules: &[ObservedRule]) -> impl Iterator<Item = &ObservedRule> {
    let rank = |rule: &ObservedRule| match rule.fate {
        Fate::Goes => 0,
        Fate::Stays => 1,
        Fate::Foreign => 2,
    };
    let mut best: BTreeMap<RuleKey, (u8, usize)> = BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        let entry = best.entry(rule.key).or_insert((rank(rule), at));
        *entry = (rank(rule), at).min(*entry);
    }
    let places: BTreeSet<usize> = best.into_values().map(|(_, at)| at).collect();
    places.into_iter().filter_map(|at| rules.get(at))
}
