//! What no document says of a machine, and a rollback brings back all the same: the sysctls of links, the order of their
//! addresses, and what others put on the links of a trial. Judged by full listings before and after.

use crate::keeping::until;
use crate::network::cabled;
use crate::undone::{begin, round_trip_with};
use crate::world::World;

const WIRE: &str = "[links.va]\nup = true\n[links.vb]\nup = true\n";

#[track_caller]
fn round_trip(world: &World, before: &str, tried: &str, others: impl FnOnce()) {
    round_trip_with(world, before, tried, "--allow-cascades", others);
}

/// Somebody has set what the kernel keeps of IPv6 on a link.
fn set_ipv6(world: &World, link: &str) {
    for (knob, value) in [
        ("conf", "hop_limit", "77"),
        ("conf", "accept_ra", "0"),
        ("conf", "forwarding", "1"),
        ("conf", "mtu", "1300"),
        ("neigh", "retrans_time_ms", "1700"),
        ("neigh", "base_reachable_time_ms", "31000"),
    ]
    .map(|(of, name, value)| (format!("net/ipv6/{of}/{link}/{name}"), value))
    {
        world.meddle(&knob, value);
    }
}

#[test]
fn an_mtu_without_ipv6_costs_no_sysctl() {
    let world = cabled();
    set_ipv6(&world, "va");
    let tried = WIRE.replace("[links.va]", "[links.va]\nmtu = 1200");
    round_trip(&world, WIRE, &tried, || {
        world.ip("-6 address add 2001:db8::9/64 dev va nodad");
        world.ip("-6 route add 2001:db8:7::/48 via 2001:db8::7 proto bird metric 9");
    });
}

#[test]
fn an_mtu_without_ipv6_makes_no_link_local_address() {
    let world = cabled();
    let tried = WIRE.replace("[links.va]", "[links.va]\nmtu = 1200");
    round_trip(&world, WIRE, &tried, || {
        world.meddle("net/ipv6/conf/va/addr_gen_mode", "1");
        world.ip("-6 address flush dev va scope link");
    });
    let world = cabled();
    round_trip(&world, WIRE, &tried, || {
        let secret = "2001:db8:1:2:3:4:5:6";
        world.meddle("net/ipv6/conf/va/stable_secret", secret);
        world.ip("link set va down");
        world.ip("link set va up");
        until("its address", || world.ip("-6 address show dev va scope link").contains("fe80"));
    });
}

/// A bridge and a VLAN are lowered along with a link of theirs.
#[test]
fn a_low_mtu_that_reaches_other_links_costs_none_of_their_sysctls() {
    let world = cabled();
    let before = format!(
        "{WIRE}[links.br7]\nkind = \"bridge\"\nup = true\n\
         [links.x0]\nkind = \"veth\"\npeer = \"x1\"\nup = true\nmaster = \"br7\"\n\
         [links.m0]\nkind = \"macvlan\"\nparent = \"va\"\nup = true\n"
    );
    let tried = before
        .replace("[links.va]", "[links.va]\nmtu = 1200")
        .replace("master = \"br7\"", "master = \"br7\"\nmtu = 1210");
    round_trip(&world, &before, &tried, || {
        for link in ["va", "br7", "x0", "m0"] {
            set_ipv6(&world, link);
        }
    });
}

#[test]
fn a_link_that_is_made_again_has_its_sysctls() {
    let world = cabled();
    let before = format!("{WIRE}[links.v5]\nkind = \"vxlan\"\nid = 5\nup = true\n");
    round_trip(&world, &before, &before.replace("links.v5", "links.v6"), || {
        set_ipv6(&world, "v5");
        world.meddle("net/ipv4/conf/v5/rp_filter", "2");
        world.meddle("net/ipv4/neigh/v5/base_reachable_time_ms", "31000");
    });
}

