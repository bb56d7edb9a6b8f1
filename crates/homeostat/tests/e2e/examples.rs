//! The examples with files: each is tried on a machine that has the programs of the Debian packages.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::booted::Host;
use crate::keeping::until;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Host {
    fn copy_example(&self, name: &str) {
        self.write(&format!("root/{name}"), &fs::read_to_string(examples().join(name)).unwrap());
    }

    /// An example keeps what it knows apart from the others, so that it does not remove their files.
    #[track_caller]
    fn homeostat(&self, command: &str, example: &str, code: i32) -> String {
        let state = format!("/var/lib/{}", example.replace('/', "-"));
        let line = format!("homeostat {command} --state-dir {state} /root/{example}");
        let ran = self.run(&line).exits(code);
        format!("{}{}", ran.stdout, ran.stderr)
    }
}

/// `chronyd` leaves the clock alone, which is that of the host; `eth0` is named in documents, and BIRD takes its id from there; the package of
/// `unbound` only recommends the one that has the key of the root.
fn prepare(host: &Host) {
    host.write("etc/default/chrony", "DAEMON_OPTS=\"-x\"\n");
    host.write("etc/unbound/unbound.conf.d/root-auto-trust-anchor-file.conf", "");
    host.run("ip link add eth0 type veth peer name other").exits(0);
    host.run("ip address add 192.0.2.2/24 dev eth0").exits(0);
    host.run("ip link set eth0 up").exits(0);
    host.run("ip link set other up").exits(0);
}

#[test]
fn the_example_of_each_program_is_applied_and_the_program_runs_it() {
    let host = Host::new();
    prepare(&host);
    let documents = names_in(&examples().join("programs"));
    assert_eq!(documents.len(), 6, "{documents:?}");
    for document in documents {
        let (example, unit) =
            (format!("programs/{document}"), document.replace(".toml", ".service"));
        host.copy_example(&example);
        host.homeostat("check", &example, 0);
        // The program is there with the file of its package, or waits for one.
        host.run(&format!("systemctl start {unit}")).exits(0);
        let is_up = host.run(&format!("systemctl is-active {unit}")).stdout == "active\n";
        let status = host.run(&format!("systemctl status --full {unit}")).stdout;
        assert_eq!(is_up, document != "keepalived.toml", "{status}");
        let plan = host.homeostat("plan", &example, 0);
        assert!(plan.contains("file /etc/"), "{plan}");
        host.homeostat("apply --yes", &example, i32::from(!is_up));
        host.run(&format!("systemctl start {unit}")).exits(0);
        host.homeostat("verify", &example, 0);
        let path = plan.split("file ").nth(1).unwrap().split_whitespace().next().unwrap();
        host.write(&path[1..], "edited by hand\n");
        let drift = host.homeostat("verify", &example, 2);
        assert!(drift.contains("-edited by hand"), "{drift}");
        host.homeostat("apply --yes", &example, 0);
        host.homeostat("verify", &example, 0);
        host.run(&format!("systemctl is-active {unit}")).exits(0);
        host.run(&format!("systemctl stop {unit}")).exits(0);
    }
}

#[test]
fn the_example_of_templates_is_applied_and_verified() {
    let host = Host::new();
    for name in names_in(&examples().join("files")) {
        host.copy_example(&format!("files/{name}"));
    }
    host.copy_example("files.toml");
    host.homeostat("check", "files.toml", 0);
    assert!(host.homeostat("plan", "files.toml", 0).contains("+listen "));
    host.homeostat("apply --yes", "files.toml", 0);
    host.homeostat("verify", "files.toml", 0);
    host.run("grep -q example.net /etc/example/hosts.map").exits(0);
}

/// The unit and its drop-in as they are shipped: a set is checked and taken over, an edit is healed, and its author named.
#[test]
fn the_shipped_unit_keeps_a_program() {
    let host = Host::new();
    prepare(&host);
    host.run("systemctl start haproxy").exits(0);
    let files = include_str!("../../../../packaging/systemd/files.conf");
    host.write("etc/systemd/system/homeostat.service.d/files.conf", files);
    let text = fs::read_to_string(examples().join("programs/haproxy.toml")).unwrap();
    host.start_daemon(&format!("[settings.files]\nresync = \"1h\"\n{text}"));
    host.run("homeostat status --wait --timeout 1m").exits(0);
    host.run("grep -q HOMEOSTAT /etc/haproxy/haproxy.cfg").exits(0);
    // It does not go before it is looked at.
    host.write("root/edit.sh", "echo edited >>/etc/haproxy/haproxy.cfg\nread -r _\n");
    let mut editor = host.begin("sh /root/edit.sh");
    let healed = || {
        let events = host.run("homeostat events --json").stdout;
        let mut events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.find(|event| event["event"] == "step-applied" && event["cause"] == "drift")
    };
    until("the heal", || healed().is_some());
    let (healed, log) = (healed().unwrap(), host.run("journalctl --unit=homeostat").stdout);
    assert_eq!(healed["key"], "file /etc/haproxy/haproxy.cfg", "{log}");
    let by = healed["by"].as_str().unwrap_or_else(|| panic!("{healed} {log}"));
    assert!(by.starts_with("sh /root/edit.sh"), "{healed}");
    drop(editor.stdin.take());
    editor.wait().unwrap();
    host.run("homeostat verify /etc/homeostat/host.toml").exits(0);
}
