//! The VLANs of a bridge and of its ports.

#![expect(clippy::disallowed_methods, reason = "runs `bridge`, which is the judge")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

use homeostat_engine::{Explain as _, Focus, Reader as _, Records, Source as _, View, Writer as _};
use homeostat_rtnl::{DesiredState, Key, Rtnl};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{Bench, Declared, block_on, cable, desired, explained, ip};

/// Runs `bridge` in the namespace of the thread.
pub(crate) fn bridge(_proof: &Namespace, args: &str) -> Vec<u8> {
    let output = Command::new("bridge").args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "bridge {args}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The VLANs of a link, as `bridge` says, alike ones with neighbouring ids together: `10 PVID Egress Untagged`, `20-30`.
fn shown(namespace: &Namespace, link: &str) -> Vec<String> {
    let all: Value = serde_json::from_slice(&bridge(namespace, "-j vlan show")).unwrap();
    let links = all.as_array().unwrap().iter().filter(|one| one["ifname"] == link);
    let vlans = links.flat_map(|one| one["vlans"].as_array().cloned().unwrap_or_default());
    let mut ranges: Vec<(u64, u64, String)> = Vec::new();
    for vlan in vlans {
        let id = vlan["vlan"].as_u64().unwrap();
        let flags = vlan["flags"].as_array().cloned().unwrap_or_default();
        let flags: Vec<&str> = flags.iter().filter_map(Value::as_str).collect();
        let flags = flags.join(" ");
        match ranges.last_mut() {
            Some((_, last, alike)) if *last + 1 == id && *alike == flags => *last = id,
            _ => ranges.push((id, id, flags)),
        }
    }
    let text = |(first, last, flags): (u64, u64, String)| {
        let end = if first == last { String::new() } else { format!("-{last}") };
        format!("{first}{end} {flags}").trim_end().to_owned()
    };
    ranges.into_iter().map(text).collect()
}

/// A bridge of ours that filters, with the port `va`, which is only configured.
const BRIDGE: [Declared<'_>; 2] =
    [("link br0", "bridge up on filtering on"), ("link va master", "br0")];

fn with(more: &[Declared<'_>]) -> DesiredState {
    desired(&[&BRIDGE[..], more].concat())
}

#[test]
fn the_vlans_of_a_port_and_of_a_bridge_are_made_in_one_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = with(&[
        ("link va vlans", "10 pvid untagged, 20-30, 40 untagged"),
        ("link br0 vlans", "20, 4094"),
    ]);
    let done = bench.converge(&declared);
    assert_eq!(done, ["+ link br0", "+ link br0 vlans", "~ link va master", "+ link va vlans"]);
    let expected = ["10 PVID Egress Untagged", "20-30", "40 Egress Untagged"];
    assert_eq!(shown(&namespace, "va"), expected, "and not the default VLAN 1");
    assert_eq!(shown(&namespace, "br0"), ["20", "4094"]);
}

#[test]
fn vlans_that_are_not_declared_are_left_alone() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&with(&[]));
    bridge(&namespace, "vlan add dev va vid 77");
    bridge(&namespace, "vlan add dev br0 vid 78 self");
    bench.converge(&with(&[]));
    assert_eq!(shown(&namespace, "va"), ["1 PVID Egress Untagged", "77"]);
    bench.converge(&with(&[("link va vlans", "5")]));
    assert_eq!(shown(&namespace, "va"), ["5"]);
    assert_eq!(shown(&namespace, "br0"), ["1 PVID Egress Untagged", "78"]);
}

#[test]
fn a_list_changes_without_what_stays_and_may_become_empty() {
    let namespace = cable();
    let mut bench = Bench::new();
    for (list, expected) in [
        ("1 pvid untagged, 2-400", &["1 PVID Egress Untagged", "2-400"][..]),
        ("1, 2-399, 4094 pvid", &["1-399", "4094 PVID"]),
        ("100-200 untagged", &["100-200 Egress Untagged"]),
        (
            "100-149 untagged, 150 pvid, 151-200 untagged",
            &["100-149 Egress Untagged", "150 PVID", "151-200 Egress Untagged"],
        ),
        ("", &[]),
        ("7", &["7"]),
    ] {
        for link in ["va", "br0"] {
            bench.converge(&with(&[(&format!("link {link} vlans"), list)]));
            assert_eq!(shown(&namespace, link), expected, "{link}: {list}");
        }
    }
}

