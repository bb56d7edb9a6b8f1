//! Every kind of qdisc, with the values that it can have: what was written reads back, and the second pass is empty.

use serde_json::{Value, json};

use homeostat_engine::Explain as _;
use homeostat_qdisc::kinds::KINDS;

use crate::bench::{Bench, class, desired, report_lines, root, tc, tc_json, try_tc};
use crate::random;

#[test]
fn a_link_gets_a_token_bucket_and_loses_it_again() {
    let bench = Bench::new();
    let tbf = json!({ "kind": "tbf", "rate": "10mbit", "burst": "32k", "limit": "64k" });
    let shaped = desired(&[("qdisc va", tbf)]);
    let lines = bench.converge(&shaped);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("+ qdisc va: nothing -> {"), "{lines:?}");
    let seen = root("va");
    assert_eq!((&seen["kind"], &seen["handle"]), (&json!("tbf"), &json!("4000:")));
    let options = &seen["options"];
    assert_eq!(options["rate"], 1_250_000);
    assert_eq!(options["burst"], "32Kb/1");
    let slower = json!({ "kind": "tbf", "rate": "1mbit", "burst": "16k", "limit": "64k" });
    bench.converge(&desired(&[("qdisc va", slower)]));
    assert_eq!(root("va")["options"]["rate"], 125_000);
    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:", "the kernel's default is back");
}

#[test]
fn what_somebody_changes_or_deletes_is_healed() {
    let bench = Bench::new();
    let fifo = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    bench.converge(&fifo);
    tc("qdisc change dev va root handle 4000: pfifo limit 7");
    bench.converge(&fifo);
    assert_eq!(root("va")["options"]["limit"], 100);
    tc("qdisc del dev va root");
    bench.converge(&fifo);
    assert_eq!(root("va")["options"]["limit"], 100);
    let report = bench.heal(&fifo, &["qdisc va"], || _ = tc("qdisc del dev va root"));
    assert!(report.is_converged(), "{:#?}", report_lines(&report));
    assert_eq!(root("va")["options"]["limit"], 100);
}

#[test]
fn another_kind_replaces_the_one_before() {
    let bench = Bench::new();
    bench.converge(&desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]));
    let bytes = desired(&[("qdisc va", json!({ "kind": "bfifo", "limit": "64k" }))]);
    let lines = bench.converge(&bytes);
    assert!(lines[0].starts_with("-/+ qdisc va: "), "{lines:?}");
    assert_eq!(root("va")["kind"], "bfifo");
    assert_eq!(root("va")["options"]["limit"], 65_536);
}

fn htb(first: &str, leaf: Option<u32>) -> Value {
    let mut small = json!({ "parent": "1", "rate": first, "ceil": "100mbit", "prio": 1 });
    if let Some(limit) = leaf {
        small["qdisc"] = json!({ "kind": "pfifo", "limit": limit });
    }
    let large = json!({ "parent": "1", "rate": "50mbit", "burst": "15k" });
    json!({ "kind": "htb", "default": "20", "classes": {
        "1": { "rate": "100mbit" }, "10": small, "20": large } })
}

#[test]
fn classes_are_made_changed_and_deleted_one_by_one() {
    let bench = Bench::new();
    bench.converge(&desired(&[("qdisc va", htb("10mbit", Some(50)))]));
    assert_eq!(root("va")["options"]["default"], "0x20");
    let small = class("va", "4000:10");
    for part in ["parent 4000:1 ", "prio 1 ", "rate 10Mbit ", "ceil 100Mbit "] {
        assert!(small.contains(part), "{small}");
    }
    assert!(class("va", "4000:20").contains("burst 15Kb/1 "), "{}", class("va", "4000:20"));
    let leaf = || {
        let all = tc_json("qdisc show dev va");
        all.into_iter().find(|one| one["handle"] == "4010:").unwrap_or_default()
    };
    assert_eq!(leaf()["options"]["limit"], 50);

    let lines = bench.converge(&desired(&[("qdisc va", htb("20mbit", Some(60)))]));
    assert!(lines[0].starts_with("~ qdisc va"), "{lines:?}");
    assert!(class("va", "4000:10").contains("rate 20Mbit "));
    assert_eq!(leaf()["options"]["limit"], 60);

    bench.converge(&desired(&[("qdisc va", htb("20mbit", None))]));
    assert_eq!(leaf(), Value::Null, "the class has the kernel's own again");

    // A class that nobody declares is a part of our tree, and goes; one that is deleted returns.
    tc("class add dev va parent 4000:1 classid 4000:99 htb rate 1mbit");
    tc("class del dev va classid 4000:10");
    bench.converge(&desired(&[("qdisc va", htb("20mbit", None))]));
    assert_eq!(class("va", "4000:99"), "");
    assert!(class("va", "4000:10").contains("rate 20Mbit "));

    let mut moved = htb("20mbit", None);
    moved["classes"]["10"].as_object_mut().unwrap().remove("parent");
    let lines = bench.converge(&desired(&[("qdisc va", moved)]));
    assert!(lines[0].starts_with("-/+ qdisc va"), "{lines:?}");
    assert!(class("va", "4000:10").contains("4000:10 root "));
    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn a_class_that_the_kernel_refuses_leaves_nothing_behind() {
    let bench = Bench::new();
    // The kernel knows no such kind, or has no module for it.
    let mut broken = htb("10mbit", Some(50));
    broken["classes"]["10"]["qdisc"] = json!({ "kind": "nosuch" });
    let report = bench.pass(&desired(&[("qdisc va", broken)]));
    let lines = report_lines(&report);
    let expected = "failed qdisc va: the kernel has no qdisc `nosuch`; load the module that brings it: \
                    modprobe sch_nosuch; Debian and Ubuntu have some of them in linux-modules-extra";
    assert_eq!(lines, [expected]);
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn an_absent_link_is_waited_for() {
    let bench = Bench::new();
    let fifo = desired(&[("qdisc later", json!({ "kind": "pfifo", "limit": 100 }))]);
    let lines = report_lines(&bench.pass(&fifo));
    assert_eq!(lines, ["pending qdisc later: waits on link later"]);
    bench.ip("link add later type ifb");
    bench.converge(&fifo);
    bench.ip("link del later");
    bench.ip("link add later type ifb");
    bench.converge(&fifo);
    assert_eq!(root("later")["handle"], "4000:");
}

/// Whether the kernel of this test has a kind.
fn is_known(kind: &str) -> bool {
    let arguments = match kind {
        "tbf" => " rate 1mbit burst 16k limit 64k",
        "netem" => " delay 1ms",
        _ => "",
    };
    let known = try_tc(&format!("qdisc add dev vb root {kind}{arguments}"));
    match known {
        Ok(_) => {
            tc("qdisc del dev vb root");
            true
        }
        Err(error) if error.contains("qdisc kind is unknown") => false,
        Err(error) => panic!("{kind}: {error}"),
    }
}

#[test]
fn the_second_pass_over_random_values_is_empty() {
    let _bench = Bench::new();
    let kinds: Vec<&str> =
        KINDS.iter().map(|spec| spec.name).filter(|kind| is_known(kind)).collect();
    for kind in ["tbf", "htb", "pfifo", "bfifo"] {
        assert!(kinds.contains(&kind), "every kernel has {kind}; this one has {kinds:?}");
    }
    random::check(&kinds);
}
