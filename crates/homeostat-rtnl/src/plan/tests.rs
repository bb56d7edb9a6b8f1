//! Which steps a change becomes, and in which order.

use homeostat_core::{Action, Step as _};

use super::*;
use crate::link::IfIndex;
use crate::model::Address;
use crate::moment::Standing;

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
        moment.addresses.push(Standing { key, owner, is_secondary: text.contains('*') });
    }
    moment
}

fn addresses(keys: &[&str]) -> Wish {
    let mut builder = Wish::builder();
    for key in keys {
        builder.address(address_key(key), Address::default()).unwrap();
    }
    builder.build().unwrap()
}

fn delete(text: &str) -> Change<Key, Object> {
    Change::Delete { key: key(text), before: Object::Address(Address::default()) }
}

fn create(slot: usize) -> Change<Key, Object> {
    Change::Create { slot: Slot::at(slot) }
}

fn lines(wish: &Wish, draft: &Draft<Rtnl>) -> Vec<String> {
    let mut steps: Vec<&Step> = draft.steps.iter().collect();
    steps.sort_by_key(|step| step.phase());
    let line = |step: &&Step| format!("{} {}", step.action().sign(), step.key(wish));
    steps.iter().map(line).collect()
}

const ONE: &str = "address 10.0.0.1/24 dev va";
const TWO: &str = "address 10.0.0.2/24 dev va";

#[test]
fn a_step_for_a_million_is_small() {
    assert!(size_of::<Step>() <= 16);
    assert!(size_of::<crate::wish::Row<u32>>() <= 20);
    assert!(size_of::<crate::wish::Row<u128>>() <= 32);
}

#[test]
fn a_wish_on_an_absent_link_waits_for_it() {
    let wish = addresses(&["address 10.0.0.1/24 dev nope"]);
    let draft = draft(&wish, &moment(&[]), vec![create(0)]);
    assert!(draft.steps.is_empty());
    assert_eq!(draft.pending[0].on, "link nope");
}

#[test]
fn secondaries_go_before_their_primary() {
    let wish = addresses(&[]);
    let moment = moment(&[ONE, "*address 10.0.0.2/24 dev va"]);
    let draft = draft(&wish, &moment, vec![delete(ONE), delete(TWO)]);
    assert_eq!(lines(&wish, &draft), [format!("- {TWO}"), format!("- {ONE}")]);
}

#[test]
fn what_becomes_secondary_in_the_same_plan_is_made_again() {
    let wish = addresses(&[TWO]);
    let draft = draft(&wish, &moment(&[ONE]), vec![create(0), delete(ONE)]);
    let Some(Step::Delete(delete)) = draft.steps.last() else { panic!() };
    assert_eq!(delete.cascade.again, [Slot::at(0)]);
    assert!(delete.cascade.empties_link, "for a moment");
}

#[test]
fn a_foreign_secondary_is_named_as_taken() {
    let wish = addresses(&[]);
    let draft = draft(&wish, &moment(&[ONE, "*!address 10.0.0.2/24 dev va"]), vec![delete(ONE)]);
    assert_eq!(draft.steps[0].takes()[0].key, TWO);
}

#[test]
fn an_address_of_another_subnet_keeps_the_link_in_use() {
    let wish = addresses(&[]);
    let moment = moment(&[ONE, "!address 10.1.0.1/24 dev va"]);
    let draft = draft(&wish, &moment, vec![delete(ONE)]);
    let [Step::Delete(delete)] = draft.steps.as_slice() else { panic!() };
    assert!(!delete.cascade.empties_link && delete.cascade.takes.is_empty());
}

#[test]
fn an_ipv6_address_makes_way_for_its_other_prefix_length_first() {
    let wish = addresses(&["address 2001:db8::1/80 dev va"]);
    let old = "address 2001:db8::1/64 dev va";
    let draft = draft(&wish, &moment(&[old]), vec![create(0), delete(old)]);
    let expected = [format!("- {old}"), "+ address 2001:db8::1/80 dev va".to_owned()];
    assert_eq!(lines(&wish, &draft), expected);
    assert_eq!(draft.steps[1].action(), Action::Delete);
    assert_eq!(draft.steps[1].group(&wish), None, "it waits for no create: that waits for it");
}
