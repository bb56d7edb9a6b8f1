//! What failed once, by name, each with the shortest documents that showed it.

use super::{fresh, run_all};
use crate::keeping::comes;
use crate::world::{DOCUMENT, World};

/// True if it fails again.
type Reproduction = fn() -> bool;

/// What failed once and is held back now, the shortest document for each.
const HELD: [(&str, Reproduction); 11] = [
    ("disable_ipv6 takes foreign IPv6", disabling_ipv6_takes_foreign_ipv6),
    ("disable_ipv6 takes a foreign IPv6 route", disabling_ipv6_takes_foreign_route),
    ("disable_ipv6 takes a foreign IPv6 neighbour", disabling_ipv6_takes_foreign_neighbour),
    ("a low MTU takes foreign IPv6", low_mtu_takes_foreign_ipv6),
    ("an MTU lowers that of foreign routes", mtu_lowers_foreign_routes),
    ("a hardware address takes foreign neighbours", mac_takes_foreign_neighbours),
    ("the last address takes foreign neighbours", last_address_takes_foreign_neighbours),
    ("a port takes the neighbours of a foreign bridge", port_takes_foreign_neighbours),
    ("a port lowers the MTU of a foreign bridge", port_lowers_mtu_of_foreign_bridge),
    ("a parent lowers the MTU of foreign links", parent_lowers_mtu_of_foreign_links),
    ("the carrier takes foreign nexthops", carrier_takes_foreign_nexthops),
];

#[test]
fn what_is_held_back_takes_nothing_foreign_along() {
    for (failure, reproduce) in HELD {
        let still_fails = std::thread::spawn(reproduce).join().unwrap();
        assert!(!still_fails, "again: {failure}");
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
    let world = ["link add link fb name fm type macvlan"];
    takes(&world, &["[links.fb]\nmtu = 1300\n"], ("link show fm", "mtu 1500"))
}

fn carrier_takes_foreign_nexthops() -> bool {
    let world = [ADDRESSES[0], "nexthop add id 900 via 172.16.0.9 dev fa proto bird"];
    takes(&world, &["[links.fb]\nup = false\n"], ("nexthop show", "id 900"))
}

const NO_IPV6: &str = "[links.fa]\nsysctl = { \"ipv6/disable_ipv6\" = 1 }\n";

fn disabling_ipv6_takes_foreign_ipv6() -> bool {
    takes(&ADDRESSES, &[NO_IPV6], ("-6 address show dev fa", "fdf0::1/64"))
}

fn disabling_ipv6_takes_foreign_route() -> bool {
    takes(
        &["route add fdf1::/32 dev fa proto bird"],
        &[NO_IPV6],
        ("-6 route show proto bird", "fdf1::/32"),
    )
}

fn disabling_ipv6_takes_foreign_neighbour() -> bool {
    let neighbour = "neighbour add fdf0::9 lladdr 02:00:00:00:00:09 dev fa nud permanent";
    takes(&[neighbour], &[NO_IPV6], ("-6 neighbour show nud permanent", "fdf0::9"))
}

#[test]
fn a_route_follows_its_gateway_to_another_link() {
    let world = foreign(&[]);
    let route = "routes = [{ to = \"10.100.0.0/16\", via = \"10.1.0.9\" }]\n";
    let on = |fa: &str, fb: &str| {
        format!("{route}[links.fa]\naddresses = [{fa}]\n[links.fb]\naddresses = [{fb}]\n")
    };
    world.apply(&on("\"10.1.0.1/24\"", ""));
    world.apply(&on("\"10.2.0.1/24\"", "\"10.1.0.1/24\""));
    let shown = world.ip("route show 10.100.0.0/16");
    assert!(shown.contains("dev fb"), "{shown}");
}

#[test]
fn a_bridge_keeps_its_declared_mtu_when_a_smaller_port_joins() {
    let world = foreign(&[]);
    world.apply(
        "[links]\no1 = { kind = \"bridge\", up = true, mtu = 1500 }\n\
         o0 = { kind = \"veth\", peer = \"p0\", up = true }\n\
         p0 = { up = true, mtu = 1400, master = \"o1\" }\n",
    );
    let shown = world.ip("link show o1");
    assert!(shown.contains("mtu 1500"), "{shown}");
}
