//! `nginx`: it keeps the former files and says nothing.

use std::net::TcpListener;

use homeostat_files::programs::{Sockets, nginx};
use rustix::process::{Signal, kill_process};

use super::Daemon;
use crate::bench::report_lines;

const CONF: &str = "user root;\npid @/pid;\nerror_log @/log;\nevents {}\nhttp {\n  access_log off;\n  \
    client_body_temp_path @/body;\n  server { listen 127.0.0.1:8099; return 200 \"{{ generation }}\"; }\n}\n";

fn daemon() -> Daemon {
    let sockets = Sockets { status: Some("127.0.0.1:8099".parse().unwrap()), ..Sockets::default() };
    Daemon::new(
        &nginx::PROFILE,
        |_| sockets,
        |main, _| ["/usr/sbin/nginx", "-c", main.as_str()].map(str::to_owned).to_vec(),
    )
}

#[test]
fn it_is_kept() {
    let second = CONF.replace("access_log off;", "access_log off; server_tokens off;");
    daemon().assert_kept(CONF, &second, &format!("{CONF}no_such_directive on;\n"));
}

/// `nginx -t` passes, `nginx -s reload` exits with 0, and the former configuration runs.
#[test]
fn a_port_that_is_taken_is_seen_and_the_former_files_are_back() {
    let mut daemon = daemon();
    daemon.bench.source.program.as_mut().unwrap().within = std::time::Duration::from_millis(500);
    let good = daemon.desired(CONF);
    daemon.bench.pass(&good);
    daemon.start();
    daemon.bench.converge_soon(&good);
    let text = daemon.text();
    let taken = TcpListener::bind("127.0.0.1:8098").unwrap();
    let taking = CONF.replace("\n}\n", "\n  server { listen 127.0.0.1:8098; }\n}\n");
    let lines = report_lines(&daemon.bench.pass(&daemon.desired(&taking))).join("\n");
    assert!(
        lines.contains("its program did not take the new files over: it still runs"),
        "{lines}"
    );
    assert_eq!(daemon.text(), text);
    daemon.bench.assert_quiet(&good);
    drop(taken);
}

#[test]
fn a_restart_on_an_old_file_is_healed() {
    let daemon = daemon();
    let first = daemon.desired(CONF);
    daemon.bench.pass(&first);
    daemon.start();
    daemon.bench.converge_soon(&first);
    let old = daemon.text();
    let second = daemon.desired(&CONF.replace("access_log off;", "access_log off; gzip on;"));
    daemon.bench.converge(&second);
    let new = daemon.text();
    std::fs::write(daemon.main(), old).unwrap();
    kill_process(daemon.pid().unwrap(), Signal::HUP).unwrap();
    // It runs the former files once it answers with their generation.
    let is_old =
        || report_lines(&daemon.bench.plan(&second)).iter().any(|line| line.contains("~ program"));
    while !is_old() {
        std::thread::yield_now();
    }
    daemon.bench.converge_soon(&second);
    assert_eq!(daemon.text(), new);
    // Workers of that reload may still answer; one more reload does no harm.
    while !daemon.bench.pass(&second).plan().steps.is_empty() {}
}
