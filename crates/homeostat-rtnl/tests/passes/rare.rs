//! Attributes that few routes have, judged by `ip`: each reads back as it was written, changes in place, and one that
//! somebody else has changed is set again.

use homeostat_rtnl::{DesiredState, Encap, Hop, Key, Route, Seg6Mode};
use serde_json::json;

use crate::bench::{Bench, add, cable, desired, ip, listed};

const ADDRESSES: [(&str, &str); 2] =
    [("address 10.0.0.1/24 dev va", ""), ("address 2001:db8::1/64 dev va", "")];
const V4: &str = "route 10.5.0.0/16";
const V6: &str = "route 2001:db8:5::/48";

fn state(v4: &str, v6: &str) -> DesiredState {
    let v4 = format!("via 10.0.0.2 dev va {v4}");
    let v6 = format!("via 2001:db8::2 dev va {v6}");
    desired(&[ADDRESSES[0], ADDRESSES[1], (V4, &v4), (V6, &v6)])
}

#[test]
fn metrics_of_paths_read_back_and_change_in_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    let all = "mtu 1400 mtu-lock on advmss 1300 window 60000 initcwnd 20 initrwnd 30 cwnd 40 \
               ssthresh 50 reordering 5 hoplimit 33 rto-min 200 quickack on ecn on \
               fastopen-no-cookie on congctl reno";
    bench.converge(&state(all, all));
    for args in ["-d route show 10.5.0.0/16", "-6 -d route show 2001:db8:5::/48"] {
        let shown = &listed(&namespace, args)[0]["metrics"][0];
        for (name, value) in [
            ("advmss", json!(1300)),
            ("window", json!(60000)),
            ("initcwnd", json!(20)),
            ("initrwnd", json!(30)),
            ("cwnd", json!(40)),
            ("ssthresh", json!(50)),
            ("reordering", json!(5)),
            ("hoplimit", json!(33)),
            ("quickack", json!(1)),
            ("fastopen_no_cookie", json!(1)),
        ] {
            assert_eq!(shown[name], value, "{name} of {shown}");
        }
        // Some of them have a form of their own in `ip`.
        let text = shown.to_string();
        for word in ["1400", "ecn", "reno", "200"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
    let changed = ["~ route 10.5.0.0/16", "~ route 2001:db8:5::/48"];
    assert_eq!(bench.converge(&state("advmss 1200", "quickack off")), changed);
    let shown = |args| listed(&namespace, args)[0]["metrics"].clone();
    assert_eq!(shown("route show 10.5.0.0/16"), json!([{ "advmss": 1200 }]));
    assert_eq!(shown("-6 route show 2001:db8:5::/48"), json!(null));
}

#[test]
fn an_attribute_that_another_changes_heals() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = state("initcwnd 20", "pref high");
    bench.converge(&desired);
    while bench.hint().is_some() {}
    ip(&namespace, "route change 10.5.0.0/16 via 10.0.0.2 dev va initcwnd 3 proto 76");
    ip(&namespace, "-6 route change 2001:db8:5::/48 via 2001:db8::2 dev va pref low proto 76");
    assert_eq!(bench.heal(&desired), ["~ route 10.5.0.0/16", "~ route 2001:db8:5::/48"]);
    let shown = &listed(&namespace, "route show 10.5.0.0/16")[0];
    assert_eq!(shown["metrics"], json!([{ "initcwnd": 20 }]));
    assert_eq!(listed(&namespace, "-6 route show 2001:db8:5::/48")[0]["pref"], "high");
    bench.assert_quiet(&desired);
}

#[test]
fn preferences_read_back() {
    let namespace = cable();
    let mut bench = Bench::new();
    for pref in ["low", "high", "medium"] {
        bench.converge(&state("", &format!("pref {pref}")));
        assert_eq!(listed(&namespace, "-6 route show 2001:db8:5::/48")[0]["pref"], pref);
    }
}

#[test]
fn a_route_that_runs_out_is_no_drift_and_one_that_would_stay_longer_is() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&state("", "expires 3600"));
    let left = || listed(&namespace, "-6 route show 2001:db8:5::/48")[0]["expires"].clone();
    let seconds = left().as_u64().unwrap();
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    assert_eq!(bench.converge(&state("", "expires 60")), ["~ route 2001:db8:5::/48"]);
    assert!(left().as_u64().unwrap() <= 60);
    // Whoever removes the end leaves a route that is not as declared.
    ip(&namespace, "-6 route change 2001:db8:5::/48 via 2001:db8::2 dev va proto 76");
    assert_eq!(bench.converge(&state("", "expires 60")), ["~ route 2001:db8:5::/48"]);
    assert!(left().is_u64());
    assert_eq!(bench.converge(&state("", "")), [""; 0], "what is not declared may be anything");
}

