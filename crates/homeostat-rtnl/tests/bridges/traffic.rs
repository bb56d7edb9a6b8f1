//! Whether frames pass: two hosts, each in a namespace of its own, on the ports of a bridge of ours.

use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, Declared, desired, ip};

/// A host with an address without a tag and one in each of the VLANs 10 and 20: `10.0.VLAN.NUMBER`.
struct Host {
    netns: String,
    number: u8,
}

impl Host {
    /// Its cable ends here as `name`.
    fn new(here: &Namespace, test: &str, number: u8, name: &str) -> Self {
        let netns = format!("{test}-{}-{number}", std::process::id());
        ip(here, &format!("netns add {netns}"));
        ip(here, &format!("link add {name} type veth peer name eth0 netns {netns}"));
        ip(here, &format!("link set {name} up"));
        let host = Host { netns, number };
        for id in [10, 20] {
            host.ip(here, &format!("link add eth0.{id} link eth0 type vlan id {id}"));
        }
        for (link, id) in [("eth0", 0), ("eth0.10", 10), ("eth0.20", 20)] {
            host.ip(here, &format!("link set {link} up"));
            host.ip(here, &format!("address add 10.0.{id}.{number}/24 dev {link}"));
        }
        host
    }

    fn ip(&self, here: &Namespace, args: &str) {
        ip(here, &format!("-n {} {args}", self.netns));
    }

    /// Whether the other host answers in a VLAN; 0 is without a tag.
    fn reaches(&self, here: &Namespace, other: &Host, vlan: u8) -> bool {
        let target = format!("10.0.{vlan}.{}", other.number);
        let args = ["netns", "exec", &self.netns, "ping", "-c", "1", "-W", "3", &target];
        here.ip(&args).is_ok()
    }

    /// The same, as soon as the links are up.
    #[track_caller]
    fn reaches_soon(&self, here: &Namespace, other: &Host, vlan: u8) {
        let answers = (0..20).any(|_| self.reaches(here, other, vlan));
        assert!(answers, "{} does not reach {} in VLAN {vlan}", self.netns, other.netns);
    }
}

#[test]
fn a_tagged_frame_passes_and_one_without_a_tag_or_with_another_tag_does_not() {
    let here = Namespace::enter().unwrap();
    let (one, two) = (Host::new(&here, "tagged", 1, "p1"), Host::new(&here, "tagged", 2, "p2"));
    let base: [Declared<'_>; 3] = [
        ("link br0", "bridge up on filtering on pvid 0"),
        ("link p1 master", "br0"),
        ("link p2 master", "br0"),
    ];
    let with = |list: &str| {
        desired(&[&base[..], &[("link p1 vlans", list), ("link p2 vlans", list)]].concat())
    };
    let mut bench = Bench::new();
    bench.converge(&with("10"));
    one.reaches_soon(&here, &two, 10);
    assert!(!one.reaches(&here, &two, 20) && !one.reaches(&here, &two, 0));
    bench.converge(&with("20"));
    one.reaches_soon(&here, &two, 20);
    assert!(!one.reaches(&here, &two, 10) && !one.reaches(&here, &two, 0));
    bench.converge(&with("5 pvid untagged, 10"));
    one.reaches_soon(&here, &two, 0);
    one.reaches_soon(&here, &two, 10);
    assert!(!one.reaches(&here, &two, 20));
    for host in [&one, &two] {
        ip(&here, &format!("netns del {}", host.netns));
    }
}

