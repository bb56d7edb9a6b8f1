//! What is asked of the kernel is byte for byte what `ip` (iproute2 6.1) asks.
//!
//! Recorded in a fresh namespace with the veth `va` (index 7) by `strace -e trace=sendmsg -e write=3 ip
//! ...`; sequence numbers, which `ip` takes from the clock, are left out.

use homeostat_netlink::uapi::{NLM_F_ACK, RTM_DELRULE, RTM_NEWRULE};

use super::super::*;
use crate::key::Key;
use crate::neighbour::{self, Neighbour};
use crate::net::Family;
use crate::nexthop::{self, Member, Nexthop, NexthopId};
use crate::number::Table;
use crate::route::{self, Route, RouteKey};
use crate::rule::{self, Rule, RuleAction, SeenRule};

/// Writes one message and compares it with the recorded hex bytes.
fn check(write: impl FnOnce(&mut Encoder<'_>) -> Encoded, recorded: &str) {
    let (mut batch, mut links) = (Batch::new(), Links::default());
    links.insert("va".parse().unwrap(), IfIndex(7));
    let mut encoder = Encoder::plain(&mut batch, &links);
    write(&mut encoder).unwrap().unwrap();
    let mut written = batch.bytes().to_vec();
    // The connection asks for an answer when it sends.
    written[6] |= u8::try_from(NLM_F_ACK).unwrap();
    let read = |byte: &str| if byte == "--" { 0 } else { u8::from_str_radix(byte, 16).unwrap() };
    assert_eq!(written, recorded.split_whitespace().map(read).collect::<Vec<u8>>());
}

fn way(gateway: [u8; 4]) -> Nexthop {
    Nexthop { family: Some(Family::V4), ..Nexthop::via(gateway.into(), "va".parse().unwrap()) }
}

fn put(id: u32, nexthop: &Nexthop, put: Put, recorded: &str) {
    check(|encoder| nexthop::put(encoder, NexthopId(id), nexthop, put), recorded);
}

#[test]
fn nexthops() {
    // ip nexthop add id 10 via 10.0.0.2 dev va proto 76
    let recorded = "30 00 00 00 68 00 05 06 -- -- -- -- 00 00 00 00 02 00 4c 00 00 00 00 00
        08 00 01 00 0a 00 00 00 08 00 06 00 0a 00 00 02 08 00 05 00 07 00 00 00";
    put(10, &way([10, 0, 0, 2]), Put::Create, recorded);
    // ip nexthop replace id 10 via 10.0.0.3 dev va proto 76
    let recorded = "30 00 00 00 68 00 05 05 -- -- -- -- 00 00 00 00 02 00 4c 00 00 00 00 00
        08 00 01 00 0a 00 00 00 08 00 06 00 0a 00 00 03 08 00 05 00 07 00 00 00";
    put(10, &way([10, 0, 0, 3]), Put::Replace, recorded);
    // ip nexthop add id 11 via 10.9.9.9 dev va onlink proto 76
    let onlink = Nexthop { onlink: Some(true), ..way([10, 9, 9, 9]) };
    let recorded = "30 00 00 00 68 00 05 06 -- -- -- -- 00 00 00 00 02 00 4c 00 04 00 00 00
        08 00 01 00 0b 00 00 00 08 00 06 00 0a 09 09 09 08 00 05 00 07 00 00 00";
    put(11, &onlink, Put::Create, recorded);
    // ip -6 nexthop add id 12 dev va proto 76
    let recorded = "28 00 00 00 68 00 05 06 -- -- -- -- 00 00 00 00 0a 00 4c 00 00 00 00 00
        08 00 01 00 0c 00 00 00 08 00 05 00 07 00 00 00";
    put(12, &Nexthop::dev(Family::V6, "va".parse().unwrap()), Put::Create, recorded);
    // ip nexthop add id 13 blackhole proto 76
    let recorded = "24 00 00 00 68 00 05 06 -- -- -- -- 00 00 00 00 02 00 4c 00 00 00 00 00
        08 00 01 00 0d 00 00 00 04 00 04 00";
    put(13, &Nexthop::blackhole(Family::V4), Put::Create, recorded);
    // ip nexthop add id 20 group 10,5/11,7 proto 76
    let members = [(10, 5), (11, 7)].map(|(id, weight)| Member { id: NexthopId(id), weight });
    let recorded = "34 00 00 00 68 00 05 06 -- -- -- -- 00 00 00 00 00 00 4c 00 00 00 00 00
        08 00 01 00 14 00 00 00 14 00 02 00 0a 00 00 00 04 00 00 00 0b 00 00 00 06 00 00 00";
    put(20, &Nexthop::group(members.into()), Put::Create, recorded);
    // ip nexthop del id 13
    let recorded = "20 00 00 00 69 00 05 00 -- -- -- -- 00 00 00 00 00 00 00 00 00 00 00 00
        08 00 01 00 0d 00 00 00";
    check(|encoder| Ok(nexthop::delete(encoder, NexthopId(13))), recorded);
}

#[test]
fn a_route_through_a_nexthop() {
    // ip route add 10.5.0.0/16 nhid 10 proto 76
    let key = RouteKey::new("10.5.0.0/16".parse().unwrap());
    let recorded = "2c 00 00 00 18 00 05 06 -- -- -- -- 00 00 00 00 02 10 00 00 fe 4c 00 01
        00 00 00 00 08 00 01 00 0a 05 00 00 08 00 1e 00 0a 00 00 00";
    let route = Route::through(NexthopId(10));
    check(|encoder| route::message::put(encoder, &key, &route, Put::Create), recorded);
}

fn rule(key: &str, rule: Rule, recorded: &str) {
    let Ok(Key::Rule(key)) = key.parse() else { panic!("{key}") };
    let rule = SeenRule { key: *key, rule, protocol: Protocol::HOMEOSTAT };
    check(|encoder| Ok(rule::request(encoder, RTM_NEWRULE, Put::Create.flags(), &rule)), recorded);
}

#[test]
fn rules() {
    // ip rule add priority 1000 from 10.0.0.0/8 to 10.1.0.0/16 iif va oif vb table 1000 protocol 76
    let recorded = "54 00 00 00 20 00 05 06 -- -- -- -- 00 00 00 00 02 10 08 00 00 00 00 01
        00 00 00 00 08 00 06 00 e8 03 00 00 08 00 02 00 0a 00 00 00 08 00 01 00 0a 01 00 00
        07 00 03 00 76 61 00 00 07 00 11 00 76 62 00 00 08 00 0f 00 e8 03 00 00
        05 00 15 00 4c 00 00 00";
    let key = "rule priority 1000 from 10.0.0.0/8 to 10.1.0.0/16 iif va oif vb";
    rule(key, Rule::table(Table(1000)), recorded);
    // ip rule add priority 5 fwmark 1/255 ipproto tcp sport 5 dport 80-90 blackhole protocol 76
    let recorded = "54 00 00 00 20 00 05 06 -- -- -- -- 00 00 00 00 02 00 00 00 00 00 00 06
        00 00 00 00 08 00 06 00 05 00 00 00 08 00 0a 00 01 00 00 00 08 00 10 00 ff 00 00 00
        05 00 16 00 06 00 00 00 08 00 17 00 05 00 05 00 08 00 18 00 50 00 5a 00
        05 00 15 00 4c 00 00 00";
    let key = "rule priority 5 fwmark 1/255 ipproto tcp sport 5 dport 80-90";
    rule(key, Rule::of(RuleAction::Blackhole), recorded);
    // ip -6 rule add priority 6 from fd00::/8 tos 0x10 table main suppress_prefixlength 0 protocol 76
    let recorded = "48 00 00 00 20 00 05 06 -- -- -- -- 00 00 00 00 0a 00 08 10 fe 00 00 01
        00 00 00 00 08 00 06 00 06 00 00 00 14 00 02 00 fd 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 08 00 0e 00 00 00 00 00 05 00 15 00 4c 00 00 00";
    let suppress = Rule { suppress_prefixlength: Some(0), ..Rule::table(Table::MAIN) };
    rule("rule priority 6 from fd00::/8 tos 16", suppress, recorded);
    // ip rule add priority 7 l3mdev protocol 76
    let recorded = "34 00 00 00 20 00 05 06 -- -- -- -- 00 00 00 00 02 00 00 00 00 00 00 01
        00 00 00 00 08 00 06 00 07 00 00 00 05 00 13 00 01 00 00 00 05 00 15 00 4c 00 00 00";
    rule("rule priority 7", Rule::of(RuleAction::L3mdev), recorded);
}

#[test]
fn a_rule_is_deleted_as_ip_deletes_it_but_that_the_action_is_named_too() {
    // ip rule del priority 1000 from 10.0.0.0/8 table 1000 protocol 76, with 01 for the action
    let recorded = "3c 00 00 00 21 00 05 00 -- -- -- -- 00 00 00 00 02 00 08 00 00 00 00 01
        00 00 00 00 08 00 06 00 e8 03 00 00 08 00 02 00 0a 00 00 00 08 00 0f 00 e8 03 00 00
        05 00 15 00 4c 00 00 00";
    let Ok(Key::Rule(key)) = "rule priority 1000 from 10.0.0.0/8".parse() else { panic!() };
    let rule = Rule::table(Table(1000));
    let rule = SeenRule { key: *key, rule, protocol: Protocol::HOMEOSTAT };
    check(|encoder| Ok(rule::request(encoder, RTM_DELRULE, 0, &rule)), recorded);
}

#[test]
fn neighbours() {
    let key = |text: &str| match text.parse() {
        Ok(Key::Neighbour(key)) => key,
        other => panic!("{other:?}"),
    };
    // ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 protocol 76 dev va nud permanent
    let recorded = "38 00 00 00 1c 00 05 06 -- -- -- -- 00 00 00 00 02 00 00 00 07 00 00 00
        80 00 00 00 05 00 0c 00 4c 00 00 00 08 00 01 00 0a 00 00 09
        0a 00 02 00 02 00 00 00 00 09 00 00";
    let (known, mac) = (key("neighbour 10.0.0.9 dev va"), "02:00:00:00:00:09".parse().unwrap());
    check(|encoder| neighbour::put(encoder, &known, Neighbour::at(mac), Put::Create), recorded);
    // ip neigh add proxy fd00::8 protocol 76 dev va
    let recorded = "38 00 00 00 1c 00 05 06 -- -- -- -- 00 00 00 00 0a 00 00 00 07 00 00 00
        80 00 08 00 05 00 0c 00 4c 00 00 00 14 00 01 00 fd 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 08";
    let proxy = key("neighbour fd00::8 dev va proxy");
    check(|encoder| neighbour::put(encoder, &proxy, Neighbour::proxy(), Put::Create), recorded);
    // ip neigh del 10.0.0.9 dev va
    let recorded = "24 00 00 00 1d 00 05 00 -- -- -- -- 00 00 00 00 02 00 00 00 07 00 00 00
        80 00 00 00 08 00 01 00 0a 00 00 09";
    check(|encoder| neighbour::delete(encoder, &known), recorded);
}
