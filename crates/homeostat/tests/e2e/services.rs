//! Units of systemd, kept by the program on a machine that systemd has booted. `systemctl` is the judge.

use serde_json::Value;

use crate::booted::Host;
use crate::keeping::{comes, until};

/// However often it is started.
const UNIT: &str = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=exec\nExecStart=sleep infinity\n\
                    [Install]\nWantedBy=multi-user.target\n";

const WEB: &str = "[services.\"web.service\"]\nenabled = true\nactive = true\n";

/// A machine with two units that do nothing, inactive and disabled.
fn host() -> Host {
    let host = Host::new();
    for name in ["web", "old"] {
        host.write(&format!("etc/systemd/system/{name}.service"), UNIT);
    }
    host.run("systemctl daemon-reload").exits(0);
    host
}

fn says(host: &Host, line: &str) -> String {
    host.run(&format!("systemctl {line}")).stdout.trim_end().replace('\n', " ")
}

#[test]
fn units_are_applied_verified_and_released() {
    let host = host();
    host.write("root/web.toml", WEB);
    let plan = host.run("homeostat plan /root/web.toml").exits(0).stdout;
    assert!(plan.contains("services in host"), "{plan}");
    assert!(plan.contains("~ service web.service enabled"), "{plan}");
    host.run("homeostat apply --yes /root/web.toml").exits(0);
    assert_eq!(says(&host, "is-active web"), "active");
    assert_eq!(says(&host, "is-enabled web"), "enabled");
    host.run("homeostat verify /root/web.toml").exits(0);
    let shown = host.run("homeostat show").exits(0).stdout;
    let kept = "[services.\"web.service\"]\nenabled = true\nactive = true\n";
    assert!(shown.contains(kept), "{shown}");
    assert!(!shown.contains("old.service"), "{shown}");
    host.run("systemctl stop web").exits(0);
    host.run("homeostat verify /root/web.toml").exits(2);
    host.write("root/none.toml", "[services]\n");
    host.run("homeostat apply --yes --revert-on-release /root/none.toml").exits(0);
    assert_eq!(says(&host, "is-enabled web"), "disabled");
}

#[test]
fn a_section_that_disappears_stops_nothing() {
    let host = host();
    host.write("root/web.toml", WEB);
    host.run("homeostat apply --yes /root/web.toml").exits(0);
    host.write("root/none.toml", "[sysctl]\n");
    let held = host.run("homeostat apply --yes --revert-on-release /root/none.toml").stdout;
    assert!(held.contains("`[services]` is missing from the document"), "{held}");
    assert!(held.contains("write an empty `[services]`"), "{held}");
    assert_eq!(says(&host, "is-active web"), "active");
    assert_eq!(says(&host, "is-enabled web"), "enabled");
}

/// The daemon has dropped its capabilities by then.
#[test]
fn a_daemon_heals_what_others_stop_disable_and_start() {
    let host = host();
    host.start_daemon(&format!("{WEB}[services.\"old.service\"]\nactive = false\n"));
    until("the start", || says(&host, "is-active web") == "active");
    host.run("systemctl stop web").exits(0);
    until("another start", || says(&host, "is-active web") == "active");
    host.run("systemctl disable web").exits(0);
    until("the link", || says(&host, "is-enabled web") == "enabled");
    host.run("systemctl start old").exits(0);
    until("the stop", || says(&host, "is-active old") == "inactive");
    until("a converged daemon", || host.run("homeostat status").code() == Some(0));
}

/// As early in a boot. `systemctl` needs no bus either.
#[test]
fn without_the_system_bus_units_are_kept_by_the_socket_of_systemd() {
    let host = host();
    host.run("rm /run/dbus/system_bus_socket").exits(0);
    host.start_daemon(WEB);
    until("the start", || says(&host, "is-active web") == "active");
    assert_eq!(says(&host, "is-enabled web"), "enabled");
    host.run("systemctl stop web").exits(0);
    until("another start", || says(&host, "is-active web") == "active");
    until("a converged daemon", || host.run("homeostat status").code() == Some(0));
}

