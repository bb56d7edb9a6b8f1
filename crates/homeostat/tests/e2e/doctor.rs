//! `homeostat doctor` on a machine that systemd has booted, beside other programs that keep its network.

use serde_json::Value;

use crate::booted::Host;
use crate::world::World;

/// A unit that does nothing, under the name of one that does.
fn unit(host: &Host, name: &str) {
    host.write(
        &format!("usr/lib/systemd/system/{name}"),
        "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
    );
}

fn doctor(host: &Host, code: i32) -> Value {
    host.run("homeostat doctor --json").json(code)
}

/// What is at a level, in order.
fn at(report: &Value, level: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let of_level = findings.filter(|finding| finding["level"] == level);
    of_level.map(|finding| finding["who"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn doctor_names_what_fights_and_what_it_advises_settles_it() {
    let host = Host::new();
    let report = doctor(&host, 0);
    assert_eq!((&report["well"], at(&report, "fights")), (&Value::from(true), vec![]));
    assert_eq!(report["systemd"], 252);
    for name in ["NetworkManager.service", "docker.service", "cloud-init.service"] {
        unit(&host, name);
    }
    host.write("etc/nftables.conf", "#!/usr/sbin/nft -f\nflush ruleset\n");
    host.write("etc/systemd/network/10-lan.network", "[Match]\nName=lan*\n[Network]\nDHCP=no\n");
    host.write("etc/NetworkManager/NetworkManager.conf", "[main]\nplugins=keyfile\n");
    host.write("etc/cloud/cloud.cfg", "users: [default]\n");
    host.run("systemctl daemon-reload").exits(0);
    host.run("systemctl enable systemd-networkd nftables NetworkManager cloud-init").exits(0);
    host.run("systemctl start docker").exits(0);
    let before = host.run("systemctl list-units --all --plain").stdout;
    let report = doctor(&host, 2);
    assert_eq!(
        at(&report, "fights"),
        ["systemd-networkd", "NetworkManager", "cloud-init", "nftables.service"]
    );
    assert_eq!(at(&report, "beside"), ["Docker"]);
    let text = host.run("homeostat doctor").exits(2).stdout;
    assert!(
        text.contains(
            "! systemd-networkd: it is started at each boot (/etc/systemd/network/10-lan.network)"
        ),
        "{text}"
    );
    assert!(text.ends_with("Doctor: 4 to settle first, 0 missing.\n"), "{text}");
    assert_eq!(host.run("systemctl list-units --all --plain").stdout, before, "it only reads");
    // What it advises is typed as it is printed. Units of this machine are stand-ins: they are not started for it.
    host.run("mkdir -p /etc/NetworkManager/conf.d /etc/cloud/cloud.cfg.d").exits(0);
    for finding in report["findings"].as_array().unwrap() {
        for command in finding["commands"].as_array().into_iter().flatten() {
            let command = command.as_str().unwrap();
            if finding["level"] == "fights"
                && !command.contains(" reload ")
                && !command.contains(" restart ")
            {
                host.write("root/advice.sh", command);
                host.run("sh -e /root/advice.sh").exits(0);
            }
        }
    }
    let report = doctor(&host, 0);
    assert_eq!(at(&report, "fights"), [""; 0], "{report:#}");
    assert_eq!(
        at(&report, "beside"),
        ["systemd-networkd", "NetworkManager", "cloud-init", "Docker"]
    );
}

#[test]
fn doctor_needs_nothing_and_says_what_nft_would() {
    let world = World::new();
    let report = world.run("doctor --json");
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let mut nft = world.command("nft");
    nft.arg("--version");
    let version = world.finish(nft).stdout;
    let own = report["nft"].as_str().unwrap();
    assert!(version.contains(&format!("v{own} ")), "{version}: {own}");
    assert!(!world.state().exists(), "nothing is written");
}
