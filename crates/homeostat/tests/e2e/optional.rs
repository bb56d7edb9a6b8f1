//! A link that may be absent: without it a machine is converged, and says what waits.

use serde_json::Value;

use crate::keeping::until;
use crate::network::cabled;
use crate::world::World;

const MODEM: &str = r#"
[links.ppp0]
optional = true
mtu = 1492
addresses = ["10.7.0.1/24"]
sysctl = { "ipv4/rp_filter" = 2 }
[[routes]]
to = "10.8.0.0/16"
via = "10.7.0.9"
"#;

fn keys(list: &Value) -> Vec<&str> {
    let keys = list.as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap());
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys
}

const WAITING: [&str; 4] = [
    "address 10.7.0.1/24 dev ppp0",
    "link ppp0 mtu",
    "route 10.8.0.0/16",
    "sysctl net.ipv4.conf.ppp0.rp_filter",
];

#[test]
fn what_waits_for_an_optional_link_is_listed_and_converged() {
    let world = World::with(MODEM);
    let report = world.run("apply --yes --json host.toml").json(0);
    assert_eq!(report["converged"], true);
    assert_eq!(keys(&report["optional"]), WAITING);
    assert_eq!(keys(&report["pending"]), <[&str; 0]>::default());
    assert_eq!(report["optional"][0]["on"], "optional link ppp0");
    let verified = world.run("verify --json host.toml").json(0);
    assert_eq!(keys(&verified["optional"]), WAITING);
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("waiting for an optional link:\n    . address 10.7.0.1/24"), "{plan}");
    assert!(plan.ends_with("No changes.\n"), "{plan}");
    world.write("host.toml", MODEM.replace("optional = true\n", ""));
    world.run("verify -q host.toml").exits(2);
}

#[test]
fn a_daemon_is_converged_without_the_link_and_configures_it_when_it_comes() {
    let world = cabled();
    let _daemon = world.keep(MODEM);
    world.converges();
    let status = world.run("status --json").json(0);
    let listed = status["open_keys"].as_array().unwrap();
    assert!(listed.iter().all(|open| open["kind"] == "optional"), "{listed:?}");
    assert_eq!(keys(&status["open_keys"]), WAITING);
    let text = world.run("status").exits(0).stdout;
    assert!(text.contains("waiting for an optional link"), "{text}");
    assert!(!text.contains("Not converged"), "{text}");
    world.add_pair("ppp0", "far");
    for link in ["ppp0", "far"] {
        world.ip(&format!("link set {link} up"));
    }
    until("its address", || world.ip("address show dev ppp0").contains("10.7.0.1/24"));
    until("the route", || world.ip("route show").contains("10.8.0.0/16"));
    until("nothing to wait for", || {
        let status = world.run("status --json").json(0);
        status["open_keys"].as_array().unwrap().is_empty()
    });
    world.ip("link del ppp0");
    until("the wait", || {
        let status = world.run("status --json");
        status.code() == Some(0) && status.stdout.contains("optional link ppp0")
    });
}
