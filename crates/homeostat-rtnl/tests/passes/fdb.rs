//! Static entries of forwarding databases, of bridges and of VXLANs, judged by `bridge`.

#![expect(clippy::disallowed_methods, reason = "runs `bridge`, which is the judge")]

use std::process::Command;
use std::sync::Arc;

use homeostat_engine::{Explain as _, Focus, Reader as _, Records, Source as _, View};
use homeostat_rtnl::{DesiredState, FdbKey, Key, Object, Remote, Rtnl};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{Bench, Declared, block_on, cable, desired, explained, ip, try_desired};

const MAC: &str = "02:00:00:00:00:09";
const FLOOD: &str = "00:00:00:00:00:00";
const NINE: Declared<'_> = ("fdb 02:00:00:00:00:09 dev va", "");
const FAR: Declared<'_> = ("fdb 02:00:00:00:00:09 dev vx self", "dst 192.0.2.1");
const FLOOD_1: Declared<'_> = ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1", "");
const FLOOD_2: Declared<'_> = ("fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.2", "");

/// Runs `bridge` in the namespace of the thread.
pub(crate) fn bridge(_proof: &Namespace, args: &str) -> Vec<u8> {
    let output = Command::new("bridge").args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "bridge {args}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// What `bridge` shows of addresses that are not of links: `MAC LINK [dst IP] [STATE] [FLAG]`.
fn shown(namespace: &Namespace) -> Vec<String> {
    let all: Value = serde_json::from_slice(&bridge(namespace, "-j fdb show")).unwrap();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let all = all.as_array().unwrap().iter();
    let all = all.filter(|one| [MAC, FLOOD].contains(&one["mac"].as_str().unwrap()));
    let line = |one: &Value| {
        let flags = one["flags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let words = [text(one, "mac"), text(one, "ifname"), text(one, "dst"), text(one, "state")];
        let words = words.into_iter().chain(flags.map(ToOwned::to_owned));
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = all.map(line).collect();
    lines.sort();
    lines
}

/// A bridge with the ports `va` and `vb`, and a VXLAN.
pub(crate) fn wired() -> Namespace {
    let namespace = cable();
    for args in [
        "link add br0 type bridge",
        "link set br0 up",
        "link set va master br0",
        "link set vb master br0",
        "link add vx type vxlan id 7 dstport 4789",
        "link set vx up",
        "link add v6 type vxlan id 9 dstport 4799 local fd00::9",
    ] {
        ip(&namespace, args);
    }
    namespace
}

#[test]
fn entries_of_a_bridge_and_of_a_vxlan_are_made_and_deleted() {
    let namespace = wired();
    let mut bench = Bench::new();
    let all = desired(&[NINE, FAR, FLOOD_1, FLOOD_2]);
    assert_eq!(bench.converge(&all).len(), 4);
    let expected = [
        format!("{FLOOD} vx 192.0.2.1 permanent self"),
        format!("{FLOOD} vx 192.0.2.2 permanent self"),
        format!("{MAC} va static"),
        format!("{MAC} vx 192.0.2.1 permanent self"),
    ];
    assert_eq!(shown(&namespace), expected);
    bench.converge(&desired(&[FLOOD_2]));
    assert_eq!(shown(&namespace), expected[1..2]);
    bench.converge(&desired(&[]));
    assert!(shown(&namespace).is_empty());
}

#[test]
fn a_port_and_a_network_of_a_remote_end_are_kept_also_where_they_are_those_of_the_vxlan() {
    let namespace = wired();
    let mut bench = Bench::new();
    let all = desired(&[
        (FAR.0, "dst 192.0.2.1 port 4790 vni 8"),
        ("fdb 00:00:00:00:00:00 dev v6 self dst fd00::1 port 4791 vni 8", ""),
        // As the VXLAN itself has them: the kernel leaves them out.
        ("fdb 02:00:00:00:00:0a dev vx self", "dst 192.0.2.1 port 4789 vni 7"),
        ("fdb 00:00:00:00:00:00 dev v6 self dst fd00::2 port 4799", ""),
    ]);
    bench.converge(&all);
    let text = String::from_utf8(bridge(&namespace, "fdb show")).unwrap();
    assert!(text.contains("09 dev vx dst 192.0.2.1 port 4790 vni 8"), "{text}");
    assert!(text.contains("00 dev v6 dst fd00::1 port 4791 vni 8"), "{text}");
    for gone in ["fdb del 02:00:00:00:00:0a dev vx", "fdb del 00:00:00:00:00:00 dev v6 dst fd00::2"]
    {
        bridge(&namespace, gone);
        assert_eq!(bench.heal(&all).len(), 1, "{gone}");
    }
    bench.assert_quiet(&all);
}

#[test]
fn another_remote_end_and_stickiness_are_updates_in_place() {
    let namespace = wired();
    let mut bench = Bench::new();
    bench.converge(&desired(&[FAR, NINE]));
    let moved = desired(&[(FAR.0, "dst 192.0.2.9"), (NINE.0, "sticky")]);
    assert_eq!(bench.converge(&moved), [format!("~ {}", NINE.0), format!("~ {}", FAR.0)]);
    let expected =
        [format!("{MAC} va static sticky"), format!("{MAC} vx 192.0.2.9 permanent self")];
    assert_eq!(shown(&namespace), expected);
}

#[test]
fn an_entry_moves_to_another_port_without_being_away() {
    let namespace = wired();
    let mut bench = Bench::new();
    bench.converge(&desired(&[NINE]));
    let there: Declared<'_> = ("fdb 02:00:00:00:00:09 dev vb", "");
    bench.converge(&desired(&[there]));
    assert_eq!(shown(&namespace), [format!("{MAC} vb static")]);
}

#[test]
fn what_others_delete_change_or_move_heals_by_a_look_at_this_entry() {
    let namespace = wired();
    let mut bench = Bench::new();
    let all = desired(&[NINE, FAR, FLOOD_1, FLOOD_2]);
    bench.converge(&all);
    let before = shown(&namespace);
    bench.heal(&all);
    for (change, healed) in [
        (format!("fdb del {MAC} dev va master"), format!("+ {}", NINE.0)),
        (format!("fdb replace {MAC} dev vb master static"), format!("+ {}", NINE.0)),
        (format!("fdb replace {MAC} dev va master static sticky"), format!("~ {}", NINE.0)),
        (format!("fdb del {MAC} dev vx"), format!("+ {}", FAR.0)),
        (format!("fdb replace {MAC} dev vx dst 192.0.2.77"), format!("~ {}", FAR.0)),
        (format!("fdb del {FLOOD} dev vx dst 192.0.2.2"), format!("+ {}", FLOOD_2.0)),
    ] {
        bridge(&namespace, &change);
        assert_eq!(bench.heal(&all), [healed], "{change}");
        assert_eq!(shown(&namespace), before, "{change}");
    }
    bench.assert_quiet(&all);
}

#[test]
fn what_a_bridge_or_a_vxlan_has_learned_counts_as_absent_and_is_replaced() {
    let namespace = wired();
    bridge(&namespace, &format!("fdb add {MAC} dev vb master dynamic"));
    bridge(&namespace, &format!("fdb add {MAC} dev vx dst 192.0.2.5 dynamic"));
    let mut bench = Bench::new();
    bench.assert_quiet(&desired(&[]));
    bench.converge(&desired(&[NINE, FAR]));
    let expected = [format!("{MAC} va static"), format!("{MAC} vx 192.0.2.1 permanent self")];
    assert_eq!(shown(&namespace), expected);
}

#[test]
fn an_entry_of_others_survives_and_one_in_the_way_is_a_conflict_or_matched() {
    let namespace = wired();
    for args in [
        format!("fdb add {MAC} dev vb master static"),
        format!("fdb add {MAC} dev vx dst 192.0.2.5"),
        format!("fdb append {FLOOD} dev vx dst 192.0.2.1"),
        "fdb add 02:00:00:00:00:0a dev va master static".to_owned(),
        "fdb add 02:00:00:00:00:0b dev vx dst 192.0.2.6 extern_learn".to_owned(),
    ] {
        bridge(&namespace, &args);
    }
    let before = shown(&namespace);
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[
        NINE,
        FAR,
        FLOOD_1,
        ("fdb 02:00:00:00:00:0a dev va", ""),
        ("fdb 02:00:00:00:00:0b dev vx self", "dst 192.0.2.7"),
    ]));
    let mut lines = explained(&report);
    lines.sort();
    let expected = [
        "conflict fdb 02:00:00:00:00:09 dev va: another program, which was quicker",
        "conflict fdb 02:00:00:00:00:09 dev vx self: unmarked",
        "conflict fdb 02:00:00:00:00:0b dev vx self: a program that learns addresses",
        "matched fdb 00:00:00:00:00:00 dev vx self dst 192.0.2.1: unmarked",
        "matched fdb 02:00:00:00:00:0a dev va: unmarked",
    ];
    assert_eq!(lines, expected);
    bench.assert_quiet(&desired(&[]));
    assert_eq!(shown(&namespace), before);
}

#[test]
fn an_entry_that_was_taken_over_is_given_back() {
    let namespace = wired();
    bridge(&namespace, &format!("fdb add {MAC} dev va master static sticky"));
    bridge(&namespace, &format!("fdb add {MAC} dev vx dst 192.0.2.5 port 4800"));
    let before = shown(&namespace);
    let mut bench = Bench::new();
    bench.config.adopt.extend([NINE, FAR].map(|(key, _)| key.parse::<Key>().unwrap()));
    assert!(bench.pass(&desired(&[NINE, FAR])).is_converged());
    bench.config.adopt.clear();
    bench.assert_quiet(&desired(&[NINE, FAR]));
    assert_ne!(shown(&namespace), before);
    bench.converge(&desired(&[]));
    assert_eq!(shown(&namespace), before);
}

#[test]
fn the_remote_end_and_the_addresses_that_the_kernel_makes_are_left_alone() {
    let namespace = wired();
    ip(&namespace, "link add vr type vxlan id 8 dstport 4790 remote 192.0.2.3");
    let before = shown(&namespace);
    let mut bench = Bench::new();
    let own = ("fdb 00:00:00:00:00:00 dev vr self dst 192.0.2.3", "");
    let report = bench.pass(&desired(&[own]));
    assert_eq!(explained(&report), [format!("matched {}: kernel", own.0)]);
    bench.converge(&desired(&[("fdb 00:00:00:00:00:00 dev vr self dst 192.0.2.4", "")]));
    bench.converge(&desired(&[]));
    assert_eq!(shown(&namespace), before);
}

#[test]
fn an_entry_waits_for_its_link_and_for_the_bridge_of_its_port() {
    let namespace = cable();
    let mut bench = Bench::new();
    let all = desired(&[NINE, FAR]);
    let pending = [
        format!("pending {}: a bridge that va is a port of", NINE.0),
        format!("pending {}: link vx", FAR.0),
    ];
    assert_eq!(explained(&bench.pass(&all)), pending);
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    ip(&namespace, "link add vx type vxlan id 7 dstport 4789");
    assert_eq!(bench.heal(&all), [format!("+ {}", NINE.0), format!("+ {}", FAR.0)]);
    ip(&namespace, "link set va nomaster");
    assert_eq!(bench.heal(&all), pending[..1]);
}

#[test]
fn a_port_that_moves_to_another_bridge_has_its_entries_there_in_the_same_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let with = |master: &str| {
        desired(&[
            ("link br0", "bridge up on"),
            ("link br1", "bridge up on"),
            ("link va master", master),
            ("link vx", "vxlan id 7 up on"),
            NINE,
            FAR,
        ])
    };
    bench.converge(&with("br0"));
    bench.converge(&with("br1"));
    let expected = [format!("{MAC} va static"), format!("{MAC} vx 192.0.2.1 permanent self")];
    assert_eq!(shown(&namespace), expected);
    ip(&namespace, "link del vx");
    bench.converge(&with("br1"));
    assert_eq!(shown(&namespace), expected);
}

