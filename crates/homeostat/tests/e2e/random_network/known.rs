//! What fails today, by name. Each has a reproduction that shows that it still does; the generator makes
//! it again as soon as it is no longer listed here.

use serde_json::Value;

use super::document::Document;
use super::{fresh, run_all};
use crate::keeping::comes;
use crate::world::{DOCUMENT, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An MTU below 1280 takes all foreign IPv6 addresses and routes of the link along.
    LowMtuTakesForeignIpv6,
    /// A lower MTU lowers the `mtu` of foreign IPv6 routes on the link.
    MtuLowersForeignRoutes,
    /// Another hardware address takes foreign permanent neighbours of the link along.
    MacTakesForeignNeighbours,
    /// The last IPv4 address of a link takes foreign permanent neighbours along.
    LastAddressTakesForeignNeighbours,
    /// A port that gives its bridge another hardware address takes foreign permanent neighbours along.
    PortTakesForeignNeighbours,
    /// A port with a lower MTU lowers that of a foreign bridge, ours or one that we configure.
    PortLowersMtuOfForeignBridge,
    /// A lower MTU lowers that of foreign links on top, and they keep it when it is taken back.
    ParentLowersMtuOfForeignLinks,
    /// One end of a pair that is set down takes foreign nexthops and their routes on the other along.
    CarrierTakesForeignNexthops,
    /// `disable_ipv6` takes foreign IPv6 addresses along.
    DisablingIpv6TakesForeignIpv6,
    /// An IPv4 route of type `local` is refused unless its scope is declared.
    LocalRouteNeedsScope,
    /// A preferred lifetime of an IPv4 address that lives for ever never converges.
    PreferredLifetimeOfEndlessIpv4Address,
    /// With another protocol number nothing is done about the routes of the former one.
    FormerProtocolIsForgotten,
    /// An IPv6 route with the same way twice conflicts with itself.
    Ipv6RouteWithEqualWays,
}

/// All of them, each with its reproduction: true if it fails as it is known to.
const KNOWN: [(Failure, fn() -> bool); 9] = [
    (Failure::MtuLowersForeignRoutes, mtu_lowers_foreign_routes),
    (Failure::PortTakesForeignNeighbours, port_takes_foreign_neighbours),
    (Failure::PortLowersMtuOfForeignBridge, port_lowers_mtu_of_foreign_bridge),
    (Failure::ParentLowersMtuOfForeignLinks, parent_lowers_mtu_of_foreign_links),
    (Failure::DisablingIpv6TakesForeignIpv6, disabling_ipv6_takes_foreign_ipv6),
    (Failure::LocalRouteNeedsScope, local_route_needs_scope),
    (Failure::PreferredLifetimeOfEndlessIpv4Address, preferred_lifetime_of_endless_ipv4_address),
    (Failure::FormerProtocolIsForgotten, former_protocol_is_forgotten),
    (Failure::Ipv6RouteWithEqualWays, ipv6_route_with_equal_ways),
];

/// What failed once and is held back now. The search does not make it yet: its judge knows nothing of what
/// is held.
const HELD: [(Failure, fn() -> bool); 4] = [
    (Failure::LowMtuTakesForeignIpv6, low_mtu_takes_foreign_ipv6),
    (Failure::MacTakesForeignNeighbours, mac_takes_foreign_neighbours),
    (Failure::LastAddressTakesForeignNeighbours, last_address_takes_foreign_neighbours),
    (Failure::CarrierTakesForeignNexthops, carrier_takes_foreign_nexthops),
];

pub(super) fn is_known(failure: Failure) -> bool {
    KNOWN.iter().chain(&HELD).any(|(known, _)| *known == failure)
}

/// Takes out of a document what is known to fail in every world.
pub(super) fn leave_out_known(document: &mut Document) {
    for (name, link) in &mut document.links {
        let is_port = link.master.as_deref() == Some("fbr") || name == "fc";
        let is_below = name == "fb";
        if is_port && is_known(Failure::PortLowersMtuOfForeignBridge)
            || is_below && is_known(Failure::ParentLowersMtuOfForeignLinks)
        {
            link.mtu = None;
        }
    }
}