/// The other end has a VXLAN for one network, and an address right on it.
#[test]
fn frames_of_a_vlan_pass_a_vxlan_of_several_networks_in_theirs() {
    let here = Namespace::enter().unwrap();
    let host = Host::new(&here, "networks", 1, "p1");
    let far = format!("networks-{}-far", std::process::id());
    let there = |args: &str| ip(&here, &format!("-n {far} {args}"));
    ip(&here, &format!("netns add {far}"));
    ip(&here, &format!("link add u0 type veth peer name u1 netns {far}"));
    ip(&here, "address add 10.9.0.1/24 dev u0");
    ip(&here, "link set u0 up");
    there("address add 10.9.0.2/24 dev u1");
    there("link set u1 up");
    for (id, vlan) in [(10010, 10), (10020, 20)] {
        there(&format!("link add vx{vlan} type vxlan id {id} dstport 4789 remote 10.9.0.1"));
        there(&format!("address add 10.0.{vlan}.77/24 dev vx{vlan}"));
        there(&format!("link set vx{vlan} up"));
    }
    let with = |list: &str, vnis: &str| {
        let vxlan = format!("vxlan id 0 external on vnis {vnis} master br0 up on");
        desired(&[
            ("link br0", "bridge up on filtering on pvid 0"),
            ("link p1 master", "br0"),
            ("link p1 vlans", "10, 20"),
            ("link vx", &vxlan),
            ("link vx vlans", list),
            ("fdb 00:00:00:00:00:00 dev vx self src-vni 10010 dst 10.9.0.2", ""),
            ("fdb 00:00:00:00:00:00 dev vx self src-vni 10020 dst 10.9.0.2", ""),
        ])
    };
    let mut bench = Bench::new();
    let far_host = Host { netns: far.clone(), number: 77 };
    bench.converge(&with("10 vni 10010, 20", "10010,10020"));
    host.reaches_soon(&here, &far_host, 10);
    assert!(!host.reaches(&here, &far_host, 20), "VLAN 20 has no network");
    bench.converge(&with("10, 20 vni 10020", "10010,10020"));
    host.reaches_soon(&here, &far_host, 20);
    assert!(!host.reaches(&here, &far_host, 10), "VLAN 10 has none");
    bench.converge(&with("10 vni 10010, 20 vni 10020", "10010"));
    host.reaches_soon(&here, &far_host, 10);
    assert!(!host.reaches(&here, &far_host, 20), "its network is not taken");
    for netns in [&host.netns, &far] {
        ip(&here, &format!("netns del {netns}"));
    }
}

/// Quirk: a frame that comes by another port takes a static entry along, unless it is sticky.
#[test]
fn a_static_entry_roams() {
    let here = Namespace::enter().unwrap();
    let (one, two) = (Host::new(&here, "roams", 1, "p1"), Host::new(&here, "roams", 2, "p2"));
    one.ip(&here, "link set eth0 address 02:00:00:00:00:11");
    let with = |attrs: &str| {
        desired(&[
            ("link br0", "bridge up on"),
            ("link p1 master", "br0"),
            ("link p2 master", "br0"),
            ("fdb 02:00:00:00:00:11 dev p2", attrs),
        ])
    };
    let mut bench = Bench::new();
    bench.pass(&with(""));
    bench.heal(&with(""));
    // Its frames come by the other port.
    assert!((0..20).any(|_| {
        one.reaches(&here, &two, 0);
        bench.heal(&with("")).contains(&"+ fdb 02:00:00:00:00:11 dev p2".to_owned())
    }));
    bench.pass(&with("sticky"));
    bench.heal(&with("sticky"));
    assert!(!one.reaches(&here, &two, 0), "the answer leaves by the port of the entry");
    bench.assert_quiet(&with("sticky"));
    for host in [&one, &two] {
        ip(&here, &format!("netns del {}", host.netns));
    }
}

#[test]
fn the_vlans_of_the_bridge_itself_decide_what_reaches_the_host() {
    let here = Namespace::enter().unwrap();
    let host = Host::new(&here, "own", 1, "p1");
    let with = |list: &str| {
        desired(&[
            ("link br0", "bridge up on filtering on pvid 0"),
            ("link br0 vlans", list),
            ("link p1 master", "br0"),
            ("link p1 vlans", "10, 20"),
        ])
    };
    let mut bench = Bench::new();
    bench.converge(&with("10"));
    for id in [10, 20] {
        ip(&here, &format!("link add br0.{id} link br0 type vlan id {id}"));
        ip(&here, &format!("link set br0.{id} up"));
        ip(&here, &format!("address add 10.0.{id}.254/24 dev br0.{id}"));
    }
    let here_itself = Host { netns: String::new(), number: 254 };
    host.reaches_soon(&here, &here_itself, 10);
    assert!(!host.reaches(&here, &here_itself, 20));
    bench.converge(&with("20"));
    host.reaches_soon(&here, &here_itself, 20);
    assert!(!host.reaches(&here, &here_itself, 10));
    ip(&here, &format!("netns del {}", host.netns));
}
