//! What no virtual card has: messages as the kernel writes them (`net/ethtool/`), written down here attribute by
//! attribute, and what is sent to it.

use homeostat_netlink::{Messages, Port};

use super::*;

/// An attribute: its type and its bytes, padded.
fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).unwrap();
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nest(kind: u16, inside: &[Vec<u8>]) -> Vec<u8> {
    attr(kind | 0x8000, &inside.concat())
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attr(kind, &[text.as_bytes(), &[0]].concat())
}

/// A bit of a set: its number, its name, and whether it is on.
fn bit(index: u32, name: &str, is_on: Option<bool>) -> Vec<u8> {
    let value = is_on.is_some_and(|on| on).then(|| attr(3, &[]));
    let parts = [Some(attr(1, &index.to_ne_bytes())), Some(text(2, name)), value];
    nest(1, &parts.into_iter().flatten().collect::<Vec<_>>())
}

/// A set with a mask.
fn masked(kind: u16, size: u32, bits: &[Vec<u8>]) -> Vec<u8> {
    nest(kind, &[attr(2, &size.to_ne_bytes()), nest(3, bits)])
}

/// A set in which each listed bit is on.
fn listed(kind: u16, size: u32, bits: &[Vec<u8>]) -> Vec<u8> {
    nest(kind, &[attr(1, &[]), attr(2, &size.to_ne_bytes()), nest(3, bits)])
}

fn answer(group: Group, command: u8, attrs: &[Vec<u8>]) -> Result<Answer, Malformed> {
    let header = nest(1, &[attr(1, &2_u32.to_ne_bytes()), text(2, "eth0")]);
    let payload = [vec![command, 1, 0, 0], header, attrs.concat()].concat();
    let message = Message { kind: 21, flags: 0, seq: 1, port: Port::KERNEL, payload: &payload };
    assert_eq!(link_of(&message).unwrap().as_deref(), Some("eth0"));
    read(&message, group)
}

fn modes(pairs: &[(&str, bool)]) -> Answer {
    Answer::Modes(pairs.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect())
}

#[test]
fn wake_on_lan_lists_what_the_card_has_and_what_is_on() {
    let bits = [bit(0, "phy", Some(false)), bit(5, "magic", Some(true))];
    let found = answer(Group::WakeOnLan, 9, &[masked(2, 8, &bits)]).unwrap();
    assert_eq!(found, modes(&[("magic", true), ("phy", false)]));
    assert_eq!(answer(Group::WakeOnLan, 9, &[masked(2, 8, &[])]).unwrap(), modes(&[]));
}

#[test]
fn modes_of_fec_are_modes_of_links_and_auto_is_a_number() {
    let rs = [bit(50, "RS", None)];
    let auto = attr(3, &[1]);
    let found = answer(Group::Fec, 29, &[listed(2, 92, &rs), auto]).unwrap();
    let expected =
        [("auto", true), ("baser", false), ("llrs", false), ("off", false), ("rs", true)];
    assert_eq!(found, modes(&expected));
    let off = [bit(49, "None", None)];
    let Answer::Modes(found) = answer(Group::Fec, 29, &[listed(2, 92, &off)]).unwrap() else {
        panic!()
    };
    let on: Vec<&String> = found.iter().filter(|(_, on)| **on).map(|(name, _)| name).collect();
    assert_eq!(on, ["off"]);
}

#[test]
fn private_flags_have_the_drivers_own_names() {
    let bits = [bit(0, "link-down-on-close", Some(true)), bit(1, "disable fw lldp", Some(false))];
    let found = answer(Group::PrivateFlags, 14, &[masked(2, 2, &bits)]).unwrap();
    let flags = [("disable fw lldp", false), ("link-down-on-close", true)];
    let flags = flags.map(|(name, on)| (name.to_owned(), on));
    assert_eq!(found, Answer::Flags(flags.into()));
}

#[test]
fn features_tell_what_is_asked_for_from_what_is_in_effect() {
    let sets = [
        listed(2, 64, &[bit(0, "tx-scatter-gather", None), bit(16, "tx-tcp-segmentation", None)]),
        listed(3, 64, &[bit(16, "tx-tcp-segmentation", None)]),
        listed(4, 64, &[bit(13, "tx-lockless", None)]),
        listed(5, 64, &[bit(13, "tx-lockless", None)]),
    ];
    let Answer::Features(features) = answer(Group::Features, 11, &sets).unwrap() else { panic!() };
    for (name, expected, is_fixed) in [
        ("tx-scatter-gather", Bit::Off, false),
        ("tx-tcp-segmentation", Bit::OnlyWanted, false),
        ("tx-lockless", Bit::NotWanted, true),
        ("rx-lro", Bit::Off, true),
    ] {
        assert_eq!((features.bit(name), features.is_fixed(name)), (expected, is_fixed), "{name}");
    }
}

