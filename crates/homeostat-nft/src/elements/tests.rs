//! Elements sorted, joined and compared, without a kernel.

use super::*;
use homeostat_netlink::uapi::{NFTA_LIST_ELEM, NFTA_SET_ELEM_EXPIRATION, NFTA_SET_ELEM_TIMEOUT};

fn element(key: u32, flags: u32, left: Option<u64>) -> Box<[u8]> {
    let mut value = Tlvs::default();
    value.put(NFTA_DATA_VALUE, &key.to_be_bytes());
    let mut attrs = Tlvs::default();
    attrs.put(NFTA_SET_ELEM_KEY, &value.into_bytes());
    if flags != 0 {
        attrs.put(NFTA_SET_ELEM_FLAGS, &flags.to_be_bytes());
    }
    if let Some(left) = left {
        attrs.put(NFTA_SET_ELEM_TIMEOUT, &1000_u64.to_be_bytes());
        attrs.put(NFTA_SET_ELEM_EXPIRATION, &left.to_be_bytes());
    }
    let mut out = Tlvs::default();
    out.put(NFTA_LIST_ELEM, &attrs.into_bytes());
    out.into_bytes()
}

fn start(key: u32) -> Box<[u8]> {
    element(key, 0, None)
}

fn end(key: u32) -> Box<[u8]> {
    element(key, NFT_SET_ELEM_INTERVAL_END, None)
}

fn elements(layout: Layout, list: &[Box<[u8]>]) -> Elements {
    let mut collected = Collected::default();
    collected.take(&list.concat()).unwrap();
    collected.sorted(layout).unwrap()
}

fn differences(ours: &Elements, theirs: &Elements) -> Vec<Difference> {
    let mut found = Vec::new();
    ours.compare(theirs, |_, _| false, |difference| found.push(difference));
    found
}

#[test]
fn the_order_in_which_the_kernel_tells_them_does_not_matter() {
    let one = elements(Layout::Single, &[start(3), start(1), start(2)]);
    let other = elements(Layout::Single, &[start(2), start(3), start(1)]);
    assert_eq!(one, other);
    assert_eq!(differences(&one, &other), []);
}

#[test]
fn an_interval_is_one_unit_and_neighbours_stay_apart() {
    let list = [end(0), start(10), end(20), start(20), end(30), start(40)];
    let units = elements(Layout::Ends, &list);
    assert_eq!(units.places().len(), 4);
    assert_eq!(units.unit(1), [start(10), end(20)].concat());
    assert_eq!(units.unit(2), [start(20), end(30)].concat());
    assert_eq!(units.unit(3), &*start(40));
}

#[test]
fn a_longer_interval_is_a_changed_one() {
    let ours = elements(Layout::Ends, &[start(10), end(20)]);
    let theirs = elements(Layout::Ends, &[start(10), end(25), start(30), end(40)]);
    assert_eq!(differences(&ours, &theirs), [Difference::Changed(0, 0), Difference::Extra(1)]);
    assert_eq!(&*theirs.deleting(0).unwrap(), [start(10), end(25)].concat());
}

#[test]
fn the_time_that_is_left_is_no_difference_and_not_lost() {
    let ours = elements(Layout::Single, &[element(1, 0, Some(900))]);
    let theirs = elements(Layout::Single, &[element(1, 0, Some(100))]);
    assert_eq!(ours, theirs);
    assert_eq!(theirs.dumped(0), &*element(1, 0, Some(100)));
}

#[test]
fn missing_and_extra_ones_are_told_by_their_places() {
    let ours = elements(Layout::Single, &[start(1), start(2), start(4)]);
    let theirs = elements(Layout::Single, &[start(2), start(3), start(4), start(5)]);
    let found = differences(&ours, &theirs);
    assert_eq!(found, [Difference::Missing(0), Difference::Extra(1), Difference::Extra(3)]);
}

proptest::proptest! {
    #[test]
    fn long_lists_differ_where_their_keys_do(
        ours in proptest::collection::btree_set(0_u32..2000, 0..20),
        theirs in proptest::collection::btree_set(0_u32..2000, 0..20),
    ) {
        // Both have all keys but those.
        let list = |without: &std::collections::BTreeSet<u32>| -> Vec<u32> {
            (0..2000).filter(|key| !without.contains(key)).collect()
        };
        let (our_keys, their_keys) = (list(&ours), list(&theirs));
        let long = |keys: &[u32]| {
            elements(Layout::Single, &keys.iter().map(|key| start(*key)).collect::<Vec<_>>())
        };
        let found = differences(&long(&our_keys), &long(&their_keys));
        let of = |at: &Difference| match at {
            Difference::Missing(at) => (true, our_keys[*at as usize]),
            Difference::Extra(at) => (false, their_keys[*at as usize]),
            Difference::Changed(..) => panic!("{at:?}"),
        };
        let mut found: Vec<_> = found.iter().map(of).collect();
        found.sort_unstable();
        let extra = ours.difference(&theirs).map(|key| (false, *key));
        let expected: Vec<_> = extra.chain(theirs.difference(&ours).map(|key| (true, *key))).collect();
        proptest::prop_assert_eq!(found, expected);
    }
}
