//! Expressions put differently, without a kernel.

use super::*;
use homeostat_netlink::uapi::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, NFTA_VERDICT_CODE};

/// An expression with these attributes.
fn expression(kind: &str, data: impl FnOnce(&mut Tlvs)) -> Tlvs {
    let mut attrs = Tlvs::default();
    data(&mut attrs);
    let mut out = Tlvs::default();
    out.put_name(NFTA_EXPR_NAME, kind);
    out.put(NFTA_EXPR_DATA, &attrs.into_bytes());
    out
}

fn list(expressions: impl IntoIterator<Item = Tlvs>) -> Box<[u8]> {
    let mut out = Tlvs::default();
    for one in expressions {
        out.put(NFTA_LIST_ELEM, &one.into_bytes());
    }
    out.into_bytes()
}

fn counter(packets: u64) -> Tlvs {
    expression("counter", |data| {
        data.put(NFTA_COUNTER_BYTES, &(packets * 100).to_be_bytes());
        data.put(NFTA_COUNTER_PACKETS, &packets.to_be_bytes());
    })
}

fn lookup(set: &str) -> Tlvs {
    expression("lookup", |data| data.put_name(NFTA_LOOKUP_SET, set))
}

fn jump(chain: &str) -> Tlvs {
    let mut verdict = Tlvs::default();
    verdict.put(NFTA_VERDICT_CODE, &[0xff, 0xff, 0xff, 0xfd]);
    verdict.put_name(NFTA_VERDICT_CHAIN, chain);
    let mut data = Tlvs::default();
    data.put(NFTA_DATA_VERDICT, &verdict.into_bytes());
    expression("immediate", |out| out.put(NFTA_IMMEDIATE_DATA, &data.into_bytes()))
}

fn put(list: &[u8], becomes: Becomes, counts: Counts<'_>) -> (Box<[u8]>, Vec<Reference>) {
    let mut references = Vec::new();
    let refer = &mut |to| {
        references.push(to);
        becomes
    };
    let out = rewrite(list, &mut Rewriting { refer, counts }).unwrap();
    (out, references)
}

#[test]
fn counts_do_not_count_in_a_comparison() {
    let (one, other) = (list([counter(1)]), list([counter(2)]));
    let masked = |list: &[u8]| put(list, Becomes::Named, Counts::Masked).0;
    assert_eq!(masked(&one), masked(&other));
    assert_ne!(one, other);
}

#[test]
fn kept_expressions_are_the_same_bytes() {
    let all = list([lookup("a"), counter(3), jump("b"), counter(4)]);
    assert_eq!(put(&all, Becomes::Named, Counts::Kept).0, all);
}

#[test]
fn counts_are_carried_on_in_order() {
    let seen = list([counter(3), lookup("a"), counter(4)]);
    let declared = list([lookup("b"), counter(0), counter(0), counter(9)]);
    let carried = counts(&seen).unwrap();
    let (put, _) = put(&declared, Becomes::Named, Counts::Carried(&carried));
    assert_eq!(put, list([lookup("b"), counter(3), counter(4), counter(9)]));
}

#[test]
fn references_are_told_and_can_be_made_anonymous() {
    let all = list([lookup("__set0"), jump("__chain1")]);
    let (blank, references) = put(&all, Becomes::Blank, Counts::Kept);
    let expected = [Reference::Set("__set0".to_owned()), Reference::Chain("__chain1".to_owned())];
    assert_eq!(references, expected);
    let others = list([lookup("__set7"), jump("__chain9")]);
    assert_eq!(put(&others, Becomes::Blank, Counts::Kept).0, blank);
    let (made, _) = put(&all, Becomes::Made(5), Counts::Kept);
    let mut ids = Vec::new();
    for element in Attrs::new(&made) {
        let data = element.unwrap().attrs().first(NFTA_EXPR_DATA).unwrap().unwrap();
        ids.extend(be32(&data.attrs(), NFTA_LOOKUP_SET_ID).unwrap());
        let inside = data.attrs().first(NFTA_IMMEDIATE_DATA).unwrap();
        let verdict = inside.and_then(|data| data.attrs().first(NFTA_DATA_VERDICT).unwrap());
        if let Some(verdict) = verdict {
            ids.extend(be32(&verdict.attrs(), NFTA_VERDICT_CHAIN_ID).unwrap());
        }
    }
    assert_eq!(ids, [5, 5]);
}

#[test]
fn what_is_not_understood_stays_as_it_is() {
    let opaque = expression("payload", |data| data.put(NFTA_DATA_VALUE, &[1, 2, 3]));
    let all = list([opaque]);
    assert_eq!(put(&all, Becomes::Blank, Counts::Masked).0, all);
}
