//! BIRD: it refuses a reload, and keeps the former files.

use std::path::Path;

use homeostat_files::programs::{Sockets, bird};

use super::Daemon;
use crate::bench::report_lines;

const CONF: &str =
    "router id 127.0.0.1;\ndefine HOMEOSTAT = \"{{ generation }}\";\nprotocol device {}\n";

fn daemon() -> Daemon {
    let sockets =
        |state: &Path| Sockets { control: Some(state.join("control")), ..Sockets::default() };
    Daemon::new(&bird::PROFILE, sockets, |main, state| {
        let at = |name: &str| state.join(name).display().to_string();
        let all = ["/usr/sbin/bird", "-c", main.as_str(), "-s", &at("control"), "-P", &at("pid")];
        all.map(str::to_owned).to_vec()
    })
}

#[test]
fn it_is_kept() {
    let second = format!("{CONF}protocol direct {{ disabled; }}\n");
    daemon().assert_kept(CONF, &second, &format!("{CONF}no_such_thing x;\n"));
}

#[test]
fn a_reload_that_it_refuses_is_told_in_its_words_and_the_former_files_are_back() {
    let mut daemon = daemon();
    daemon.unchecked();
    daemon.bench.source.program.as_mut().unwrap().within = std::time::Duration::from_millis(200);
    let good = daemon.desired(CONF);
    daemon.bench.pass(&good);
    daemon.start();
    daemon.bench.converge_soon(&good);
    let text = daemon.text();
    let bad = daemon.desired(&format!("{CONF}no_such_thing x;\n"));
    let lines = report_lines(&daemon.bench.pass(&bad)).join("\n");
    assert!(lines.contains("bird.conf:4:1 syntax error"), "{lines}");
    assert_eq!(daemon.text(), text);
    daemon.bench.assert_quiet(&good);
}
