//! The units that are shipped, under a systemd that has booted.

use crate::booted::Host;
use crate::keeping::until;
use crate::program::command;
use crate::world::World;

const UNIT: &str = include_str!("../../../../packaging/systemd/homeostat.service");
const WAIT_ONLINE: &str =
    include_str!("../../../../packaging/systemd/homeostat-wait-online.service");
const NAMESPACES: &str = include_str!("../../../../packaging/systemd/namespaces.conf");

/// In tenths, as `--threshold` has it. Zero is a unit that can do nothing, ten one that can do everything.
const EXPOSURE: &str = "42";

#[test]
fn the_unit_can_do_little_beside_its_work() {
    let world = World::new();
    let unit = world.write("homeostat.service", UNIT);
    let mut analyze = command("systemd-analyze");
    analyze.args(["security", "--offline=yes", "--threshold", EXPOSURE]).arg(&unit);
    let output = analyze.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", text.lines().last().unwrap_or_default());
}

#[test]
fn a_machine_without_a_document_boots_without_a_failure() {
    let host = Host::new();
    host.write("etc/systemd/system/homeostat.service", UNIT);
    host.run("mkdir -p /etc/homeostat").exits(0);
    host.run("systemctl daemon-reload").exits(0);
    host.run("systemctl start homeostat").exits(0);
    let shown = host.run("systemctl show --property=ActiveState,ConditionResult homeostat").stdout;
    assert_eq!(shown, "ActiveState=inactive\nConditionResult=no\n");
}

#[test]
fn services_that_need_the_network_start_once_everything_is_as_declared() {
    let mut host = Host::new();
    host.write("etc/systemd/system/homeostat-wait-online.service", WAIT_ONLINE);
    host.write(
        "etc/systemd/system/needs-network.service",
        "[Unit]\nWants=network-online.target\nAfter=network-online.target\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'ip route show >/var/tmp/routes'\n[Install]\nWantedBy=multi-user.target\n",
    );
    let route = "[links.br0]\nkind = \"bridge\"\nup = true\naddresses = [\"192.0.2.1/24\"]\n\
                 [[routes]]\nto = \"10.1.0.0/16\"\nvia = \"192.0.2.9\"\n";
    host.start_daemon(route);
    host.run("systemctl enable homeostat-wait-online needs-network").exits(0);
    host.reboot();
    until("the service", || host.run("systemctl is-active needs-network").stdout == "active\n");
    let routes = host.run("cat /var/tmp/routes").exits(0).stdout;
    assert!(routes.contains("10.1.0.0/16 via 192.0.2.9"), "{routes}");
}

#[test]
fn the_firewall_is_there_before_anything_brings_up_the_network() {
    let mut host = Host::new();
    // As a DHCP client is ordered.
    host.write(
        "etc/systemd/system/client.service",
        "[Unit]\nDefaultDependencies=no\nWants=network-pre.target\nAfter=network-pre.target local-fs.target\n\
         [Service]\nType=oneshot\nExecStart=/bin/sh -c 'nft list tables >/var/tmp/tables'\n\
         [Install]\nWantedBy=sysinit.target\n",
    );
    host.start_daemon("[nftables]\nruleset = \"table inet kept {}\"\n");
    host.run("systemctl enable client").exits(0);
    host.reboot();
    until("the daemon", || host.run("systemctl is-active homeostat").stdout == "active\n");
    until("the client", || {
        host.run("systemctl show --property=SubState --value client").stdout == "dead\n"
    });
    assert_eq!(host.run("cat /var/tmp/tables").exits(0).stdout, "table inet kept\n");
}

#[test]
fn a_daemon_that_hangs_is_started_again_and_nothing_is_lost() {
    let host = Host::new();
    host.write("etc/systemd/system/homeostat.service.d/sooner.conf", "[Service]\nWatchdogSec=3\n");
    host.start_daemon(
        "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n[nftables]\nruleset = \"table inet kept {}\"\n",
    );
    let process = || host.run("systemctl show --property=MainPID --value homeostat").stdout;
    let hangs = process();
    host.run(&format!("kill -STOP {hangs}")).exits(0);
    host.run("sysctl -w net.ipv4.tcp_retries1=7").exits(0);
    until("another process", || !["0\n", hangs.as_str()].contains(&process().as_str()));
    let knob = || host.run("sysctl -n net.ipv4.tcp_retries1").stdout;
    until("the value", || knob() == "5\n");
    assert_eq!(host.run("nft list tables").stdout, "table inet kept\n");
    host.run("homeostat status --wait").exits(0);
}

#[test]
fn a_namespace_that_the_unit_creates_is_there_for_others_and_outlives_the_daemon() {
    let host = Host::new();
    host.write("etc/systemd/system/homeostat.service.d/namespaces.conf", NAMESPACES);
    host.start_daemon(
        "[namespaces.blue]\ncreate = true\nroutes = [{ to = \"10.1.0.0/16\", type = \"blackhole\" }]\n\
         [namespaces.blue.nftables]\nruleset = \"table inet kept {}\"\n",
    );
    let routes = || host.run("ip -n blue route show").stdout;
    assert!(routes().contains("blackhole 10.1.0.0/16"), "{}", routes());
    host.run("ip -n blue route del blackhole 10.1.0.0/16").exits(0);
    until("the route", || routes().contains("blackhole 10.1.0.0/16"));
    host.run("systemctl stop homeostat").exits(0);
    assert!(routes().contains("blackhole 10.1.0.0/16"), "{}", routes());
}

#[test]
fn a_reload_takes_the_changed_document_and_a_broken_one_is_refused() {
    let host = Host::new();
    let document = |count: u32| format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = {count}\n");
    let knob = || host.run("sysctl -n net.ipv4.tcp_retries1").stdout.trim_end().to_owned();
    host.start_daemon(&document(5));
    assert_eq!(knob(), "5");
    host.write("etc/homeostat/host.toml", &document(6));
    host.run("systemctl reload homeostat").exits(0);
    until("the changed document", || knob() == "6");
    host.write("etc/homeostat/host.toml", "nonsense = 1\n");
    host.run("systemctl reload homeostat").exits(0);
    until("the diagnosis", || host.run("homeostat status").stdout.contains("nonsense"));
    assert_eq!(knob(), "6");
}
