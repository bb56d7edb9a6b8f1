//! What keeps a namespace from being removed, and what does not.

use homeostat_engine::{Cascades, Explain as _, Kind};
use homeostat_namespaces::DesiredState;
use homeostat_netlink::{Batch, Connection, Family, Options, Socket, uapi};
use homeostat_netns::{Name, Netns};

use crate::world::{World, report_lines};

/// A namespace of ours with something in it that keeps it, and what is said of that.
#[track_caller]
fn is_kept(prepare: &[&str], expected: &str) {
    let world = World::new();
    world.pass("blue");
    for line in prepare {
        world.ip(&format!("-n blue {line}"));
    }
    let report = world.pass("");
    assert_eq!(
        report_lines(&report, Kind::Held),
        [format!(
            "namespace blue: it would take {expected}; remove that first, or use `Cascades::Allow`"
        )]
    );
    assert!(!report.is_converged());
    assert_eq!(world.names(), ["blue"]);
}

/// A namespace of ours with this inside is removed.
#[track_caller]
fn goes(prepare: &[&str]) {
    let world = World::new();
    world.pass("blue");
    for line in prepare {
        world.ip(&format!("-n blue {line}"));
    }
    mark_address();
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
    assert!(world.names().is_empty());
}

/// Puts an address of ours on `lo`; older versions of `ip` cannot mark one.
fn mark_address() {
    let blue = Netns::named(&Name::new("blue").unwrap()).unwrap();
    let mut connection = Connection::open_in(&blue, Family::Route).unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(uapi::RTM_NEWADDR, uapi::NLM_F_CREATE | uapi::NLM_F_EXCL);
    // An IPv4 address with 32 bits on link 1.
    message.fixed(&[2, 32, 0, 0]).fixed(&1_u32.to_ne_bytes());
    message.attr(uapi::IFA_LOCAL, &[10, 7, 0, 1]).attr_u8(uapi::IFA_PROTO, 76);
    message.finish().unwrap();
    connection.ask(&mut batch, &mut |_| {}).unwrap();
}

const BRIDGE: &str = "link add ours type bridge";
const MARKED: &str = "link set ours group 76 alias homeostat:default";

#[test]
fn a_foreign_link_keeps_it() {
    is_kept(&["link add wan type bridge"], "`link wan` along, which belongs to another owner");
}

#[test]
fn a_link_of_another_owner_keeps_it() {
    is_kept(
        &[BRIDGE, "link set ours group 77 alias homeostat:other"],
        "`link ours` along, which belongs to another owner",
    );
}

#[test]
fn a_link_that_was_only_put_into_our_group_keeps_it() {
    is_kept(
        &[BRIDGE, "link set ours group 76"],
        "`link ours` along, which belongs to another owner",
    );
}

#[test]
fn a_foreign_address_on_a_link_of_ours_keeps_it() {
    is_kept(
        &[BRIDGE, MARKED, "address add 10.9.0.1/24 dev ours"],
        "`address 10.9.0.1/24 dev ours` along, which belongs to another owner",
    );
}

#[test]
fn a_foreign_address_on_lo_keeps_it() {
    is_kept(
        &["address add 10.9.0.1/32 dev lo"],
        "`address 10.9.0.1/32 dev lo` along, which belongs to another owner",
    );
}

#[test]
fn a_foreign_route_keeps_it() {
    is_kept(
        &["link set lo up", "route add blackhole 10.8.0.0/16 proto bird"],
        "`route 10.8.0.0/16` along, which belongs to protocol bird",
    );
}

#[test]
fn a_foreign_rule_keeps_it() {
    is_kept(
        &["rule add from 10.0.0.0/8 table 100 priority 1000 protocol 99"],
        "`rule priority 1000` along, which belongs to protocol 99",
    );
}

#[test]
fn a_foreign_nexthop_keeps_it() {
    is_kept(
        &["link set lo up", "nexthop add id 7 blackhole protocol static"],
        "`nexthop 7` along, which belongs to protocol static",
    );
}

#[test]
fn a_foreign_neighbour_keeps_it() {
    is_kept(
        &[BRIDGE, MARKED, "neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev ours"],
        "`neighbour 10.0.0.9 dev ours` along, which belongs to another owner",
    );
}

