//! `docs/fleet.md`, followed word for word: three members, two coordinators and three nodes, each on a host of its own.

use std::fs;
use std::path::Path;

use crate::hosts::Hosts;

const HOSTS: [&str; 6] = ["m1", "m2", "m3", "r1", "r2", "r3"];

/// A block of the page, and the hosts that it is for; none, if it is for the operator.
struct Block {
    on: Vec<&'static str>,
    script: String,
}

fn blocks() -> Vec<Block> {
    let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md"));
    let text = fs::read_to_string(page).unwrap();
    let (_, section) = text.split_once("## Fifteen minutes\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut parts = section.split("\n```sh");
    parts.next();
    let block = |part: &str| {
        let (about, rest) = part.split_once('\n').unwrap();
        let (script, _) = rest.split_once("```").unwrap();
        let words: Vec<&str> = about.split([' ', ',']).collect();
        let on = HOSTS.into_iter().filter(|host| words.contains(host)).collect();
        Block { on, script: script.to_owned() }
    };
    parts.map(block).collect()
}

#[test]
fn the_page_about_fleets_leads_from_three_members_to_a_fleet() {
    let mut hosts = Hosts::start(&HOSTS);
    let blocks = blocks();
    assert!(blocks.len() > 10, "the page has lost its blocks");
    let mut said = String::new();
    for Block { on, script } in &blocks {
        if script.contains("exec ") {
            for host in on {
                hosts.serve(host, script);
            }
            continue;
        }
        let all = if on.is_empty() { &["ops"][..] } else { on };
        for host in all {
            let ran = hosts.run_on(host, script);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (stdout, stderr) = (text(&ran.stdout), text(&ran.stderr));
            assert!(
                ran.status.success(),
                "on {host}:\n{script}\n{stdout}{stderr}\n{}",
                hosts.logs()
            );
            said = stdout;
        }
        if script.contains("fleet start") {
            assert!(said.contains("done: 3 of 3 nodes good"), "{said}");
            assert!(said.contains("3 nodes: 3 good"), "{said}");
        }
    }
    assert!(said.contains("blackhole 198.51.100.1"), "{said}");
    // The kernel judges.
    for (node, route) in [("r1", "198.51.100.1"), ("r2", "198.51.100.2"), ("r3", "198.51.100.3")] {
        let look = "ip route show; cat /proc/sys/net/ipv4/ip_default_ttl";
        let ran = hosts.run_on(node, look);
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(text.contains(&format!("blackhole {route} ")) && text.ends_with("63\n"), "{text}");
    }
    // And the store does: what a node may not write, it cannot.
    let stolen = "cd ~/fleet; . ./etcd.env; export ETCDCTL_CERT=r2.pem ETCDCTL_KEY=r2.key\n\
                  etcdctl put /homeostat/v1/edge/node/r1/want x";
    let ran = hosts.run(stolen);
    let refused = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && refused.contains("permission denied"), "{refused}");
}
