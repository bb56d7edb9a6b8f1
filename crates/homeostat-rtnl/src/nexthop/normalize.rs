//! What a declared nexthop means to the kernel, and when what is seen agrees with it. Pure.

use crate::family::Family;
use crate::key::AddressKey;
use crate::nexthop::{Member, Nexthop, NexthopId};
use crate::normalize::Impossible;
use crate::number::Scope;

/// Brings a declared nexthop to the form in which it is compared.
pub(crate) fn normalize(id: NexthopId, mut desired: Nexthop) -> Result<Nexthop, Impossible> {
    if id.0 == 0 || desired.unusual.is_some() {
        return Err(Impossible::NotANexthop);
    }
    if desired.is_group() {
        check_group(id, &desired)?;
        desired.group.sort_unstable();
    } else {
        check_single(&desired)?;
        let told = desired.via.map(Family::of).or(desired.family);
        desired.family = Some(told.unwrap_or(Family::V4));
    }
    let scope = desired.scope.take();
    if scope.is_some_and(|scope| scope != derived_scope(&desired)) {
        return Err(Impossible::NexthopScope);
    }
    Ok(desired)
}

fn check_group(id: NexthopId, desired: &Nexthop) -> Result<(), Impossible> {
    let Nexthop { family, via, dev, onlink, blackhole, group, .. } = desired;
    if family.is_some() || via.is_some() || dev.is_some() || onlink.is_some() || *blackhole {
        return Err(Impossible::GroupWithWay);
    }
    let mut ids: Vec<NexthopId> = group.iter().map(|member| member.id).collect();
    ids.sort_unstable();
    if ids.contains(&id) || ids.array_windows().any(|[a, b]| a == b) {
        return Err(Impossible::GroupMember);
    }
    let weighs = |member: &Member| (1..=256).contains(&member.weight);
    if group.iter().all(weighs) { Ok(()) } else { Err(Impossible::Weight) }
}

fn check_single(desired: &Nexthop) -> Result<(), Impossible> {
    let told = desired.via.map(Family::of).zip(desired.family);
    if told.is_some_and(|(gateway, family)| gateway != family) {
        return Err(Impossible::NexthopFamily);
    }
    let has_way = desired.via.is_some() || desired.dev.is_some() || desired.onlink.is_some();
    match (desired.blackhole, desired.dev) {
        (true, _) if has_way => Err(Impossible::HoleWithWay),
        (false, None) => Err(Impossible::NexthopWithoutLink),
        _ => Ok(()),
    }
}

/// Quirk `nexthop-scope-is-derived` (Linux 6.18): a request that names a scope is refused, and what
/// is read back follows from the way.
fn derived_scope(desired: &Nexthop) -> Scope {
    match desired {
        Nexthop { blackhole: true, .. } => Scope::GLOBAL,
        _ if desired.is_group() => Scope::GLOBAL,
        Nexthop { via: None, family: Some(Family::V4), .. } => Scope::HOST,
        _ => Scope::LINK,
    }
}

/// Whether a nexthop is as declared. What makes the way is always declared.
pub(crate) fn agrees(desired: &Nexthop, seen: &Nexthop) -> bool {
    let is_onlink = desired.onlink.is_none() || desired.onlink == seen.onlink;
    is_onlink
        && seen.unusual.is_none()
        && (desired.family, desired.via, desired.dev) == (seen.family, seen.via, seen.dev)
        && desired.blackhole == seen.blackhole
        && desired.group == seen.group
}

/// Whether one can become the other in place.
///
/// Quirk `nexthop-kind-is-for-good` (Linux 6.18): a group cannot become a single nexthop, nor the
/// other way round; a resilient group cannot become a usual one.
pub(crate) fn is_same_kind(desired: &Nexthop, seen: &Nexthop) -> bool {
    desired.is_group() == seen.is_group() && seen.unusual.is_none()
}

/// Whether a declared address makes a nexthop possible: by the network of its gateway.
pub(crate) fn rests_on(nexthop: &Nexthop, address: &AddressKey) -> bool {
    let reaches = |gateway| address.net().contains(gateway);
    nexthop.dev == Some(address.link()) && nexthop.via.is_some_and(reaches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way() -> Nexthop {
        Nexthop::via([10, 0, 0, 2].into(), "va".parse().unwrap())
    }

    fn group(members: &[(u32, u16)]) -> Nexthop {
        let member = |(id, weight): &(u32, u16)| Member { id: NexthopId(*id), weight: *weight };
        Nexthop::group(members.iter().map(member).collect())
    }

    #[test]
    fn the_family_is_the_gateways_or_ipv4() {
        let family = |desired| normalize(NexthopId(1), desired).unwrap().family;
        let v6 = Nexthop { via: Some("fd00::1".parse().unwrap()), ..way() };
        assert_eq!(family(way()), Some(Family::V4));
        assert_eq!(family(v6), Some(Family::V6));
        assert_eq!(family(Nexthop { via: None, ..way() }), Some(Family::V4));
        assert_eq!(family(Nexthop::blackhole(Family::V6)), Some(Family::V6));
        assert_eq!(family(group(&[(7, 1)])), None);
    }

    #[test]
    fn what_can_never_be_is_refused_with_its_reason() {
        let gateway = Some([10, 0, 0, 2].into());
        for (desired, why) in [
            (Nexthop::default(), Impossible::NexthopWithoutLink),
            (Nexthop { dev: None, ..way() }, Impossible::NexthopWithoutLink),
            (Nexthop { blackhole: true, ..way() }, Impossible::HoleWithWay),
            (Nexthop { family: Some(Family::V6), ..way() }, Impossible::NexthopFamily),
            (Nexthop { via: gateway, ..group(&[(7, 1)]) }, Impossible::GroupWithWay),
            (group(&[(1, 1)]), Impossible::GroupMember),
            (group(&[(7, 1), (7, 2)]), Impossible::GroupMember),
            (group(&[(7, 0)]), Impossible::Weight),
            (group(&[(7, 257)]), Impossible::Weight),
            (Nexthop { scope: Some(Scope::HOST), ..way() }, Impossible::NexthopScope),
        ] {
            assert_eq!(normalize(NexthopId(1), desired), Err(why));
        }
        assert_eq!(normalize(NexthopId(0), way()), Err(Impossible::NotANexthop));
    }

    #[test]
    fn a_scope_that_the_kernel_derives_anyway_may_be_declared() {
        for (desired, scope) in [
            (way(), Scope::LINK),
            (Nexthop { via: None, ..way() }, Scope::HOST),
            (Nexthop { via: None, family: Some(Family::V6), ..way() }, Scope::LINK),
            (Nexthop::blackhole(Family::V4), Scope::GLOBAL),
            (group(&[(7, 1)]), Scope::GLOBAL),
        ] {
            let desired = Nexthop { scope: Some(scope), ..desired };
            assert!(normalize(NexthopId(1), desired.clone()).is_ok(), "{desired:?}");
        }
    }

    #[test]
    fn members_agree_in_any_order_and_weights_count() {
        let seen = normalize(NexthopId(1), group(&[(7, 1), (8, 2)])).unwrap();
        let agrees = |desired| agrees(&normalize(NexthopId(1), desired).unwrap(), &seen);
        assert!(agrees(group(&[(8, 2), (7, 1)])));
        assert!(!agrees(group(&[(8, 1), (7, 1)])));
        assert!(!agrees(group(&[(7, 1)])));
    }
}
