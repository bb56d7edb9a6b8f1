//! The commands of the README and of the page about the daemon, run as they are written.

use std::fs;
use std::path::Path;

use crate::booted::{Host, LOGIN};
use crate::keeping::until;

/// The shell blocks of a page, in order, but for those that it marks as not run.
pub(crate) fn blocks(page: &str) -> Vec<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let text = fs::read_to_string(root.join(page)).unwrap();
    let parts: Vec<&str> = text.split("```sh\n").collect();
    let run = parts.windows(2).filter(|pair| !pair[0].trim_end().ends_with("-->"));
    run.map(|pair| pair[1].split("```").next().unwrap().to_owned()).collect()
}

/// The commands of a block, without their comments.
fn commands(block: &str) -> Vec<&str> {
    let commands = block.lines().map(|line| line.split("  #").next().unwrap().trim());
    commands.filter(|command| !command.is_empty()).collect()
}

fn script(host: &Host, command: &str) {
    host.write("root/command.sh", &format!("set -e\ncd /root\n{command}\n"));
}

/// It becomes ready, converges, and stops when it is told to.
fn runs(host: &Host, command: &str) {
    script(host, &format!("exec {command}"));
    let start = "systemd-run --quiet --collect --unit=followed --property=Type=notify";
    host.run(&format!("{start} sh /root/command.sh")).exits(0);
    host.run("homeostat status --wait").exits(0);
    host.run("systemctl stop followed").exits(0);
}

#[test]
fn the_steps_of_the_readme_lead_to_a_daemon() {
    let host = Host::new();
    let blocks = blocks("README.md");
    let [block] = &blocks[..] else { panic!("another number of blocks: {blocks:?}") };
    let mut ran = 0;
    for command in commands(block) {
        if command.starts_with("homeostat run") {
            runs(&host, command);
        } else if command.contains("--confirm-within") {
            let shown = host.run("cat /root/host.toml").exits(0).stdout;
            host.write("root/host.toml", &format!("{shown}\n[links.br9]\nkind = \"bridge\"\n"));
            script(&host, command);
            let client = host.begin(&format!("{LOGIN} sh /root/command.sh"));
            until("the trial", || {
                let status = host.run("homeostat status --json").stdout;
                status.contains("\"trial\":{") && status.contains("\"converged\":true")
            });
            host.run(&format!("{LOGIN} homeostat confirm")).exits(0);
            let output = client.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        } else {
            script(&host, command);
            host.run("sh /root/command.sh").exits(0);
        }
        ran += 1;
    }
    assert_eq!(ran, 4);
    host.run("ip link show br9").exits(0);
}

#[test]
fn the_daemon_is_started_as_its_page_says() {
    let host = Host::new();
    let document = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
    host.write("etc/homeostat/host.toml", document);
    host.write("root/host.toml", document);
    let blocks = blocks("docs/daemon.md");
    let [block] = &blocks[..] else { panic!("another number of blocks: {blocks:?}") };
    let commands = commands(block);
    assert_eq!(commands.len(), 3);
    for command in commands {
        runs(&host, command);
    }
    assert_eq!(host.run("sysctl -n net.ipv4.tcp_retries1").stdout, "5\n");
}
