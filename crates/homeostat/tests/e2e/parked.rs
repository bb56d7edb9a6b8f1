//! Links that a trial deletes or replaces are put aside, and return with their numbers and hardware addresses. Judged by
//! full listings before and after.

use crate::keeping::until;
use crate::network::cabled;
use crate::program::output;
use crate::undone::{begin, round_trip_with};
use crate::world::World;

const WIRE: &str = "[links.va]\nup = true\n[links.vb]\nup = true\n";

/// A bridge of ours with a pair of ours in it, and with a link of somebody else.
const BRIDGED: &str = "[links.va]\nup = true\nmaster = \"br7\"\n[links.vb]\nup = true\n\
    [links.br7]\nkind = \"bridge\"\nup = true\naddresses = [\"10.0.0.1/24\", \"2001:db8::1/64\"]\n\
    [links.x0]\nkind = \"veth\"\npeer = \"x1\"\nup = true\nmaster = \"br7\"\n[links.x1]\nup = true\n\
    addresses = [\"10.0.1.1/24\"]\n";

#[track_caller]
fn round_trip(world: &World, before: &str, tried: &str, others: &[&str]) {
    round_trip_with(world, before, tried, "--allow-cascades", || {
        for act in others {
            world.ip(act);
        }
    });
}

fn names(world: &World) -> Vec<String> {
    let links = world.listed("link show").into_iter();
    links.map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn links_that_leave_return_with_their_numbers_and_addresses() {
    round_trip(&cabled(), BRIDGED, WIRE, &[]);
}

#[test]
fn what_others_had_on_a_link_returns_with_it() {
    let others = [
        "address add 10.0.5.7/24 dev br7",
        "-6 address add 2001:db8:5::7/64 dev br7 nodad",
        "route add 10.20.0.0/16 via 10.0.5.9 proto bird metric 7",
        "neighbour add 10.0.0.66 lladdr 02:00:00:00:00:66 dev br7 nud permanent",
        "link add theirs link x1 type macvlan",
        "link set theirs up",
        "address add 10.0.9.9/24 dev theirs",
    ];
    round_trip(&cabled(), BRIDGED, WIRE, &others);
}

#[test]
fn a_port_returns_to_its_bridge_with_what_was_set_there() {
    let others = ["link set va type bridge_slave cost 77 hairpin on guard on"];
    round_trip(&cabled(), BRIDGED, WIRE, &others);
    let without_pair = BRIDGED.split("[links.x0]").next().unwrap();
    let others = ["link set x0 type bridge_slave cost 78 isolated on"];
    round_trip(&cabled(), BRIDGED, without_pair, &others);
}

/// Somebody tells a bridge where frames go.
fn forward(world: &World, args: &str) {
    let mut command = world.command("bridge");
    command.args(["fdb"]).args(args.split_whitespace());
    output(command);
}

/// The kernel drops the addresses of a port with its place, whether the port leaves or its bridge.
#[test]
fn static_addresses_of_a_port_return_with_it() {
    let other = "[links.br9]\nkind = \"bridge\"\nup = true\n";
    let moved = BRIDGED.replacen("master = \"br7\"", "master = \"br9\"", 1) + other;
    let without_pair = BRIDGED.split("[links.x0]").next().unwrap();
    for tried in [WIRE, without_pair, &moved] {
        let world = cabled();
        round_trip_with(&world, BRIDGED, tried, "--allow-cascades", || {
            for entry in [
                "add 02:00:00:00:00:a1 dev va master static",
                "add 02:00:00:00:00:a2 dev x0 master static",
                "add 02:00:00:00:00:a3 dev x0 master permanent",
                "add 02:00:00:00:00:a4 dev va master static sticky",
                "add 02:00:00:00:00:a5 dev x0 master static extern_learn",
            ] {
                forward(&world, entry);
            }
        });
    }
}

/// What somebody has made for the same address meanwhile stays.
#[test]
fn a_static_address_that_was_made_again_meanwhile_stays_where_it_is() {
    let world = cabled();
    let _daemon = world.keep(BRIDGED);
    world.converges();
    world.confirms(1);
    forward(&world, "add 02:00:00:00:00:a1 dev x0 master static");
    forward(&world, "add 02:00:00:00:00:a2 dev x0 master static");
    let without_pair = BRIDGED.split("[links.x0]").next().unwrap();
    let mut client = begin(&world, without_pair, "--allow-cascades");
    world.converges();
    forward(&world, "add 02:00:00:00:00:a1 dev va master static");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.converges();
    let listed = |link: &str| {
        let mut command = world.command("bridge");
        command.args(["fdb", "show", "dev", link]);
        output(command)
    };
    until("the other address", || listed("x0").contains("02:00:00:00:00:a2"));
    assert!(listed("va").contains("02:00:00:00:00:a1"));
    assert!(!listed("x0").contains("02:00:00:00:00:a1"));
}

#[test]
fn a_link_that_others_set_up_or_into_a_bridge_returns_so() {
    let before = format!("{WIRE}[links.m0]\nkind = \"macvlan\"\nparent = \"va\"\n");
    let others = ["link add theirs type bridge", "link set m0 master theirs", "link set m0 up"];
    round_trip(&cabled(), &before, WIRE, &others);
}

#[test]
fn a_link_of_another_kind_under_the_same_name_makes_way_again() {
    let tried = BRIDGED
        .replace("[links.br7]\nkind = \"bridge\"", "[links.br7]\nkind = \"veth\"\npeer = \"br8\"");
    let tried = tried.replace("master = \"br7\"\n", "");
    round_trip(&cabled(), BRIDGED, &tried, &["address add 10.0.5.7/24 dev br7"]);
}

#[test]
fn what_stands_on_a_replaced_link_is_put_aside_with_it() {
    let before = format!(
        "{WIRE}[links.x0]\nkind = \"veth\"\npeer = \"x1\"\nup = true\n[links.m0]\nkind = \"macvlan\"\n\
         parent = \"x0\"\nup = true\naddresses = [\"10.0.3.1/24\"]\n"
    );
    let tried = before.replace("peer = \"x1\"", "peer = \"x2\"");
    round_trip(&cabled(), &before, &tried, &[]);
}

#[test]
fn a_confirm_deletes_what_was_put_aside() {
    let world = cabled();
    let _daemon = world.keep(BRIDGED);
    world.converges();
    world.confirms(1);
    let mut client = begin(&world, WIRE, "--allow-cascades");
    world.converges();
    assert_eq!(names(&world).iter().filter(|name| name.starts_with("hs-")).count(), 3);
    world.run("confirm --same-session").exits(0);
    client.wait().unwrap();
    world.converges();
    assert!(!names(&world).iter().any(|name| name.starts_with("hs-")));
}

#[test]
fn a_daemon_that_was_killed_in_a_trial_brings_links_back_at_its_next_start() {
    let world = cabled();
    let daemon = world.keep(BRIDGED);
    world.converges();
    world.confirms(1);
    world.ip("address add 10.0.5.7/24 dev br7");
    let then = world.dump();
    let mut client = begin(&world, WIRE, "--allow-cascades");
    world.converges();
    daemon.kill();
    client.wait().unwrap();
    assert_ne!(world.dump(), then);
    let _daemon = world.keep(BRIDGED);
    world.converges();
    world.is_again(&then);
}

/// Neither can be made while the other is there.
#[test]
fn links_that_exchange_what_they_need_are_made_again_with_their_numbers() {
    let tunnels = "[links.v5]\nkind = \"vxlan\"\nid = 5\nup = true\n[links.v6]\nkind = \"vxlan\"\nid = 6\nup = true\n";
    let exchanged = tunnels.replace("id = 5", "id = 7").replace("id = 6", "id = 5");
    let exchanged = exchanged.replace("id = 7", "id = 6");
    let before = format!("{WIRE}{tunnels}");
    round_trip(&cabled(), &before, &format!("{WIRE}{exchanged}"), &[]);
    // The one that is made again needs what the successor of another has.
    let before =
        format!("{WIRE}[links.v5]\nkind = \"vxlan\"\nid = 6\n[links.v6]\nkind = \"bridge\"\n");
    let tried = format!(
        "{WIRE}[links.v5]\nkind = \"vxlan\"\nid = 5\n[links.v6]\nkind = \"vxlan\"\nid = 6\n"
    );
    round_trip(&cabled(), &before, &tried, &[]);
}

const TUNNEL: &str =
    "[links.v5]\nkind = \"vxlan\"\nid = 5\nup = true\naddresses = [\"10.3.0.1/24\"]\n";

#[test]
fn a_link_whose_number_in_the_network_is_needed_is_made_again_as_it_was() {
    let others = [
        "address add 10.0.5.7/24 dev v5",
        "route add 10.20.0.0/16 via 10.0.5.9 proto bird metric 7",
    ];
    let before = format!("{WIRE}{TUNNEL}");
    round_trip(&cabled(), &before, &before.replace("links.v5", "links.v6"), &others);
    let world = cabled();
    round_trip(&world, &before, &before.replace("id = 5", "id = 5\nport = 4790"), &others);
    let history = world.run("history --json").json(0);
    let again = &history["rolled_back"][0]["made_again"][0];
    assert_eq!((&again["source"], &again["key"]), (&"rtnl".into(), &"link v5".into()), "{history}");
}

/// A macvlan on a pair, which cannot stay while the pair is in a bridge.
const STACKED: &str = "[links.br7]\nkind = \"bridge\"\nup = true\n[links.x0]\nkind = \"veth\"\npeer = \"x1\"\nup = true\n\
    [links.m0]\nkind = \"macvlan\"\nparent = \"x0\"\nup = true\naddresses = [\"10.3.0.1/24\"]\n";

/// Puts the pair into the bridge, which has a port of others: one that never had a port has a carrier, and after its first
/// one has not.
#[track_caller]
fn bridge_the_pair(peer: &str, others: &[&str]) {
    let port = [
        "link add theirs type veth peer theirs1",
        "link set theirs up",
        "link set theirs1 up",
        "link set theirs master br7",
    ];
    let pair = STACKED.split("[links.m0]").next().unwrap();
    let pair = pair.replace("peer = \"x1\"", &format!("peer = \"{peer}\""));
    let tried = format!("{WIRE}{pair}master = \"br7\"\n");
    let world = cabled();
    round_trip_with(&world, &format!("{WIRE}{STACKED}"), &tried, "--allow-cascades", || {
        for act in port.iter().chain(others) {
            world.ip(act);
        }
        until("the carriers", || {
            let links = world.ip("link show up");
            !links.contains("NO-CARRIER")
        });
    });
}

#[test]
fn the_other_end_of_a_pair_that_is_made_again_is_as_it_was() {
    let others = [
        "link set x1 up mtu 1450 alias theirs",
        "address add 10.4.0.1/24 dev x1",
        "address add 10.4.0.2/24 dev x1",
        "route add 10.20.0.0/16 via 10.4.0.9 proto bird",
    ];
    bridge_the_pair("x2", &others);
}

#[test]
fn a_macvlan_whose_parent_joins_a_bridge_is_made_again_as_it_was() {
    bridge_the_pair("x1", &["link set x1 up"]);
}