#[test]
fn a_change_by_others_is_a_hint_that_heals_with_a_look_at_this_link() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = with(&[("link va vlans", "10 pvid untagged, 20"), ("link br0 vlans", "20")]);
    bench.converge(&declared);
    bench.heal(&declared);
    for (change, link) in [
        ("vlan add dev va vid 99", "va"),
        ("vlan del dev va vid 20", "va"),
        ("vlan add dev va vid 20 pvid", "va"),
        ("vlan add dev br0 vid 99 self", "br0"),
        ("vlan del dev br0 vid 20 self", "br0"),
    ] {
        bridge(&namespace, change);
        assert_eq!(bench.heal(&declared), [format!("~ link {link} vlans")], "{change}");
        assert_eq!(shown(&namespace, "va"), ["10 PVID Egress Untagged", "20"], "{change}");
        assert_eq!(shown(&namespace, "br0"), ["20"], "{change}");
    }
    bench.assert_quiet(&declared);
}

/// The kernel gives every port the new default VLAN, and says so of the bridge only.
#[test]
fn another_default_vlan_of_the_bridge_leaves_declared_lists_as_they_are() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = with(&[("link va vlans", "1 pvid untagged, 20")]);
    bench.converge(&declared);
    bench.heal(&declared);
    ip(&namespace, "link set br0 type bridge vlan_default_pvid 50");
    bench.heal(&declared);
    assert_eq!(shown(&namespace, "va"), ["1 PVID Egress Untagged", "20"]);
}

/// The networks of VLANs, as `bridge` says: `10=10010`.
fn networks(namespace: &Namespace, link: &str) -> Vec<String> {
    let all: Value = serde_json::from_slice(&bridge(namespace, "-j vlan tunnelshow")).unwrap();
    let links = all.as_array().unwrap().iter().filter(|one| one["ifname"] == link);
    let tunnels = links.flat_map(|one| one["tunnels"].as_array().cloned().unwrap_or_default());
    let text = |one: Value| match (one.get("vlanEnd"), one.get("tunidEnd")) {
        (Some(last), Some(end)) => format!("{}-{last}={}-{end}", one["vlan"], one["tunid"]),
        _ => format!("{}={}", one["vlan"], one["tunid"]),
    };
    tunnels.map(text).collect()
}

#[test]
fn the_networks_of_vlans_in_a_vxlan_are_kept_with_them() {
    let namespace = cable();
    let mut bench = Bench::new();
    let vxlan = ("link vx", "vxlan id 0 external on master br0 up on");
    let of = |list: &'static str| desired(&[BRIDGE[0], vxlan, ("link vx vlans", list)]);
    for (list, expected) in [
        ("10 vni 10010, 20-30 vni 20", &["10=10010", "20-30=20-30"][..]),
        ("10 vni 11, 20-24 vni 20, 25, 26-30 vni 126", &["10=11", "20-24=20-24", "26-30=126-130"]),
        ("10, 20-30 vni 126", &["20-30=126-136"]),
        ("10", &[]),
        ("10 untagged vni 10010, 20 vni 20", &["10=10010", "20=20"]),
    ] {
        bench.converge(&of(list));
        assert_eq!(networks(&namespace, "vx"), expected, "{list}");
    }
    let declared = of("10 untagged vni 10010, 20 vni 20");
    bench.heal(&declared);
    for change in [
        "bridge vlan del dev vx vid 20",
        "bridge vlan del dev vx vid 10 tunnel_info id 10010",
        "bridge link set dev vx vlan_tunnel off",
    ] {
        bridge(&namespace, change.strip_prefix("bridge ").unwrap());
        let healed = bench.heal(&declared);
        let healed = if healed.is_empty() { bench.converge(&declared) } else { healed };
        assert_eq!(healed.last().map(String::as_str), Some("~ link vx vlans"), "{change}");
        assert_eq!(networks(&namespace, "vx"), ["10=10010", "20=20"], "{change}");
    }
    bench.assert_quiet(&declared);
}

