//! Many VLANs, forwarding entries and peers: one pass each, what a heal among them reads, and how long a pass takes in
//! proportion to the kernel's own part, the same requests without anything around them. Proportions are printed and not
//! judged: the machine is shared.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "../passes/bench.rs"]
#[expect(dead_code, reason = "the bench of whole passes; not all of it is needed here")]
mod bench;

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homeostat_engine::{Focus, Reader as _, Records, Source as _, View};
use homeostat_netlink::uapi::{
    BRIDGE_FLAGS_MASTER, BRIDGE_VLAN_INFO_RANGE_BEGIN, BRIDGE_VLAN_INFO_RANGE_END,
    BRIDGE_VLAN_INFO_UNTAGGED, IFLA_AF_SPEC, IFLA_BRIDGE_FLAGS, IFLA_BRIDGE_VLAN_INFO, NDA_DST,
    NDA_LLADDR, NLM_F_CREATE, NLM_F_EXCL, NTF_SELF, NUD_PERMANENT, RTM_NEWNEIGH, RTM_SETLINK,
};
use homeostat_netlink::{Batch, Connection, Family};
use homeostat_rtnl::{DesiredState, FdbKey, Key, Object, Remote, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, add, block_on, ip, listed};

const AF_BRIDGE: u8 = 7;
const PORTS: usize = 64;
const ENTRIES: u32 = 10_000;

#[expect(clippy::disallowed_methods, reason = "runs `bridge`, which is the other program")]
fn bridge(_proof: &Namespace, args: &str) {
    let status = Command::new("bridge").args(args.split_whitespace()).status().unwrap();
    assert!(status.success(), "bridge {args}");
}

#[expect(clippy::disallowed_methods, reason = "measures, and judges nothing by it")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Straight to the output of the program: what a test prints is shown only if it fails.
fn report(what: &str, pass: Duration, floor: Duration) {
    let ratio = pass.as_secs_f64() / floor.as_secs_f64();
    let line =
        format!("{what}: a pass {pass:.0?}, the kernel alone {floor:.0?}: {ratio:.1} times\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Sends requests and nothing else.
fn floor(mut batch: Batch) -> Duration {
    let mut connection = Connection::open(Family::Route).unwrap();
    timed(|| connection.ask(&mut batch, &mut |_| {}).unwrap())
}

/// How much the kernel sends for a look at everything, and for one at a key.
fn read(desired: &DesiredState, key: &str) -> (u64, u64) {
    let mut reader = Rtnl::here().reader().unwrap();
    let (desired, records) = (Arc::new(desired.clone()), Records::new());
    let mut look = |focus: Focus<Key>| {
        let before = reader.received_bytes();
        let view = View::new(&focus, &desired, &records);
        block_on(reader.observe(&view, &mut |_| {})).unwrap();
        reader.received_bytes() - before
    };
    let all = look(Focus::All);
    let key: Key = key.parse().unwrap();
    (all, look(Focus::Keys([key].into())))
}

/// The number of a link.
fn index(namespace: &Namespace, name: &str) -> [u8; 4] {
    let shown = &listed(namespace, &format!("link show {name}"))[0];
    u32::try_from(shown["ifindex"].as_u64().unwrap()).unwrap().to_ne_bytes()
}

/// All VLANs, so that no two neighbours are alike: as many ranges as ids.
fn all_vlans() -> String {
    let one =
        |id: u16| if id.is_multiple_of(2) { format!("{id} untagged") } else { id.to_string() };
    (1..=4094).map(one).collect::<Vec<_>>().join(", ")
}

fn bridged() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0");
    for number in 0..PORTS {
        ip(&namespace, &format!("link add p{number} type dummy"));
        ip(&namespace, &format!("link set p{number} master br0"));
    }
    namespace
}

#[test]
fn all_vlans_on_64_ports_are_one_pass_and_one_that_is_missing_heals_by_its_port() {
    let namespace = bridged();
    let mut builder = DesiredState::builder();
    for number in 0..PORTS {
        let list = if number == 7 { all_vlans() } else { "1-4094".to_owned() };
        add(&mut builder, format!("link p{number} vlans").parse().unwrap(), &list).unwrap();
    }
    let desired = builder.build().unwrap();
    let mut bench = Bench::new();
    let pass = timed(|| _ = bench.pass(&desired));
    bench.assert_quiet(&desired);
    bench.heal(&desired);
    for port in ["p7", "p8"] {
        bridge(&namespace, &format!("vlan del dev {port} vid 100"));
        let key = format!("link {port} vlans");
        assert_eq!(bench.heal(&desired), [format!("~ {key}")]);
        let (all, one) = read(&desired, &key);
        // The list of p7 is as long as those of all others together, and the links are known.
        assert!(one < all && (port == "p7" || one < 2_000), "{port}: {one} of {all} bytes");
    }
    let namespace = bridged();
    let mut batch = Batch::new();
    for number in 0..PORTS {
        let [i0, i1, i2, i3] = index(&namespace, &format!("p{number}"));
        let mut message = batch.message(RTM_SETLINK, 0);
        message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0]);
        message.nest_unmarked(IFLA_AF_SPEC, |spec| {
            spec.attr_u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_MASTER);
            let mut put = |flags: u16, id: u16| {
                let ([f0, f1], [v0, v1]) = (flags.to_ne_bytes(), id.to_ne_bytes());
                spec.attr(IFLA_BRIDGE_VLAN_INFO, &[f0, f1, v0, v1]);
            };
            if number == 7 {
                let flags =
                    |id: u16| if id.is_multiple_of(2) { BRIDGE_VLAN_INFO_UNTAGGED } else { 0 };
                (1..=4094).for_each(|id| put(flags(id), id));
            } else {
                put(BRIDGE_VLAN_INFO_RANGE_BEGIN, 1);
                put(BRIDGE_VLAN_INFO_RANGE_END, 4094);
            }
        });
        message.finish().unwrap();
    }
    report("4094 VLANs on 64 ports", pass, floor(batch));
}