/// They must be durable before the write: the kernel has forgotten them when the holder is gone.
#[test]
fn a_daemon_that_was_killed_knows_the_sysctls_that_a_low_mtu_took() {
    let world = cabled();
    let daemon = world.keep(WIRE);
    world.converges();
    world.confirms(1);
    set_ipv6(&world, "va");
    let then = world.dump();
    let tried = WIRE.replace("[links.va]", "[links.va]\nmtu = 1200");
    let mut client = begin(&world, &tried, "");
    world.converges();
    daemon.kill();
    client.wait().unwrap();
    assert_ne!(world.dump(), then);
    let _daemon = world.keep(WIRE);
    world.converges();
    world.is_again(&then);
}

fn addressed(addresses: &[&str]) -> String {
    WIRE.replace("[links.va]", &format!("[links.va]\naddresses = {addresses:?}"))
}

#[test]
fn the_primary_address_of_a_network_is_the_same_again() {
    let all = ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "10.0.1.1/24"];
    for tried in [&all[1..2], &all[2..], &all[..1], &["10.0.0.3/24", "10.0.0.9/24"], &[]] {
        let world = cabled();
        round_trip(&world, &addressed(&all), &addressed(tried), || {
            // Others hang on the addresses of ours.
            world.ip("route add 10.20.0.0/16 via 10.0.0.66 src 10.0.0.2 proto bird");
            world.ip("route add 10.21.0.0/16 via 10.0.1.66 proto bird");
        });
    }
}

#[test]
fn addresses_of_others_keep_their_places_among_ours() {
    let ours = addressed(&["10.0.0.2/24", "2001:db8::2/64"]);
    let world = cabled();
    world.ip("address add 10.0.0.1/24 dev va");
    world.ip("-6 address add 2001:db8::1/64 dev va nodad");
    round_trip(&world, &ours, &addressed(&["10.0.7.1/24"]), || {
        world.ip("address add 10.0.0.3/24 dev va");
        world.ip("-6 address add 2001:db8::3/64 dev va nodad");
    });
    // The link is put aside, and all addresses go.
    let bridge = "[links.br7]\nkind = \"bridge\"\nup = true\naddresses = [\"10.0.0.2/24\", \"2001:db8::2/64\"]\n";
    let world = cabled();
    round_trip(&world, &format!("{WIRE}{bridge}"), WIRE, || {
        world.ip("address delete 10.0.0.2/24 dev br7");
        world.ip("-6 address delete 2001:db8::2/64 dev br7");
        world.ip("address add 10.0.0.1/24 dev br7");
        world.ip("-6 address add 2001:db8::1/64 dev br7 nodad");
        world.converges();
        until("ours", || world.ip("address show dev br7").matches("::2/64").count() == 1);
        until("ours", || world.ip("address show dev br7").contains("10.0.0.2/24"));
        world.ip("route add 10.20.0.0/16 via 10.0.0.66 src 10.0.0.1 proto bird");
    });
}

/// The kernel rewrites the sysctls of all links, also of those that are aside.
#[test]
fn forwarding_of_a_link_that_is_aside_is_what_it_was() {
    let bridge = format!("{WIRE}[links.br7]\nkind = \"bridge\"\nup = true\n");
    for (general, family, value) in [
        ("net.ipv4.ip_forward", "ipv4", "1"),
        ("net.ipv4.ip_forward", "ipv4", "0"),
        ("net.ipv6.conf.all.forwarding", "ipv6", "1"),
        ("net.ipv6.conf.all.forwarding", "ipv6", "0"),
    ] {
        let world = cabled();
        let other = if value == "1" { "0" } else { "1" };
        world.meddle(&general.replace('.', "/"), other);
        let tried = format!("{WIRE}[sysctl]\n\"{general}\" = {value}\n");
        round_trip(&world, &bridge, &tried, || {
            world.meddle(&format!("net/{family}/conf/br7/forwarding"), value);
            world.meddle(&format!("net/{family}/conf/va/forwarding"), value);
        });
    }
}