/// Quirk: the kernel copies an entry without a VLAN to the VLANs of its port, and deletes the copies with it.
#[test]
fn entries_without_a_vlan_are_copied() {
    const MAC: &str = "02:00:00:00:00:09";
    let namespace = cable();
    let mut bench = Bench::new();
    let mut converge = |entry: Option<&str>| {
        let entry = entry.map(|words| format!("fdb {MAC} dev va{words}"));
        let list = [("link va vlans", "10, 20")];
        let entry = entry.iter().map(|key| (key.as_str(), ""));
        bench.converge(&with(&list.into_iter().chain(entry).collect::<Vec<_>>()));
        let all: Value = serde_json::from_slice(&bridge(&namespace, "-j fdb show dev va")).unwrap();
        let here = all.as_array().unwrap().iter().filter(|one| one["mac"] == MAC);
        let vlans: BTreeSet<u64> = here.map(|one| one["vlan"].as_u64().unwrap_or(0)).collect();
        vlans.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(converge(Some("")), [0, 10, 20]);
    assert!(converge(None).is_empty());
    assert_eq!(converge(Some(" vlan 10")), [10]);
    assert_eq!(converge(Some(" vlan 20")), [20]);
}

/// The networks that a VXLAN takes, as `bridge` says: `10-20`.
fn vnis(namespace: &Namespace) -> Vec<String> {
    let all: Value = serde_json::from_slice(&bridge(namespace, "-j vni show")).unwrap();
    let links = all.as_array().unwrap().iter().filter(|one| one["ifname"] == "vx");
    let vnis = links.flat_map(|one| one["vnis"].as_array().cloned().unwrap_or_default());
    let text = |one: Value| match one.get("vniEnd") {
        Some(last) => format!("{}-{last}", one["vni"]),
        None => one["vni"].to_string(),
    };
    vnis.map(text).collect()
}

#[test]
fn the_networks_that_a_vxlan_takes_are_exact_and_heal() {
    let namespace = cable();
    let mut bench = Bench::new();
    for (list, sign, expected) in
        [("10-20", "+", &["10-20"][..]), ("5,15-25", "~", &["5", "15-25"]), ("7", "~", &["7"])]
    {
        let link = format!("vxlan id 0 external on vnis {list} up on");
        let done = bench.converge(&desired(&[("link vx", &link)]));
        assert_eq!(done, [format!("{sign} link vx")], "{list}");
        assert_eq!(vnis(&namespace), expected, "{list}");
    }
    let declared = desired(&[("link vx", "vxlan id 0 external on vnis 7-9 up on")]);
    bench.converge(&declared);
    bench.heal(&declared);
    for change in ["vni delete vni 8 dev vx", "vni add vni 100-200 dev vx"] {
        bridge(&namespace, change);
        assert_eq!(bench.heal(&declared), ["~ link vx"], "{change}");
        assert_eq!(vnis(&namespace), ["7-9"], "{change}");
    }
    bench.assert_quiet(&declared);
    // Without a list it takes all, which cannot be changed in place.
    let all = desired(&[("link vx", "vxlan id 0 external on up on")]);
    bench.converge(&all);
    ip(&namespace, "link del vx");
    bench.converge(&all);
    assert_eq!(bench.converge(&declared), ["-/+ link vx"]);
}

#[test]
fn a_port_that_returns_or_moves_to_another_bridge_gets_its_vlans_in_the_same_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let other = ("link br1", "bridge up on filtering on");
    let list = ("link va vlans", "10 pvid untagged, 20");
    let declared = with(&[other, list]);
    bench.converge(&declared);
    ip(&namespace, "link set va nomaster");
    assert_eq!(bench.converge(&declared), ["~ link va master", "+ link va vlans"]);
    let expected = ["10 PVID Egress Untagged", "20"];
    assert_eq!(shown(&namespace, "va"), expected);
    let moved = desired(&[BRIDGE[0], other, ("link va master", "br1"), list]);
    assert_eq!(bench.converge(&moved), ["~ link va master", "~ link va vlans"]);
    assert_eq!(shown(&namespace, "va"), expected);
    ip(&namespace, "link del br1");
    let done = bench.converge(&moved);
    assert_eq!(done, ["+ link br1", "~ link va master", "+ link va vlans"]);
    assert_eq!(shown(&namespace, "va"), expected);
}

