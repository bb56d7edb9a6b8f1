//! Addresses and routes from a document to the kernel, judged by `ip`.

use serde_json::Value;
use snapbox::str;

use crate::keeping::until;
use crate::world::World;

/// One end of a pair has a network, a default route, and routes of both families.
const ROUTER: &str = r#"
[links.va]
addresses = ["10.0.0.1/24", { ip = "fd00::1/64", noprefixroute = false }]
[[routes]]
to = "default"
via = "10.0.0.254"
[[routes]]
to = "10.9.0.77/16"
via = "10.0.0.253"
[[routes]]
to = "fd01::/48"
via = "fd00::fe"
[[routes]]
to = "10.66.0.0/16"
type = "blackhole"
"#;

/// A world with a pair of links that are up, where nothing needs duplicate address detection.
pub(crate) fn cabled() -> World {
    let world = World::new();
    world.meddle("net/ipv6/conf/default/accept_dad", "0");
    world.add_pair("va", "vb");
    for link in ["va", "vb"] {
        world.ip(&format!("link set {link} up"));
    }
    // A worker of the kernel follows carriers, and makes the last route of a link after that.
    until("the carrier", || {
        let routes = world.ip("-6 route show table local type multicast");
        ["va", "vb"].iter().all(|link| routes.contains(&format!("dev {link} ")))
            && !routes.contains("linkdown")
    });
    world
}

impl World {
    /// The destinations of routes that another program put there.
    #[track_caller]
    fn routes_of(&self, protocol: &str) -> Vec<String> {
        let of =
            |family: &str| self.listed(&format!("{family} route show table all proto {protocol}"));
        let part = |route: &Value, name: &str| route[name].as_str().unwrap_or("-").to_owned();
        let text = |route: &Value| format!("{} via {}", part(route, "dst"), part(route, "gateway"));
        let mut found: Vec<String> =
            ["-4", "-6"].iter().flat_map(|family| of(family)).map(|route| text(&route)).collect();
        found.sort();
        found
    }

    /// The addresses of a link, but for those that the kernel made.
    #[track_caller]
    fn addresses_of(&self, link: &str) -> Vec<String> {
        let listed = self.listed(&format!("address show dev {link}"));
        let all = listed[0]["addr_info"].as_array().unwrap().iter();
        let made = all.filter(|address| address["scope"] != "link");
        made.map(|one| format!("{}/{}", one["local"].as_str().unwrap(), one["prefixlen"])).collect()
    }

    /// What the plan would do, as `action key`.
    #[track_caller]
    fn planned(&self) -> Vec<String> {
        let plan = self.plan();
        let changes = plan["changes"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        changes.map(|one| format!("{} {}", text(&one["action"]), text(&one["key"]))).collect()
    }
}

#[test]
fn addresses_routes_and_a_default_route_converge_and_a_second_apply_does_nothing() {
    let world = cabled();
    world.write("host.toml", ROUTER);
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
rtnl in host
  applied:
    + address 10.0.0.1/24 dev va
    + address fd00::1/64 dev va
    + route 0.0.0.0/0             via 10.0.0.254
    + route 10.9.0.0/16           via 10.0.0.253
    + route 10.66.0.0/16          type blackhole
    + route fd01::/48             via fd00::fe
Applied: 6 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.addresses_of("va"), ["10.0.0.1/24", "fd00::1/64"]);
    assert_eq!(
        world.routes_of("76"),
        [
            "10.66.0.0/16 via -",
            "10.9.0.0/16 via 10.0.0.253",
            "default via 10.0.0.254",
            "fd01::/48 via fd00::fe",
        ]
    );
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    world.run("verify host.toml").says(0, "");
}

#[test]
fn an_address_deleted_by_hand_returns_as_exactly_one_create() {
    let world = cabled();
    world.apply("[links.va]\naddresses = [\"10.0.0.1/24\", \"10.1.0.1/24\"]\n");
    world.ip("address del 10.1.0.1/24 dev va");
    assert_eq!(world.planned(), ["create address 10.1.0.1/24 dev va"]);
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.addresses_of("va"), ["10.0.0.1/24", "10.1.0.1/24"]);
}

