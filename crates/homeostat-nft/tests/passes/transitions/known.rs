//! What fails today, by name. Each has a reproduction that shows that it still does; the generator makes
//! it again as soon as it is no longer listed here.

use std::net::UdpSocket;

use homeostat_engine::Explain as _;
use serde_json::Value;

use super::{FOREIGN, expected, listed_twice};
use crate::world::{World, by_hand, ip_here, nft};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The elements of a set with `flags constant` that a rule uses cannot change.
    ConstantSetInUse,
    /// Another comment of a table is ignored: it waits until the table is made (decision 0010).
    TableCommentChanges,
}

/// All of them, each with its reproduction: true if it fails as it is known to.
const KNOWN: [(Failure, fn() -> bool); 2] = [
    (Failure::ConstantSetInUse, constant_set_in_use),
    (Failure::TableCommentChanges, table_comment_changes),
];

pub(super) fn is_known(failure: Failure) -> bool {
    KNOWN.iter().any(|(known, _)| *known == failure)
}

#[test]
fn what_is_known_to_fail_still_fails() {
    for (failure, reproduce) in KNOWN {
        let still_fails = std::thread::spawn(reproduce).join().unwrap();
        assert!(
            still_fails,
            "{failure:?} does not fail any more: remove it from KNOWN, so that the search makes it, too"
        );
    }
}

/// Whether a text that has been applied is no longer as declared once packets were sent.
fn is_replaced_after_packets(text: &str) -> bool {
    let mut world = World::new();
    ip_here("link set lo up");
    world.converge(text);
    send_packets();
    let desired = world.desired(text);
    let report = world.pass(&desired);
    !report.is_converged()
}

fn send_packets() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        // One that a rule drops is refused.
        let _ = socket.send_to(&[0; 100], "127.0.0.1:9");
    }
}

#[test]
fn a_quota_that_is_used_up_is_as_declared() {
    assert!(!is_replaced_after_packets(
        "table ip t { chain o { type filter hook output priority 0; quota 100 bytes accept; }; }",
    ));
}

#[test]
fn a_named_quota_that_is_used_up_is_as_declared() {
    assert!(!is_replaced_after_packets(
        "table ip t { quota q { 100 bytes; }; chain o { type filter hook output priority 0; quota name \"q\" \
         accept; }; }",
    ));
}

#[test]
fn a_quota_that_is_used_up_can_be_replaced() {
    let text = |name: &str, comment: &str| {
        format!(
            "table ip t {{ quota q {{ 100 bytes; }}; set {name} {{ type ipv4_addr; size 9; flags dynamic; {comment}; }}; \
             chain o {{ type filter hook output priority 0; quota 100 bytes {comment}; quota name \"q\" {comment}; \
             update @{name} {{ ip daddr quota over 50 bytes }} accept; }}; }}"
        )
    };
    let mut world = World::new();
    ip_here("link set lo up");
    world.converge(&text("s", "comment \"a\""));
    send_packets();
    // The set is created again with the elements that it has.
    world.converge(&text("s", "comment \"x\""));
    assert!(nft(&["list", "set", "ip", "t", "s"], "").unwrap().contains("127.0.0.1 quota"));
    send_packets();
    world.converge(&text("r", "comment \"a\""));
}

/// Whether a text after another converges, and leaves something else than `nft` would load.
fn is_ignored(from: &str, to: &str) -> bool {
    let mut world = World::new();
    by_hand(FOREIGN);
    world.converge(from);
    world.converge(to);
    listed_twice() != expected(to)
}

fn table_comment_changes() -> bool {
    is_ignored("table ip t { comment \"a\"; }", "table ip t { comment \"b\"; }")
}

#[test]
fn a_changed_timeout_comment_or_limit_of_an_element_is_applied() {
    let set = |flags: &str, element: &str| {
        format!(
            "table ip t {{ set s {{ type ipv4_addr; flags {flags}; elements = {{ {element} }}; }}; }}"
        )
    };
    let changes = [
        ("timeout", "1.2.3.4 timeout 1h", "1.2.3.4 timeout 5h"),
        ("timeout", "1.2.3.4 timeout 1h", "1.2.3.4"),
        ("timeout", "1.2.3.4", "1.2.3.4 timeout 1h"),
        ("timeout", "1.2.3.4 comment \"a\"", "1.2.3.4 comment \"b\""),
        ("dynamic", "1.2.3.4 comment \"a\"", "1.2.3.4 comment \"b\""),
        ("dynamic", "1.2.3.4 limit rate 1/second", "1.2.3.4 limit rate 2/second"),
    ];
    let ignored = changes.map(|(flags, from, to)| {
        let (from, to) = (set(flags, from), set(flags, to));
        let check = move || is_ignored(&from, &to);
        std::thread::spawn(check).join().unwrap()
    });
    assert_eq!(ignored, [false; 6], "{changes:?}");
}

fn constant_set_in_use() -> bool {
    let text = |port: u16| {
        format!(
            "table ip t {{ set s {{ type inet_service; flags constant; elements = {{ {port} }}; }}; \
             chain c {{ tcp dport @s accept; }}; }}"
        )
    };
    let mut world = World::new();
    world.converge(&text(1));
    let desired = world.desired(&text(2));
    !world.pass(&desired).is_converged()
}

/// The names of all objects of a kind, in the order in which the kernel made them.
fn in_order_of_creation(kind: &str) -> Vec<String> {
    let text = nft(&["-j", "list", "ruleset"], "").unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let objects = all["nftables"].as_array().unwrap().iter().filter_map(|one| one.get(kind));
    let mut named: Vec<_> = objects
        .map(|one| (one["handle"].as_u64().unwrap(), one["name"].as_str().unwrap().to_owned()))
        .collect();
    named.sort();
    named.into_iter().map(|(_, name)| name).collect()
}

/// Whether objects are created in another order than by `nft -f`.
fn is_created_in_another_order(kind: &'static str, text: &'static str) -> bool {
    let mut world = World::new();
    world.converge(text);
    let load = move || {
        let _world = World::new();
        by_hand(text);
        in_order_of_creation(kind)
    };
    in_order_of_creation(kind) != std::thread::spawn(load).join().unwrap()
}

#[test]
fn base_chains_of_one_hook_and_priority_are_created_in_the_order_of_the_text() {
    assert!(!is_created_in_another_order(
        "chain",
        "table ip t { chain z { type filter hook input priority 0; }; chain a { type filter hook input \
         priority 0; }; }",
    ));
}

#[test]
fn tables_are_created_in_the_order_of_the_text() {
    let text = "table ip z { }\ntable ip a { }\n";
    assert!(!is_created_in_another_order("table", text));
}

#[test]
fn base_chains_stay_in_the_order_of_the_text() {
    let chain =
        |name: &str| format!("chain {name} {{ type filter hook input priority 0; counter; }}; ");
    let text = |names: &[&str]| {
        format!("table ip t {{ {} }}", names.iter().map(|name| chain(name)).collect::<String>())
    };
    let mut world = World::new();
    for names in [&["b", "c"][..], &["a", "b", "c"], &["c", "a"], &["c", "b", "a"]] {
        world.converge(&text(names));
        assert_eq!(in_order_of_creation("chain"), names);
    }
    by_hand("delete chain ip t c; add chain ip t c { type filter hook input priority 0; }");
    world.converge(&text(&["c", "b", "a"]));
    assert_eq!(in_order_of_creation("chain"), ["c", "b", "a"]);
}
