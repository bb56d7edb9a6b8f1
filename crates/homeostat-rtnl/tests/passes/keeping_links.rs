//! The loop over links that come, go and carry others: everything is back in the same wake-up.

use homeostat_rtnl::{DesiredState, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{cable, desired, ip, listed, until};
use crate::kept::{Kept, by_hints, has_route};

/// Two cables, and a group with a way over each.
const GROUP: [(&str, &str); 6] = [
    ("address 10.0.0.1/24 dev va", ""),
    ("address 10.1.0.1/24 dev vc", ""),
    ("nexthop 1", "via 10.0.0.2 dev va"),
    ("nexthop 2", "via 10.1.0.2 dev vc"),
    ("nexthop 3", "member 1*1 member 2*1"),
    ("route 10.5.0.0/16", "nhid 3"),
];

fn two_cables() -> Namespace {
    let namespace = cable();
    for args in ["link add vc type veth peer name vd", "link set vc up", "link set vd up"] {
        ip(&namespace, args);
    }
    namespace
}

fn members(namespace: &Namespace) -> usize {
    let groups = listed(namespace, "nexthop show");
    let group = groups.iter().find(|nexthop| nexthop["id"] == 3);
    group.and_then(|group| group["group"].as_array().map(Vec::len)).unwrap_or(0)
}

#[test]
fn a_group_that_lost_a_member_gets_it_back_in_the_same_wakeup() {
    let namespace = two_cables();
    let kept = Kept::converged(Rtnl::here(), desired(&GROUP), by_hints());
    let is_whole = || members(&namespace) == 2 && has_route(&namespace, "10.5.0.0/16");
    for sabotage in [
        &["nexthop del id 1"][..],
        &["link set vc down", "link set vc up"],
        &["link set vb down", "link set vb up"],
    ] {
        assert!(is_whole());
        for args in sabotage {
            ip(&namespace, args);
            until(&format!("the loss after {args}"), || !is_whole());
        }
        kept.until_seen(&format!("the group after {sabotage:?}"), is_whole);
    }
    assert_eq!(kept.status().counts.full, 1, "hints alone");
}

fn stacked() -> [(&'static str, &'static str); 5] {
    [
        ("link mv0", "macvlan parent va up on"),
        ("address 10.7.0.1/24 dev mv0", ""),
        ("route 10.8.0.0/16", "via 10.7.0.2"),
        ("nexthop 7", "via 10.7.0.9 dev mv0"),
        ("route 10.9.0.0/16", "nhid 7"),
    ]
}

#[test]
fn what_is_on_a_link_above_one_that_flaps_or_goes_is_back_in_the_same_wakeup() {
    let namespace = cable();
    let kept = Kept::converged(Rtnl::here(), desired(&stacked()), by_hints());
    let is_there = || {
        ["10.7.0.0/24", "10.8.0.0/16", "10.9.0.0/16"].iter().all(|to| has_route(&namespace, to))
            && listed(&namespace, "link show dev mv0")[0]["operstate"] != "DOWN"
    };
    for sabotage in [
        &["link set va down", "link set va up"][..],
        &["link set mv0 down", "link set mv0 up"],
        &["link set mv0 down"],
        &["link del mv0"],
    ] {
        for args in sabotage {
            ip(&namespace, args);
        }
        let has_link = || namespace.ip(&["link", "show", "dev", "mv0"]).is_ok();
        kept.until_seen(&format!("everything after {sabotage:?}"), || has_link() && is_there());
    }
    assert_eq!(kept.status().counts.full, 1, "hints alone");
}

/// Two bridges with a port each: the port changes its master and takes nothing of ours along for long.
#[test]
fn a_port_that_was_taken_out_of_its_bridge_is_back_in_the_same_wakeup() {
    let namespace = cable();
    let entries = [("link br0", "bridge up on"), ("link va master", "br0"), ("link vb up", "on")];
    let kept = Kept::converged(Rtnl::here(), desired(&entries), by_hints());
    let is_port = || listed(&namespace, "link show dev va")[0]["master"] == "br0";
    for sabotage in ["link set va nomaster", "link del br0"] {
        ip(&namespace, sabotage);
        assert!(!is_port(), "{sabotage}");
        kept.until_seen(sabotage, is_port);
    }
    assert_eq!(kept.status().counts.full, 1, "hints alone");
}

fn tunnel(link: &str) -> DesiredState {
    desired(&[
        ("link vx0", link),
        ("address 10.7.0.1/24 dev vx0", ""),
        ("route 10.8.0.0/16", "via 10.7.0.2"),
        ("route 10.9.0.0/16", "dev vx0"),
    ])
}

/// A link that has to be made again, or to be down for a moment, loses what is on it by our own hand.
#[test]
fn what_our_own_step_took_along_is_back_in_the_same_wakeup() {
    let namespace = cable();
    let kept = Kept::converged(Rtnl::here(), tunnel("vxlan id 5 up on"), by_hints());
    let id =
        || listed(&namespace, "-d link show dev vx0")[0]["linkinfo"]["info_data"]["id"].clone();
    let is_there = || ["10.8.0.0/16", "10.9.0.0/16"].iter().all(|to| has_route(&namespace, to));
    for (nth, (link, number)) in
        [("vxlan id 6 up on", 6), ("vxlan id 7 up on", 7)].into_iter().enumerate()
    {
        kept.put(Rtnl::here(), tunnel(link));
        kept.until("converged", |status| status.is_converged);
        kept.until_seen("what was on the link", is_there);
        assert_eq!(id(), number);
        assert_eq!(kept.status().counts.full, nth as u64 + 2, "one for each desired state");
    }
}
