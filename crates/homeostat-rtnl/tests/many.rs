//! Desired states of many routes: whatever they share and in whatever order they come, each is found again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use homeostat_core::Desired;
use homeostat_rtnl::{
    DesiredError, DesiredState, Key, Metric, Net, Object, Route, RouteKey, Table, Tos,
};
use proptest::prelude::*;

/// Few different numbers, so that keys differ in any one of their parts.
fn any_key() -> impl Strategy<Value = RouteKey> {
    let v4 = (0..4_u8, 28..=32_u8)
        .prop_map(|(bits, len)| (Net::new([10, 0, 0, 16 * bits].into(), len), 1));
    let v6 = (0..4_u16, 108..=128_u8).prop_map(|(bits, len)| {
        (Net::new([0xfd00, 0, 0, 0, 0, bits, 0x8000, bits].into(), len), 0)
    });
    let numbers = (prop_oneof![1..3_u32, 253..256_u32, Just(u32::MAX)], 0..3_u32, 0..2_u8);
    (prop_oneof![v4, v6], numbers).prop_map(|((net, tos_bits), (table, metric, tos))| {
        let key = RouteKey::new(net.unwrap()).in_table(Table(table));
        key.with_metric(Metric(metric)).with_tos(Tos(tos * tos_bits))
    })
}

fn any_route() -> impl Strategy<Value = Route> {
    let via = (0..2000_u16).prop_map(|last| Route::via([0xfe80, 0, 0, 0, 0, 0, 0, last].into()));
    let dev = (0..20).prop_map(|last| Route::dev(format!("eth{last}").parse().unwrap()));
    let mtu = (1..5_u32)
        .prop_map(|mtu| Route { mtu: Some(1000 + mtu), ..Route::via([0xfe80; 8].into()) });
    prop_oneof![via, dev, mtu]
}

proptest! {
    #[test]
    fn every_route_is_found_in_key_order_with_its_own_way(
        desired_states in proptest::collection::vec((any_key(), any_route(), any::<bool>()), 0..200),
    ) {
        let desired_states: BTreeMap<RouteKey, (Route, bool)> =
            desired_states.into_iter().map(|(key, route, adopt)| (key, (route, adopt))).collect();
        let mut builder = DesiredState::builder();
        for (key, (route, adopt)) in desired_states.iter().rev() {
            match adopt {
                true => builder.adopting_route(*key, route.clone()).unwrap(),
                false => builder.route(*key, route.clone()).unwrap(),
            };
        }
        let desired = builder.build().unwrap();
        prop_assert_eq!(desired.len(), desired_states.len());
        for (index, (key, (route, adopt))) in desired_states.iter().enumerate() {
            let slot = homeostat_core::Slot::at(index);
            prop_assert_eq!(desired.key(slot), Key::Route(*key));
            prop_assert_eq!(desired.slot(&Key::Route(*key), None), Some(slot));
            prop_assert_eq!(desired.object(slot), Object::Route(route.clone()));
            prop_assert_eq!(desired.may_adopt(slot), *adopt);
        }
    }
}

#[test]
fn leave_for_one_key_takes_no_leave_from_another() {
    let key = |net: &str| RouteKey::new(net.parse().unwrap());
    let (route, first, second) = (Route::via([10, 0, 0, 1].into()), "10.1.0.0/16", "10.2.0.0/16");
    let mut builder = DesiredState::builder();
    builder.adopting_route(key(first), route.clone()).unwrap();
    builder.adopt(Key::Route(key(second)), Object::Route(route.clone())).unwrap();
    builder.route(key("10.3.0.0/16"), route).unwrap();
    let desired = builder.build().unwrap();
    let may = (0..3).map(|index| desired.may_adopt(homeostat_core::Slot::at(index)));
    assert_eq!(may.collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_route_that_cannot_be_is_refused_with_and_without_leave() {
    let key = RouteKey::new("fd00::/8".parse().unwrap());
    let route = Route::via([10, 0, 0, 1].into());
    let refused = |error: &DesiredError| matches!(error, DesiredError::Impossible { .. });
    assert!(DesiredState::builder().route(key, route.clone()).is_err_and(|error| refused(&error)));
    assert!(DesiredState::builder().adopting_route(key, route).is_err_and(|error| refused(&error)));
}
