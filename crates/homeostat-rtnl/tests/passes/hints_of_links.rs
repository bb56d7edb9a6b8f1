//! What events of links mean: which keys they name, and what a look at those finds.

use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, ip, listed, until};

const ADDRESS: (&str, &str) = ("address 10.0.0.1/24 dev br0", "");
const DEV: (&str, &str) = ("route 10.5.0.0/16", "dev br0");
const VIA: (&str, &str) = ("route 10.6.0.0/16", "via 10.0.0.2");

/// A namespace with the bridge `br0`, which is foreign: nothing changes in it by itself.
fn bridge() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set br0 up");
    namespace
}

/// A bench that has received everything up to now.
fn listening(entries: &[(&str, &str)]) -> (Bench, homeostat_rtnl::DesiredState) {
    let (mut bench, desired) = (Bench::new(), desired(entries));
    bench.converge(&desired);
    bench.heal(&desired);
    (bench, desired)
}

fn routes(namespace: &Namespace) -> usize {
    listed(namespace, "route show proto 76").len()
}

#[test]
fn a_link_is_named_with_what_is_declared_of_it() {
    let namespace = bridge();
    let fields = [("link br0 mtu", "1400"), ("link br0 alias", "office")];
    let (mut bench, declared) = listening(&fields);
    ip(&namespace, "link set br0 mtu 1300");
    assert_eq!(bench.hinted(), ["link br0", "link br0 mtu", "link br0 alias"]);
    ip(&namespace, "link set br0 alias mine");
    assert_eq!(bench.heal(&declared), ["~ link br0 mtu", "~ link br0 alias"]);
    bench.assert_quiet(&declared);
}

#[test]
fn a_link_is_named_for_what_is_on_it() {
    let namespace = bridge();
    let (mut bench, _desired) = listening(&[ADDRESS]);
    ip(&namespace, "link set br0 mtu 1300");
    assert_eq!(bench.hinted(), ["link br0"]);
}

#[test]
fn links_that_nothing_declared_rests_on_are_not_named() {
    let namespace = bridge();
    let (mut bench, declared) = listening(&[ADDRESS, DEV, VIA]);
    for change in [
        "link add x0 type veth peer name x1",
        "link set x0 up",
        "link set x0 down",
        "link set x0 name x2",
        "address add 10.9.0.1/24 dev x2",
        "link del x2",
    ] {
        ip(&namespace, change);
        assert!(bench.hinted().is_empty(), "{change}");
    }
    ip(&namespace, "link add x0 up type bridge");
    ip(&namespace, "link set x0 alias homeostat:default");
    assert_eq!(bench.heal(&declared), ["- link x0"], "it carries our mark");
}

/// Quirk: IPv4 routes that go with their link go without a word.
#[test]
fn routes_go_silently() {
    let namespace = bridge();
    let (mut bench, declared) =
        listening(&[ADDRESS, DEV, VIA, ("route 10.7.0.0/16", "type throw")]);
    ip(&namespace, "link set br0 down");
    ip(&namespace, "link set br0 up");
    assert_eq!(routes(&namespace), 1);
    assert_eq!(bench.heal(&declared), ["+ route 10.5.0.0/16", "+ route 10.6.0.0/16"]);
    assert_eq!(routes(&namespace), 3);
    bench.assert_quiet(&declared);
}

#[test]
fn a_route_over_a_foreign_address_is_back_after_its_link_was_down() {
    let namespace = bridge();
    ip(&namespace, "address add 10.0.0.1/24 dev br0");
    let (mut bench, declared) = listening(&[VIA]);
    ip(&namespace, "link set br0 down");
    ip(&namespace, "link set br0 up");
    assert_eq!(bench.heal(&declared), ["+ route 10.6.0.0/16"]);
}