fn mac(number: u32) -> [u8; 6] {
    let [_, b, c, d] = number.to_be_bytes();
    [2, 0, 0, b, c, d]
}

fn tunnel() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add vx type vxlan id 7 dstport 4789");
    namespace
}

#[test]
fn ten_thousand_forwarding_entries_are_one_pass_near_the_kernels_own_time() {
    let namespace = tunnel();
    let mut builder = DesiredState::builder();
    for number in 0..ENTRIES {
        let mac = homeostat_rtnl::Mac(mac(number));
        let (key, entry) = FdbKey::of_vxlan("vx".parse().unwrap(), mac, None)
            .to(Remote::new([192, 0, 2, 1].into()));
        builder.add(key.into(), Object::Fdb(entry)).unwrap();
    }
    let desired = builder.build().unwrap();
    let mut bench = Bench::new();
    let pass = timed(|| _ = bench.pass(&desired));
    bench.assert_quiet(&desired);
    bench.heal(&desired);
    bridge(&namespace, "fdb del 02:00:00:00:00:09 dev vx");
    let key = "fdb 02:00:00:00:00:09 dev vx self";
    assert_eq!(bench.heal(&desired), [format!("+ {key}")]);
    let (all, one) = read(&desired, key);
    assert!(one < 2_000 && all > 500_000, "{one} of {all} bytes");
    let namespace = tunnel();
    let [i0, i1, i2, i3] = index(&namespace, "vx");
    let mut batch = Batch::new();
    for number in 0..ENTRIES {
        let mut message = batch.message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL);
        let [s0, s1] = NUD_PERMANENT.to_ne_bytes();
        message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, s0, s1, NTF_SELF, 0]);
        message.attr(NDA_LLADDR, &mac(number)).attr(NDA_DST, &[192, 0, 2, 1]);
        message.finish().unwrap();
    }
    report("10000 forwarding entries", pass, floor(batch));
}
