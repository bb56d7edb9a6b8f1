//! What small kernels lack: every kind of qdisc, and the redirection of what comes in. Where the kernel has one of them not,
//! these tests fail.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[expect(dead_code, reason = "the other tests use the rest of it")]
#[path = "../passes/bench.rs"]
mod bench;
#[path = "../passes/random.rs"]
mod random;

use homeostat_engine::Explain as _;
use homeostat_qdisc::kinds::KINDS;
use serde_json::{Value, json};

use bench::{Bench, adopting, class, desired, report_lines, root, tc, tc_json};

#[test]
fn the_second_pass_over_random_values_is_empty_for_every_kind() {
    let kinds: Vec<&str> = KINDS.iter().map(|spec| spec.name).collect();
    random::check(&kinds);
}

#[test]
fn options_reach_the_kernel_in_the_words_of_tc() {
    let bench = Bench::new();
    for (words, kind, options) in [
        (
            json!({ "kind": "cake", "bandwidth": "50mbit", "diffserv": "diffserv4",
                "isolation": "dual-srchost", "nat": true, "ack-filter": "filter", "rtt": "50ms",
                "overhead": -4 }),
            "cake",
            json!({ "bandwidth": 6_250_000, "diffserv": "diffserv4", "flowmode": "dual-srchost",
                "nat": true, "ack-filter": "enabled", "rtt": 50_000, "overhead": -4 }),
        ),
        (
            json!({ "kind": "fq_codel", "limit": 1000, "target": "10ms", "ecn": false,
                "flows": 512 }),
            "fq_codel",
            json!({ "limit": 1000, "target": 9999, "flows": 512 }),
        ),
        (
            json!({ "kind": "fq", "limit": 5000, "flow-limit": 50, "maxrate": "10mbit",
                "buckets": 512 }),
            "fq",
            json!({ "limit": 5000, "flow_limit": 50, "maxrate": 1_250_000, "buckets": 512 }),
        ),
        (
            json!({ "kind": "netem", "delay": "20ms", "loss": "0.5%" }),
            "netem",
            json!({ "limit": 1000 }),
        ),
    ] {
        bench.converge(&desired(&[("qdisc va", words)]));
        let seen = root("va");
        assert_eq!((&seen["kind"], &seen["handle"]), (&json!(kind), &json!("4000:")));
        for (name, value) in options.as_object().unwrap() {
            assert_eq!(&seen["options"][name], value, "{name} of {seen}");
        }
    }
    let netem = root("va");
    let number = |value: &Value| value.as_f64().unwrap();
    assert!((number(&netem["options"]["delay"]["delay"]) - 0.02).abs() < 1e-9, "{netem}");
    assert!((number(&netem["options"]["loss-random"]["loss"]) - 0.005).abs() < 1e-9, "{netem}");
    // The table of flows has its size from the creation on.
    let codel =
        |flows: u32| desired(&[("qdisc va", json!({ "kind": "fq_codel", "flows": flows }))]);
    bench.converge(&codel(64));
    let lines = bench.converge(&codel(128));
    assert!(lines[0].starts_with("-/+ qdisc va: "), "{lines:?}");
}

fn redirect(to: &str) -> Value {
    json!({ "redirect": to })
}

/// Where `tc` says that what comes in at a link goes.
fn redirects(link: &str) -> Vec<String> {
    let filters = tc_json(&format!("filter show dev {link} ingress"));
    let actions = filters.iter().filter_map(|one| one["options"]["actions"].as_array()).flatten();
    actions.filter_map(|one| one["to_dev"].as_str().map(str::to_owned)).collect()
}

#[test]
fn what_comes_in_is_sent_to_another_link_and_shaped_there() {
    let bench = Bench::new();
    let tbf = json!({ "kind": "tbf", "rate": "8kbit", "burst": "2000b", "limit": "3000b" });
    let both = desired(&[("ingress vb", redirect("ifb0")), ("qdisc ifb0", tbf)]);
    bench.converge(&both);
    assert_eq!(redirects("vb"), ["ifb0"]);
    bench.flood();
    let seen = root("ifb0");
    let number = |name: &str| seen[name].as_u64().unwrap();
    assert!(number("overlimits") > 0 && number("drops") > 0, "{seen}");
    assert!(number("bytes") < 10_000, "{seen}");

    // Another link, and what somebody deletes.
    bench.ip("link add ifb1 type ifb");
    let other = desired(&[("ingress vb", redirect("ifb1"))]);
    bench.converge(&other);
    assert_eq!(redirects("vb"), ["ifb1"]);
    tc("filter del dev vb ingress");
    bench.converge(&other);
    assert_eq!(redirects("vb"), ["ifb1"]);
    tc("qdisc del dev vb ingress");
    bench.converge(&other);
    assert_eq!(redirects("vb"), ["ifb1"]);
    bench.converge(&desired(&[]));
    assert!(tc_json("qdisc show dev vb").iter().all(|one| one["kind"] != "ingress"));
}

#[test]
fn a_redirection_waits_for_its_link_and_follows_it() {
    let bench = Bench::new();
    let wanted = desired(&[("ingress vb", redirect("later"))]);
    let lines = report_lines(&bench.pass(&wanted));
    assert_eq!(lines, ["pending ingress vb: waits on link later"]);
    bench.ip("link add later type ifb");
    bench.converge(&wanted);
    bench.ip("link del later");
    assert_eq!(report_lines(&bench.pass(&wanted)), ["pending ingress vb: waits on link later"]);
    bench.ip("link add later type ifb");
    bench.converge(&wanted);
    assert_eq!(redirects("vb"), ["later"]);
}

#[test]
fn an_ingress_of_another_program_is_a_conflict_and_is_left_with_its_filters() {
    let bench = Bench::new();
    tc("qdisc add dev vb clsact");
    tc("filter add dev vb ingress prio 7 matchall action pass");
    let wanted = desired(&[("ingress vb", redirect("ifb0"))]);
    let lines = report_lines(&bench.pass(&wanted));
    assert_eq!(lines, ["conflicts ingress vb: belongs to another owner"]);
    assert!(redirects("vb").is_empty());
    bench.converge(&adopting(&[("ingress vb", redirect("ifb0"))]));
    assert_eq!(redirects("vb"), ["ifb0"]);
    bench.converge(&desired(&[]));
    assert!(redirects("vb").is_empty());
    let filters = tc("filter show dev vb ingress");
    assert!(filters.contains("pref 7 matchall"), "{filters}");
}

#[test]
fn filters_of_others_are_not_deleted_along_without_leave() {
    let bench = Bench::new();
    let htb = json!({ "kind": "htb", "classes": { "10": { "rate": "10mbit" } } });
    bench.converge(&desired(&[("qdisc va", htb), ("ingress vb", redirect("ifb0"))]));
    tc("filter add dev va parent 4000: prio 5 matchall classid 4000:10");
    tc("filter add dev vb ingress prio 7 matchall action pass");
    let report = bench.pass(&desired(&[]));
    assert!(!report.is_converged());
    let lines = report_lines(&report);
    for filter in ["filter 5 of qdisc va", "filter 7 of ingress vb"] {
        assert!(lines.iter().any(|line| line.contains(filter)), "{lines:?}");
    }
    assert_eq!(root("va")["kind"], "htb");
    assert!(class("va", "4000:10").contains("rate 10Mbit "));
    assert_eq!(redirects("vb"), ["ifb0"]);
}
