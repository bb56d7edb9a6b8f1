//! Elements in words, for people: the common types as nft writes them, others as bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use homeostat_netlink::Attrs;
use homeostat_netlink::uapi::*;
use serde_json::{Value, json};

use crate::elements::{UnitAt, key_bytes};
use crate::model::Set;
use crate::plan::{ElementFrom, Op};
use crate::step::Step;
use crate::wire::be32;

/// How many added and how many deleted elements are named.
const SAMPLES: usize = 3;

/// The changes of the elements of a set, as JSON and for people: how many are added and deleted, and some of them.
pub(crate) fn element_changes(step: &Step, name: &str) -> Option<(Value, String)> {
    let desired = step.desired.as_ref().and_then(|table| table.sets.get(name));
    let seen = step.seen.as_ref().and_then(|table| table.sets.get(name));
    let (mut added, mut removed, mut samples) = (0, 0, Vec::new());
    for op in &step.ops {
        let (units, sign, count): (Vec<_>, _, _) = match op {
            Op::AddElements { set, units } if set == name => {
                let unit = |from: &ElementFrom| match from {
                    ElementFrom::Desired(at) => (desired, *at),
                    ElementFrom::Seen(at) => (seen, *at),
                };
                (units.iter().map(unit).collect(), '+', &mut added)
            }
            Op::DeleteElements { set, units } if set == name => {
                (units.iter().map(|at| (seen, *at)).collect(), '-', &mut removed)
            }
            _ => continue,
        };
        let units = units.into_iter().filter_map(|(set, at)| Some((set?, at)));
        let units: Vec<_> = units.filter(|(set, at)| !set.elements.is_gap(*at)).collect();
        *count += units.len();
        let named = units.into_iter().take(SAMPLES);
        samples.extend(named.map(|(set, at)| format!("{sign} {}", unit_text(set, at))));
    }
    if added + removed == 0 {
        return None;
    }
    let text = changes_text(added, removed, &samples);
    Some((
        json!({ "elements added": added, "elements removed": removed, "samples": samples }),
        text,
    ))
}

fn changes_text(added: usize, removed: usize, samples: &[String]) -> String {
    let counts = [('+', added), ('-', removed)].into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(sign, count)| format!("{sign}{count}")).collect();
    let more = if added + removed > samples.len() { ", ..." } else { "" };
    format!("elements {}: {}{more}", counts.join(" "), samples.join(", "))
}

/// The key of an element, or both ends of an interval.
fn unit_text(set: &Set, at: UnitAt) -> String {
    let kind = be32(&Attrs::new(&set.shape), NFTA_SET_KEY_TYPE).ok().flatten().unwrap_or(0);
    let mut elements = Attrs::new(set.elements.unit(at)).flatten();
    let Some(first) = elements.next() else { return String::new() };
    let start = key(kind, key_bytes(&first, NFTA_SET_ELEM_KEY));
    let last = key_bytes(&first, NFTA_SET_ELEM_KEY_END).to_vec();
    let behind = elements.next().map(|end| key_bytes(&end, NFTA_SET_ELEM_KEY).to_vec());
    let last = behind.map_or(last, before);
    let end = key(kind, &last);
    if last.is_empty() || end == start { start } else { format!("{start}-{end}") }
}

/// The last key of an interval that ends behind it.
fn before(mut key: Vec<u8>) -> Vec<u8> {
    for byte in key.iter_mut().rev() {
        let (less, borrows) = byte.overflowing_sub(1);
        *byte = less;
        if !borrows {
            break;
        }
    }
    key
}

/// nft numbers its types, and puts six bits of each into the type of a concatenation.
const BITS: u32 = 6;

fn key(kind: u32, bytes: &[u8]) -> String {
    let count = (0..5).rev().find(|nth| kind >> (nth * BITS) != 0).unwrap_or(0);
    let mut rest = bytes;
    let mut parts = Vec::new();
    for nth in (0..=count).rev() {
        let kind = kind >> (nth * BITS) & ((1 << BITS) - 1);
        let known = FIELDS.iter().find(|(known, ..)| *known == kind);
        let Some(len) = known.map(|(_, len, _)| *len).or((count == 0).then_some(bytes.len()))
        else {
            return hex(bytes);
        };
        let Some((field, after)) = rest.split_at_checked(len.next_multiple_of(4).min(rest.len()))
        else {
            return hex(bytes);
        };
        rest = after;
        let field = field.get(..len.min(field.len())).unwrap_or(field);
        let text = known.and_then(|(_, _, text)| text(field));
        parts.push(text.unwrap_or_else(|| hex(field)));
    }
    parts.join(" . ")
}

const IPV4: u32 = 7;
const IPV6: u32 = 8;
const ETHER: u32 = 9;
const PROTOCOL: u32 = 12;
const SERVICE: u32 = 13;
const MARK: u32 = 19;
const LINK_NAME: u32 = 41;

type FieldText = fn(&[u8]) -> Option<String>;

/// The types that can be shown as nft writes them: the length of a field, and its text.
const FIELDS: [(u32, usize, FieldText); 7] = [
    (IPV4, 4, |bytes| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string())),
    (IPV6, 16, |bytes| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string())),
    (ETHER, 6, |bytes| {
        Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
    }),
    (PROTOCOL, 1, |bytes| bytes.first().map(ToString::to_string)),
    (SERVICE, 2, |bytes| Some(u16::from_be_bytes(bytes.try_into().ok()?).to_string())),
    (MARK, 4, |bytes| Some(format!("{:#x}", u32::from_ne_bytes(bytes.try_into().ok()?)))),
    (LINK_NAME, 16, |bytes| {
        let name = bytes.split(|byte| *byte == 0).next()?;
        Some(format!("\"{}\"", String::from_utf8_lossy(name)))
    }),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_with_samples() {
        let shown = |added, removed, samples: &[&str]| {
            let samples: Vec<_> = samples.iter().map(ToString::to_string).collect();
            changes_text(added, removed, &samples)
        };
        let expected = "elements +1 -1: - 1.1.1.1, + 2.2.2.2";
        assert_eq!(shown(1, 1, &["- 1.1.1.1", "+ 2.2.2.2"]), expected);
        assert_eq!(shown(9, 0, &["+ 1.1.1.1"]), "elements +9: + 1.1.1.1, ...");
    }

    #[test]
    fn keys_read_as_nft_writes_them() {
        let pair = IPV4 << BITS | SERVICE;
        for (kind, bytes, expected) in [
            (IPV4, &[10, 0, 0, 1][..], "10.0.0.1"),
            (SERVICE, &[0, 22], "22"),
            (ETHER, &[2, 0, 0, 0, 0, 9], "02:00:00:00:00:09"),
            (LINK_NAME, b"eth0\0\0\0\0\0\0\0\0\0\0\0\0", "\"eth0\""),
            (pair, &[10, 0, 0, 1, 0, 80, 0, 0], "10.0.0.1 . 80"),
            (63, &[1, 2], "0x0102"),
            (IPV4, &[1], "0x01"),
        ] {
            assert_eq!(key(kind, bytes), expected);
        }
        assert_eq!(before(vec![11, 0, 0]), [10, 255, 255]);
    }
}
