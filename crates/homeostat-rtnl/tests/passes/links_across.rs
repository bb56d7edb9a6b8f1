//! Links between namespaces: pairs, and links whose parent is elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_engine::Explain as _;
use homeostat_netns::Netns;
use homeostat_rtnl::Rtnl;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, desired, explained, ip, listed};

/// The namespace that the test is in, and another one that desired states call `blue`.
struct Two {
    here: Namespace,
    blue: Arc<Netns>,
}

impl Two {
    fn new() -> Self {
        let here = Namespace::enter().unwrap();
        Two { here, blue: Arc::new(Netns::anonymous().unwrap()) }
    }

    fn source(&self) -> Rtnl {
        let own = Arc::new(Netns::current().unwrap());
        let spaces = [("blue".to_owned(), Arc::clone(&self.blue)), ("host".to_owned(), own)];
        Rtnl::here().with_namespaces(BTreeMap::from(spaces))
    }

    /// The same, looked at from `blue`.
    fn source_in_blue(&self) -> Rtnl {
        let host = Arc::new(Netns::current().unwrap());
        let spaces = BTreeMap::from([("host".to_owned(), host)]);
        Rtnl::of(Arc::clone(&self.blue)).with_namespaces(spaces)
    }

    /// Runs `ip` in `blue`.
    fn in_blue(&self, args: &str) -> Result<Vec<serde_json::Value>, String> {
        self.blue.run(|| ip_inside(args)).unwrap()
    }
}

/// Runs `ip` on a thread that is in the other namespace.
#[expect(clippy::disallowed_methods, reason = "the testkit has `ip` for its own thread only")]
fn ip_inside(args: &str) -> Result<Vec<serde_json::Value>, String> {
    let args = args.split_whitespace();
    let output = std::process::Command::new("ip").arg("-j").args(args).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
}

#[test]
fn a_pair_across_namespaces_is_made_checked_and_deleted() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    let declared =
        desired(&[("link x0", "veth peer eth0@blue up on"), ("address 10.0.0.1/24 dev x0", "")]);
    bench.converge(&declared);
    let there = two.in_blue("-d link show dev eth0").unwrap();
    assert_eq!(there[0]["linkinfo"]["info_kind"], "veth");
    assert_eq!(there[0]["group"], "76");
    assert_eq!(there[0]["ifalias"], "homeostat:default other end of x0");
    // Who keeps the other namespace does not take its end for something to delete.
    Bench::of(two.source_in_blue()).assert_quiet(&desired(&[]));
    // Renamed, moved back, and deleted over there.
    for drift in ["link set eth0 name eth9", "link del eth0"] {
        two.in_blue(drift).unwrap();
        bench.converge(&declared);
        assert!(two.in_blue("link show dev eth0").is_ok(), "{drift}");
        assert!(two.in_blue("link show dev eth9").is_err(), "{drift}");
    }
    bench.converge(&desired(&[]));
    assert!(two.in_blue("link show dev eth0").is_err());
}

#[test]
fn an_other_end_that_is_not_where_it_should_be_is_put_there() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    bench.converge(&desired(&[("link x0", "veth peer eth0")]));
    let declared = desired(&[("link x0", "veth peer eth0@blue")]);
    assert_eq!(bench.converge(&declared), ["-/+ link x0"]);
    assert!(two.in_blue("link show dev eth0").is_ok());
    assert!(two.here.ip(&["link", "show", "dev", "eth0"]).is_err());
}

#[test]
fn a_namespace_under_another_name_is_the_same_place() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    bench.converge(&desired(&[("link x0", "veth peer x1@host")]));
    bench.assert_quiet(&desired(&[("link x0", "veth peer x1")]));
    assert_eq!(listed(&two.here, "link show dev x1")[0]["link"], "x0");
}

#[test]
fn the_other_end_is_configured_where_it_is() {
    let two = Two::new();
    let declared = desired(&[("link x0", "veth peer eth0@blue up on")]);
    let inside = desired(&[("link eth0 up", "on"), ("address 10.0.0.2/24 dev eth0", "")]);
    let (mut here, mut there) = (Bench::of(two.source()), Bench::of(two.source_in_blue()));
    assert!(!there.pass(&inside).is_converged(), "it waits for the other scope");
    here.converge(&declared);
    there.converge(&inside);
    here.assert_quiet(&declared);
}

#[test]
fn what_is_elsewhere_and_absent_is_waited_for() {
    let two = Two::new();
    ip(&two.here, "link add low0 type ifb");
    let lines =
        |bench: &mut Bench, declared: &[(&str, &str)]| explained(&bench.pass(&desired(declared)));
    let mut here = Bench::of(two.source());
    let red = [("link x0", "veth peer eth0@red")];
    assert_eq!(lines(&mut here, &red), ["pending link x0: namespace red"]);
    let mut there = Bench::of(two.source_in_blue());
    let absent = [("link mv0", "macvlan parent eth9@host")];
    assert_eq!(lines(&mut there, &absent), ["pending link mv0: link eth9 in namespace host"]);
}

