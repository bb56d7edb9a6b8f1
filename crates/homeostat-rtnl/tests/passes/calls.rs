//! One call: a desired state goes in, a typed report comes out, and what was applied is a value of the caller's.

use std::os::fd::AsFd as _;
use std::time::Duration;

use homeostat_engine::{Action, Cause, Retry};
use homeostat_rtnl::{
    Applied, Error, Finding, Key, Netns, Network, Protocol, Report, Rtnl, Verdict, WaitsOn,
    blocking,
};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{Bench, addresses, cable, desired, explained, ip, listed, runtime};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn changes(report: &Report<Key>) -> Vec<(Action, Cause, String)> {
    let changes = report.applied.iter();
    changes.map(|change| (change.action, change.cause, change.key.to_string())).collect()
}

/// Another handle to the namespace of a test, as an agent gets it.
fn by_descriptor(namespace: &Namespace) -> Netns {
    Netns::of_fd(namespace.netns().as_fd()).unwrap()
}

#[test]
fn addresses_and_routes_come_and_go_and_foreign_ones_stay() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.9/24 dev va");
    ip(&namespace, "route add 10.9.0.0/16 dev va");
    let network = Network::of(by_descriptor(&namespace));
    let both = [("address 10.1.0.1/24 dev va", ""), ("route 10.2.0.0/16", "via 10.1.0.2")];

    let plan = blocking::plan(&network, desired(&both), &Applied::default()).unwrap();
    assert_eq!((plan.summary().create, plan.changes.len()), (2, 2));
    assert_eq!(addresses(&namespace), ["10.0.0.9/24"], "a plan writes nothing");

    let (report, applied) =
        blocking::reconcile(&network, desired(&both), &Applied::default()).unwrap();
    assert_eq!(report.verdict(), Verdict::Converged);
    let made = |key: &str| (Action::Create, Cause::Config, key.to_owned());
    assert_eq!(changes(&report), [made(both[0].0), made(both[1].0)]);
    assert_eq!(addresses(&namespace), ["10.0.0.9/24", "10.1.0.1/24"]);
    assert_eq!(listed(&namespace, "route show 10.2.0.0/16")[0]["gateway"], "10.1.0.2");

    let (report, applied) = blocking::reconcile(&network, desired(&both), &applied).unwrap();
    assert_eq!((report.applied.len(), report.is_converged()), (0, true));

    let none: [(&str, &str); 0] = [];
    let (report, _) = blocking::reconcile(&network, desired(&none), &applied).unwrap();
    assert_eq!((report.summary().delete, report.is_converged()), (2, true));
    assert_eq!(addresses(&namespace), ["10.0.0.9/24"]);
    assert_eq!(listed(&namespace, "route show 10.9.0.0/16").len(), 1);
    assert!(listed(&namespace, "route show 10.2.0.0/16").is_empty());
}

#[test]
fn what_was_applied_tells_drift_from_a_new_desired_state() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace));
    let one = [("address 10.1.0.1/24 dev va", "")];
    let (_, applied) = blocking::reconcile(&network, desired(&one), &Applied::default()).unwrap();
    let kept = serde_json::to_string(&applied).unwrap();
    ip(&namespace, "address del 10.1.0.1/24 dev va");
    let (report, _) =
        blocking::reconcile(&network, desired(&one), &serde_json::from_str(&kept).unwrap())
            .unwrap();
    assert_eq!(changes(&report), [(Action::Create, Cause::Drift, one[0].0.to_owned())]);
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);

    // Ours carry their marks in the kernel, so that who forgets what was applied forgets only why.
    let two = [("address 10.1.0.2/24 dev va", "")];
    let (report, _) = blocking::reconcile(&network, desired(&two), &Applied::default()).unwrap();
    assert_eq!((report.summary().create, report.summary().delete), (1, 1));
    assert_eq!(addresses(&namespace), ["10.1.0.2/24"]);
}

#[test]
fn what_needs_an_absent_link_waits_and_the_rest_is_applied() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace));
    let both = [("address 10.1.0.1/24 dev va", ""), ("address 10.3.0.1/24 dev eth9", "")];
    let (report, _) = blocking::reconcile(&network, desired(&both), &Applied::default()).unwrap();
    let waits = Finding::Pending { on: WaitsOn::link("eth9") };
    assert_eq!(report.verdict(), Verdict::Open(vec![(&key(both[1].0), &waits)]));
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);
}