#[test]
fn an_address_that_left_the_document_goes_and_a_foreign_one_stays() {
    let world = cabled();
    world.ip("address add 10.5.0.1/24 dev va");
    world.apply("[links.va]\naddresses = [\"10.0.0.1/24\", \"10.1.0.1/24\"]\n");
    world.apply("[links.va]\naddresses = [\"10.0.0.1/24\"]\n");
    assert_eq!(world.addresses_of("va"), ["10.5.0.1/24", "10.0.0.1/24"]);
}

#[test]
fn another_gateway_is_one_update_in_place() {
    let world = cabled();
    world.apply(ROUTER);
    world.write("host.toml", ROUTER.replace("10.0.0.253", "10.0.0.252"));
    assert_eq!(world.planned(), ["update route 10.9.0.0/16"]);
    world.run("apply --yes host.toml").exits(0);
    assert!(world.routes_of("76").contains(&"10.9.0.0/16 via 10.0.0.252".to_owned()));
}

#[test]
fn a_route_of_another_program_survives_an_empty_document() {
    let world = cabled();
    world.apply(ROUTER);
    world.ip("route add 10.200.0.0/16 via 10.0.0.200 proto bird");
    world.ip("route add 10.201.0.0/16 dev vb");
    // The foreign route rests on an address of ours, so that one is not taken from under it.
    world.write("host.toml", "routes = []\n[links.va]\naddresses = [\"10.0.0.1/24\"]\n");
    let before = (world.routes_of("bird"), world.routes_of("boot"));
    world.run("apply --yes host.toml").exits(0);
    assert_eq!((world.routes_of("bird"), world.routes_of("boot")), before);
    assert_eq!(world.routes_of("76"), Vec::<String>::new());
}

#[test]
fn an_address_that_would_take_a_foreign_route_along_is_held() {
    let world = cabled();
    world.apply(ROUTER);
    world.ip("route add 10.200.0.0/16 via 10.0.0.200 proto bird");
    world.write("host.toml", "routes = []\n[links.va]\naddresses = []\n");
    let report = world.run("apply --yes --json host.toml").json(1);
    let held = &report["held"].as_array().unwrap()[0];
    assert_eq!(held["key"], "address 10.0.0.1/24 dev va");
    assert!(held["reason"].as_str().unwrap().contains("route 10.200.0.0/16"), "{held}");
    assert_eq!(world.routes_of("bird"), ["10.200.0.0/16 via 10.0.0.200"]);
    assert_eq!(world.addresses_of("va"), ["10.0.0.1/24"]);
    let plan = world.run("plan --allow-cascades host.toml").exits(0).stdout;
    assert!(plan.contains("(takes along `route 10.200.0.0/16` of protocol bird)"), "{plan}");
    world.run("apply --yes --allow-cascades host.toml").exits(0);
    assert_eq!(world.addresses_of("va"), Vec::<String>::new());
}

#[test]
fn a_gateway_that_cannot_be_reached_fails_alone() {
    let world = cabled();
    world.write(
        "host.toml",
        format!("{ROUTER}[[routes]]\nto = \"10.7.0.0/16\"\nvia = \"10.99.0.1\"\n"),
    );
    let report = world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["applied"].as_array().unwrap().len(), 6);
    let failed = report["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["key"], "route 10.7.0.0/16");
    assert!(failed[0]["error"].as_str().unwrap().contains("Nexthop has invalid gateway"));
}

#[test]
fn a_link_that_is_not_there_is_waited_for_and_then_served_whatever_its_number() {
    let world = cabled();
    world.write("host.toml", "[links.late]\naddresses = [\"10.3.0.1/24\"]\n");
    let report = world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["pending"][0]["on"], "link late");
    for _ in 0..2 {
        world.add_pair("late", "etal");
        world.run("apply --yes host.toml").exits(0);
        assert_eq!(world.addresses_of("late"), ["10.3.0.1/24"]);
        world.ip("link del late");
    }
    world.run("verify host.toml").exits(2);
}

