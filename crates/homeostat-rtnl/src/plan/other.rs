//! How nexthops, rules and neighbours become steps: when, after what, and with which losses. Pure.

use std::sync::Arc;

use homeostat_core::{Desired as _, WaitsOn};

use super::{Has, missing_link};
use crate::cascade::Cascade;
use crate::desired::{Declared, DesiredState};
use crate::key::Key;
use crate::model::Object;
use crate::moment::Moment;
use crate::nexthop::{self, NexthopId};
use crate::step::{Delete, Phase, Step, Update, Way};

/// When something is put there.
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

/// When something goes.
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

/// What a desired state waits for. A rule waits for no link: the kernel takes any name, and binds it when a
/// link of that name comes.
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

/// A declared nexthop that waits for its link, as what others wait for.
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

/// Whether what is there cannot become as declared but by going first.
pub(crate) fn is_anew(declared: &Declared, before: &Object) -> bool {
    match (&declared.object, before) {
        (Object::Nexthop(desired), Object::Nexthop(seen)) => !nexthop::is_same_kind(desired, seen),
        _ => false,
    }
}

/// The second half of a change: a rule cannot be changed in place, so that the former one goes once
/// the other one stands.
pub(crate) fn rest(declared: Option<&Declared>, update: &Update) -> Option<Step> {
    let key = declared.map(|declared| &declared.key).filter(|key| matches!(key, Key::Rule(_)))?;
    let (before, phase) = (Arc::new(update.before.clone()), Phase::DeleteRules);
    let delete = Delete { key: key.clone(), before, phase, is_rest: true, cascade: None };
    Some(Step::Delete(Box::new(delete)))
}

/// Rules that go are taken away in this order: a request for one that says less could hit one that
/// says more.
pub(crate) fn generality(step: &Step) -> usize {
    match step {
        Step::Delete(delete) => match &delete.key {
            Key::Rule(key) => usize::MAX - key.count(),
            _ => 0,
        },
        _ => 0,
    }
}

/// What goes along with something that goes.
pub(crate) fn cascade(key: &Key, moment: &Moment) -> Cascade {
    match key {
        Key::Nexthop(id) => nexthop::of_delete(*id, moment),
        _ => Cascade::default(),
    }
}

/// The keys without which a desired state cannot be.
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
        // A rule that goes may have to take others of ours away for a moment.
        Key::Rule(_) => rules(desired, disturb),
        _ => {}
    }
}

fn rules(desired: &DesiredState, tell: &mut dyn FnMut(Key)) {
    let keys = desired.others.iter().map(|desired| &desired.key);
    keys.filter(|key| matches!(key, Key::Rule(_))).cloned().for_each(tell);
}

#[cfg(test)]
mod tests {
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
        moment.links.insert("va".parse().unwrap(), IfIndex(7));
        assert_eq!(waits("nexthop 20", &moment), None);
    }
}
