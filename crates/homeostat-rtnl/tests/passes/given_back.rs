//! What was taken over from another owner and leaves the desired state returns to that owner as it was, judged by `ip`.

use homeostat_rtnl::Key;
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed, until};

/// Everything that `ip` says of the namespace. Times run down by themselves.
fn dump(namespace: &Namespace) -> Vec<Value> {
    // A worker of the kernel follows carriers, and gives links their own addresses after that.
    until("quiet links", || {
        let links = listed(namespace, "address show up");
        let is_own = |address: &Value| address["scope"] == "link";
        let has_own = |link: &Value| link["addr_info"].as_array().unwrap().iter().any(is_own);
        // A bridge without ports has no carrier to follow.
        let follows_none = |link: &Value| link["ifname"] == "lo" || link["ifname"] == "br0";
        links.iter().all(|link| follows_none(link) || link["operstate"] == "UP" && has_own(link))
    });
    // Another one makes the local route of an IPv6 address of a link that is up, some time after the address.
    until("used addresses", || {
        let routes = listed(namespace, "-6 route show table local");
        let links = listed(namespace, "-6 address show up");
        let mut addresses = links.iter().flat_map(|link| link["addr_info"].as_array().unwrap());
        addresses.all(|address| routes.iter().any(|route| route["dst"] == address["local"]))
    });
    let mut all = Vec::new();
    for args in [
        "-d address show",
        "-4 -d route show table all",
        "-6 -d route show table all",
        "-4 -d rule show",
        "-6 -d rule show",
        "-d nexthop show",
        "-d neighbour show nud permanent",
        "-d neighbour show proxy",
    ] {
        all.extend(listed(namespace, args));
    }
    all.iter_mut().for_each(forget_times);
    // The kernel adds routes to link-local and multicast addresses some time after a link has come up.
    let comes_late = |dst: &str| dst.starts_with("fe80") || dst == "ff00::/8";
    all.retain(|one| !one["dst"].as_str().is_some_and(comes_late));
    all
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "tentative" && !name.ends_with("_timer"));
            for (name, value) in fields {
                let runs_down =
                    matches!(name.as_str(), "valid_life_time" | "preferred_life_time" | "expires");
                match value {
                    Value::Number(seconds) if runs_down => {
                        let is_forever = seconds.as_u64() == Some(u64::from(u32::MAX));
                        *value = if is_forever { "forever".into() } else { "some time".into() };
                    }
                    other => forget_times(other),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(forget_times),
        _ => {}
    }
}

fn assert_same(before: &[Value], after: &[Value]) {
    let only_in = |one: &[Value], other: &[Value]| -> Vec<String> {
        let missing = one.iter().filter(|object| !other.contains(object));
        missing.map(Value::to_string).collect()
    };
    let (lost, new) = (only_in(before, after), only_in(after, before));
    assert!(before == after, "lost: {lost:#?}\nnew: {new:#?}");
}