#[test]
fn an_absent_link_stops_everything_where_links_are_required() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace)).requiring_links();
    let old = [("address 10.7.0.1/24 dev va", "")];
    let (_, applied) = blocking::reconcile(&network, desired(&old), &Applied::default()).unwrap();
    // Without flags and addresses of links themselves, which come when the carrier does.
    let seen = || {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let links = listed(&namespace, "-4 address show");
        let addresses = links.iter().flat_map(|link| link["addr_info"].as_array().unwrap());
        let addresses: Vec<String> = addresses.map(|address| text(&address["local"])).collect();
        let routes = listed(&namespace, "-4 route show table all");
        let routes = routes.iter().map(|route| (text(&route["dst"]), text(&route["dev"])));
        (addresses, routes.collect::<Vec<_>>())
    };
    let before = seen();
    // One to create, one to delete, one on a link that is absent, and a route on another one.
    let new = [
        ("address 10.1.0.1/24 dev va", ""),
        ("address 10.3.0.1/24 dev eth9", ""),
        ("route 10.4.0.0/16", "dev eth8"),
    ];
    let is_unknown = |error: Error| match error {
        Error::UnknownLinks { links } => links,
        other => panic!("{other}"),
    };
    let planned = blocking::plan(&network, desired(&new), &applied).unwrap_err();
    assert_eq!(planned.retry(), Retry::OnChange);
    assert_eq!(is_unknown(planned), ["eth8", "eth9"]);
    let refused = blocking::reconcile(&network, desired(&new), &applied).unwrap_err();
    assert_eq!(is_unknown(refused), ["eth8", "eth9"]);
    assert_eq!(seen(), before);

    // What was handed in still stands. With the links, all of it is applied.
    ip(&namespace, "link add eth9 type veth peer name eth8");
    ip(&namespace, "link set eth9 up");
    ip(&namespace, "link set eth8 up");
    let (report, _) = blocking::reconcile(&network, desired(&new), &applied).unwrap();
    assert_eq!((report.summary().create, report.summary().delete), (3, 1), "{report}");
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);
    assert_eq!(listed(&namespace, "route show 10.4.0.0/16")[0]["dev"], "eth8");
}

#[test]
fn a_look_at_a_few_keys_waits_for_the_links_of_the_others_too() {
    let namespace = cable();
    let mut bench = Bench::of(Rtnl::here().requiring_links());
    let all = desired(&[
        ("address 10.1.0.1/24 dev va", ""),
        ("address 10.3.0.1/24 dev eth9", ""),
        ("route 10.4.0.0/16", "dev eth8"),
    ]);
    bench.pass(&all);
    // One of the two links comes, and a hint names what waits for it.
    ip(&namespace, "link add eth9 type veth peer name other");
    let keys = ["address 10.3.0.1/24 dev eth9", "address 10.1.0.1/24 dev va"];
    let report = explained(&bench.focused(&all, &keys));
    assert_eq!(report.len(), 2, "{report:?}");
    assert!(report.iter().all(|line| line.ends_with("link eth8")), "{report:?}");
    assert!(addresses(&namespace).is_empty());
    assert_eq!(listed(&namespace, "-4 address show dev eth9"), Vec::<serde_json::Value>::new());
}

#[test]
fn links_that_the_desired_state_creates_are_no_unknown_ones() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace)).requiring_links();
    let made = [
        ("link pair0", "veth peer pair1 up on"),
        ("address 10.5.0.1/24 dev pair0", ""),
        ("address 10.6.0.1/24 dev pair1", ""),
    ];
    let (report, _) = runtime()
        .block_on(network.converge(desired(&made), &Applied::default(), Duration::from_mins(1)))
        .unwrap();
    assert!(report.is_converged(), "{report}");
    for (link, local) in [("pair0", "10.5.0.1"), ("pair1", "10.6.0.1")] {
        let shown = listed(&namespace, &format!("-4 address show dev {link}"));
        assert_eq!(shown[0]["addr_info"][0]["local"], local);
    }
}

#[test]
fn a_call_that_converges_waits_for_a_link_and_writes_all_at_once() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace)).requiring_links();
    let both = [("address 10.1.0.1/24 dev va", ""), ("address 10.3.0.1/24 dev eth9", "")];
    let (desired, applied) = (desired(&both), Applied::default());
    let (report, _) = runtime().block_on(async {
        let within = Duration::from_mins(1);
        let converging = network.converge(desired, &applied, within);
        let plugging = async {
            // The first look is over when the call waits.
            tokio::task::yield_now().await;
            assert!(addresses(&namespace).is_empty());
            ip(&namespace, "link add eth9 type veth peer name eth8");
        };
        tokio::join!(converging, plugging).0.unwrap()
    });
    assert!(report.is_converged(), "{report}");
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);
}

#[test]
fn two_owners_in_one_namespace_leave_each_other_alone() {
    let namespace = cable();
    let mine = Network::of(by_descriptor(&namespace)).owner("mine");
    let theirs =
        Network::of(by_descriptor(&namespace)).owner("theirs").protocol(Protocol::new(77).unwrap());
    let one = [("address 10.1.0.1/24 dev va", "")];
    let other = [("address 10.2.0.1/24 dev va", "")];
    blocking::reconcile(&mine, desired(&one), &Applied::default()).unwrap();
    blocking::reconcile(&theirs, desired(&other), &Applied::default()).unwrap();
    let (report, _) = blocking::reconcile(&mine, desired(&[]), &Applied::default()).unwrap();
    assert_eq!(report.summary().delete, 1);
    assert_eq!(addresses(&namespace), ["10.2.0.1/24"]);
}

