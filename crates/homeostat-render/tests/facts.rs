//! Facts of links and namespaces, in namespaces of the test's own, judged by `ip`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use homeostat_netns::{Name, Netns};
use homeostat_render::{Facts, FactsWatch};
use homeostat_testkit::namespace::Namespace;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// Waits for facts that are like this.
async fn wait(watch: &mut FactsWatch, is_reached: impl Fn(&Facts) -> bool) {
    while !is_reached(&watch.facts()) {
        watch.changed().await.unwrap();
    }
}

#[tokio::test]
async fn links_and_their_addresses_are_followed() {
    let namespace = Namespace::enter().unwrap();
    let mut watch = FactsWatch::open(&Netns::current().unwrap()).unwrap();
    let facts = watch.facts();
    assert_eq!(facts.links.keys().collect::<Vec<_>>(), ["lo"]);
    assert!(!facts.links["lo"].up && facts.host.kernel.is_some());
    namespace.ip(&["link", "add", "a0", "type", "veth", "peer", "name", "a1"]).unwrap();
    wait(&mut watch, |facts| facts.links.len() == 3).await;
    let ip = namespace.ip_json(&["link", "show", "a0"]).unwrap();
    let link = watch.facts().links["a0"].clone();
    assert_eq!(link.mac.as_deref(), ip[0]["address"].as_str());
    assert_eq!(Some(u64::from(link.mtu)), ip[0]["mtu"].as_u64());
    namespace.ip(&["link", "set", "a0", "up", "mtu", "1400"]).unwrap();
    wait(&mut watch, |facts| facts.links["a0"].up && facts.links["a0"].mtu == 1400).await;
    namespace.ip(&["address", "add", "192.0.2.1/24", "dev", "a0"]).unwrap();
    namespace.ip(&["address", "add", "192.0.2.9", "peer", "192.0.2.10/32", "dev", "a0"]).unwrap();
    namespace.ip(&["address", "add", "2001:db8::1/64", "dev", "a0", "nodad"]).unwrap();
    let expected = ["192.0.2.1/24", "192.0.2.9/32", "2001:db8::1/64"].map(str::to_owned);
    let expected = BTreeSet::from(expected);
    wait(&mut watch, |facts| facts.links["a0"].addresses.is_superset(&expected)).await;
    namespace.ip(&["address", "delete", "192.0.2.1/24", "dev", "a0"]).unwrap();
    wait(&mut watch, |facts| !facts.links["a0"].addresses.contains("192.0.2.1/24")).await;
    namespace.ip(&["link", "delete", "a0"]).unwrap();
    wait(&mut watch, |facts| facts.links.len() == 1).await;
}

/// The kernel looks for doubles on a link that has no carrier for ever.
#[tokio::test]
async fn an_address_that_the_kernel_does_not_use_yet_is_no_fact() {
    let namespace = Namespace::enter().unwrap();
    namespace.ip(&["link", "add", "a0", "type", "veth", "peer", "name", "a1"]).unwrap();
    namespace.ip(&["link", "set", "a0", "up"]).unwrap();
    namespace.ip(&["address", "add", "2001:db8::1/64", "dev", "a0"]).unwrap();
    let ip = namespace.ip_json(&["address", "show", "dev", "a0"]).unwrap();
    assert!(ip.to_string().contains("\"tentative\":true"), "{ip}");
    let mut watch = FactsWatch::open(&Netns::current().unwrap()).unwrap();
    assert_eq!(watch.facts().links["a0"].addresses, BTreeSet::new());
    namespace.ip(&["link", "set", "a1", "up"]).unwrap();
    wait(&mut watch, |facts| facts.links["a0"].addresses.contains("2001:db8::1/64")).await;
}

#[tokio::test]
async fn the_names_of_namespaces_are_followed() {
    let _namespace = Namespace::enter().unwrap();
    leave_mounts();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    mount("run", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
    let mut watch = FactsWatch::open(&Netns::current().unwrap()).unwrap();
    assert_eq!(watch.facts().namespaces, BTreeSet::new());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected: BTreeSet<String> = names(&["blue"]);
    homeostat_netns::create(&Name::new("blue").unwrap()).unwrap();
    wait(&mut watch, |facts| facts.namespaces == expected).await;
    let expected: BTreeSet<String> = names(&["blue", "red"]);
    homeostat_netns::create(&Name::new("red").unwrap()).unwrap();
    wait(&mut watch, |facts| facts.namespaces == expected).await;
    let expected: BTreeSet<String> = names(&["red"]);
    homeostat_netns::remove(&Name::new("blue").unwrap()).unwrap();
    wait(&mut watch, |facts| facts.namespaces == expected).await;
}

#[expect(unsafe_code, reason = "rustix has no safe form of unshare")]
fn leave_mounts() {
    // SAFETY: only `CLONE_FILES` is unsound, and it is not asked for.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
}
