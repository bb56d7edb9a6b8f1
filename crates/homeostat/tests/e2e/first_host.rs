//! `docs/first-host.md`, followed word for word on a machine with systemd.

use std::fs;
use std::path::Path;

use crate::booted::{Host, LOGIN, listed};
use crate::dump::comes_again;
use crate::keeping::until;
use crate::program::copy_program;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The shell blocks of the page, in order.
fn blocks() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/first-host.md")).unwrap();
    let mut parts = text.split("```sh\n");
    parts.next();
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

/// Configures the network of the host at each boot, as an older tool does.
const OTHERS: &str = "[Unit]\nDefaultDependencies=no\nBefore=homeostat.service\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -e /root/others.sh\n\
    [Install]\nWantedBy=sysinit.target\n";
const NETWORK: &str = "\
ip link add wan0 address 02:00:00:00:00:02 type veth peer wan1 address 02:00:00:00:00:03
ip link set wan0 up
ip link set wan1 up
ip address add 192.0.2.2/24 dev wan0
ip route add default via 192.0.2.1 dev wan0
ip route add 10.99.0.0/16 via 192.0.2.9 proto bird
";

fn configure(host: &Host) {
    host.write("root/others.sh", NETWORK);
    host.write("etc/systemd/system/others.service", OTHERS);
    host.run("systemctl enable --now others").exits(0);
    until("quiet addresses", || !host.run("ip address show").stdout.contains("tentative"));
}

/// A checkout in which the program was built.
fn put_checkout_on(host: &Host) {
    let checkout = host.machine.path().join("root/checkout");
    fs::create_dir_all(checkout.join("target/release")).unwrap();
    copy_program(&checkout.join("target/release/homeostat"));
    fs::remove_file(host.machine.path().join("usr/bin/homeostat")).unwrap();
    for unit in ["homeostat.service", "homeostat-wait-online.service"] {
        let text = fs::read_to_string(root().join("packaging/systemd").join(unit)).unwrap();
        host.write(&format!("root/checkout/packaging/systemd/{unit}"), &text);
    }
}

#[test]
fn the_page_about_the_first_host_leads_through_an_installation_and_back() {
    let mut host = Host::new();
    put_checkout_on(&host);
    configure(&host);
    let before = listed();
    let blocks = blocks();
    let follow = |host: &Host, block: &str| {
        host.write("root/block.sh", &format!("set -e\ncd /root/checkout\n{block}"));
        host.run("sh /root/block.sh")
    };
    let mut tried = None;
    for block in &blocks {
        if block.contains("--confirm-within") {
            host.write("root/trial.sh", block);
            tried = Some(host.begin(&format!("{LOGIN} sh /root/trial.sh")));
            until("the trial", || {
                let status = host.run("homeostat status --json").stdout;
                status.contains("\"returns_to\"") && status.contains("\"converged\":true")
            });
            continue;
        }
        let ran = follow(&host, block).exits(0);
        if block.contains("homeostat confirm") {
            let client = tried.take().unwrap();
            assert!(client.wait_with_output().unwrap().status.success());
        } else if block.contains("homeostat status 'route") {
            assert!(ran.stdout.contains("last heal: create after drift by process"), "{ran:?}");
        } else if block.contains("enable --now") {
            host.reboot();
            until("the route", || {
                host.run("ip route show").stdout.contains("blackhole 198.51.100.0/24")
            });
        }
    }
    assert!(blocks.len() >= 8, "the page has lost its blocks");
    comes_again(&before, listed, "after the uninstall");
}
