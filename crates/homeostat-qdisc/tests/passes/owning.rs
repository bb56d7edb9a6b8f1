//! Whose a qdisc is: ours, the kernel's, or another program's.

use homeostat_engine::Explain as _;
use homeostat_qdisc::DesiredState;
use serde_json::json;

use crate::bench::{Bench, adopting, desired, report_lines, root, tc};

#[test]
fn a_qdisc_of_another_program_is_a_conflict() {
    let bench = Bench::new();
    tc("qdisc add dev va root handle 1: pfifo limit 7");
    let before = root("va");
    let wanted = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    let report = bench.pass(&wanted);
    assert!(!report.is_converged());
    assert_eq!(report_lines(&report), ["conflicts qdisc va: belongs to another owner"]);
    assert_eq!(root("va"), before);
    let same = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 7 }))]);
    bench.pass(&same);
    bench.pass(&desired(&[]));
    assert_eq!(root("va"), before, "it is not ours because it is as declared");
}

#[test]
fn one_of_our_handles_without_our_record_is_ours_only_if_it_is_declared() {
    let bench = Bench::new();
    tc("qdisc add dev va root handle 4000: pfifo limit 7");
    bench.pass(&desired(&[]));
    assert_eq!(root("va")["options"]["limit"], 7);
    let default = DesiredState::default().with_defaults(["qdisc va".parse().unwrap()]);
    bench.converge(&default);
    assert_eq!(root("va")["handle"], "0:");
    tc("qdisc add dev va root handle 1: pfifo limit 7");
    bench.converge(&default);
    assert_eq!(root("va")["handle"], "1:", "another program's stays");
    tc("qdisc replace dev va root handle 4000: pfifo limit 7");
    let fifo = json!({ "kind": "pfifo", "limit": 7 });
    bench.converge(&desired(&[("qdisc va", fifo)]));
    bench.converge(&desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]));
    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn a_link_that_returns_under_its_name_has_its_queue_again() {
    let bench = Bench::new();
    let wanted = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    bench.converge(&wanted);
    bench.ip("link set va name aside");
    let lines = report_lines(&bench.pass(&wanted));
    assert_eq!(lines, ["pending qdisc va: waits on link va"]);
    assert!(bench.page().holdings().records.is_empty());
    bench.ip("link set aside name va");
    bench.converge(&wanted);
    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn a_link_that_another_one_stood_in_for_has_its_queue_again() {
    let bench = Bench::new();
    let wanted = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    bench.converge(&wanted);
    bench.ip("link set va name aside");
    bench.ip("link add va type ifb");
    bench.converge(&wanted);
    bench.ip("link del va");
    bench.ip("link set aside name va");
    bench.converge(&wanted);
    bench.converge(&desired(&[]));
    assert_eq!(root("va")["handle"], "0:");
}

#[test]
fn what_another_owner_keeps_is_not_ours() {
    let mut bench = Bench::new();
    let wanted = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    tc("qdisc add dev va root handle 4000: pfifo limit 7");
    let others = [("qdisc va".parse().unwrap(), "second".to_owned())];
    bench.source = bench.source.clone().with_others(others.into());
    assert_eq!(
        report_lines(&bench.pass(&wanted)),
        ["conflicts qdisc va: belongs to another owner"]
    );
    assert_eq!(root("va")["options"]["limit"], 7);
}

#[test]
fn what_was_taken_over_is_given_back_as_it_was() {
    let bench = Bench::new();
    tc("qdisc add dev va root handle 1: htb default 10");
    tc("class add dev va parent 1: classid 1:1 htb rate 7mbit ceil 9mbit burst 20k");
    tc("class add dev va parent 1:1 classid 1:10 htb rate 3mbit prio 2");
    tc("qdisc add dev va parent 1:10 handle 10: pfifo limit 77");
    let shown = || {
        let classes = tc("-d class show dev va");
        let mut classes: Vec<&str> = classes.lines().collect();
        classes.sort_unstable();
        let qdiscs = tc("-d qdisc show dev va");
        let qdiscs: Vec<&str> = qdiscs.lines().filter(|line| !line.contains(" 0: ")).collect();
        format!("{classes:#?}{qdiscs:#?}")
    };
    let before = shown();
    let ours = adopting(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    let lines = bench.converge(&ours);
    assert!(lines[0].starts_with("~ qdisc va: "), "{lines:?}");
    assert_eq!(root("va")["handle"], "4000:");
    bench.converge(&desired(&[]));
    assert_eq!(shown(), before);
}

#[test]
fn somebody_who_replaces_ours_is_not_fought() {
    let bench = Bench::new();
    let wanted = desired(&[("qdisc va", json!({ "kind": "pfifo", "limit": 100 }))]);
    bench.converge(&wanted);
    tc("qdisc replace dev va root handle 1: pfifo limit 7");
    let report = bench.pass(&wanted);
    assert_eq!(report_lines(&report), ["conflicts qdisc va: our mark was taken off"]);
    assert_eq!(root("va")["options"]["limit"], 7);
}
