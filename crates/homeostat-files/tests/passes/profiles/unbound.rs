//! `unbound`: it says "ok" to a reload, and dies of it.

use std::path::Path;

use homeostat_files::programs::{Sockets, unbound};

use super::Daemon;
use crate::bench::report_lines;

const CONF: &str = "server:\n  username: \"\"\n  chroot: \"\"\n  directory: \"@\"\n  pidfile: \"@/pid\"\n  \
    use-syslog: no\n  logfile: \"@/log\"\n  interface: 127.0.0.1\n  do-ip6: no\n  \
    identity: \"{{ generation }}\"\nremote-control:\n  control-enable: yes\n  \
    control-interface: @/control\n  control-use-cert: no\n";

fn daemon() -> Daemon {
    let sockets =
        |state: &Path| Sockets { control: Some(state.join("control")), ..Sockets::default() };
    Daemon::new(&unbound::PROFILE, sockets, |main, _| {
        ["/usr/sbin/unbound", "-c", main.as_str()].map(str::to_owned).to_vec()
    })
}

fn with(more: &str) -> String {
    format!("{CONF}server:\n  {more}\n")
}

#[test]
fn it_is_kept() {
    daemon().assert_kept(CONF, &with("verbosity: 2"), &with("no-such-option: yes"));
}

#[test]
fn dead_of_a_reload_it_is_back_with_the_last_good() {
    let mut daemon = daemon();
    daemon.unchecked();
    let good = daemon.desired(CONF);
    daemon.bench.pass(&good);
    daemon.start();
    daemon.bench.converge_soon(&good);
    let (text, pid) = (daemon.text(), daemon.pid());
    // It dies long before that.
    daemon.bench.source.program.as_mut().unwrap().within = std::time::Duration::from_secs(10);
    let lines = report_lines(&daemon.bench.pass(&daemon.desired(&with("no-such-option: yes"))));
    let told = lines.join("\n");
    assert!(
        told.contains("! program daemon: its program did not take the new files over"),
        "{told}"
    );
    assert_eq!(daemon.text(), text);
    daemon.bench.converge_soon(&good);
    assert_ne!(daemon.pid(), pid, "it died, and was started again");
}