#[test]
fn a_route_that_has_run_out_is_made_again() {
    let namespace = cable();
    // How often the kernel looks for routes that have run out.
    std::fs::write("/proc/sys/net/ipv6/route/gc_interval", "1").unwrap();
    let mut bench = Bench::new();
    let desired = state("", "expires 1");
    bench.converge(&desired);
    while bench.hint().is_some() {}
    let is_gone = || listed(&namespace, "-6 route show 2001:db8:5::/48").is_empty();
    crate::bench::until("the end of the route", is_gone);
    assert_eq!(bench.heal(&desired), ["+ route 2001:db8:5::/48"]);
    assert!(!is_gone());
}

/// A kernel without MPLS says so, and nothing else fails with it.
#[test]
fn labels_read_back_in_routes_and_ways() {
    let namespace = cable();
    let mut bench = Bench::new();
    let probe = "route add 10.9.0.0/16 encap mpls 16 via 10.0.0.2 dev va onlink";
    let probed = namespace.ip(&probe.split_whitespace().collect::<Vec<_>>());
    let of = |encap: &str| state(&format!("encap {encap}"), &format!("encap {encap}"));
    if let Err(error) = probed {
        assert!(error.to_string().contains("lwt encapsulation type not supported"), "{error}");
        let lines = crate::bench::explained(&bench.pass(&of(r#"{"mpls":[100]}"#)));
        let failed = |key| {
            let start = format!("failed {key}: lwt encapsulation type not supported");
            lines.iter().any(|line| line.starts_with(&start))
        };
        assert!(failed(V4) && failed(V6), "{lines:#?}");
        assert!(lines.contains(&"+ address 10.0.0.1/24 dev va".to_owned()), "{lines:#?}");
        return;
    }
    ip(&namespace, "route del 10.9.0.0/16");
    bench.converge(&of(r#"{"mpls":[100,200]}"#));
    let shown = |args| listed(&namespace, args)[0].clone();
    for args in ["-d route show 10.5.0.0/16", "-6 -d route show 2001:db8:5::/48"] {
        assert_eq!(
            (&shown(args)["encap"], &shown(args)["dst"]),
            (&json!("mpls"), &json!("100/200")),
            "{args}"
        );
    }
    bench.converge(&of(r#"{"mpls":[100],"ttl":9}"#));
    assert_eq!(shown("-d route show 10.5.0.0/16")["ttl"], 9);
    bench.converge(&of(r#"{"mpls":[100]}"#));
    assert!(shown("-d route show 10.5.0.0/16")["ttl"].is_null());
    bench.converge(&state("", ""));
    assert!(shown("-d route show 10.5.0.0/16")["encap"].is_null());
}

#[test]
fn segments_read_back_in_every_mode_and_in_ways() {
    let namespace = cable();
    let mut bench = Bench::new();
    let segments = r#""seg6":["fd00::1","fd00::2"]"#;
    for mode in ["encap", "inline", "l2encap", "encap.red", "l2encap.red"] {
        let v6 = format!(r#"encap {{{segments},"mode":"{mode}"}}"#);
        bench.converge(&state("", &v6));
        let shown = &listed(&namespace, "-6 -d route show 2001:db8:5::/48")[0];
        assert_eq!(shown["encap"], "seg6", "{shown}");
        assert_eq!(
            (&shown["mode"], shown["segs"].to_string().contains("fd00::2")),
            (&json!(mode), true),
            "{shown}"
        );
    }
    let v4 = format!(r#"encap {{{segments},"mode":"encap"}}"#);
    bench.converge(&state(&v4, ""));
    assert_eq!(listed(&namespace, "-d route show 10.5.0.0/16")[0]["encap"], "seg6");
    assert!(listed(&namespace, "-6 -d route show 2001:db8:5::/48")[0]["encap"].is_null());
    bench.converge(&state("", ""));
    assert!(listed(&namespace, "-d route show 10.5.0.0/16")[0]["encap"].is_null());
    let way = |last: u8| Hop {
        via: Some(format!("10.0.0.{last}").parse().unwrap()),
        dev: Some("va".parse().unwrap()),
        weight: 1,
        onlink: None,
        encap: Some(Encap::Seg6 {
            segments: vec![format!("fd00::{last}").parse().unwrap(); last.into()],
            mode: Seg6Mode::Encap,
        }),
    };
    let Ok(Key::Route(key)) = V4.parse() else { panic!("no route") };
    let mut builder = DesiredState::builder();
    add(&mut builder, ADDRESSES[0].0.parse().unwrap(), "").unwrap();
    builder.route(key, Route::multipath(vec![way(2), way(3)])).unwrap();
    bench.converge(&builder.build().unwrap());
    let ways = listed(&namespace, "-d route show 10.5.0.0/16")[0]["nexthops"].to_string();
    assert!(ways.contains("fd00::2") && ways.contains("fd00::3"), "{ways}");
}
