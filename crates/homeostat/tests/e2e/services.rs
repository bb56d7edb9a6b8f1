//! Units of systemd, kept by the program on a machine that systemd has booted. `systemctl` is the judge.

use crate::booted::Host;
use crate::keeping::until;

const UNIT: &str =
    "[Service]\nType=exec\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";

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

/// What a trial writes to the disk outlives the power.
#[test]
fn units_of_a_trial_that_a_power_loss_ended_are_as_they_were() {
    let mut host = host();
    host.run("systemctl enable --now old").exits(0);
    host.start_daemon("[services]\n");
    host.write(
        "root/trial.toml",
        &format!("{WEB}[services.\"old.service\"]\nactive = false\nenabled = false\n"),
    );
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/trial.toml");
    until("the trial", || {
        says(&host, "is-active web") == "active" && says(&host, "is-enabled old") == "disabled"
    });
    host.lose_power();
    drop(client);
    until("the rollback", || {
        says(&host, "is-enabled web old") == "disabled enabled"
            && says(&host, "is-active web old") == "inactive active"
    });
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
