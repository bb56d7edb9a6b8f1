//! keepalived: it loads what it understands.

use homeostat_files::programs::{Sockets, keepalived};

use super::Daemon;
use crate::bench::report_lines;

const CONF: &str = "global_defs {\n  vrrp_process_name {{ generation }}\n}\nvrrp_instance a {\n  interface v0\n  \
    virtual_router_id 7\n  priority 100\n  virtual_ipaddress {\n    192.0.2.7/32\n  }\n}\n";

/// It does VRRP on no loopback.
fn daemon() -> Daemon {
    let daemon = stopped();
    daemon.namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]).unwrap();
    for name in ["v0", "v1"] {
        daemon.namespace.ip(&["link", "set", name, "up"]).unwrap();
    }
    daemon
}

fn stopped() -> Daemon {
    Daemon::new(
        &keepalived::PROFILE,
        |_| Sockets::default(),
        |main, state| {
            let at = |name: &str| state.join(name).display().to_string();
            let all = [
                "/usr/sbin/keepalived",
                "-f",
                main.as_str(),
                "-p",
                &at("pid"),
                "-r",
                &at("vrrp"),
                "-c",
                &at("checkers"),
            ];
            all.map(str::to_owned).to_vec()
        },
    )
}

#[test]
fn it_is_kept() {
    let second = CONF.replace("priority 100", "priority 90");
    daemon().assert_kept(CONF, &second, &format!("{CONF}no_such_keyword x\n"));
}

/// It takes such a file over, and says nothing: only the check keeps it away.
#[test]
fn a_file_that_it_understands_in_part_is_refused_by_its_check_alone() {
    let mut daemon = daemon();
    let good = daemon.desired(CONF);
    daemon.bench.pass(&good);
    daemon.start();
    daemon.bench.converge_soon(&good);
    let bad = daemon.desired(&CONF.replace("interface v0", "interface none0"));
    let lines = report_lines(&daemon.bench.pass(&bad)).join("\n");
    assert!(lines.contains("its program refuses it") && lines.contains("none0"), "{lines}");
    daemon.unchecked();
    let partly = daemon.desired(&format!("{CONF}no_such_keyword x\n"));
    daemon.bench.converge_soon(&partly);
}
