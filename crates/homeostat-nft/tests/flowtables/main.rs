//! Flowtables and queues, which not every kernel has: `cargo xtask vm` runs this.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../passes/world.rs"]
#[expect(dead_code, reason = "other programs need more of it")]
mod world;

use homeostat_engine::Explain as _;
use homeostat_nft::{Compiler, Ruleset};
use world::{World, by_hand, expected_with, explained, listed};

/// The links that flowtables name.
fn make_links(world: &World) {
    world.namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]).unwrap();
}

const FLOWTABLE: &str = "table inet a {
    flowtable f { hook ingress priority filter; devices = { v0, v1 }; }
    chain f { type filter hook forward priority filter; policy accept; ct state established flow add @f counter; tcp dport 22 accept; }
}";

const RULESETS: &[&str] = &[
    FLOWTABLE,
    "table inet a { flowtable f { hook ingress priority 10; devices = { v0 }; }; chain f { type filter hook forward priority filter; ip protocol { tcp, udp } flow add @f; }; }",
    "table ip a { flowtable one { hook ingress priority 0; devices = { v0 }; }; flowtable two { hook ingress priority 5; devices = { v1 }; }; chain f { type filter hook forward priority filter; flow add @two; flow add @one; }; }",
    "table inet a { flowtable f { hook ingress priority filter; devices = { v0 }; counter; }; chain f { type filter hook forward priority filter; flow add @f; }; }",
    "table inet a { chain i { type filter hook input priority 0; queue num 5; tcp dport 22 queue flags bypass to 7; udp dport 53 queue flags fanout to 1-4; queue flags bypass,fanout to 3-5; }; }",
    "table inet a { chain i { type filter hook input priority 0; queue to symhash mod 4; queue flags bypass to numgen inc mod 8; queue to oifname map { \"v0\" : 1, \"v1\" : 2 }; }; }",
];

fn world() -> World {
    let world = World::new();
    make_links(&world);
    world
}

#[test]
fn every_ruleset_is_as_nft_would_have_loaded_it() {
    for text in RULESETS {
        std::thread::spawn(|| {
            let mut world = world();
            world.converge(text);
            assert_eq!(listed(), expected_with(text, make_links));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn every_ruleset_becomes_another_in_one_pass() {
    for (from, to) in RULESETS.iter().zip(RULESETS.iter().cycle().skip(1)) {
        std::thread::spawn(|| {
            let mut world = world();
            world.converge(from);
            world.converge(to);
            assert_eq!(listed(), expected_with(to, make_links));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_flowtable_that_somebody_removed_comes_back_with_its_rule() {
    let mut world = world();
    world.converge(FLOWTABLE);
    by_hand("flush chain inet a f; delete flowtable inet a f");
    world.converge(FLOWTABLE);
    assert_eq!(listed(), expected_with(FLOWTABLE, make_links));
}

#[test]
fn a_flowtable_waits_for_its_links_and_a_hook_for_its_own() {
    const HOOKED: &str =
        "table netdev n { chain i { type filter hook ingress device v1 priority 0; }; }";
    for text in [FLOWTABLE, HOOKED] {
        std::thread::spawn(move || {
            let mut world = World::new();
            let desired = world.desired(text);
            let words = world::explained(&world.pass(&desired));
            assert!(!words.contains("failed"), "{words}");
            make_links(&world);
            assert!(world.pass(&desired).is_converged());
            assert_eq!(listed(), expected_with(text, make_links));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_flowtable_waits_for_links_that_only_an_included_file_names() {
    let directory = tempfile::tempdir().unwrap();
    let names = "define one = v0\ndefine both = { v0, v1 }\n";
    std::fs::write(directory.path().join("names.nft"), names).unwrap();
    let text = "include \"names.nft\"\ntable inet a { flowtable f { hook ingress priority 0; devices = $both; }; }\n\
        table ip b { chain x { iif $one accept; }; }\ntable ip c { chain x { accept; }; }";
    let (name, directory) = ("fw.nft".to_owned(), directory.path().to_owned());
    let ruleset = Ruleset { text: text.into(), name, directory, root: "/".into() };
    let mut world = World::new();
    let desired = Compiler::default().compile(&ruleset, &world.source).unwrap();
    let desired = std::sync::Arc::new(desired);
    let words = explained(&world.pass(&desired));
    assert!(!words.contains("failed"), "{words}");
    let waits =
        "key: \"table ip b\", finding: Pending { on: Link { name: \"v0\", namespace: None } }";
    assert!(words.contains(waits), "{words}");
    make_links(&world);
    let report = world.pass(&desired);
    assert!(report.is_converged(), "{}", explained(&report));
    assert!(world.plan(&desired).steps.is_empty());
}
