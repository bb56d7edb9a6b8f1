//! The decoder against bytes that were never meant to be netlink.

use proptest::prelude::*;

use super::*;
use crate::Batch;

/// Reads everything that can be read, however deep.
fn read_all(attrs: Attrs<'_>, depth: usize) -> usize {
    attrs.fold(0, |seen, attr| {
        let Ok(attr) = attr else { return seen };
        let _ = (attr.u8(), attr.u16(), attr.u32(), attr.be16(), attr.be32());
        let _ = (attr.str(), attr.array::<16>());
        let inside = if depth == 0 { 0 } else { read_all(attr.attrs(), depth - 1) };
        seen + 1 + inside
    })
}

fn read_messages(bytes: &[u8]) -> usize {
    Messages::new(bytes)
        .flatten()
        .map(|message| {
            let _ = crate::Refusal::of_error(&message);
            let _ = crate::Refusal::of_done(&message);
            let fixed = message.split::<12>().map_or(0, |(_, attrs)| read_all(attrs, 4));
            1 + fixed + message.split::<0>().map_or(0, |(_, attrs)| read_all(attrs, 4))
        })
        .sum()
}

/// A batch with nested attributes of many sizes, to be damaged.
fn sound() -> Vec<u8> {
    let mut batch = Batch::new();
    for kind in 16..24_u16 {
        let mut message = batch.message(kind, 0);
        message.fixed(&[0; 12]).attr_u32(1, u32::from(kind)).attr_str(3, "eth0");
        message.nest(18, |info| {
            info.attr_str(1, "vxlan").nest(2, |inside| {
                inside.attr_be16(15, 4789).attr_u8(7, 1).attr_flag(9);
            });
        });
        message.finish().unwrap();
    }
    batch.bytes().to_vec()
}

fn cases() -> u32 {
    let soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    if soak { 4096 * 50 } else { 4096 }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn arbitrary_bytes_never_panic_and_never_yield_more_than_they_hold(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        // Every attribute, at each of the five depths and two offsets it is read at, costs four bytes.
        prop_assert!(read_messages(&bytes) <= bytes.len() * 4);
    }

    #[test]
    fn damaged_messages_never_panic_and_those_before_the_damage_are_read_whole(
        at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let whole = sound();
        let mut bytes = whole.clone();
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.truncate(cut.index(bytes.len() + 1));
        read_messages(&bytes);
        let damage = at.min(bytes.len());
        let mut end = 0;
        for (sound, found) in Messages::new(&whole).flatten().zip(Messages::new(&bytes)) {
            end += MESSAGE_HEADER + sound.payload.len().next_multiple_of(ALIGN);
            if end > damage {
                break;
            }
            prop_assert_eq!(found, Ok(sound));
        }
    }
}

#[test]
fn a_sound_batch_is_read_whole() {
    let bytes = sound();
    assert_eq!(Messages::new(&bytes).flatten().count(), 8);
    assert!(Messages::new(&bytes).all(|message| message.is_ok()));
}

#[test]
fn a_length_that_does_not_fit_ends_the_reading_with_one_error() {
    for len in [0_u32, 15, 21, u32::MAX] {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend([0; 16]);
        let found: Vec<_> = Messages::new(&bytes).collect();
        assert_eq!(found, [Err(Malformed::Message)], "{len}");
    }
    for len in [0_u16, 3, 9, u16::MAX] {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend([0; 6]);
        let found: Vec<_> = Attrs::new(&bytes).collect();
        assert_eq!(found, [Err(Malformed::Attr)], "{len}");
    }
}

#[test]
fn the_last_object_may_lack_its_padding() {
    let bytes = [5, 0, 1, 0, 42];
    let found: Vec<_> = Attrs::new(&bytes).collect::<Result<_, _>>().unwrap();
    assert_eq!(found[0].u8(), Ok(42));
}

#[test]
fn a_value_of_another_size_than_its_type_is_an_error_that_names_the_attribute() {
    let short = Attr { kind: 7, is_nested: false, is_big_endian: false, value: &[1, 2, 3] };
    assert_eq!(short.u32(), Err(Malformed::Value { kind: 7, len: 3 }));
    assert_eq!(short.u16(), Err(Malformed::Value { kind: 7, len: 3 }), "over-long is no better");
    assert_eq!(short.str(), Err(Malformed::Value { kind: 7, len: 3 }), "no NUL");
}

#[test]
fn unknown_attributes_are_carried_as_bytes() {
    let bytes = [8, 0, 0xff, 0x7f, 1, 2, 3, 4];
    let attr = Attrs::new(&bytes).next().unwrap().unwrap();
    // 0x7fff with the byte-order flag masked out.
    assert_eq!((attr.kind, attr.is_big_endian, attr.is_nested), (0x3fff, true, false));
    assert_eq!(attr.value, [1, 2, 3, 4]);
}

#[test]
fn an_absent_attribute_is_not_an_unreadable_one() {
    let bytes = [4, 0, 1, 0, 3, 0, 2, 0];
    assert!(Attrs::new(&bytes).first(1).unwrap().is_some());
    assert_eq!(Attrs::new(&bytes[..4]).first(2), Ok(None));
    assert_eq!(Attrs::new(&bytes).first(2), Err(Malformed::Attr));
}

#[test]
fn a_payload_shorter_than_its_fixed_part_is_malformed() {
    let message = Message { kind: 24, flags: 0, seq: 0, port: Port::KERNEL, payload: &[0; 11] };
    assert_eq!(message.split::<12>().unwrap_err(), Malformed::Payload);
}
