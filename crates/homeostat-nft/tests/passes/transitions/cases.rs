//! Transitions that failed once, each by its name.

use std::net::UdpSocket;

use homeostat_engine::Explain as _;
use serde_json::Value;

use super::{FOREIGN, Listing, expected};
use crate::world::{World, by_hand, explained, ip_here, nft};

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

pub(super) fn send_packets() {
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
    Listing::read().differs(&expected(to)).is_some()
}

#[test]
fn another_comment_of_a_table_is_applied_with_the_counters_that_it_has() {
    let text = |comment: &str| format!("table ip t {{ {comment}; chain o {{ counter; }}; }}");
    for (from, to) in
        [("comment \"a\"", "comment \"b\""), ("comment \"a\"", ""), ("", "comment \"b\"")]
    {
        let (from, to) = (text(from), text(to));
        let check = move || {
            let mut world = World::new();
            world.converge(&from.replace("counter", "counter packets 5 bytes 9"));
            world.converge(&to);
            let listed = nft(&["list", "ruleset"], "").unwrap();
            assert!(listed.contains("packets 5 bytes 9"), "{listed}");
            assert_eq!(
                listed.contains("comment \"b homeostat:test\""),
                to.contains("\"b\""),
                "{listed}"
            );
        };
        std::thread::spawn(check).join().unwrap();
    }
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

#[test]
fn a_constant_set_or_map_in_use_changes_in_one_pass() {
    let set = |rest: &str| {
        format!(
            "table ip t {{ set s {{ type inet_service; flags constant; elements = {{ 1 }}; }}; {rest} }}"
        )
    };
    let map = |to: &str, chains: &str| {
        format!(
            "table ip t {{ map m {{ type inet_service : verdict; flags constant; elements = {{ 1 : {to} }}; }}; \
             {chains} chain c {{ tcp dport vmap @m; counter packets 3 bytes 4; }}; }}"
        )
    };
    let used = set("chain c { tcp dport @s counter packets 3 bytes 4 accept; };");
    let (x, both) = ("chain x { };", "chain x { }; chain y { };");
    let changes = [
        (used.clone(), used.replace("{ 1 }", "{ 2 }")),
        (used.clone(), used.replace("{ 1 }", "{ 1, 2 }")),
        (used.clone(), used.replace("{ 1 }", "{ 2 }").replace("tcp dport @s ", "")),
        (used.clone(), set("").replace("{ 1 }", "{ 2 }")),
        (used.clone(), used.replace("; elements = { 1 }", "")),
        (map("jump x", both), map("jump y", both)),
        (map("jump x", x), map("accept", "")),
        (map("jump x", x), map("jump x", "chain x { comment \"a\"; };")),
        (map("jump x", x), map("goto x", "chain x { comment \"a\"; };")),
    ];
    for (from, to) in changes {
        let check = move || {
            let mut world = World::new();
            by_hand(FOREIGN);
            world.converge(&from);
            world.converge(&to);
            assert_eq!(Listing::read().differs(&expected(&to)), None, "{from}\n{to}");
            let listed = nft(&["list", "table", "ip", "t"], "").unwrap();
            assert_eq!(listed.contains("packets 3 bytes 4"), to.contains("packets"), "{listed}");
        };
        std::thread::spawn(check).join().unwrap();
    }
}

#[test]
fn elements_are_carried_into_a_set_with_other_timeouts_or_statements() {
    let text = |set: &str| {
        format!(
            "table ip t {{ set s {{ type ipv4_addr; size 99; {set}; }}; chain o {{ type filter hook output priority 0; \
             add @s {{ ip daddr }}; }}; }}"
        )
    };
    let sets = [
        "flags dynamic, timeout; timeout 2h",
        "flags dynamic, timeout; timeout 1h",
        "flags dynamic, timeout",
        "flags dynamic; counter",
        "flags dynamic; quota 500 bytes",
        "flags dynamic, timeout; timeout 1h; quota 500 bytes",
    ];
    let mut world = World::new();
    ip_here("link set lo up");
    for set in sets.iter().chain(sets.iter().rev()) {
        world.converge(&text(set));
        send_packets();
        let listed = nft(&["list", "set", "ip", "t", "s"], "").unwrap();
        assert!(listed.contains("127.0.0.1"), "{listed}");
    }
}

#[test]
fn counters_of_anonymous_chains_are_carried_over() {
    let text = |comment: &str| {
        format!(
            "table ip t {{ chain o {{ type filter hook output priority 0; {comment}; jump {{ counter; udp dport {{ 9, 10 }} \
             counter; }}; }}; }}"
        )
    };
    let mut world = World::new();
    ip_here("link set lo up");
    world.converge(&text(""));
    send_packets();
    let before = Listing::read();
    world.converge(&text("comment \"c\""));
    assert_eq!(Listing::read().forgot(&before), None);
    let listed = nft(&["list", "ruleset"], "").unwrap();
    assert!(!listed.contains("packets 0 "), "{listed}");
}

#[test]
fn an_element_that_has_expired_is_added_again_with_another_text_only() {
    let text = |rule: &str| {
        format!(
            "table ip t {{ set s {{ type ipv4_addr; flags timeout; elements = {{ 10.0.0.1 timeout 1h, 10.0.0.2 }}; }}; \
             set d {{ type ipv4_addr; timeout 1h; elements = {{ 10.0.0.3 }}; }}; chain c {{ {rule}; }}; }}"
        )
    };
    let count = || nft(&["list", "table", "ip", "t"], "").unwrap().matches("10.0.0.").count();
    let mut world = World::new();
    world.converge(&text("accept"));
    // An element that is deleted by hand looks as if its time were over.
    by_hand("delete element ip t s { 10.0.0.1 }; delete element ip t d { 10.0.0.3 }");
    let desired = world.desired(&text("accept"));
    let plan = world.plan(&desired);
    assert!(plan.steps.is_empty(), "{}", explained(&plan));
    by_hand("delete element ip t s { 10.0.0.2 }");
    world.converge(&text("accept"));
    assert_eq!(count(), 1, "an element that never expires is kept");
    world.converge(&text("drop"));
    assert_eq!(count(), 3);
}

#[test]
fn a_listing_has_tables_chains_sets_and_objects_in_the_order_of_the_text() {
    const TEXT: &str = "table ip z { }\ntable inet t {
        counter z { }\n counter a { }\n quota q { 1 mbytes }
        set z { type ipv4_addr; }\n map m { type ipv4_addr : mark; }\n set a { type ipv4_addr; elements = { 1.2.3.4 }; }
        chain z { type filter hook input priority 0; ip saddr @a drop; }\n chain b { }\n chain a { type filter hook input priority 0; }
        }\ntable ip a { }\n";
    let mut world = World::new();
    world.converge(TEXT);
    let listed = || nft(&["list", "ruleset"], "").unwrap();
    let ours: Vec<String> = listed()
        .lines()
        .filter(|line| !line.contains("homeostat:test"))
        .map(str::to_owned)
        .collect();
    let load = move || {
        let _world = World::new();
        by_hand(TEXT);
        listed()
    };
    assert_eq!(ours, std::thread::spawn(load).join().unwrap().lines().collect::<Vec<_>>());
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

/// Whether packets run through the chain of table `a`, which marks them, before that of `b`, which counts marked ones.
fn marks_before_it_counts() -> bool {
    let before = counted("inet", "b");
    send_packets();
    counted("inet", "b") > before
}

fn counted(family: &str, table: &str) -> u64 {
    let text = nft(&["list", "table", family, table], "").unwrap();
    let packets = text.split("packets ").nth(1).unwrap();
    packets.split(' ').next().unwrap().parse().unwrap()
}

/// Packets run through chains of one hook and priority as if the text had been loaded at once.
fn runs_as_loaded(text: &str) {
    let text = text.to_owned();
    let load = move || {
        let _world = World::new();
        ip_here("link set lo up");
        by_hand(&text);
        marks_before_it_counts()
    };
    let expected = std::thread::spawn(load).join().unwrap();
    assert_eq!(marks_before_it_counts(), expected);
}

#[test]
fn chains_of_two_tables_run_as_if_the_text_had_been_loaded_at_once() {
    let a = |comment: &str| {
        format!(
            "table ip a {{ chain x {{ type filter hook output priority 0; {comment}; meta mark set 1; }}; }}\n"
        )
    };
    let b = "table inet b { chain y { type filter hook output priority 0; meta mark 1 counter packets 7 bytes 9; }; }\n";
    for a_comes_first in [true, false] {
        let text =
            move |a: String| if a_comes_first { format!("{a}{b}") } else { format!("{b}{a}") };
        let check = move || {
            let mut world = World::new();
            ip_here("link set lo up");
            world.converge(b);
            // It is added, created again, and healed.
            for comment in ["", "comment \"c\"", "comment \"c\""] {
                let text = text(a(comment));
                world.converge(&text);
                runs_as_loaded(&text);
                let before = counted("inet", "b");
                by_hand("delete table ip a");
                world.converge(&text);
                runs_as_loaded(&text);
                assert!(before >= 7 && counted("inet", "b") >= before, "counters are kept");
            }
        };
        std::thread::spawn(check).join().unwrap();
    }
}

/// A new table of IPv6 has one for both families created again behind it, and that one a table of IPv4.
#[test]
fn counters_are_kept_where_a_table_is_created_again_for_one_that_is_created_again() {
    let hook = "type filter hook output priority 0;";
    let new = format!("table ip6 a {{ chain x {{ {hook} }}; }}\n");
    let rest = format!(
        "table inet b {{ chain y {{ {hook} }}; }}\ntable ip c {{ chain z {{ {hook} counter; }}; }}\n"
    );
    let mut world = World::new();
    ip_here("link set lo up");
    world.converge(&rest);
    world.rest_from_reading();
    send_packets();
    let before = counted("ip", "c");
    assert!(before > 0, "{before}");
    world.converge(&format!("{new}{rest}"));
    assert_eq!(counted("ip", "c"), before, "counters are kept");
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
