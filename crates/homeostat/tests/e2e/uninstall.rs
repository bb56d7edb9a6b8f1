//! After `homeostat uninstall` the machine is as it was before the first apply.

use crate::keeping::until;
use crate::world::World;

const DOCUMENT: &str = r#"
rules = [{ priority = 900, from = "192.0.2.0/24", table = 7 }]
neighbours = [{ to = "192.0.2.77", dev = "lan0", mac = "02:00:00:00:00:77" }]
nexthops = [{ id = 10, via = "192.0.2.9", dev = "lan0" }]
routes = [
    { to = "10.1.0.0/16", nexthop = 10 },
    { to = "10.2.0.0/16", type = "blackhole" },
    { to = "10.98.0.0/16", type = "blackhole", metric = 5, adopt = true },
]
[settings]
protocol = 77
[sysctl]
"net.ipv4.tcp_retries1" = 5
[links.lan0]
up = true
mtu = 1400
addresses = ["192.0.2.1/24"]
[links.br0]
kind = "bridge"
up = true
addresses = ["198.51.100.1/24"]
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 22 accept; }; }"
[namespaces.blue]
create = true
sysctl = { "net.ipv4.tcp_retries1" = 5 }
"#;

fn world() -> World {
    let world = World::new().with_own_names();
    world.add_pair("lan0", "peer0");
    for args in [
        "link set lo up",
        "link set lan0 up",
        "link set peer0 up",
        "address add 203.0.113.5/24 dev peer0",
        "route add 10.99.0.0/16 via 203.0.113.9 proto dhcp metric 512",
        "route add blackhole 10.98.0.0/16 proto bird metric 5",
    ] {
        world.ip(args);
    }
    world.nft("add table ip foreign");
    is_quiet(&world);
    world
}

/// Every address is probed.
fn is_quiet(world: &World) {
    until("quiet addresses", || !world.ip("address show").contains("tentative"));
}

#[test]
fn everything_of_ours_goes_and_everything_of_others_is_as_it_was() {
    let world = world();
    let before = world.dump();
    world.apply(DOCUMENT);
    assert_ne!(world.dump(), before);
    let ran = world.run("uninstall --yes").exits(0);
    assert!(ran.last_line().starts_with("Nothing of `default` is left."), "{ran:?}");
    world.is_again(&before);
    assert!(!std::path::Path::new(&world.outside("/run/netns/blue")).exists());
    let again = world.run("uninstall").exits(0);
    assert!(again.stdout.starts_with("No changes.\nNothing of `default` is left."), "{again:?}");
}

#[test]
fn what_cannot_go_is_named_and_the_rest_goes() {
    let world = world();
    world.apply(DOCUMENT);
    world.ip("link add mv0 link br0 type macvlan");
    let ran = world.run("uninstall --yes").exits(1);
    assert!(ran.stdout.contains("link br0  it would take `link mv0` along"), "{ran:?}");
    assert_eq!(ran.last_line(), "Something of `default` is left, for the reasons above.");
    assert!(!world.ip("route show").contains("10.2.0.0/16"), "the rest went");
    world.run("uninstall --yes --allow-cascades").exits(0);
    assert!(!world.ip("link show").contains("br0"));
}

#[test]
fn nothing_is_changed_without_a_yes_or_beside_a_daemon() {
    let world = world();
    world.apply(DOCUMENT);
    is_quiet(&world);
    let before = world.dump();
    let refused = world.run("uninstall").exits(1).stderr;
    assert!(refused.contains("there is no terminal to ask on"), "{refused}");
    let daemon = world.keep(DOCUMENT);
    until("the daemon", || world.run("status").code() == Some(0));
    let refused = world.run("uninstall --yes").exits(1).stderr;
    assert!(refused.contains("and would create everything again"), "{refused}");
    assert!(refused.contains("systemctl disable --now homeostat"), "{refused}");
    drop(daemon);
    world.is_again(&before);
}