#[test]
fn a_port_that_we_make_has_vlans_too_and_loses_them_with_its_bridge() {
    let namespace = cable();
    let mut bench = Bench::new();
    let port = ("link x0", "veth peer x1 master br0 up on");
    let declared = desired(&[BRIDGE[0], port, ("link x0 vlans", "30 pvid untagged")]);
    let done = bench.converge(&declared);
    assert_eq!(done, ["+ link br0", "+ link x0", "+ link x0 vlans"]);
    assert_eq!(shown(&namespace, "x0"), ["30 PVID Egress Untagged"]);
    ip(&namespace, "link del x0");
    assert_eq!(bench.converge(&declared), ["+ link x0", "+ link x0 vlans"]);
    assert_eq!(shown(&namespace, "x0"), ["30 PVID Egress Untagged"]);
    bench.converge(&desired(&[]));
    assert_eq!(shown(&namespace, "x0"), Vec::<String>::new());
}

#[test]
fn what_a_port_had_before_returns_when_its_list_is_released_for_good() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge vlan_filtering 1");
    ip(&namespace, "link set va master br0");
    bridge(&namespace, "vlan add dev va vid 66");
    let mut bench = Bench::new();
    bench.config.on_release = homeostat_engine::OnRelease::Restore;
    bench.converge(&desired(&[("link va vlans", "10 pvid untagged")]));
    assert_eq!(shown(&namespace, "va"), ["10 PVID Egress Untagged"]);
    bench.converge(&desired(&[]));
    assert_eq!(shown(&namespace, "va"), ["1 PVID Egress Untagged", "66"]);
}

/// Takes a port out of its bridge, and puts it back by its record.
fn leave_and_return(namespace: &Namespace) {
    let source = Rtnl::here();
    let key: Key = "link va master".parse().unwrap();
    let mut reader = source.reader().unwrap();
    let taken = block_on(reader.snapshots(&BTreeSet::from([key.clone()]))).unwrap();
    ip(namespace, "link set va nomaster");
    let alone = homeostat_engine::Alone::i_am_the_only_writer();
    let writer = source.writer(&alone).unwrap();
    let restored = block_on(writer.restore(&key, &taken[&key]));
    assert!(matches!(restored, homeostat_engine::Outcome::Applied { .. }), "{restored:?}");
}

#[test]
fn a_port_that_leaves_its_bridge_in_a_trial_returns_with_its_vlans() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge vlan_filtering 1");
    ip(&namespace, "link set va master br0");
    bridge(&namespace, "vlan del dev va vid 1");
    bridge(&namespace, "vlan add dev va vid 66 pvid untagged");
    bridge(&namespace, "vlan add dev va vid 70-80");
    let before = shown(&namespace, "va");
    leave_and_return(&namespace);
    assert_eq!(shown(&namespace, "va"), before);
}

#[test]
fn a_port_that_leaves_its_bridge_in_a_trial_returns_with_its_addresses() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge vlan_filtering 1");
    ip(&namespace, "link set va master br0");
    bridge(&namespace, "vlan add dev va vid 70-72");
    for entry in [
        "add 02:00:00:00:00:a1 dev va master static vlan 70",
        "add 02:00:00:00:00:a2 dev va master static sticky vlan 71",
        "add 02:00:00:00:00:a3 dev va master permanent vlan 72",
        "add 02:00:00:00:00:a4 dev va master extern_learn vlan 1",
        // Of all VLANs of the port, but for one.
        "add 02:00:00:00:00:a5 dev va master static",
        "del 02:00:00:00:00:a5 dev va master vlan 71",
    ] {
        bridge(&namespace, &format!("fdb {entry}"));
    }
    let forwarded = || {
        let text = String::from_utf8(bridge(&namespace, "fdb show dev va")).unwrap();
        let lines: BTreeSet<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        lines
    };
    let before = forwarded();
    let count = |word: &str| before.iter().filter(|line| line.contains(word)).count();
    assert_eq!(
        (count("02:00:00:00:00:a5"), count("extern_learn"), count("sticky")),
        (4, 1, 1),
        "{before:?}"
    );
    leave_and_return(&namespace);
    assert_eq!(forwarded(), before);
}

