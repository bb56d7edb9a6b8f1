//! Which steps a change becomes, and in which order.

use homeostat_core::{Action, Step as _};

use super::*;
use crate::address::Address;
use crate::link::IfIndex;
use crate::moment::ObservedAddress;

fn draft(
    desired: &DesiredState,
    moment: &Moment,
    changes: Vec<Change<Key, Object>>,
) -> Draft<Rtnl> {
    super::draft(desired, moment, &FormerLinks::new(), changes.into_iter().collect())
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn address_key(text: &str) -> AddressKey {
    match key(text) {
        Key::Address(key) => key,
        other => panic!("{other}"),
    }
}

/// A moment with the link `va` and these addresses; those after a `*` are secondary, those after a
/// `!` foreign.
fn moment(addresses: &[&str]) -> Moment {
    let mut moment = Moment::default();
    moment.links.insert("va".parse().unwrap(), IfIndex(1));
    for text in addresses {
        let is_ours = !text.contains('!');
        let owner = if is_ours { Owner::Ours } else { Owner::foreign("somebody") };
        let key = address_key(text.trim_start_matches(['*', '!']));
        let (address, is_secondary) = (Address::default(), text.contains('*'));
        let observed = ObservedAddress { address, owner, is_secondary };
        moment.addresses.extend([(key, observed)]);
    }
    moment
}

fn addresses(keys: &[&str]) -> DesiredState {
    let mut builder = DesiredState::builder();
    for key in keys {
        builder.add(self::key(key), Object::Address(Address::default())).unwrap();
    }
    builder.build().unwrap()
}

fn delete(text: &str) -> Change<Key, Object> {
    Change::Delete { key: key(text), before: Object::Address(Address::default()) }
}

fn create(slot: usize) -> Change<Key, Object> {
    Change::Create { slot: Slot::at(slot) }
}

fn lines(desired: &DesiredState, draft: &Draft<Rtnl>) -> Vec<String> {
    let mut steps: Vec<&Step> = draft.steps.iter().collect();
    steps.sort_by_key(|step| step.phase());
    let line = |step: &&Step| format!("{} {}", step.action().sign(), step.key(desired));
    steps.iter().map(line).collect()
}

const ONE: &str = "address 10.0.0.1/24 dev va";
const TWO: &str = "address 10.0.0.2/24 dev va";

#[test]
fn a_step_for_a_million_is_small() {
    assert!(size_of::<Step>() <= 16);
    assert!(size_of::<crate::route::packed::PackedRoute<u32>>() <= 20);
    assert!(size_of::<crate::route::packed::PackedRoute<u128>>() <= 32);
}

#[test]
fn a_desired_state_on_an_absent_link_waits_for_it() {
    let desired = addresses(&["address 10.0.0.1/24 dev nope"]);
    let draft = draft(&desired, &moment(&[]), vec![create(0)]);
    assert!(draft.steps.is_empty());
    assert_eq!(draft.findings[0].1.reason(), "waits on link nope");
}

#[test]
fn secondaries_go_before_their_primary() {
    let desired = addresses(&[]);
    let moment = moment(&[ONE, "*address 10.0.0.2/24 dev va"]);
    let draft = draft(&desired, &moment, vec![delete(ONE), delete(TWO)]);
    assert_eq!(lines(&desired, &draft), [format!("- {TWO}"), format!("- {ONE}")]);
}

#[test]
fn what_becomes_secondary_in_the_same_plan_is_made_again() {
    let desired = addresses(&[TWO]);
    let draft = draft(&desired, &moment(&[ONE]), vec![create(0), delete(ONE)]);
    let Some(Step::Delete(delete)) = draft.steps.last() else { panic!() };
    let cascade = delete.cascade.as_ref().unwrap();
    assert_eq!(cascade.again, [Slot::at(0)]);
    assert!(cascade.empties_link, "for a moment");
}

#[test]
fn a_foreign_secondary_is_named_as_taken() {
    let desired = addresses(&[]);
    let draft = draft(&desired, &moment(&[ONE, "*!address 10.0.0.2/24 dev va"]), vec![delete(ONE)]);
    assert_eq!(draft.steps[0].takes()[0].key, TWO);
}

#[test]
fn an_address_of_another_subnet_keeps_the_link_in_use() {
    let desired = addresses(&[]);
    let moment = moment(&[ONE, "!address 10.1.0.1/24 dev va"]);
    let draft = draft(&desired, &moment, vec![delete(ONE)]);
    let [Step::Delete(delete)] = draft.steps.as_slice() else { panic!() };
    let cascade = delete.cascade.as_ref().unwrap();
    assert!(!cascade.empties_link && cascade.takes.is_empty());
}

#[test]
fn an_ipv6_address_makes_way_for_its_other_prefix_length_first() {
    let desired = addresses(&["address 2001:db8::1/80 dev va"]);
    let old = "address 2001:db8::1/64 dev va";
    let draft = draft(&desired, &moment(&[old]), vec![create(0), delete(old)]);
    let expected = [format!("- {old}"), "+ address 2001:db8::1/80 dev va".to_owned()];
    assert_eq!(lines(&desired, &draft), expected);
    assert_eq!(draft.steps[1].action(), Action::Delete);
    assert_eq!(draft.steps[1].group(&desired), None, "it waits for no create: that waits for it");
}

/// A declare this address on `va`, and for these routes.
fn with_routes(address: &str, routes: &[(&str, Route)]) -> DesiredState {
    let mut builder = DesiredState::builder();
    builder.add(self::key(address), Object::Address(Address::default())).unwrap();
    for (dst, route) in routes {
        let Key::Route(key) = key(dst) else { panic!("{dst}") };
        builder.route(key, route.clone()).unwrap();
    }
    builder.build().unwrap()
}

#[test]
fn a_route_over_an_address_that_waits_for_its_link_waits_with_it() {
    let via = Route::via("10.0.0.9".parse().unwrap());
    let nope = "address 10.0.0.1/24 dev nope";
    let desired = with_routes(nope, &[("route 10.5.0.0/16", via.clone())]);
    let waiting = draft(&desired, &moment(&[]), vec![create(0), create(1)]);
    assert!(waiting.steps.is_empty());
    let on: Vec<String> = waiting.findings.iter().map(|(_, finding)| finding.reason()).collect();
    assert_eq!(on, ["waits on link nope", "waits on link nope"]);
    let other = moment(&["!address 10.0.0.7/24 dev va"]);
    let possible = draft(&desired, &other, vec![create(0), create(1)]);
    assert_eq!(lines(&desired, &possible), ["+ route 10.5.0.0/16"], "another address reaches it");
}

#[test]
fn routes_that_go_with_a_swapped_address_are_made_again_once() {
    let dev = Route::dev("va".parse().unwrap());
    let via = Route::via("10.0.0.9".parse().unwrap());
    let away = Route::via("10.9.0.9".parse().unwrap());
    let routes = [
        ("route 10.4.0.0/16", dev),
        ("route 10.5.0.0/16", via),
        ("route 10.6.0.0/16", away),
        ("route 2001:db8::/32", Route::dev("va".parse().unwrap())),
    ];
    let desired = with_routes(TWO, &routes);
    // The second of the routes is absent: it is made once, after the address went.
    let draft = draft(&desired, &moment(&[ONE]), vec![create(0), create(2), delete(ONE)]);
    let expected = [
        format!("+ {TWO}"),
        format!("- {ONE}"),
        "-/+ route 10.5.0.0/16".to_owned(),
        "-/+ route 10.4.0.0/16".to_owned(),
    ];
    assert_eq!(lines(&desired, &draft), expected);
}

#[test]
fn removals_of_many_alike_share_what_is_there() {
    let desired = addresses(&[]);
    let before = || Object::Route(Route::via("10.0.0.9".parse().unwrap()));
    let delete = |text| Change::Delete { key: key(text), before: before() };
    let draft = draft(
        &desired,
        &moment(&[]),
        vec![delete("route 10.4.0.0/16"), delete("route 10.5.0.0/16")],
    );
    let [Step::Delete(one), Step::Delete(two)] = draft.steps.as_slice() else { panic!() };
    assert!(Arc::ptr_eq(&one.before, &two.before));
}