#[test]
fn a_second_writer_with_the_same_mark_is_refused() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace));
    let other = network.clone().owner("other");
    let absent = [("address 10.3.0.1/24 dev eth9", "")];
    let (within, applied) = (Duration::from_mins(1), Applied::default());
    let refused = runtime().block_on(async {
        tokio::select! {
            biased;
            // It holds the lock while it waits for the link.
            _ = network.converge(desired(&absent), &applied, within) => None,
            refused = other.reconcile(desired(&[]), &applied) => refused.err(),
        }
    });
    let text = refused.unwrap().to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
}

#[test]
fn a_blocking_call_may_be_made_inside_of_an_async_program() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace));
    let one = [("address 10.1.0.1/24 dev va", "")];
    let report = runtime().block_on(async {
        blocking::reconcile(&network, desired(&one), &Applied::default()).unwrap().0
    });
    assert!(report.is_converged());
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);
}

#[test]
fn a_report_names_the_calls_that_its_reader_has() {
    let namespace = cable();
    ip(&namespace, "route add 10.9.0.0/16 dev va");
    let network = Network::of(by_descriptor(&namespace));
    let foreign = desired(&[("route 10.9.0.0/16", "dev vb")]);
    let plan = blocking::plan(&network, foreign.clone(), &Applied::default()).unwrap();
    let (report, _) = blocking::reconcile(&network, foreign, &Applied::default()).unwrap();
    for text in [plan.to_string(), report.to_string()] {
        assert!(text.contains("`Builder::adopt`") && !text.contains("Reconciler"), "{text}");
    }

    let many: Vec<String> = (1..=11).map(|n| format!("address 10.1.0.{n}/24 dev va")).collect();
    let many: Vec<_> = many.iter().map(|key| (key.as_str(), "")).collect();
    blocking::reconcile(&network, desired(&many), &Applied::default()).unwrap();
    let (report, _) = blocking::reconcile(&network, desired(&[]), &Applied::default()).unwrap();
    assert!(report.to_string().contains("`Network::allow_mass_delete`"), "{report}");
}

#[test]
fn what_takes_foreign_things_along_is_held_until_that_is_allowed() {
    let namespace = cable();
    let network = Network::of(by_descriptor(&namespace));
    let bridge = desired(&[("link br0", "bridge")]);
    let (report, applied) = blocking::reconcile(&network, bridge, &Applied::default()).unwrap();
    assert!(report.is_converged(), "{report}");
    ip(&namespace, "link add mv0 link br0 type macvlan");
    let (report, applied) = blocking::reconcile(&network, desired(&[]), &applied).unwrap();
    assert!(report.to_string().contains("`Network::allow_cascades`"), "{report}");
    assert_eq!(listed(&namespace, "link show type macvlan").len(), 1);

    let network = network.allow_cascades();
    let (report, _) = blocking::reconcile(&network, desired(&[]), &applied).unwrap();
    assert_eq!((report.summary().delete, report.is_converged()), (1, true), "{report}");
    assert!(listed(&namespace, "link show type macvlan").is_empty());
}

#[test]
fn a_path_that_is_no_namespace_is_an_error() {
    for path in ["/run/netns/there-is-none", "/dev/null"] {
        assert!(matches!(Network::at(path), Err(Error::Netns(_))), "{path}");
    }
    assert!(Network::at("/proc/thread-self/ns/net").is_ok());
}

#[expect(dead_code, reason = "its `main` gets the namespace from the command line")]
#[path = "../../examples/connect.rs"]
mod connect;

#[test]
fn the_example_of_the_front_page_connects_a_container_in_25_lines() {
    let container = Namespace::enter().unwrap();
    let here = "/proc/thread-self/ns/net";
    let unplugged = connect::connect(here, "192.0.2.10/24", &Applied::default()).unwrap_err();
    assert!(unplugged.to_string().contains("eth0"), "{unplugged}");

    ip(&container, "link add eth0 type veth peer name outside");
    ip(&container, "link set eth0 up");
    ip(&container, "address add 198.51.100.7/24 dev eth0");
    let applied = connect::connect(here, "192.0.2.10/24", &Applied::default()).unwrap();
    let shown = listed(&container, "-4 address show dev eth0");
    assert_eq!(shown[0]["addr_info"].as_array().unwrap().len(), 2);
    assert_eq!(listed(&container, "route show default")[0]["gateway"], "192.0.2.1");

    connect::connect(here, "192.0.2.11/24", &applied).unwrap();
    let shown = listed(&container, "-4 address show dev eth0");
    let local = |at: usize| shown[0]["addr_info"][at]["local"].clone();
    assert_eq!([local(0), local(1)], ["198.51.100.7", "192.0.2.11"]);
    assert_eq!(listed(&container, "route show default")[0]["gateway"], "192.0.2.1");
    assert!(include_str!("../../examples/connect.rs").lines().count() <= 25);
}