#[test]
fn ownership_survives_a_lost_state_directory() {
    let world = cabled();
    world.apply(ROUTER);
    std::fs::remove_dir_all(world.state()).unwrap();
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    std::fs::remove_dir_all(world.state()).unwrap();
    world.apply("routes = []\n[links.va]\naddresses = []\n");
    assert_eq!(world.routes_of("76"), Vec::<String>::new());
    assert_eq!(world.addresses_of("va"), Vec::<String>::new());
}

#[test]
fn two_owners_with_their_own_protocols_do_not_see_each_others_routes() {
    let world = cabled();
    world.ip("address add 10.0.0.1/24 dev va");
    let route = |to: &str| format!("[[routes]]\nto = \"{to}\"\nvia = \"10.0.0.254\"\n");
    world.write("one.toml", route("10.1.0.0/16"));
    world.write("two.toml", route("10.2.0.0/16"));
    world.run("apply --yes one.toml").exits(0);
    world.run("apply --yes two.toml --owner two --protocol 77").exits(0);
    world.run("verify one.toml").exits(0);
    world.write("one.toml", "routes = []\n");
    world.run("apply --yes one.toml").exits(0);
    assert_eq!(world.routes_of("77"), ["10.2.0.0/16 via 10.0.0.254"]);
    assert_eq!(world.routes_of("76"), Vec::<String>::new());
}

#[test]
fn a_document_that_no_longer_speaks_of_the_network_takes_nothing_away_unasked() {
    let world = cabled();
    world.apply(ROUTER);
    world.write("host.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 0\n");
    let before = world.listed("-4 route show table all");
    let report = world.run("apply --yes --json host.toml").json(1);
    assert_eq!(report["held"].as_array().unwrap().len(), 6, "{report}");
    assert_eq!(world.listed("-4 route show table all"), before);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.routes_of("76"), Vec::<String>::new());
}

#[test]
fn a_namespace_deleted_and_made_again_at_the_same_path_is_served_anew() {
    let world = World::new().with_own_names();
    world.write("host.toml", "[namespaces.blue.links.lo]\naddresses = [\"10.0.0.1/32\"]\n");
    for _ in 0..2 {
        world.ip("netns add blue");
        world.run("apply --yes host.toml").exits(0);
        let shown = world.ip("-n blue -4 address show dev lo");
        assert!(shown.contains("10.0.0.1/32"), "{shown}");
        world.ip("netns del blue");
    }
}

#[test]
fn a_dhcp_like_address_with_a_lifetime_is_matched_and_left() {
    let world = cabled();
    world.ip("address add 10.0.0.9/24 dev va valid_lft 3600 preferred_lft 1800");
    world.write("host.toml", "[links.va]\naddresses = [\"10.0.0.9/24\"]\n");
    let plan = world.plan();
    assert_eq!(plan["changes"], Value::Array(vec![]));
    assert_eq!(plan["matched"][0]["key"], "address 10.0.0.9/24 dev va");
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", "[links.va]\naddresses = []\n");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.addresses_of("va"), ["10.0.0.9/24"]);
}

#[test]
fn a_route_whose_source_is_still_probed_for_duplicates_converges_by_itself() {
    let world = World::new();
    world.add_pair("va", "vb");
    for link in ["va", "vb"] {
        world.ip(&format!("link set {link} up"));
    }
    let route = "[[routes]]\nto = \"fd01::/48\"\nvia = \"fd00::fe\"\nsrc = \"fd00::1\"\n";
    world.apply(&format!("[links.va]\naddresses = [\"fd00::1/64\"]\n{route}"));
    let routes = world.listed("-6 route show proto 76");
    assert_eq!(routes[0]["prefsrc"], "fd00::1", "{routes:?}");
}

const EVERYTHING: &str = r#"
[links.va]
addresses = ["10.0.0.1/24", "fd00::1/64"]
[[nexthops]]
id = 10
via = "10.0.0.9"
dev = "va"
[[nexthops]]
id = 11
via = "10.0.0.8"
dev = "va"
[[nexthops]]
id = 20
group = [10, { id = 11, weight = 3 }]
[[routes]]
to = "10.9.0.0/16"
nexthop = 20
[[routes]]
from-file = "lists/some.routes"
[[rules]]
from = "10.0.0.0/8"
table = 100
priority = 1000
[[rules]]
fwmark = "0x10/0xff"
iif = "va"
type = "prohibit"
[[neighbours]]
dev = "va"
to = "10.0.0.77"
mac = "02:00:00:00:00:09"
"#;

