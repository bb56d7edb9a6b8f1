//! Requests for links are, attribute for attribute, what `ip` (iproute2 6.1) sends.
//!
//! The bytes were recorded in a fresh namespace with `v0` (index 3) and `v1` (index 2), a veth pair,
//! by `strace -e trace=sendmsg -e write=3 ip ...`; sequence numbers are left out. The order of
//! attributes has no meaning, and what `ip` adds beyond ours is zero.

use std::collections::BTreeMap;

use homeostat_netlink::{Attrs, Messages};

use super::*;
use crate::link::kinds::bond::{Bond, BondMode, HashPolicy, LacpRate};
use crate::link::kinds::bridge::Bridge;
use crate::link::kinds::gre::Gre;
use crate::link::kinds::macvlan::{Ipvlan, IpvlanMode, Macvlan, MacvlanMode};
use crate::link::kinds::veth::Veth;
use crate::link::kinds::vlan::{Vlan, VlanProtocol, Vrf};
use crate::link::kinds::vxlan::Vxlan;
use crate::link::model::LinkRef;

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn ip(text: &str) -> Option<std::net::IpAddr> {
    text.parse().ok()
}

/// A link on `v0`.
fn on_v0(kind: LinkKind) -> Link {
    Link { parent: Some(LinkRef::here(name("v0"))), ..Link::new(kind) }
}

type Values = BTreeMap<Vec<u16>, Vec<u8>>;

/// Every value by the path of attributes that leads to it.
fn values(attrs: Attrs<'_>, path: &[u16], into: &mut Values) {
    for attr in attrs {
        let attr = attr.unwrap();
        let path = [path, &[attr.kind]].concat();
        match path.as_slice() {
            [IFLA_LINKINFO] | [IFLA_LINKINFO, IFLA_INFO_DATA] => values(attr.attrs(), &path, into),
            _ => _ = into.insert(path, attr.value.to_vec()),
        }
    }
}

/// The kind of a message, its fixed part and its values.
fn read(bytes: &[u8]) -> (u16, [u8; 16], Values) {
    let message = Messages::new(bytes).next().unwrap().unwrap();
    let (fixed, attrs) = message.split::<16>().unwrap();
    let mut found = Values::new();
    values(attrs, &[], &mut found);
    (message.kind, *fixed, found)
}

fn check(batch: &Batch, recorded: &str) {
    let byte = |byte| if byte == "--" { 0 } else { u8::from_str_radix(byte, 16).unwrap() };
    let recorded: Vec<u8> = recorded.split_whitespace().map(byte).collect();
    let (kind, fixed, ours) = read(batch.bytes());
    let (their_kind, their_fixed, mut theirs) = read(&recorded);
    assert_eq!((kind, fixed), (their_kind, their_fixed));
    theirs.retain(|path, value| ours.contains_key(path) || value.iter().any(|byte| *byte != 0));
    assert_eq!(ours, theirs);
}

fn check_new(text: &str, link: &Link, recorded: &str) {
    let mut batch = Batch::new();
    let parent = link.parent.as_ref().map(|_| IfIndex(3));
    let refs = Refs { parent, group: 76, ..Refs::default() };
    create(&mut batch, name(text), link, &refs, None).unwrap();
    check(&batch, recorded);
}

#[test]
fn a_bridge_is_written_as_ip_writes_it() {
    // ip link add x0 group 76 type bridge stp_state 1 priority 100
    let link = Link::new(LinkKind::Bridge(Bridge {
        stp: Some(true),
        priority: Some(100),
        ..Bridge::default()
    }));
    let recorded = "54 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 30 00 00
        24 00 12 00 0a 00 01 00 62 72 69 64 67 65 00 00 14 00 02 00 08 00 05 00
        01 00 00 00 06 00 06 00 64 00 00 00";
    check_new("x0", &link, recorded);
}