#[test]
fn a_nexthop_that_went_with_its_link_is_back_with_groups_and_routes() {
    let namespace = bridge();
    let entries = [
        ADDRESS,
        ("nexthop 10", "via 10.0.0.2 dev br0"),
        ("nexthop 20", "member 10*1"),
        ("route 10.5.0.0/16", "nhid 10"),
        ("route 10.6.0.0/16", "nhid 20"),
    ];
    let (mut bench, declared) = listening(&entries);
    ip(&namespace, "link set br0 down");
    ip(&namespace, "link set br0 up");
    let back = ["+ nexthop 10", "+ nexthop 20", "+ route 10.5.0.0/16", "+ route 10.6.0.0/16"];
    assert_eq!(bench.heal(&declared), back);
    bench.assert_quiet(&declared);
}

/// The other end of the cable goes down and comes back: the link itself stays up.
#[test]
fn nexthops_go_with_the_carrier() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    let entries = [("nexthop 10", "via 10.0.0.2 dev va"), ("route 10.5.0.0/16", "nhid 10")];
    let (mut bench, declared) = listening(&entries);
    ip(&namespace, "link set vb down");
    until("the loss of the nexthop", || routes(&namespace) == 0);
    ip(&namespace, "link set vb up");
    assert_eq!(bench.heal(&declared), ["+ nexthop 10", "+ route 10.5.0.0/16"]);
    bench.assert_quiet(&declared);
}

#[test]
fn what_waits_for_a_link_is_made_when_that_comes_and_again_when_it_has_another_number() {
    let namespace = Namespace::enter().unwrap();
    let entries = [ADDRESS, DEV, VIA, ("link br0 mtu", "1400"), ("link mv0", "macvlan parent br0")];
    let (mut bench, declared) = (Bench::new(), desired(&entries));
    assert!(!homeostat_engine::Explain::is_converged(&bench.pass(&declared)));
    bench.hint();
    for _ in 0..2 {
        ip(&namespace, "link add br0 up type bridge");
        let mut done = bench.heal(&declared);
        done.sort();
        let all = [
            "+ address 10.0.0.1/24 dev br0",
            "+ link mv0",
            "+ route 10.5.0.0/16",
            "+ route 10.6.0.0/16",
            "~ link br0 mtu",
        ];
        assert_eq!(done, all);
        bench.assert_quiet(&declared);
        bench.heal(&declared);
        ip(&namespace, "link del br0");
    }
}

#[test]
fn a_renamed_link_leaves_a_desired_state_behind_and_may_fulfil_another() {
    let namespace = bridge();
    let (mut bench, declared) = listening(&[ADDRESS, DEV]);
    ip(&namespace, "link set br0 down");
    ip(&namespace, "link set br0 name br1");
    ip(&namespace, "link set br1 up");
    let waiting =
        ["pending address 10.0.0.1/24 dev br0: link br0", "pending route 10.5.0.0/16: link br0"];
    let healed = bench.heal(&declared);
    assert!(waiting.iter().all(|line| healed.contains(&(*line).to_owned())), "{healed:?}");
    ip(&namespace, "link set br1 down");
    ip(&namespace, "link set br1 name br0");
    ip(&namespace, "link set br0 up");
    bench.heal(&declared);
    assert_eq!(routes(&namespace), 1);
    bench.assert_quiet(&declared);
}

/// Quirk: while a link is down, no event says that its alias changed.
#[test]
fn a_link_that_is_down_says_little() {
    let namespace = bridge();
    let (mut bench, declared) = listening(&[("link br0 alias", "office")]);
    ip(&namespace, "link set br0 down");
    assert!(bench.heal(&declared).is_empty());
    ip(&namespace, "link set br0 alias mine");
    assert!(bench.hinted().is_empty());
    assert_eq!(bench.converge(&declared), ["~ link br0 alias"]);
}

/// Quirk: a port that leaves its bridge is announced by a message that says that a link went.
#[test]
fn a_bridge_tells_of_ports_as_of_links() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    let address = ("address 10.0.0.1/24 dev va", "");
    let (mut bench, declared) = listening(&[address]);
    ip(&namespace, "link set va nomaster");
    bench.heal(&declared);
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    assert_eq!(bench.heal(&declared), ["+ address 10.0.0.1/24 dev va"]);
}