/// Ports with all VLANs: one pass, and a single drift costs a look at its own link. The kernel keeps an address of each
/// port in each VLAN, which takes an emulated machine its time: 64 ports are for longer runs.
#[test]
fn all_vlans_on_many_ports_take_one_pass_and_a_drift_lists_only_its_own() {
    let namespace = Namespace::enter().unwrap();
    let mut entries: Vec<(String, String)> = vec![
        ("link br0".to_owned(), "bridge filtering on".to_owned()),
        ("link br0 vlans".to_owned(), "1-4094".to_owned()),
    ];
    let ports = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 64 } else { 2 };
    for number in 0..ports {
        let port = format!("veth peer b{number} master br0");
        entries.push((format!("link a{number:02}"), port));
        // Every second one leaves without a tag, so that there are as many ranges as there can be.
        let list: Vec<String> = (1..4095)
            .map(|id| if id % 2 == 0 { format!("{id} untagged") } else { id.to_string() })
            .collect();
        let list = if number == 0 { list.join(",") } else { "2-4094,1 pvid untagged".to_owned() };
        entries.push((format!("link a{number:02} vlans"), list));
    }
    let entries: Vec<Declared<'_>> =
        entries.iter().map(|(key, attrs)| (key.as_str(), attrs.as_str())).collect();
    let declared = desired(&entries);
    let mut bench = Bench::new();
    let done = bench.converge(&declared);
    assert_eq!(done.len(), 2 + 2 * ports);
    assert_eq!(shown(&namespace, "a00").len(), 4094);
    assert_eq!(shown(&namespace, "a01"), ["1 PVID Egress Untagged", "2-4094"]);
    bench.heal(&declared);
    bridge(&namespace, "vlan del dev a01 vid 2000");
    assert_eq!(bench.heal(&declared), ["~ link a01 vlans"]);
    assert_eq!(shown(&namespace, "a01"), ["1 PVID Egress Untagged", "2-4094"]);
    let bytes = |key: &str| {
        let mut reader = Rtnl::here().reader().unwrap();
        let (declared, records) = (Arc::new(declared.clone()), Records::new());
        block_on(reader.observe(&View::new(&Focus::All, &declared, &records), &mut |_| {}))
            .unwrap();
        let before = reader.received_bytes();
        let focus = Focus::Keys(BTreeSet::from([key.parse().unwrap()]));
        block_on(reader.observe(&View::new(&focus, &declared, &records), &mut |_| {})).unwrap();
        reader.received_bytes() - before
    };
    let (of_few, of_many) = (bytes("link a01 vlans"), bytes("link a00 vlans"));
    assert!(of_few < 8192 && of_many > 10 * of_few, "{of_few} and {of_many} bytes");
}

#[test]
fn every_list_that_is_declared_reads_back_as_declared() {
    let namespace = cable();
    let mut bench = Bench::new();
    let mut seed: u32 = 76;
    let mut next = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    for _ in 0..20 {
        let mut vlans: BTreeMap<u32, &str> = BTreeMap::new();
        for _ in 0..next(12) {
            let first = 1 + next(4094);
            let flags = ["", " untagged"][usize::try_from(next(2)).unwrap()];
            vlans.extend((first..(first + 1 + next(5)).min(4095)).map(|id| (id, flags)));
        }
        let pvid = next(2) == 0;
        let mut list: Vec<String> =
            vlans.iter().map(|(id, flags)| format!("{id}{flags}")).collect();
        if let Some(first) = list.first_mut().filter(|_| pvid) {
            first.push_str(" pvid");
        }
        let list = list.join(",");
        let declared = with(&[("link va vlans", &list), ("link br0 vlans", &list)]);
        let report = bench.pass(&declared);
        assert!(report.is_converged(), "{list}: {:#?}", explained(&report));
        bench.assert_quiet(&declared);
        assert_eq!(shown(&namespace, "va"), shown(&namespace, "br0"), "{list}");
    }
}