#[test]
fn a_vxlan_is_written_as_ip_writes_it() {
    // ip link add x0 group 76 type vxlan id 5 local 10.0.0.1 remote 10.0.0.2 ttl 7 tos 8 \
    //   nolearning ageing 99 dstport 4790 proxy
    let link = Link::new(LinkKind::Vxlan(Vxlan {
        id: 5,
        local: ip("10.0.0.1"),
        remote: ip("10.0.0.2"),
        ttl: Some(7),
        tos: Some(8),
        learning: Some(false),
        ageing: Some(99),
        port: Some(4790),
        proxy: Some(true),
        ..Vxlan::default()
    }));
    let recorded = "8c 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 30 00 00
        5c 00 12 00 09 00 01 00 76 78 6c 61 6e 00 00 00 4c 00 02 00 05 00 05 00
        07 00 00 00 05 00 06 00 08 00 00 00 08 00 08 00 63 00 00 00 05 00 0b 00
        01 00 00 00 08 00 01 00 05 00 00 00 08 00 04 00 0a 00 00 01 08 00 02 00
        0a 00 00 02 05 00 07 00 00 00 00 00 06 00 0f 00 12 b6 00 00";
    check_new("x0", &link, recorded);
}

#[test]
fn a_macvlan_is_written_as_ip_writes_it() {
    // ip link add link v0 name x0 group 76 mtu 1400 address 02:00:00:00:00:01 type macvlan mode bridge
    let link = Link {
        mtu: Some(1400),
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        ..on_v0(LinkKind::Macvlan(Macvlan { mode: Some(MacvlanMode::Bridge) }))
    };
    let recorded = "68 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 08 00 04 00 78 05 00 00
        0a 00 01 00 02 00 00 00 00 01 00 00 08 00 05 00 03 00 00 00 07 00 03 00
        78 30 00 00 1c 00 12 00 0b 00 01 00 6d 61 63 76 6c 61 6e 00 0c 00 02 00
        08 00 01 00 04 00 00 00";
    check_new("x0", &link, recorded);
}

#[test]
fn a_vlan_is_written_as_ip_writes_it() {
    // ip link add link v0 name x3 group 76 type vlan id 5 protocol 802.1ad
    let link = on_v0(LinkKind::Vlan(Vlan { id: 5, protocol: Some(VlanProtocol::Stag) }));
    let recorded = "58 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 08 00 05 00 03 00 00 00
        07 00 03 00 78 33 00 00 20 00 12 00 08 00 01 00 76 6c 61 6e 14 00 02 00
        06 00 01 00 05 00 00 00 06 00 05 00 88 a8 00 00";
    check_new("x3", &link, recorded);
}

#[test]
fn a_bond_is_written_as_ip_writes_it() {
    // ip link add x3 group 76 type bond mode 802.3ad miimon 100 lacp_rate fast min_links 2 \
    //   xmit_hash_policy layer3+4
    let link = Link::new(LinkKind::Bond(Bond {
        mode: Some(BondMode::Lacp),
        miimon: Some(100),
        lacp_rate: Some(LacpRate::Fast),
        min_links: Some(2),
        xmit_hash_policy: Some(HashPolicy::Layer34),
        ..Bond::default()
    }));
    let recorded = "68 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 33 00 00
        38 00 12 00 08 00 01 00 62 6f 6e 64 2c 00 02 00 05 00 01 00 04 00 00 00
        08 00 03 00 64 00 00 00 05 00 15 00 01 00 00 00 08 00 12 00 02 00 00 00
        05 00 0e 00 01 00 00 00";
    check_new("x3", &link, recorded);
}

