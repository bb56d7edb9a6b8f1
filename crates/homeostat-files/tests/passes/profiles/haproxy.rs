//! `HAProxy`: workers of former reloads drain.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use homeostat_files::Limits;
use homeostat_files::programs::{Sockets, haproxy};

use super::Daemon;
use crate::bench::report_lines;

const CONF: &str = "global\n  setenv HOMEOSTAT {{ generation }}\n  stats socket @/admin mode 600 level admin\n\
    defaults\n  mode http\n  timeout client 1h\n  timeout server 1h\n  timeout connect 5s\n\
    frontend web\n  bind 127.0.0.1:8001\n  http-request return status 200 content-type text/plain string here\n";

fn daemon() -> Daemon {
    let sockets = |state: &Path| Sockets {
        master: Some(state.join("master")),
        admin: Some(state.join("admin")),
        ..Sockets::default()
    };
    Daemon::new(&haproxy::PROFILE, sockets, |main, state| {
        let at = |name: &str| state.join(name).display().to_string();
        let all = ["/usr/sbin/haproxy", "-D", "-W", "-S", &at("master"), "-p", &at("pid"), "-f"];
        let mut start = all.map(str::to_owned).to_vec();
        start.push(main.to_string());
        start
    })
}

fn limit(daemon: &mut Daemon, limits: Limits) {
    daemon.bench.source.program.as_mut().unwrap().limits = limits;
}

#[test]
fn it_is_kept() {
    let second = CONF.replace("string here", "string there");
    daemon().assert_kept(CONF, &second, &format!("{CONF}  no-such-keyword here\n"));
}

#[test]
fn no_reload_while_too_many_old_workers_drain() {
    let mut daemon = daemon();
    limit(&mut daemon, Limits { old_processes: Some(0), ..Limits::default() });
    let first = daemon.desired(CONF);
    daemon.bench.pass(&first);
    daemon.start();
    daemon.bench.converge_soon(&first);
    // A request that has not ended keeps its worker.
    let mut client = TcpStream::connect("127.0.0.1:8001").unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(client.read(&mut [0; 4096]).unwrap() > 0);
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let second = daemon.desired(&CONF.replace("string here", "string second"));
    daemon.bench.converge_soon(&second);
    let third = daemon.desired(&CONF.replace("string here", "string third"));
    let text = daemon.text();
    let lines = report_lines(&daemon.bench.pass(&third)).join("\n");
    assert!(lines.contains(". program daemon: draining: 1 processes"), "{lines}");
    assert_eq!(daemon.text(), text, "new files wait with their reload");
    // A file alone does not wait.
    std::fs::write(daemon.main(), "edited\n").unwrap();
    daemon.bench.converge(&second);
    drop(client);
    daemon.bench.converge_soon(&third);
}

#[test]
fn reloads_keep_their_distance() {
    let mut daemon = daemon();
    let first = daemon.desired(CONF);
    daemon.bench.pass(&first);
    daemon.start();
    daemon.bench.converge_soon(&first);
    limit(&mut daemon, Limits { min_interval: Duration::from_hours(1), ..Limits::default() });
    let second = daemon.desired(&CONF.replace("string here", "string second"));
    daemon.bench.converge(&second);
    let third = daemon.desired(&CONF.replace("string here", "string third"));
    let lines = report_lines(&daemon.bench.pass(&third)).join("\n");
    assert!(
        lines.contains(". program daemon: the next reload, 3600s after the last one"),
        "{lines}"
    );
    assert!(lines.contains("haproxy.cfg: program daemon"), "the file waits for it: {lines}");
    std::fs::write(daemon.main(), "edited\n").unwrap();
    daemon.bench.converge(&second);
    // What is declared by then is what it gets.
    limit(&mut daemon, Limits::default());
    daemon.bench.converge_soon(&daemon.desired(&CONF.replace("string here", "string fourth")));
}
