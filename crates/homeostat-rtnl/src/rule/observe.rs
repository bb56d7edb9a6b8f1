//! Looks at the rules, and finds out which key each of them stands on.

use std::collections::BTreeSet;

use homeostat_core::{Desired as _, Owner};
use homeostat_netlink::uapi::{RTM_GETRULE, RTPROT_KERNEL};
use homeostat_netlink::{Batch, Error};

use crate::desired::DesiredState;
use crate::family::Family;
use crate::key::Key;
use crate::model::Object;
use crate::moment::Moment;
use crate::number::Protocol;
use crate::observe::{Look, foreign, request_for};
use crate::rule::decode::{SeenRule, rule as decode};
use crate::rule::encode::Whole;
use crate::rule::{Rule, RuleKey};

/// A rule that is there, in the kernel's order.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// Where it really is.
    pub(crate) place: RuleKey,
    /// The key that it stands on: that of a desired state without a priority, if it fulfils one.
    pub(crate) key: RuleKey,
    pub(crate) rule: Rule,
    pub(crate) protocol: Protocol,
    pub(crate) fate: Fate,
}

impl Standing {
    /// A rule as it would stand there.
    pub(super) fn declared(key: &RuleKey, rule: &Rule, protocol: Protocol) -> Self {
        Standing { place: *key, key: *key, rule: *rule, protocol, fate: Fate::Stays }
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

impl Look<'_, '_> {
    pub(crate) fn rules(&mut self, moment: &mut Moment) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            let mut request = Batch::new();
            let fixed = [family.to_kernel(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            request_for(&mut request, RTM_GETRULE, &fixed, None)?;
            let found = self.collect(&mut request, decode)?;
            moment.rules.extend(found.iter().map(|seen| stand(seen, self.view.desired)));
        }
        let focus = self.view.focus;
        decide(&mut moment.rules, self.source.protocol, self.view.desired);
        for standing in told(&moment.rules) {
            let owner = owner(standing.protocol, self.source.protocol);
            self.hand_on(Key::from(standing.key), Object::Rule(standing.rule), owner);
        }
        // What is out of focus is not written, whatever should become of it.
        let hidden = moment.rules.iter_mut().filter(|one| one.fate == Fate::Goes);
        for standing in hidden.filter(|one| !focus.covers(&Key::from(one.key))) {
            standing.fate = Fate::Stays;
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
fn stand(seen: &SeenRule, desired: &DesiredState) -> Standing {
    let SeenRule { key: place, rule, protocol } = *seen;
    let is_declared = |key: RuleKey| desired.slot(&key.into(), None).is_some();
    let anywhere = place.anywhere();
    let key = if !is_declared(place) && is_declared(anywhere) { anywhere } else { place };
    Standing { place, key, rule, protocol, fate: Fate::Foreign }
}

/// The first of ours that is as declared stays; the others of ours go. A foreign rule stands on the
/// key of a desired state without a priority only if it is as declared: otherwise there is room beside it.
fn decide(rules: &mut [Standing], ours: Protocol, desired: &DesiredState) {
    let mut kept = BTreeSet::new();
    for standing in &mut *rules {
        let slot = desired.slot(&standing.key.into(), None);
        let agrees = slot.is_some_and(|slot| desired.object(slot) == Object::Rule(standing.rule));
        if standing.protocol != ours {
            standing.key = if agrees { standing.key } else { standing.place };
        } else if agrees && kept.insert(standing.key) {
            standing.fate = Fate::Stays;
        } else {
            standing.fate = Fate::Goes;
        }
    }
    // A desired state without a priority is fulfilled by one rule; those at other places have no desired state.
    let going = rules.iter_mut().filter(|one| one.fate == Fate::Goes && one.key != one.place);
    for standing in going {
        if !kept.insert(standing.key) {
            standing.key = standing.place;
        }
    }
}

/// What is told of each key: of ours one that has to go, so that it is put right; else ours; else
/// the first foreign one.
fn told(rules: &[Standing]) -> impl Iterator<Item = &Standing> {
    let rank = |standing: &Standing| match standing.fate {
        Fate::Goes => 0,
        Fate::Stays => 1,
        Fate::Foreign => 2,
    };
    let same = |a: &Standing, b: &Standing| a.key == b.key;
    rules.iter().enumerate().filter_map(move |(at, standing)| {
        let before =
            rules.iter().take(at).any(|one| same(one, standing) && rank(one) <= rank(standing));
        let after = rules.iter().skip(at + 1);
        let better = after.into_iter().any(|one| same(one, standing) && rank(one) < rank(standing));
        (!before && !better).then_some(standing)
    })
}

fn owner(protocol: Protocol, ours: Protocol) -> Owner {
    match protocol {
        protocol if protocol == ours => Owner::Ours,
        Protocol(RTPROT_KERNEL) => Owner::Kernel,
        protocol => foreign(protocol),
    }
}
