//! Commits of other programs to their own tables neither stop nor delay ours.

use std::fmt::Write as _;

use homeostat_engine::Explain as _;
use homeostat_testkit::foreign_commits::ForeignCommits;

use crate::shadow::Subscribed;
use crate::world::{World, by_hand, explained, nft};

const FOREIGN: &str = "table ip foreign { set s { type ipv4_addr; }; }";

/// A chain with so many rules, each with this port in it.
fn text(rules: u32, port: u16) -> String {
    let mut text = String::from("table ip t { chain c {\n");
    for at in 0..rules {
        let source = std::net::Ipv4Addr::from_bits(0x0a00_0000 | at);
        let _ = writeln!(text, "ip saddr {source} tcp dport {port} counter accept");
    }
    text + "}\n}\n"
}

/// One pass each for so many texts, in each of which every rule differs.
fn every_update_takes_one_pass(rules: u32, texts: u16) {
    let mut world = World::new();
    by_hand(FOREIGN);
    let commits = ForeignCommits::begin(homeostat_netns::Netns::current().unwrap(), "foreign", "s");
    for port in 1..=texts {
        let desired = world.desired(&text(rules, port));
        let report = world.pass(&desired);
        assert!(report.is_converged(), "{rules} rules: {}", explained(&report));
    }
    // `nft` itself never ends while others commit.
    let commits = commits.end();
    assert!(commits > 0);
    let listed = nft(&["list", "table", "ip", "t"], "").unwrap();
    assert_eq!(listed.matches(&format!("tcp dport {texts} counter")).count(), rules as usize);
    let elements = nft(&["list", "table", "ip", "foreign"], "").unwrap().matches("10.0.").count();
    assert_eq!(elements, commits as usize);
}

#[test]
fn a_small_table_is_updated_in_one_pass_beside_200_foreign_commits_a_second() {
    every_update_takes_one_pass(10, 20);
}

#[test]
fn a_table_of_10000_rules_is_updated_in_one_pass_beside_200_foreign_commits_a_second() {
    every_update_takes_one_pass(10_000, 2);
}

#[test]
fn a_large_table_is_followed_beside_200_foreign_commits_a_second() {
    let mut world = World::new();
    by_hand(FOREIGN);
    let desired = world.desired(&text(10_000, 1));
    assert!(world.pass(&desired).is_converged());
    let commits = ForeignCommits::begin(homeostat_netns::Netns::current().unwrap(), "foreign", "s");
    let mut subscribed = Subscribed::of(&world, &desired);
    assert!(!subscribed.had_to_read(), "it was seen, and no commit changed it");
    by_hand("add rule ip t c drop");
    assert!(!subscribed.had_to_read(), "the commit that changed it was announced");
    assert!(commits.end() > 0);
}