#[test]
fn numbers_come_with_the_largest_ones() {
    let number = |kind: u16, value: u32| attr(kind, &value.to_ne_bytes());
    let found = answer(
        Group::Rings,
        16,
        &[number(2, 4096), number(5, 4096), number(6, 256), number(9, 512)],
    );
    let expected = Answer::Numbers {
        values: [("rx", 256), ("tx", 512)].into(),
        most: [("rx", 4096), ("tx", 4096)].into(),
    };
    assert_eq!(found.unwrap(), expected);
    let found = answer(Group::Coalesce, 20, &[number(2, 3), attr(11, &[1])]).unwrap();
    let values = [("rx-usecs", 3), ("adaptive-rx", 1)].into();
    assert_eq!(found, Answer::Numbers { values, most: BTreeMap::new() });
}

#[test]
fn an_answer_that_is_cut_short_is_an_error_and_never_a_value() {
    for attrs in [attr(6, &[1, 2]), vec![9, 0, 6, 0, 1]] {
        assert!(answer(Group::Rings, 16, &[attrs]).is_err());
    }
    let wrong = nest(2, &[nest(3, &[nest(1, &[attr(2, b"no end")])])]);
    assert!(answer(Group::WakeOnLan, 9, &[wrong]).is_err());
}

/// The attributes of the one message that is sent.
fn sent(group: Group, values: &[(&Setting, &Value)]) -> Vec<u8> {
    let mut batch = Batch::new();
    set(&mut batch, 21, "eth0", group, values).unwrap();
    let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
    assert_eq!((message.kind, message.payload[0]), (21, group.set()));
    let header = nest(1, &[text(2, "eth0"), attr(3, &2_u32.to_ne_bytes())]);
    message.payload[4..].strip_prefix(header.as_slice()).unwrap().to_vec()
}

fn words_of(words: &[&str]) -> Value {
    Value::Words(words.iter().map(|word| (*word).to_owned()).collect())
}

/// A bit as it is sent: by its name alone.
fn named(name: &str, value: Option<()>) -> Vec<u8> {
    nest(1, &[vec![text(2, name)], value.map(|()| attr(3, &[])).into_iter().collect()].concat())
}

#[test]
fn modes_are_sent_as_all_that_are_on() {
    let wol = sent(Group::WakeOnLan, &[(&Setting::WakeOnLan, &words_of(&["arp", "magic"]))]);
    let bits = [named("arp", None), named("magic", None)];
    assert_eq!(wol, nest(2, &[attr(1, &[]), nest(3, &bits)]));
    let none = sent(Group::WakeOnLan, &[(&Setting::WakeOnLan, &words_of(&[]))]);
    assert_eq!(none, nest(2, &[attr(1, &[]), nest(3, &[])]));
    let fec = sent(Group::Fec, &[(&Setting::Fec, &words_of(&["auto", "rs"]))]);
    let set = nest(2, &[attr(1, &[]), nest(3, &[named("RS", None)])]);
    assert_eq!(fec, [set, attr(3, &[1])].concat());
}

#[test]
fn flags_and_features_are_sent_with_those_that_are_named_alone() {
    let flag = Setting::PrivateFlag("x".to_owned());
    let on = sent(Group::PrivateFlags, &[(&flag, &Value::Switch(true))]);
    assert_eq!(on, nest(2, &[nest(3, &[named("x", Some(()))])]));
    let tso = Setting::feature("tso");
    let bits = [("tx-tcp-segmentation", Bit::OnlyWanted), ("tx-tcp6-segmentation", Bit::NotWanted)];
    let bits = Value::Features(bits.map(|(name, bit)| (name.to_owned(), bit)).into());
    let restored = sent(Group::Features, &[(&tso, &bits)]);
    let expected = [named("tx-tcp-segmentation", Some(())), named("tx-tcp6-segmentation", None)];
    assert_eq!(restored, nest(3, &[nest(3, &expected)]));
}

#[test]
fn numbers_of_a_group_are_one_message() {
    let rx = Setting::number(Group::Coalesce, "rx-usecs").unwrap();
    let adaptive = Setting::number(Group::Coalesce, "adaptive-rx").unwrap();
    let values = [(&rx, &Value::Number(50)), (&adaptive, &Value::Switch(false))];
    let expected = [attr(2, &50_u32.to_ne_bytes()), attr(11, &[0])].concat();
    assert_eq!(sent(Group::Coalesce, &values), expected);
}