/// Makes `table inet filter` in the namespace, with this comment.
fn make_table(comment: &str) {
    let blue = Netns::named(&Name::new("blue").unwrap()).unwrap();
    let socket = Socket::open_in(&blue, Family::Netfilter, &Options::default()).unwrap();
    // A transaction of nftables (10) that makes a table of the family `inet` (1).
    let mut batch = Batch::new();
    for (kind, flags, fixed) in [
        (0x0010, 0, [0, 0, 0, 10]),
        (0x0a00, uapi::NLM_F_CREATE, [1, 0, 0, 0]),
        (0x0011, 0, [0, 0, 0, 10]),
    ] {
        let mut message = batch.message(kind, flags);
        message.fixed(&fixed);
        if kind == 0x0a00 {
            message.attr_str(1, "filter");
            let len = u8::try_from(comment.len() + 1).unwrap();
            message.attr(6, &[&[0, len], comment.as_bytes(), &[0]].concat());
        }
        message.finish().unwrap();
    }
    // No answer is waited for: Linux 6.1 gives none to the end of a transaction. It is done all the same
    // when the send returns.
    socket.send(batch.bytes()).unwrap();
}

#[test]
fn a_table_of_nftables_keeps_it() {
    let world = World::new();
    world.pass("blue");
    make_table("homeostat:another");
    let held = report_lines(&world.pass(""), Kind::Held);
    assert!(held[0].contains("`table inet filter` along, which belongs to another"), "{held:?}");
}

#[test]
fn a_table_of_nftables_with_our_mark_goes_with_it() {
    let world = World::new();
    world.pass("blue");
    make_table("the firewall homeostat:default");
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
}

#[test]
fn how_much_more_is_inside_is_said() {
    is_kept(
        &["link add wan type bridge", "address add 10.9.0.1/24 dev wan"],
        "`link wan` along, which belongs to another owner (and 1 more like it)",
    );
}

#[test]
fn an_operator_can_let_it_go_with_what_is_inside() {
    let world = World::new();
    world.pass("blue");
    world.ip("-n blue link add wan type bridge");
    let report = world.pass_for(DesiredState::default(), Cascades::Allow);
    assert_eq!(report_lines(&report, Kind::Applied), ["- namespace blue"]);
    assert!(world.names().is_empty());
}

#[test]
fn a_process_inside_keeps_it_as_long_as_it_lives() {
    let world = World::new();
    world.pass("blue");
    let guest = world.guest("blue");
    let held = report_lines(&world.pass(""), Kind::Held);
    let process = format!("namespace blue: it would take `process {} (", guest.pid());
    assert!(held[0].starts_with(&process) && held[0].contains("to user 0;"), "{held:?}");
    drop(guest);
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
}

/// The other end of a pair carries the group, and the owner's name in the middle of its alias: one request makes
/// both ends.
#[test]
fn the_other_end_of_a_pair_of_ours_goes_with_it() {
    let world = World::new();
    world.pass("blue red");
    world.ip("-n red link add x0 type veth peer name eth0 netns blue");
    world.ip("-n blue link set eth0 group 76 alias homeostat:default_other_end_of_x0");
    assert_eq!(report_lines(&world.pass("red"), Kind::Held).len(), 1, "that is another owner");
    set_alias("blue", "eth0", "homeostat:default other end of x0");
    assert_eq!(report_lines(&world.pass("red"), Kind::Applied), ["- namespace blue"]);
    assert_eq!(world.names(), ["red"]);
}

/// Sets an alias of several words.
fn set_alias(namespace: &str, link: &str, alias: &str) {
    let netns = Netns::named(&Name::new(namespace).unwrap()).unwrap();
    let mut connection = Connection::open_in(&netns, Family::Route).unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(uapi::RTM_NEWLINK, 0);
    message.fixed(&[0; 16]).attr(uapi::IFLA_IFNAME, &[link.as_bytes(), &[0]].concat());
    message.attr(uapi::IFLA_IFALIAS, alias.as_bytes());
    message.finish().unwrap();
    connection.ask(&mut batch, &mut |_| {}).unwrap();
}

#[test]
fn an_empty_namespace_goes_with_what_the_kernel_made_in_it() {
    goes(&["link set lo up"]);
}

#[test]
fn what_is_ours_inside_goes_with_it() {
    goes(&[
        BRIDGE,
        MARKED,
        "link set lo up",
        "link set ours up",
        "route add blackhole 10.8.0.0/16 proto 76",
        "rule add from 10.0.0.0/8 table 100 priority 1000 protocol 76",
        "nexthop add id 7 blackhole protocol 76",
        "neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev ours protocol 76",
    ]);
}