#[test]
fn a_remote_end_on_a_link_that_is_no_vxlan_is_refused() {
    let namespace = cable();
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[("fdb 02:00:00:00:00:09 dev va self", "dst 192.0.2.1")]));
    let lines = explained(&report);
    assert!(lines[0].contains("no VXLAN"), "{lines:?}");
    assert!(shown(&namespace).is_empty());
}

#[test]
fn a_bridge_has_no_entry_for_the_address_of_zeros() {
    let error = try_desired(&[("fdb 00:00:00:00:00:00 dev va", "")]).unwrap_err();
    assert!(error.to_string().contains("cannot be"), "{error}");
}

fn many(count: u32) -> DesiredState {
    let mut builder = DesiredState::builder();
    for number in 0..count {
        let [_, b, c, d] = number.to_be_bytes();
        let mac = format!("02:00:00:{b:02x}:{c:02x}:{d:02x}").parse().unwrap();
        let end = Remote::new([192, 0, 2, u8::try_from(number % 200).unwrap()].into());
        let (key, entry) = FdbKey::of_vxlan("vx".parse().unwrap(), mac, None).to(end);
        builder.add(key.into(), Object::Fdb(entry)).unwrap();
    }
    builder.build().unwrap()
}

/// A heal costs what it costs among a few: nothing is listed.
#[test]
fn one_of_ten_thousand_entries_heals_without_a_list_of_them() {
    let namespace = wired();
    let all = many(10_000);
    let mut bench = Bench::new();
    assert_eq!(bench.converge(&all).len(), 10_000);
    bridge(&namespace, &format!("fdb del {MAC} dev vx"));
    assert_eq!(explained(&bench.focused(&all, &[FAR.0])), [format!("+ {}", FAR.0)]);
    let mut reader = Rtnl::here().reader().unwrap();
    let (desired, records) = (Arc::new(all), Records::new());
    let mut look = |focus: Focus<Key>| {
        let before = reader.received_bytes();
        let view = View::new(&focus, &desired, &records);
        block_on(reader.observe(&view, &mut |_| {})).unwrap();
        reader.received_bytes() - before
    };
    assert!(look(Focus::All) > 500_000, "a full look lists them");
    let key: Key = FAR.0.parse().unwrap();
    let cost = look(Focus::Keys([key].into()));
    assert!(cost < 2_000, "{cost} bytes for one entry");
}
