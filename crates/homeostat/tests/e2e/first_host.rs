//! `docs/first-host.md`, followed word for word on a machine with systemd.

use crate::booted::{Host, LOGIN, listed};
use crate::dump::comes_again;
use crate::followed::blocks;
use crate::keeping::until;
use crate::package::put_package_on;

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

#[test]
fn the_page_about_the_first_host_leads_through_an_installation_and_back() {
    let mut host = Host::bare();
    let blocks = blocks("docs/first-host.md");
    let package = put_package_on(&host);
    assert!(blocks[0].contains(package.trim_start_matches("/root/")), "{package}");
    configure(&host);
    let before = listed();
    let follow = |host: &Host, block: &str| {
        host.write("root/block.sh", &format!("set -e\ncd /root\n{block}"));
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
    assert_ne!(host.run("dpkg --status homeostat").code(), Some(0), "it is still installed");
}
