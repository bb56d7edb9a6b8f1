//! What the kernel refuses or ignores when it is asked for directly: why the source goes another way.

use crate::world::{World, by_hand, listed, nft};

/// The kernel's words on a command in a prepared ruleset.
#[track_caller]
fn refused(ruleset: &str, command: &str, words: &str) {
    let _world = World::new();
    by_hand(ruleset);
    let before = listed();
    let said = nft(&["-f", "-"], command).unwrap_err();
    assert!(said.contains(words), "{command}: {said}");
    assert_eq!(listed(), before, "nothing is half applied");
}

/// A command that is accepted and changes nothing.
#[track_caller]
fn ignored(ruleset: &str, command: &str) {
    let _world = World::new();
    by_hand(ruleset);
    let before = nft(&["list", "ruleset"], "").unwrap();
    by_hand(command);
    assert_eq!(nft(&["list", "ruleset"], "").unwrap(), before, "{command}");
}

#[test]
fn a_chain_does_not_go_before_the_rule_that_jumps_to_it() {
    let jump = "table ip a { chain x { }; chain y { jump x; }; }";
    refused(jump, "delete chain ip a x", "Device or resource busy");
}

#[test]
fn a_set_in_use_is_not_declared_anew() {
    let used = "table ip a { set s { type ipv4_addr; }; chain y { ip saddr @s drop; }; }";
    refused(used, "delete set ip a s", "Device or resource busy");
    refused(used, "add set ip a s { type inet_service; }", "File exists");
}

#[test]
fn an_object_in_use_is_not_deleted() {
    let used = "table ip a { counter c { }; chain y { counter name c; }; }";
    refused(used, "delete counter ip a c", "Device or resource busy");
}

#[test]
fn a_value_of_a_map_is_not_overwritten() {
    let map = "table ip a { map m { type ipv4_addr : mark; elements = { 10.0.0.1 : 1 }; }; }";
    refused(map, "add element ip a m { 10.0.0.1 : 2 }", "File exists");
}

#[test]
fn neither_priority_nor_hook_changes_in_place() {
    let chain = "table ip a { chain i { type filter hook input priority 0; }; }";
    for other in ["input priority 5", "output priority 0"] {
        let command = format!("add chain ip a i {{ type filter hook {other}; }}");
        let _world = World::new();
        by_hand(chain);
        let said = nft(&["-f", "-"], &command).unwrap_err();
        let is_refused = ["not supported", "File exists", "busy"].iter().any(|w| said.contains(w));
        assert!(is_refused, "{command}: {said}");
    }
}

#[test]
fn no_rule_is_added_to_a_chain_without_a_name() {
    let _world = World::new();
    by_hand("table ip a { chain y { jump { accept; }; }; }");
    let list = nft(&["-j", "list", "ruleset"], "").unwrap();
    let name = list.split('"').find(|word| word.starts_with("__chain")).unwrap_or("__chain0");
    let said = nft(&["add", "rule", "ip", "a", name, "drop"], "").unwrap_err();
    assert!(said.contains("Error"), "{said}");
}

#[test]
fn another_comment_or_rate_is_accepted_and_ignored() {
    let table = "table ip a { comment \"old\"; set s { type ipv4_addr; comment \"old\"; }; chain x { comment \"old\"; }; limit l { rate 5/second; }; }";
    ignored(table, "add table ip a { comment \"new\"; }");
    ignored(table, "add set ip a s { type ipv4_addr; comment \"new\"; }");
    ignored(table, "add chain ip a x { comment \"new\"; }");
    ignored(table, "add limit ip a l { rate 9/second; }");
}

#[test]
fn a_rule_without_append_comes_first() {
    let _world = World::new();
    by_hand(
        "table ip a { chain x { tcp dport 1 accept; }; }\ninsert rule ip a x tcp dport 2 accept",
    );
    let list = nft(&["list", "ruleset"], "").unwrap();
    assert!(list.find("dport 2") < list.find("dport 1"), "{list}");
}

#[test]
fn a_replaced_rule_counts_from_what_it_is_given() {
    let _world = World::new();
    by_hand("table ip a { chain x { counter packets 5 bytes 6; }; }");
    let list = nft(&["-a", "list", "chain", "ip", "a", "x"], "").unwrap();
    let handle = list.lines().find(|line| line.contains("counter")).unwrap();
    let handle = handle.rsplit(' ').next().unwrap();
    let replace = |rule: &str| by_hand(&format!("replace rule ip a x handle {handle} {rule}"));
    replace("counter");
    assert!(nft(&["list", "ruleset"], "").unwrap().contains("packets 0 bytes 0"));
    let list = nft(&["-a", "list", "chain", "ip", "a", "x"], "").unwrap();
    let handle = list.lines().find(|line| line.contains("counter")).unwrap();
    let handle = handle.rsplit(' ').next().unwrap();
    by_hand(&format!("replace rule ip a x handle {handle} counter packets 7 bytes 8"));
    assert!(nft(&["list", "ruleset"], "").unwrap().contains("packets 7 bytes 8"));
}

#[test]
fn a_table_with_an_owner_dies_with_the_one_who_made_it() {
    let _world = World::new();
    by_hand("table ip a { flags owner; chain x { }; }");
    assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
}
