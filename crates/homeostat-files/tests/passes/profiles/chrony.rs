//! `chronyd`: it reads its files only when it starts.

use std::fs;

use homeostat_files::programs::{Sockets, chrony};
use rustix::process::Signal;

use super::Daemon;
use crate::bench::report_lines;

/// It does not touch the clock: `-x`.
const CONF: &str = "server 127.0.0.1\npidfile @/pid\nbindcmdaddress /\ncmdport 0\nport 0\n";

fn daemon() -> Daemon {
    Daemon::new(
        &chrony::PROFILE,
        |_| Sockets::default(),
        |main, state| {
            let pid = state.join("pid").display().to_string();
            // As systemd does: the former process ends before the new one starts.
            let script = "test -e \"$1\" && kill $(cat \"$1\") && while test -e \"$1\"; do :; done; \
            exec /usr/sbin/chronyd -x -u root -f \"$0\"";
            ["/bin/sh", "-c", script, main.as_str(), &pid].map(str::to_owned).to_vec()
        },
    )
}

#[test]
fn new_files_start_it_again_and_restored_ones_do_not() {
    let daemon = daemon();
    let first = daemon.desired(CONF);
    let lines = report_lines(&daemon.bench.pass(&first)).join("\n");
    assert!(lines.contains(". program daemon: the program, which does not answer"), "{lines}");
    daemon.start();
    daemon.bench.converge_soon(&first);
    let pid = daemon.pid();
    fs::write(daemon.main(), "edited\n").unwrap();
    let report = daemon.bench.converge(&first);
    assert_eq!(report.plan().steps.len(), 1, "{:?}", report_lines(&report));
    assert_eq!(daemon.pid(), pid, "it was not disturbed");
    let second = daemon.desired(&format!("{CONF}maxupdateskew 50\n"));
    daemon.bench.converge(&second);
    assert_ne!(daemon.pid(), pid);
    daemon.bench.assert_quiet(&second);
    let (text, pid) = (daemon.text(), daemon.pid());
    let bad = daemon.desired(&format!("{CONF}no-such-directive 1\n"));
    let lines = report_lines(&daemon.bench.pass(&bad)).join("\n");
    assert!(
        lines.contains("its program refuses it") && lines.contains("; 6: no-such-directive 1"),
        "{lines}"
    );
    assert!(
        !lines.contains("bindcmdaddress / "),
        "its dump of the configuration is not shown: {lines}"
    );
    assert_eq!((daemon.text(), daemon.pid()), (text, pid));
}

#[test]
fn a_restart_on_an_old_file_is_healed_and_one_on_the_right_file_is_left_alone() {
    let daemon = daemon();
    let desired = daemon.desired(CONF);
    daemon.bench.pass(&desired);
    daemon.start();
    daemon.bench.converge_soon(&desired);
    daemon.stop(Signal::TERM);
    daemon.start();
    daemon.bench.assert_quiet(&desired);
    let right = daemon.text();
    fs::write(daemon.main(), format!("{right}maxupdateskew 7\n")).unwrap();
    daemon.stop(Signal::TERM);
    daemon.start();
    let pid = daemon.pid();
    fs::write(daemon.main(), &right).unwrap();
    let report = daemon.bench.converge(&desired);
    assert!(report_lines(&report)[0].contains("program daemon"), "{:?}", report_lines(&report));
    assert_ne!(daemon.pid(), pid, "nobody knows what it has read");
    daemon.bench.assert_quiet(&desired);
}