/// Leaves a file behind when it runs.
fn leaves_a_trace(name: &str, more: &str) -> String {
    format!(
        "[Unit]\n{more}[Service]\nType=exec\nExecStart=sh -c 'touch /var/tmp/{name}; exec sleep infinity'\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

fn traces(host: &Host) -> Vec<String> {
    let names = host.run("ls /var/tmp").exits(0).stdout;
    names.lines().filter(|name| !name.starts_with("systemd-")).map(str::to_owned).collect()
}

/// What a trial writes to the disk outlives the power. The boot has read it before anything can run.
#[test]
fn units_of_a_trial_that_a_power_loss_ended_start_as_if_there_had_been_no_trial() {
    units_start_as_if_there_had_been_no_trial(Host::lose_power, "the machine was booted");
}

/// The daemon is stopped after the system bus.
#[test]
fn units_of_a_trial_that_a_reboot_ended_start_as_if_there_had_been_no_trial() {
    let why = "the daemon that held it was stopped";
    units_start_as_if_there_had_been_no_trial(Host::reboot, why);
}

/// What runs at a boot after such a trial.
const PROGRAMS: [&str; 4] = ["another", "of-another", "old", "was-not-masked"];

#[track_caller]
fn units_start_as_if_there_had_been_no_trial(boot_again: fn(&mut Host), why: &str) {
    let mut host = Host::new();
    let units = [
        ("web", "Wants=only-by-web.service\n"),
        ("enabled-only", ""),
        ("only-by-web", ""),
        ("of-another", ""),
        ("another", "Wants=of-another.service\n"),
        ("old", ""),
        ("was-masked", ""),
        ("was-not-masked", ""),
    ];
    for (name, more) in units {
        // A unit of /etc cannot be masked.
        host.write(&format!("usr/lib/systemd/system/{name}.service"), &leaves_a_trace(name, more));
    }
    host.run("systemctl daemon-reload").exits(0);
    host.run("systemctl enable another old was-masked was-not-masked").exits(0);
    host.run("systemctl mask was-masked").exits(0);
    host.run("systemctl start another old was-not-masked").exits(0);
    host.start_daemon("[services]\n");
    let trial = "\n[services.\"enabled-only.service\"]\nenabled = true\n\
                 [services.\"of-another.service\"]\nenabled = true\n\
                 [services.\"old.service\"]\nactive = false\nenabled = false\n\
                 [services.\"was-masked.service\"]\nmasked = false\n\
                 [services.\"was-not-masked.service\"]\nactive = false\nmasked = true\n";
    host.write("root/trial.toml", &format!("{WEB}{trial}"));
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/trial.toml");
    let all = "is-enabled web enabled-only of-another old was-masked was-not-masked";
    until("the trial", || {
        says(&host, all) == "enabled enabled enabled disabled enabled masked"
            && says(&host, "is-active web old was-not-masked") == "active inactive inactive"
    });
    host.run("find /var/tmp -maxdepth 1 -type f -delete").exits(0);
    boot_again(&mut host);
    drop(client);
    // The boot is complete: what is to run has begun to.
    assert!(comes(|| traces(&host) == PROGRAMS), "{:?} have run", traces(&host));
    assert_eq!(says(&host, all), "disabled disabled disabled enabled masked enabled");
    let active = "is-active web enabled-only only-by-web old was-masked was-not-masked";
    assert_eq!(says(&host, active), "inactive inactive inactive active inactive active");
    until("the end", || {
        let history = host.run("homeostat history --json").json(0);
        history["rolled_back"][0]["why"] == why
    });
    assert_eq!(traces(&host), PROGRAMS);
}

/// The signals of systemd do not say who asked for a job.
#[test]
fn a_unit_that_somebody_keeps_stopping_is_contended() {
    let host = host();
    host.start_daemon(WEB);
    until("the start", || says(&host, "is-active web") == "active");
    let contended = || {
        let status = host.run("homeostat status --json").stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        let loops = status["loops"].as_array().unwrap().clone();
        let services = loops.into_iter().find(|one| one["source"] == "services").unwrap();
        services["contended"].as_array().unwrap().clone()
    };
    until("contention", || {
        until("a start", || says(&host, "is-active web") == "active" || !contended().is_empty());
        // The next start may come before the stop has ended.
        host.run("systemctl stop web");
        !contended().is_empty()
    });
    let contended = contended();
    assert_eq!(contended[0]["key"], "service web.service active");
    assert_eq!(contended[0]["culprit"], "an unknown program");
    let status = host.run("homeostat status").stdout;
    let line = "contention: an unknown program keeps undoing service web.service active";
    assert!(status.contains(line), "{status}");
}

#[test]
fn units_of_an_unconfirmed_trial_are_as_they_were() {
    let host = host();
    host.run("systemctl enable --now old").exits(0);
    host.write("root/before.toml", "[services]\n");
    host.run("homeostat apply --yes /root/before.toml").exits(0);
    host.write(
        "root/trial.toml",
        &format!("{WEB}[services.\"old.service\"]\nactive = false\nmasked = false\n"),
    );
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/trial.toml");
    until("the trial", || says(&host, "is-active web old") == "active inactive");
    host.run("homeostat rollback").exits(0);
    drop(client);
    assert_eq!(says(&host, "is-active web old"), "inactive active");
    assert_eq!(says(&host, "is-enabled web old"), "disabled enabled");
}