fn adopting(declared: &[Declared<'_>]) -> Bench {
    let mut bench = Bench::new();
    let keys = declared.iter().map(|(key, _)| key.parse::<Key>().unwrap());
    bench.config.adopt.extend(keys);
    bench
}

/// Takes objects over, lets them go, and compares everything before and after.
fn round_trip(foreign: &[&str], declared: &[Declared<'_>]) {
    let namespace = cable();
    until("the carriers, and what comes with them", || {
        let links = listed(&namespace, "address show");
        let is_link_local = |address: &Value| address["scope"] == "link";
        links.iter().filter(|link| link["ifname"] != "lo").all(|link| {
            let addresses = link["addr_info"].as_array().unwrap();
            link["operstate"] == "UP" && addresses.iter().any(is_link_local)
        })
    });
    for args in foreign {
        ip(&namespace, args);
    }
    let before = dump(&namespace);
    let mut bench = adopting(declared);
    bench.converge(&desired(declared));
    assert_ne!(dump(&namespace), before, "they were not taken over");
    let given = bench.converge(&desired(&[]));
    assert_eq!(given.len(), declared.len(), "{given:#?}");
    assert_same(&before, &dump(&namespace));
    assert_eq!(bench.records(), "{}", "nothing of it is ours any more");
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn the_default_route_of_a_dhcp_client_returns_with_its_protocol_and_metrics() {
    round_trip(
        &[
            "address add 10.0.0.5/24 dev va",
            "route add default via 10.0.0.2 dev va proto dhcp src 10.0.0.5 metric 100 mtu lock 1400 initcwnd 20",
        ],
        &[("route 0.0.0.0/0 metric 100", "via 10.0.0.9")],
    );
}

#[test]
fn a_route_over_several_ways_returns() {
    round_trip(
        &[
            "address add 10.0.0.5/24 dev va",
            "address add 10.1.0.5/24 dev vb",
            "route add 10.9.0.0/16 proto bird nexthop via 10.0.0.2 dev va weight 3 nexthop via 10.1.0.2 dev vb onlink",
        ],
        &[("route 10.9.0.0/16", "via 10.0.0.7")],
    );
}

#[test]
fn an_ipv6_route_returns_with_its_preference_and_the_time_that_is_left() {
    round_trip(
        &[
            "-6 address add 2001:db8::5/64 dev va nodad",
            "-6 route add 2001:db8:9::/48 via 2001:db8::2 dev va proto ra metric 1024 pref high expires 500",
        ],
        &[("route 2001:db8:9::/48 metric 1024", "via 2001:db8::9")],
    );
}

#[test]
fn a_route_through_a_nexthop_object_returns() {
    round_trip(
        &[
            "address add 10.0.0.5/24 dev va",
            "nexthop add id 7 via 10.0.0.2 dev va proto bird",
            "route add 10.9.0.0/16 nhid 7 proto bird",
        ],
        &[("route 10.9.0.0/16", "via 10.0.0.7")],
    );
}

#[test]
fn an_address_returns_with_its_protocol_and_the_time_that_is_left() {
    round_trip(
        &["address add 10.0.0.5/24 dev va valid_lft 600 preferred_lft 300"],
        &[("address 10.0.0.5/24 dev va", "")],
    );
    round_trip(
        &[
            "-6 address add 2001:db8::5/64 dev va nodad noprefixroute valid_lft 600 preferred_lft 300",
        ],
        &[("address 2001:db8::5/64 dev va", "noprefixroute on")],
    );
}

#[test]
fn an_address_that_had_to_be_made_anew_returns() {
    round_trip(
        &["address add 10.0.0.5/24 dev va label va:dhcp broadcast 10.0.0.255"],
        &[("address 10.0.0.5/24 dev va", "label va:ours")],
    );
}

#[test]
fn rules_nexthops_and_neighbours_return() {
    round_trip(
        &["rule add from 10.7.0.0/16 priority 900 table 900 protocol bird suppress_prefixlength 3"],
        &[("rule priority 900 from 10.7.0.0/16", "table 1000")],
    );
    round_trip(
        &["address add 10.0.0.5/24 dev va", "nexthop add id 7 via 10.0.0.2 dev va proto bird"],
        &[("nexthop 7", "via 10.0.0.9 dev va")],
    );
    round_trip(
        &[
            "neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev va nud permanent protocol bird",
            "neighbour add proxy 10.0.0.8 dev va protocol bird",
        ],
        &[("neighbour 10.0.0.9 dev va", "02:00:00:00:00:99")],
    );
}

#[test]
fn what_is_not_what_we_wrote_any_more_is_deleted() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.5/24 dev va");
    ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.2 proto dhcp");
    let declared = [("route 10.9.0.0/16", "via 10.0.0.9")];
    let mut bench = adopting(&declared);
    bench.converge(&desired(&declared));
    ip(&namespace, "route replace 10.9.0.0/16 via 10.0.0.4 proto 76");
    assert_eq!(bench.converge(&desired(&[])), ["- route 10.9.0.0/16"]);
    assert!(listed(&namespace, "route show 10.9.0.0/16").is_empty());
}

#[test]
fn a_route_that_its_owner_took_back_first_is_left_and_reported_by_nobody() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.5/24 dev va");
    ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.2 proto dhcp");
    let declared = [("route 10.9.0.0/16", "via 10.0.0.9")];
    let mut bench = adopting(&declared);
    bench.converge(&desired(&declared));
    ip(&namespace, "route replace 10.9.0.0/16 via 10.0.0.3 proto dhcp");
    let before = dump(&namespace);
    assert_eq!(explained(&bench.pass(&desired(&[]))), [""; 0]);
    assert_same(&before, &dump(&namespace));
    assert_eq!(bench.records(), "{}");
}

#[test]
fn an_object_of_ours_is_still_deleted() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = [("address 10.0.0.1/24 dev va", ""), ("route 10.9.0.0/16", "via 10.0.0.9")];
    bench.converge(&desired(&declared));
    bench.converge(&desired(&[]));
    assert!(listed(&namespace, "route show 10.9.0.0/16").is_empty());
}

#[test]
fn a_bridge_of_another_owner_returns_with_its_options_and_alias() {
    let bridge = [
        "link add br0 type bridge stp_state 0 forward_delay 400",
        "link set br0 alias uplink group 9 mtu 1450 up",
    ];
    round_trip(&bridge, &[("link br0", "bridge mtu 1400 alias ours")]);
}

#[test]
fn a_link_that_is_not_what_we_wrote_loses_only_our_mark() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    let declared = [("link br0", "bridge mtu 1400")];
    let mut bench = adopting(&declared);
    bench.converge(&desired(&declared));
    ip(&namespace, "link set br0 mtu 1300");
    assert_eq!(bench.converge(&desired(&[])), ["- link br0"]);
    let link = &listed(&namespace, "-d link show br0")[0];
    assert_eq!((&link["mtu"], &link["group"]), (&1300.into(), &"default".into()));
    assert!(link["ifalias"].is_null(), "{link}");
    bench.assert_quiet(&desired(&[]));
}

#[test]
fn a_pair_of_another_owner_leaves_the_bridge_that_we_put_it_into() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    let before = listed(&namespace, "link show va");
    let declared = [("link va", "veth peer vb master br0")];
    let mut bench = adopting(&declared);
    bench.converge(&desired(&declared));
    assert_eq!(listed(&namespace, "link show va")[0]["master"], "br0");
    bench.converge(&desired(&[]));
    assert_same(&before, &listed(&namespace, "link show va"));
}