/// It is written while the link is aside already.
#[test]
fn forwarding_of_a_link_that_was_put_aside_before_is_what_it_was() {
    let world = cabled();
    // Who keeps no firewall at its start has dropped what it would need for one.
    let bridge =
        format!("{WIRE}[links.br7]\nkind = \"bridge\"\nup = true\n[nftables]\nruleset = \"\"\n");
    let _daemon = world.keep(&bridge);
    world.converges();
    world.confirms(1);
    world.meddle("net/ipv4/conf/br7/forwarding", "1");
    let then = world.dump();
    // Forwarding waits for the firewall, and the firewall for a link.
    let rules = "table ip f { chain i { type filter hook input priority 0; iif late accept; }; }";
    let tried = format!(
        "{WIRE}[nftables]\nruleset = \"{rules}\\n\"\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n"
    );
    let mut client = begin(&world, &tried, "");
    until("the bridge is aside", || world.ip("link show").contains("hs-"));
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    world.ip("link add late type veth peer late1");
    until("forwarding", || world.knob("net/ipv4/ip_forward") == "1");
    world.ip("link delete late");
    world.run("rollback").exits(0);
    client.wait().unwrap();
    world.is_again(&then);
}

/// What a trial was allowed to take along, its rollback may take, too, and it says what went.
#[test]
fn a_rollback_may_take_along_what_its_trial_might() {
    let tried =
        format!("{WIRE}[links.br9]\nkind = \"bridge\"\nup = true\naddresses = [\"10.9.0.1/24\"]\n");
    for is_killed in [false, true] {
        let world = cabled();
        let mut daemon = world.keep(WIRE);
        world.converges();
        world.confirms(1);
        let then = world.dump();
        let mut client = begin(&world, &tried, "--allow-cascades");
        world.converges();
        world.ip("address add 10.9.5.1/24 dev br9");
        world.ip("route add 10.99.0.0/16 via 10.9.5.9 proto bird");
        if is_killed {
            daemon.kill();
            client.wait().unwrap();
            daemon = world.keep(WIRE);
        } else {
            world.run("rollback").exits(0);
            client.wait().unwrap();
        }
        world.is_again(&then);
        world.converges();
        let ended = world.rolled_back().swap_remove(0);
        let along: Vec<_> = ended["went_along"].as_array().unwrap().iter().collect();
        assert!(along.iter().any(|one| one["key"] == "route 10.99.0.0/16"), "{ended}");
        assert!(along.iter().any(|one| one["key"] == "address 10.9.5.1/24 dev br9"), "{ended}");
        assert_eq!(ended["not_count"], 0, "{ended}");
        drop(daemon);
    }
}

/// What was there before the trial, and went with the trial's last address, is there again.
#[test]
fn a_rollback_costs_others_nothing_that_they_had_before() {
    let world = cabled();
    let others = || {
        world.ip("route add 10.21.0.0/16 dev va proto static");
        world.ip("neighbour add 10.0.0.66 lladdr 02:00:00:00:00:66 dev va nud permanent");
    };
    round_trip(&world, &addressed(&[]), &addressed(&["10.0.0.1/24"]), others);
    assert!(world.rolled_back()[0]["went_along"].as_array().unwrap().is_empty());
}

/// Without that permission it is held, and named.
#[test]
fn a_rollback_takes_nothing_along_that_its_trial_might_not() {
    let tried = format!("{WIRE}[links.br9]\nkind = \"bridge\"\nup = true\n");
    let world = cabled();
    let _daemon = world.keep(WIRE);
    world.converges();
    world.confirms(1);
    let mut client = begin(&world, &tried, "");
    world.converges();
    world.ip("address add 10.9.5.1/24 dev br9");
    world.run("rollback").exits(1);
    client.wait().unwrap();
    assert!(world.ip("address show dev br9").contains("10.9.5.1"));
    let ended = world.rolled_back().swap_remove(0);
    assert_eq!(ended["not"][0]["key"], "link br9", "{ended}");
}