#[test]
fn an_other_end_whose_name_is_taken_is_refused_in_words() {
    let two = Two::new();
    two.in_blue("link add eth0 type bridge").unwrap();
    let report = Bench::of(two.source()).pass(&desired(&[("link x0", "veth peer eth0@blue")]));
    let lines = explained(&report);
    assert!(lines[0].contains("the name `eth0` of its other end is taken there"), "{lines:?}");
}

#[test]
fn a_macvlan_stands_on_a_link_in_another_namespace() {
    let two = Two::new();
    ip(&two.here, "link add low0 type veth peer name low1");
    ip(&two.here, "link add low2 type veth peer name low3");
    let mut there = Bench::of(two.source_in_blue());
    let on = |low: &str| {
        let attrs = format!("macvlan parent {low}@host up on");
        desired(&[("link mv0", attrs.as_str()), ("address 10.0.0.2/24 dev mv0", "")])
    };
    there.converge(&on("low0"));
    let shown = two.in_blue("-d link show dev mv0").unwrap();
    assert_eq!(shown[0]["linkinfo"]["info_kind"], "macvlan");
    assert_eq!(shown[0]["ifalias"], "homeostat:default");
    let index = listed(&two.here, "link show dev low0")[0]["ifindex"].clone();
    assert_eq!(shown[0]["link_index"], index);
    assert!(two.here.ip(&["link", "show", "dev", "mv0"]).is_err());
    let done = there.converge(&on("low2"));
    assert_eq!(done, ["-/+ link mv0", "+ address 10.0.0.2/24 dev mv0"]);
    there.converge(&desired(&[]));
    assert!(two.in_blue("link show dev mv0").is_err());
}

/// The notes of the steps of a plan.
fn notes(bench: &Bench, declared: &homeostat_rtnl::DesiredState) -> Vec<String> {
    let mut notes = Vec::new();
    bench.plan(declared).explain(homeostat_engine::Kind::Change, &mut |entry| {
        if let homeostat_engine::Entry::Change(line, _) = entry {
            notes.extend(line.note);
        }
    });
    notes
}

#[test]
fn what_is_foreign_on_the_other_end_in_another_namespace_is_kept() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    bench.converge(&desired(&[("link x0", "veth peer eth0@blue up on")]));
    two.in_blue("link set eth0 up").unwrap();
    two.in_blue("address add 172.16.0.1/24 dev eth0").unwrap();
    for document in [desired(&[]), desired(&[("link x0", "veth peer eth0 up on")])] {
        let [held] = explained(&bench.pass(&document)).try_into().unwrap();
        assert!(held.starts_with("held link x0"), "{held}");
        assert!(held.contains("address 172.16.0.1/24 dev eth0 in namespace blue"), "{held}");
    }
    assert!(two.in_blue("link show dev eth0").is_ok());
    two.in_blue("address del 172.16.0.1/24 dev eth0").unwrap();
    assert_eq!(notes(&bench, &desired(&[])), ["takes along `link eth0 in namespace blue` of ours"]);
    bench.converge(&desired(&[]));
    assert!(two.in_blue("link show dev eth0").is_err());
}

#[test]
fn foreign_nexthops_on_the_other_end_keep_its_carrier() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    bench.converge(&desired(&[("link x0", "veth peer eth0@blue up on")]));
    two.in_blue("link set eth0 up").unwrap();
    two.in_blue("address add 172.16.0.1/24 dev eth0").unwrap();
    crate::bench::until("the nexthop", || {
        two.in_blue("nexthop replace id 900 via 172.16.0.9 dev eth0 proto bird").is_ok()
    });
    let [held] = explained(&bench.pass(&desired(&[("link x0", "veth peer eth0@blue up off")])))
        .try_into()
        .unwrap();
    assert!(held.contains("nexthop 900 in namespace blue"), "{held}");
    assert_eq!(two.in_blue("nexthop show").unwrap().len(), 1);
}

#[test]
fn a_plan_says_that_it_cannot_see_the_other_end() {
    let two = Two::new();
    let mut bench = Bench::of(two.source());
    bench.converge(&desired(&[("link x0", "veth peer eth0@blue up on")]));
    let blind = Bench::new();
    let [note] = notes(&blind, &desired(&[])).try_into().unwrap();
    assert!(
        note.contains("other end of link x0, in a namespace that cannot be looked at"),
        "{note}"
    );
}