#[test]
fn what_is_known_to_fail_still_fails() {
    for (failure, reproduce) in KNOWN {
        let still_fails = std::thread::spawn(reproduce).join().unwrap();
        assert!(
            still_fails,
            "{failure:?} does not fail any more: remove it from KNOWN, so that the search makes it, too"
        );
    }
}

#[test]
fn what_is_held_back_takes_nothing_foreign_along() {
    for (failure, reproduce) in HELD {
        let still_fails = std::thread::spawn(reproduce).join().unwrap();
        assert!(!still_fails, "{failure:?} fails again");
    }
}

/// A world with a foreign pair, `fa` and `fb`, that is up, and what more commands make.
fn foreign(more: &[&str]) -> World {
    let world = fresh();
    let pair = ["link add fa type veth peer name fb", "link set fa up", "link set fb up"];
    let lines: Vec<String> = pair.iter().chain(more).map(|line| (*line).to_owned()).collect();
    let failed = run_all(&world, &lines);
    assert!(failed.is_empty(), "{failed:?}");
    crate::keeping::until("the pair", || world.ip("link show fa").contains("state UP"));
    world
}

/// Whether documents are applied without a word, and something foreign that `ip` listed is gone then.
fn takes(more: &[&str], documents: &[&str], (question, object): (&str, &str)) -> bool {
    let world = foreign(more);
    let listed = world.ip(question);
    assert!(listed.contains(object), "{question}: {listed}");
    for document in documents {
        world.write(DOCUMENT, document);
        let ran = world.run(&format!("apply --yes {DOCUMENT}"));
        assert!(ran.code() == Some(0) || ran.stdout.contains("held back"), "{ran:?}");
    }
    // What follows the carrier of a link comes a little later.
    let is_lost = || !world.ip(question).contains(object);
    is_lost() || comes_soon(is_lost)
}

/// Looks for long enough to see what the kernel does late.
fn comes_soon(so: impl Fn() -> bool) -> bool {
    let looks = std::cell::Cell::new(0);
    comes(|| {
        looks.set(looks.get() + 1);
        so() || looks.get() > 300
    }) && so()
}

const ADDRESSES: [&str; 2] = ["address add 172.16.0.1/24 dev fa", "address add fdf0::1/64 dev fa"];
const NEIGHBOUR: &str = "neighbour add 172.16.0.9 lladdr 02:00:00:00:00:09 dev fa nud permanent";

fn low_mtu_takes_foreign_ipv6() -> bool {
    takes(&ADDRESSES, &["[links.fa]\nmtu = 1200\n"], ("-6 address show dev fa", "fdf0::1/64"))
}

fn mtu_lowers_foreign_routes() -> bool {
    let route = "route add fdf1::/32 via fdf0::9 proto bird mtu 1450";
    let world = [ADDRESSES[0], ADDRESSES[1], route];
    takes(&world, &["[links.fa]\nmtu = 1300\n"], ("-6 route show proto bird", "mtu 1450"))
}

fn mac_takes_foreign_neighbours() -> bool {
    let document = "[links.fa]\nmac = \"02:00:00:00:00:aa\"\n";
    takes(&[ADDRESSES[0], NEIGHBOUR], &[document], ("neighbour show nud permanent", "172.16.0.9"))
}

fn last_address_takes_foreign_neighbours() -> bool {
    let documents = ["[links.fa]\naddresses = [\"10.1.0.1/24\"]\n", "[links.fa]\naddresses = []\n"];
    takes(&[NEIGHBOUR], &documents, ("neighbour show nud permanent", "172.16.0.9"))
}

