//! A program in a unit of a real systemd: told by jobs, waited for while it is down.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use homeostat_files::{
    Attributes, Content, DesiredState, FileSpec, Files, Limits, Network, Program, Reload, Request,
    Running, Unit,
};
use homeostat_systemd::JobKind;
use homeostat_testkit::booted::{BootedSystemd, debian_root};

use crate::bench::{Bench, report_lines};

/// Copies its file when it starts and at each reload; one that says so ends it.
const UNIT: &str = "[Service]
Type=exec
ExecStart=/bin/sh -c 'read_it() { grep -q deadly /etc/reader.conf && exit 1; cp /etc/reader.conf /run/reader; }; \
    trap read_it HUP; read_it; sleep infinity & while :; do wait; done'
ExecReload=/bin/kill -HUP $MAINPID
";

struct Host {
    bench: Bench,
    machine: BootedSystemd,
}

impl Host {
    fn new() -> Self {
        let machine = debian_root().and_then(|root| BootedSystemd::boot(&root));
        let machine = machine.unwrap_or_else(|error| panic!("{error}"));
        let (bench, root) = (Bench::new(), machine.path());
        let ask = ["/bin/cat", root.join("run/reader").to_str().unwrap()].map(str::to_owned);
        let program = Program {
            reload: Reload::Unit(JobKind::ReloadOrRestart),
            pid_file: None,
            unit: Some(Unit { name: "reader.service".parse().unwrap(), root: root.clone() }),
            restart: None,
            running: Some(Running {
                ask: Request::Run(ask.to_vec()),
                is: "{{ generation }}".to_owned(),
            }),
            within: Duration::from_secs(20),
            limits: Limits::default(),
            note: None,
            network: Network::Here,
            known: None,
        };
        let source = Files::new("reader", bench.source.store.clone()).below(root);
        Host { bench: Bench { source: source.read_by(Some(program)), ..bench }, machine }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.machine.path().join(path)
    }

    fn conf(&self) -> String {
        fs::read_to_string(self.at("etc/reader.conf")).unwrap()
    }

    fn desired(&self, text: &str) -> DesiredState {
        let text = format!("{text} {{{{ generation }}}}\n");
        let spec = FileSpec {
            content: Content::new(text.into_bytes()),
            attributes: Attributes::default(),
            secret: false,
            adopt: false,
        };
        let files = BTreeMap::from([("/etc/reader.conf".parse().unwrap(), spec)]);
        let digests = self.bench.source.store.digests();
        DesiredState::read_by_program(digests, "reader", files, BTreeMap::new())
    }

    fn systemctl(&self, line: &str) -> String {
        let argv: Vec<&str> = std::iter::once("systemctl").chain(line.split(' ')).collect();
        let output = self.machine.run(&argv).unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// With the unit, which runs the files of this desired state.
    fn started(text: &str) -> (Self, DesiredState) {
        let host = Host::new();
        let desired = host.desired(text);
        fs::write(host.at("etc/systemd/system/reader.service"), UNIT).unwrap();
        host.systemctl("daemon-reload");
        host.bench.pass(&desired);
        host.systemctl("start reader");
        host.bench.converge_soon(&desired);
        (host, desired)
    }
}

#[test]
fn files_are_written_while_the_unit_is_missing_or_stopped_and_taken_over_when_it_is_up() {
    let host = Host::new();
    let first = host.desired("first");
    let waits = |on: &str| {
        let lines = report_lines(&host.bench.pass(&first)).join("\n");
        assert!(
            lines.contains(&format!(". program reader: the unit reader.service, {on}")),
            "{lines}"
        );
    };
    waits("which does not exist");
    assert!(host.conf().starts_with("first "));
    fs::write(host.at("etc/systemd/system/reader.service"), UNIT).unwrap();
    host.systemctl("daemon-reload");
    waits("which is inactive");
    host.systemctl("start reader");
    host.bench.converge_soon(&first);
    let process = host.systemctl("show -p MainPID reader");
    let second = host.desired("second");
    host.bench.converge_soon(&second);
    host.bench.assert_quiet(&second);
    assert_eq!(host.systemctl("show -p MainPID reader"), process, "a reload, not a restart");
}

#[test]
fn a_restart_on_an_old_file_is_healed() {
    let (host, desired) = Host::started("right");
    let right = host.conf();
    fs::write(host.at("etc/reader.conf"), "old\n").unwrap();
    host.systemctl("restart reader");
    while fs::read_to_string(host.at("run/reader")).is_ok_and(|text| text != "old\n") {
        std::thread::yield_now();
    }
    fs::write(host.at("etc/reader.conf"), &right).unwrap();
    let report = host.bench.converge(&desired);
    let lines = report_lines(&report);
    assert_eq!(report.plan().steps.len(), 1, "{lines:?}");
    assert!(lines[0].contains("program reader"), "{lines:?}");
    assert_eq!(fs::read_to_string(host.at("run/reader")).unwrap(), right);
}

#[test]
fn a_unit_that_dies_of_new_files_is_started_with_the_former_ones() {
    let (mut host, desired) = Host::started("right");
    let right = host.conf();
    host.bench.source.program.as_mut().unwrap().within = Duration::from_millis(200);
    let lines = report_lines(&host.bench.pass(&host.desired("deadly"))).join("\n");
    assert!(lines.contains("its program did not take the new files over"), "{lines}");
    assert_eq!(host.conf(), right);
    host.bench.source.program.as_mut().unwrap().within = Duration::from_secs(20);
    host.bench.converge_soon(&desired);
    assert_eq!(host.systemctl("is-active reader"), "active\n");
}
