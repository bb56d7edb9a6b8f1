//! A kernel test has a network of its own, on its own thread only.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::thread;

use homeostat_netns::Netns;
use homeostat_testkit::namespace::Namespace;

fn enter() -> Namespace {
    Namespace::enter().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_fresh_namespace_has_only_a_loopback_that_is_down() {
    let fresh = enter();
    let links = fresh.ip_json(&["link"]).unwrap();
    assert_eq!(links.as_array().map(Vec::len), Some(1), "{links}");
    assert_eq!(links[0]["ifname"], "lo");
    assert_eq!(links[0]["operstate"], "DOWN");
}

#[test]
fn other_threads_stay_where_they_are() {
    let outside = Netns::current().unwrap();
    thread::spawn(|| {
        let inside = enter();
        inside.ip(&["link", "set", "lo", "up"]).unwrap();
        assert_eq!(inside.ip_json(&["link"]).unwrap()[0]["flags"][1], "UP");
    })
    .join()
    .unwrap();
    assert!(Netns::current().unwrap().same_as(&outside).unwrap());
}

#[test]
fn a_refusal_of_ip_is_reported_in_its_own_words() {
    let error = enter().ip(&["link", "set", "nowhere", "up"]).unwrap_err().to_string();
    assert!(error.contains("ip link set nowhere up: ") && error.contains("nowhere"), "{error}");
}
