//! Turning IPv6 off removes what others have there: it is held, and named. `ip` is the judge.

use homeostat_engine::{Cascades, Explain as _};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, Network, desired, fresh_network, kernel, meddle, report_lines};

/// A pair of links that are up.
fn cable() -> Network {
    let network = fresh_network();
    for line in ["link add va type veth peer name vb", "link set va up", "link set vb up"] {
        network.ip(line);
    }
    network
}

/// What others have, by `ip`, without what comes and goes by itself.
fn everything(namespace: &Namespace) -> String {
    let lists = ["-6 route show table all", "-6 neighbour", "-6 neighbour show proxy"];
    let listed = lists.map(|args| listed(namespace, args));
    let mut lines: Vec<String> = listed.into_iter().flatten().collect();
    lines.retain(|line| !["kernel", "fe80", "ff02"].iter().any(|word| line.contains(word)));
    lines.extend(listed_addresses(namespace));
    lines.join("\n")
}

fn listed(namespace: &Namespace, args: &str) -> Vec<String> {
    let args: Vec<&str> = args.split_whitespace().collect();
    let listed = namespace.ip_json(&args).unwrap_or_else(|error| panic!("{error}"));
    listed.as_array().unwrap().iter().map(ToString::to_string).collect()
}

fn listed_addresses(namespace: &Namespace) -> Vec<String> {
    let links = namespace.ip_json(&["-6", "address"]).unwrap_or_else(|error| panic!("{error}"));
    let links = links.as_array().unwrap().iter();
    let addresses = links.flat_map(|link| link["addr_info"].as_array().into_iter().flatten());
    let addresses = addresses.map(|address| address["local"].to_string());
    addresses.filter(|address| !address.contains("fe80")).collect()
}

const VA: &str = "net.ipv6.conf.va.disable_ipv6";
const LO: &str = "net.ipv6.conf.lo.disable_ipv6";
const ALL: &str = "net.ipv6.conf.all.disable_ipv6";

/// What others have, the knobs that cost them that, and its key.
const LOST: [(&str, &[&str], &str); 7] = [
    ("-6 address add 2001:db8::1/64 dev va nodad", &[VA, ALL], "address 2001:db8::1/64 dev va"),
    ("-6 route add 2001:db8:5::/48 dev va proto static", &[VA, ALL], "route 2001:db8:5::/48"),
    (
        "-6 route add default dev va proto bird metric 20 table 100",
        &[VA, ALL],
        "route ::/0 table 100 metric 20",
    ),
    ("-6 route add unreachable 2001:db8:7::/48", &[LO, ALL], "route 2001:db8:7::/48"),
    (
        "-6 neighbour add 2001:db8::9 lladdr 02:00:00:00:00:09 dev va",
        &[VA, ALL],
        "neighbour 2001:db8::9 dev va",
    ),
    ("-6 neighbour add proxy 2001:db8::9 dev va", &[VA, ALL], "neighbour 2001:db8::9 dev va proxy"),
    (
        "-6 neighbour add 2001:db8::9 lladdr 02:00:00:00:00:09 dev va extern_learn",
        &[VA, ALL],
        "neighbour 2001:db8::9 dev va",
    ),
];

/// Quirk: what `disable_ipv6` takes does not come back with 0.
#[test]
fn disabling_takes_ipv6() {
    for (foreign, knobs, key) in LOST {
        for knob in knobs {
            let network = cable();
            network.ip(foreign);
            let before = everything(network.namespace());
            let mut bench = Bench::of_the_kernel();
            let declared = desired(&[(knob, "1")]);
            let lines = report_lines(&bench.pass(&declared));
            let expected = format!("held sysctl {knob}: it would take `{key}` along");
            assert!(lines[0].starts_with(&expected), "{foreign}: {lines:#?}");
            assert_eq!(kernel(&knob["net.".len()..].replace('.', "/")), "0");
            let now = everything(network.namespace());
            assert_eq!(now, before);
            // The kernel does what the guard says.
            bench.config.guards.cascades = Cascades::Allow;
            assert!(bench.pass(&declared).is_converged());
            bench.assert_quiet(&declared);
            let gone = everything(network.namespace());
            assert_ne!(gone, before, "{knob}: {foreign}");
        }
    }
}

#[test]
fn what_stays_without_ipv6_holds_nothing() {
    for foreign in [
        &["address add 10.7.0.1/24 dev va"][..],
        &["route add 10.5.0.0/16 dev va proto static"],
        &["neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev va"],
        &["neighbour add proxy 10.0.0.9 dev va"],
        &["-6 nexthop add id 7 dev va", "-6 route add 2001:db8:8::/48 nhid 7"],
        &["-6 address add 2001:db8::1/64 dev vb nodad"],
        &["-6 route add 2001:db8:5::/48 dev vb proto static"],
        &["-6 route add unreachable 2001:db8:7::/48"],
    ] {
        let network = cable();
        for line in foreign {
            network.ip(line);
        }
        let before = everything(network.namespace());
        let report = Bench::of_the_kernel().pass(&desired(&[(VA, "1")]));
        assert!(report.is_converged(), "{foreign:?}: {:#?}", report_lines(&report));
        assert_eq!(kernel("ipv6/conf/va/disable_ipv6"), "1");
        assert_eq!(everything(network.namespace()), before, "{foreign:?}");
    }
}

#[test]
fn a_route_over_two_links_is_held_only_where_both_lose_ipv6() {
    let network = cable();
    for (link, net) in [("va", "fdf0"), ("vb", "fdf1")] {
        network.ip(&format!("-6 address add {net}::1/64 dev {link} nodad noprefixroute"));
        network.ip(&format!("-6 route add {net}::9 dev {link} proto ra"));
    }
    network
        .ip("-6 route add 2001:db8:6::/48 nexthop via fdf0::9 dev va nexthop via fdf1::9 dev vb");
    for link in ["va", "vb"] {
        network.ip(&format!("-6 address flush dev {link} scope global"));
    }
    let bench = Bench::of_the_kernel();
    let lines = report_lines(&bench.pass(&desired(&[(ALL, "1")])));
    let expected = format!("held sysctl {ALL}: it would take `route 2001:db8:6::/48` along");
    assert!(lines[0].starts_with(&expected), "{lines:#?}");
    assert!(bench.pass(&desired(&[(VA, "1")])).is_converged());
    assert!(everything(network.namespace()).contains("2001:db8:6::/48"));
}

#[test]
fn an_original_that_turns_ipv6_off_again_is_held_alike() {
    let network = cable();
    meddle("ipv6/conf/va/disable_ipv6", "1");
    let bench = Bench::of_the_kernel().restoring();
    assert!(bench.pass(&desired(&[(VA, "0")])).is_converged());
    network.ip("-6 route add 2001:db8:5::/48 dev va proto static");
    let lines = report_lines(&bench.pass(&desired(&[])));
    let expected = format!("held sysctl {VA}: it would take `route 2001:db8:5::/48` along");
    assert!(lines[0].starts_with(&expected), "{lines:#?}");
    assert!(everything(network.namespace()).contains("2001:db8:5::/48"));
}