const LIST: &str = "# many\n10.20.0.0/16 via 10.0.0.5\n10.21.0.0/16 dev va metric 5 # one\n\
                    blackhole 10.66.0.0/16\n";

#[test]
fn nexthops_rules_neighbours_and_lists_of_routes_converge_and_change_in_place() {
    let world = cabled();
    world.write("lists/some.routes", LIST);
    world.apply(EVERYTHING);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert_eq!(world.listed("nexthop show")[2]["group"][1]["weight"], 3);
    assert_eq!(world.listed("neigh show nud permanent")[0]["lladdr"], "02:00:00:00:00:09");
    assert_eq!(world.routes_of("76").len(), 4);
    let other = EVERYTHING.replace("prohibit", "blackhole").replace("00:09", "00:08");
    world.write("host.toml", other.replace("weight = 3", "weight = 2"));
    world.run("plan host.toml").says(
        0,
        str![[r#"
rtnl in host
  config changed:
    ~ nexthop 20                    group [id 10 weight 1, id 11 weight 3] -> [id 10 weight 1, id 11 weight 2]
    ~ neighbour 10.0.0.77 dev va    mac 02:00:00:00:00:09 -> 02:00:00:00:00:08
    ~ rule iif va fwmark 0x10/0xff  action prohibit -> blackhole
Plan: 0 to create, 3 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.run("apply --yes host.toml").exits(0);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    let nothing = "routes = []\nrules = []\nneighbours = []\nnexthops = []\n";
    world.write("host.toml", nothing);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.addresses_of("va"), Vec::<String>::new());
    assert_eq!(world.listed("nexthop show"), Vec::<Value>::new());
}

#[test]
fn bad_lines_and_twins_of_a_list_are_named_with_their_places() {
    let world = cabled();
    world.write("lists/some.routes", "10.20.0.0/16 via 10.0.0.5\n10.21.0.0/33 via 10.0.0.5\n");
    world.write("host.toml", EVERYTHING);
    for command in ["check", "plan", "apply --yes"] {
        let ran = world.run(&format!("{command} host.toml")).exits(1);
        assert!(ran.stderr.contains("lists/some.routes:2"), "{}", ran.stderr);
        assert!(ran.stderr.contains("`/33` is not a prefix length"), "{}", ran.stderr);
    }
    world.write("lists/some.routes", "10.9.0.0/16 via 10.0.0.5\n");
    for command in ["check", "plan"] {
        let ran = world.run(&format!("{command} host.toml")).exits(1);
        assert!(ran.stderr.contains("lists/some.routes:1"), "{}", ran.stderr);
        assert!(ran.stderr.contains("host.toml:16:6"), "{}", ran.stderr);
    }
    assert_eq!(world.routes_of("76"), Vec::<String>::new());
}

const LAB: &str = r#"
[links.br0]
kind = "bridge"
up = true
mtu = 1400
alias = "lan of the lab"
addresses = ["10.0.0.1/24"]
[links.blue0]
kind = "veth"
peer = { name = "eth0", namespace = "blue" }
master = "br0"
up = true
[links.mv0]
kind = "macvlan"
parent = "br0"
mode = "bridge"
[[routes]]
to = "default"
via = "10.0.0.254"
[namespaces.blue]
create = true
[namespaces.blue.links.eth0]
up = true
addresses = ["10.0.0.2/24"]
[[namespaces.blue.routes]]
to = "default"
via = "10.0.0.1"
"#;

#[test]
fn links_and_a_namespace_with_all_that_is_on_them_converge_in_one_apply() {
    let world = World::new().with_own_names();
    world.apply(LAB);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    // The kernel sees a little later that the port has a carrier.
    until("the bridge", || world.listed("link show dev br0")[0]["operstate"] == "UP");
    let links = world.listed("-d link show dev br0");
    assert_eq!(links[0]["mtu"], 1400);
    let alias = links[0]["ifalias"].as_str().unwrap();
    assert!(alias.starts_with("lan of the lab") && alias.contains("homeostat:default"), "{alias}");
    assert!(world.ip("-n blue route show").contains("default via 10.0.0.1 dev eth0"));
    world.ip("link del br0");
    world.run("apply --yes host.toml").exits(0);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert_eq!(world.routes_of("76"), ["default via 10.0.0.254"]);
    world.write("host.toml", "routes = []\n[links]\n[namespaces]\n");
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.listed("link show").len(), 1, "only lo is left");
}

#[test]
fn a_link_that_is_only_configured_gets_its_originals_back() {
    let world = cabled();
    world.apply("[links.va]\nup = false\nmtu = 1300\nalias = \"uplink\"\n");
    let va = &world.listed("link show dev va")[0];
    assert_eq!((&va["mtu"], &va["ifalias"]), (&1300.into(), &"uplink".into()));
    world.write("host.toml", "[links]\n");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    let va = &world.listed("link show dev va")[0];
    assert_eq!((&va["mtu"], va.get("ifalias")), (&1500.into(), None));
    assert!(va["flags"].as_array().unwrap().contains(&"UP".into()), "{va}");
}

#[test]
fn what_is_shown_is_a_document_that_finds_nothing_to_change() {
    let world = cabled().with_own_names();
    for command in [
        "netns add blue",
        "link set lo up",
        "address add 10.0.0.1/24 dev va",
        "address add 10.7.0.1 peer 10.7.0.2/32 dev va label va:1",
        "address add fd00::1/64 dev va nodad",
        "link add br0 type bridge",
        "link add vx1 type vxlan id 5 dstport 4789 remote 10.0.0.9",
        "link add mv0 link va type macvlan",
        "link add x0 type veth peer name y0 netns blue",
        "route add 10.9.0.0/16 via 10.0.0.9 mtu 1400",
        "route add 10.10.0.0/16 nexthop via 10.0.0.9 weight 2 nexthop via 10.0.0.8",
        "-6 route add fd02::/64 via fd00::9 metric 7",
        "rule add from 10.0.0.0/8 table 100 prio 5",
        "-6 rule add fwmark 0x1/0xff table 7",
        "rule add ipproto tcp dport 80 prohibit prio 6",
        "nexthop add id 5 via 10.0.0.8 dev va",
        "nexthop add id 6 group 5",
        "nexthop add id 7 blackhole",
        "route add 10.11.0.0/16 nhid 6",
        "route add blackhole 10.66.0.0/16 table 77",
        "neigh add 10.0.0.77 lladdr 02:00:00:00:00:01 dev va nud permanent",
        "neigh add proxy 10.0.0.78 dev va",
    ] {
        world.ip(command);
    }
    for (form, name) in [("--toml", "shown.toml"), ("--json", "shown.json")] {
        let shown = world.run(&format!("show {form}")).exits(0).stdout;
        world.write(name, &shown);
        world.run(&format!("plan {name}")).says(0, "No changes.\n");
        for word in ["10.66.0.0/16", "vxlan", "10.7.0.2", "fd02::/64", "10.0.0.78", "nexthop"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
    }
}

#[test]
fn a_low_mtu_is_held_while_it_would_take_somebody_elses_ipv6_along() {
    let world = cabled();
    world.ip("-6 address add 2001:db8::1/64 dev va nodad");
    world.write("host.toml", "[links.va]\nmtu = 1000\n");
    let held = "! update link va mtu  it would take `address 2001:db8::1/64 dev va` along, which belongs to";
    let ran = world.run("plan host.toml").exits(0);
    assert!(ran.stdout.contains(held), "{}", ran.stdout);
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains(held), "{}", ran.stdout);
    assert_eq!(world.listed("-6 address show dev va scope global")[0]["mtu"], 1500);
    world.run("apply --yes --allow-cascades host.toml").exits(0);
    assert_eq!(world.listed("link show dev va")[0]["mtu"], 1000);
    assert!(world.listed("-6 address show dev va scope global").is_empty());
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}
