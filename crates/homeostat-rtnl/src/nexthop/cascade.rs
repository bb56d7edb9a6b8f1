//! What goes with a nexthop that goes. Pure.

use std::collections::BTreeSet;

use homeostat_core::{Owner, Taken};

use crate::cascade::Cascade;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::model::Object;
use crate::moment::Moment;
use crate::nexthop::{Nexthop, NexthopId, Standing};
use crate::shadow::Shadow;

/// What somebody else loses when a nexthop goes: routes, and members of groups.
pub(crate) fn of_delete(id: NexthopId, moment: &Moment) -> Cascade {
    let mut takes: Vec<Taken> = moment.taken_with_nexthop(id).cloned().into_iter().collect();
    let is_foreign = |group: &&Standing| !matches!(group.owner, Owner::Ours | Owner::Kernel);
    let groups = moment.nexthops.iter().filter(|group| group.members.contains(&id));
    for group in groups.filter(is_foreign) {
        takes.push(Taken { key: Key::Nexthop(group.id).to_string(), owner: group.owner.clone() });
        // A group goes with its last member.
        let routes = moment.taken_with_nexthop(group.id).filter(|_| group.members.len() == 1);
        takes.extend(routes.cloned());
    }
    Cascade { takes, ..Cascade::default() }
}

/// The declared keys that a nexthop carries: groups that it is in, and routes through it or them.
pub(crate) fn dependants(id: NexthopId, desired: &DesiredState, tell: &mut dyn FnMut(Key)) {
    let groups = groups_with(id, desired);
    for group in &groups {
        tell(Key::Nexthop(*group));
    }
    let is_one = |other: NexthopId| other == id || groups.contains(&other);
    desired.routes_like(|route| route.nexthop.is_some_and(is_one), tell);
}

/// The declared groups that a nexthop is in.
fn groups_with(id: NexthopId, desired: &DesiredState) -> Vec<NexthopId> {
    let is_in = |nexthop: &Nexthop| nexthop.group.iter().any(|member| member.id == id);
    let groups =
        desired.others.iter().filter_map(|declared| match (&declared.key, &declared.object) {
            (Key::Nexthop(group), Object::Nexthop(nexthop)) if is_in(nexthop) => Some(*group),
            _ => None,
        });
    groups.collect()
}

/// Doubts the routes that may have gone with a nexthop. False, if they are too many.
pub(crate) fn doubt(id: NexthopId, shadow: &mut Shadow) -> bool {
    let groups = groups_with(id, shadow.desired());
    let is_one = |other: NexthopId| other == id || groups.contains(&other);
    shadow.doubt(|route, _| route.nexthop.is_some_and(is_one))
}

/// The declared nexthops that go with some links: those on them, and groups that have no others.
pub(crate) fn lost_with(
    desired: &DesiredState,
    is_one: &dyn Fn(LinkName) -> bool,
) -> BTreeSet<NexthopId> {
    let all = || {
        desired.others.iter().filter_map(|desired| match (&desired.key, &desired.object) {
            (Key::Nexthop(id), Object::Nexthop(nexthop)) => Some((*id, nexthop)),
            _ => None,
        })
    };
    let alone = all().filter(|(_, nexthop)| nexthop.dev.is_some_and(is_one));
    let mut lost: BTreeSet<NexthopId> = alone.map(|(id, _)| id).collect();
    let is_lost = |nexthop: &Nexthop| nexthop.group.iter().all(|member| lost.contains(&member.id));
    let groups = all().filter(|(_, nexthop)| nexthop.is_group() && is_lost(nexthop));
    let groups: Vec<NexthopId> = groups.map(|(id, _)| id).collect();
    lost.extend(groups);
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;

    fn standing(id: u32, owner: Owner, members: &[u32]) -> Standing {
        let members = members.iter().copied().map(NexthopId).collect();
        Standing { id: NexthopId(id), owner, members }
    }

    #[test]
    fn foreign_groups_and_their_routes_are_named_and_ours_are_not() {
        let foreign = Owner::foreign("somebody");
        let mut moment = Moment {
            nexthops: vec![
                standing(1, Owner::Ours, &[]),
                standing(20, Owner::Ours, &[1]),
                standing(30, foreign.clone(), &[1]),
                standing(31, foreign.clone(), &[1, 2]),
                standing(32, foreign.clone(), &[2]),
            ],
            ..Moment::default()
        };
        for (dst, id) in [("10.1.0.0/16", 30), ("10.2.0.0/16", 31), ("10.3.0.0/16", 1)] {
            let key = crate::key::RouteKey::new(dst.parse().unwrap());
            moment.foreign.note(&key, &Route::through(NexthopId(id)), &foreign);
        }
        let takes = of_delete(NexthopId(1), &moment).takes;
        let keys: Vec<&str> = takes.iter().map(|taken| taken.key.as_str()).collect();
        assert_eq!(keys, ["route 10.3.0.0/16", "nexthop 30", "route 10.1.0.0/16", "nexthop 31"]);
    }
}