fn port_takes_foreign_neighbours() -> bool {
    let world = [
        "link add fbr type bridge",
        "link set fbr up",
        "address add 172.17.0.1/24 dev fbr",
        "neighbour add 172.17.0.9 lladdr 02:00:00:00:00:09 dev fbr nud permanent",
    ];
    let document = "[links.o0]\nkind = \"veth\"\npeer = \"p0\"\nmac = \"02:00:00:00:00:01\"\n\
                    master = \"fbr\"\nup = true\n";
    takes(&world, &[document], ("neighbour show nud permanent", "172.17.0.9"))
}

fn port_lowers_mtu_of_foreign_bridge() -> bool {
    let world = ["link add fbr type bridge", "link set fbr up"];
    let document = "[links.o0]\nkind = \"veth\"\npeer = \"p0\"\nmtu = 1400\nmaster = \"fbr\"\n";
    takes(&world, &[document], ("link show fbr", "mtu 1500"))
}

fn parent_lowers_mtu_of_foreign_links() -> bool {
    let world = foreign(&["link add link fb name fm type macvlan"]);
    world.apply("[links.fb]\nmtu = 1300\n");
    world.write(DOCUMENT, "[links]\n");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert!(world.ip("link show fb").contains("mtu 1500"));
    world.ip("link show fm").contains("mtu 1300")
}

fn carrier_takes_foreign_nexthops() -> bool {
    let world = [ADDRESSES[0], "nexthop add id 900 via 172.16.0.9 dev fa proto bird"];
    takes(&world, &["[links.fb]\nup = false\n"], ("nexthop show", "id 900"))
}

fn disabling_ipv6_takes_foreign_ipv6() -> bool {
    let document = "[links.fa]\nsysctl = { \"ipv6/disable_ipv6\" = 1 }\n";
    takes(&ADDRESSES, &[document], ("-6 address show dev fa", "fdf0::1/64"))
}

/// Whether a document that `ip` has no trouble with does not converge.
fn does_not_converge(document: &str, same_by_ip: &str) -> bool {
    let world = foreign(&ADDRESSES);
    let failed = run_all(&world, &[same_by_ip.to_owned()]);
    assert!(failed.is_empty(), "{failed:?}");
    let world = foreign(&ADDRESSES);
    world.write(DOCUMENT, document);
    !is_converged(&world)
}

/// What the report says; there is one only for a document without mistakes.
fn is_converged(world: &World) -> bool {
    let ran = world.run("apply --yes --json host.toml");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:#?}"));
    report["converged"] == true
}

fn local_route_needs_scope() -> bool {
    does_not_converge(
        "[[routes]]\nto = \"0.0.0.0/0\"\ntype = \"local\"\ndev = \"lo\"\ntable = 100\n\
         [links.lo]\nup = true\n",
        "route add local 0.0.0.0/0 dev lo table 100 proto 76",
    )
}

fn preferred_lifetime_of_endless_ipv4_address() -> bool {
    does_not_converge(
        "[links.fa]\naddresses = [{ ip = \"10.1.0.1/24\", preferred-lifetime = \"1h\" }]\n",
        "address add 10.1.0.1/24 dev fa preferred_lft 3600",
    )
}

fn former_protocol_is_forgotten() -> bool {
    let world = foreign(&ADDRESSES);
    let route = "[[routes]]\nto = \"10.100.0.0/16\"\ntype = \"blackhole\"\n";
    world.apply(route);
    world.write(DOCUMENT, format!("[settings]\nprotocol = 77\n{route}"));
    world.run("apply --yes host.toml").exits(0);
    world.write(DOCUMENT, "routes = []\n[settings]\nprotocol = 77\n");
    world.run("apply --yes host.toml").exits(0);
    world.ip("route show").contains("10.100.0.0/16")
}

fn ipv6_route_with_equal_ways() -> bool {
    let document = "[[routes]]\nto = \"fda0::/32\"\n\
                    nexthops = [{ via = \"fdf0::9\" }, { via = \"fdf0::9\", weight = 2 }]\n";
    let world = foreign(&ADDRESSES);
    world.write(DOCUMENT, document);
    is_converged(&world);
    !is_converged(&world)
}