#[test]
fn a_gre_tunnel_is_written_as_ip_writes_it() {
    // ip link add x3 group 76 type gre local 10.0.0.1 remote 10.0.0.2 key 7 ttl 9 tos 8
    let link = Link::new(LinkKind::Gre(Gre {
        local: ip("10.0.0.1"),
        remote: ip("10.0.0.2"),
        key: Some(7),
        ttl: Some(9),
        tos: Some(8),
        // What `ip` takes where nothing is said.
        pmtudisc: Some(true),
    }));
    let recorded = "b0 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 33 00 00
        80 00 12 00 07 00 01 00 67 72 65 00 74 00 02 00 08 00 04 00 00 00 00 07
        08 00 05 00 00 00 00 07 06 00 02 00 20 00 00 00 06 00 03 00 20 00 00 00
        08 00 06 00 0a 00 00 01 08 00 07 00 0a 00 00 02 05 00 0a 00 01 00 00 00
        05 00 09 00 08 00 00 00 05 00 08 00 09 00 00 00 08 00 14 00 00 00 00 00
        06 00 0e 00 00 00 00 00 06 00 0f 00 00 00 00 00 06 00 10 00 00 00 00 00
        06 00 11 00 00 00 00 00";
    check_new("x3", &link, recorded);
}

#[test]
fn a_vrf_is_written_as_ip_writes_it() {
    // ip link add x3 group 76 type vrf table 100
    let link = Link::new(LinkKind::Vrf(Vrf { table: 100 }));
    let recorded = "48 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 33 00 00
        18 00 12 00 07 00 01 00 76 72 66 00 0c 00 02 00 08 00 01 00 64 00 00 00";
    check_new("x3", &link, recorded);
}

#[test]
fn an_ipvlan_is_written_as_ip_writes_it() {
    // ip link add link v0 name x3 group 76 type ipvlan mode l3
    let link = on_v0(LinkKind::Ipvlan(Ipvlan { mode: Some(IpvlanMode::L3) }));
    let recorded = "5c 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 08 00 05 00 03 00 00 00
        07 00 03 00 78 33 00 00 24 00 12 00 0a 00 01 00 69 70 76 6c 61 6e 00 00
        14 00 02 00 06 00 01 00 01 00 00 00 06 00 02 00 00 00 00 00";
    check_new("x3", &link, recorded);
}

#[test]
fn a_pair_is_written_as_ip_writes_it() {
    // ip link add x1 group 76 type veth peer name x2 group 76
    let link = Link::new(LinkKind::Veth(Veth { peer: LinkRef::here(name("x2")) }));
    let recorded = "64 00 00 00 10 00 05 06 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 31 00 00 34 00 12 00
        08 00 01 00 76 65 74 68 28 00 02 00 24 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 08 00 1b 00 4c 00 00 00 07 00 03 00 78 32 00 00";
    check_new("x1", &link, recorded);
}

#[test]
fn changes_are_written_as_ip_writes_them() {
    let index = IfIndex(6);
    let check = |write: &dyn Fn(&mut Batch) -> Result<()>, recorded: &str| {
        let mut batch = Batch::new();
        write(&mut batch).unwrap();
        check(&batch, recorded);
    };
    // ip link set x0 alias hello
    let parts = Parts { alias: Some("hello".to_owned()), ..Parts::default() };
    let up = Parts { up: Some(true), ..Parts::default() };
    let freed = Parts { master: Some(IfIndex(0)), ..Parts::default() };
    check(
        &|batch| change(batch, index, &parts, &Refs::default()),
        "2c 00 00 00 10 00 05 00 -- -- -- -- 00 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00
        00 00 00 00 09 00 14 00 68 65 6c 6c 6f 00 00 00",
    );
    // ip link set x0 up
    check(
        &|batch| change(batch, index, &up, &Refs::default()),
        "20 00 00 00 10 00 05 00 -- -- -- -- 00 00 00 00 00 00 00 00 06 00 00 00 01 00 00 00
        01 00 00 00",
    );
    // ip link set x0 nomaster
    check(
        &|batch| change(batch, index, &freed, &Refs::default()),
        "28 00 00 00 10 00 05 00 -- -- -- -- 00 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00
        00 00 00 00 08 00 0a 00 00 00 00 00",
    );
    // ip link del x0
    check(
        &|batch| delete(batch, index),
        "20 00 00 00 11 00 05 00 -- -- -- -- 00 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00
        00 00 00 00",
    );
}
