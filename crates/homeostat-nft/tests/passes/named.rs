//! Names that `nft` looks up: none of hosts, wherever they stand; all others as ever.

use homeostat_nft::{Compiler, Ruleset};

use crate::included::files;
use crate::world::{World, expected, listed};

/// What is refused, and where. Each host has an address on every machine, so that `nft` would find one.
const HOSTS: [(&str, &str); 7] = [
    ("table ip a { set s { type ipv4_addr; elements = { 10.0.0.1, localhost }; }; }\n", "1:61"),
    ("define db = localhost\ntable ip a { chain x { ip saddr $db drop; }; }\n", "1:13"),
    ("table ip a { chain x { ip saddr . tcp dport { localhost . 22 } drop; }; }\n", "1:47"),
    (
        "table ip a { chain x { type nat hook prerouting priority 0; dnat to localhost; }; }\n",
        "1:69",
    ),
    ("table ip6 a { chain x { ip6 daddr & ::1 == localhost drop; }; }\n", "1:44"),
    ("table ip a { set s { type ipv4_addr; }; }\nadd element ip a s { localhost }\n", "2:22"),
    ("table ip a { chain x { ip saddr vmap { localhost : drop }; }; }\n", "1:40"),
];

#[test]
fn no_host_is_looked_up_wherever_it_is_named() {
    let world = World::new();
    for (text, place) in HOSTS {
        let error = world.compile(text).unwrap_err();
        let expected = format!("fw.nft:{place}: Could not resolve hostname");
        assert!(error.to_string().starts_with(&expected), "{error}\n{text}");
        assert!(error.help().unwrap().contains("write addresses"), "{text}");
    }
    assert_eq!(listed(), expected(""));
}

#[test]
fn a_host_in_an_included_file_is_refused_with_its_place_there() {
    let (world, directory) = (World::new(), tempfile::tempdir().unwrap());
    files(directory.path(), &[("main.nft", "include \"hosts.nft\"\n"), ("hosts.nft", HOSTS[1].0)]);
    let ruleset = Ruleset::read(&directory.path().join("main.nft")).unwrap();
    let error = Compiler::default().compile(&ruleset, &world.source).unwrap_err().to_string();
    assert!(error.contains("hosts.nft:1:13: Could not resolve hostname"), "{error}");
}

#[test]
fn services_users_groups_and_protocols_are_found_by_their_names() {
    let text = "table inet a { chain x { tcp dport { ssh, https } meta l4proto icmp; \
                meta skuid root meta skgid daemon accept; }; }";
    let mut world = World::new();
    world.converge(text);
    assert_eq!(listed(), expected(text));
}
