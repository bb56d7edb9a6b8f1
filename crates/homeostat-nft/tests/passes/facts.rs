//! How nftables really behaves, each fact where the source relies on it.

use std::fmt::Write as _;
use std::net::UdpSocket;

use homeostat_engine::Explain as _;
use serde_json::Value;

use crate::world::{World, by_hand, expected, explained, listed, nft};

/// From one text to another in one pass: as `nft` would load it, and nothing left to do.
fn becomes(from: &str, to: &str) -> World {
    let mut world = World::new();
    world.converge(from);
    world.converge(to);
    assert_eq!(listed(), expected(to));
    world
}

/// The rules of a chain: their handles and the packets that they counted.
fn rules(table: &str, chain: &str) -> Vec<(u64, Option<u64>)> {
    let text = nft(&["-j", "list", "chain", "ip", table, chain], "").unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let rules = all["nftables"].as_array().unwrap().iter().filter_map(|entry| entry.get("rule"));
    let rule = |rule: &Value| {
        let mut counters = rule["expr"].as_array().unwrap().iter();
        let packets = counters.find_map(|one| one["counter"]["packets"].as_u64());
        (rule["handle"].as_u64().unwrap(), packets)
    };
    rules.map(rule).collect()
}

/// Sends packets through the namespace's own loopback.
fn send(world: &World, packets: usize) {
    world.namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..packets {
        let _ = socket.send_to(b"x", "127.0.0.1:9999");
    }
}

#[test]
fn a_foreign_commit_since_the_look_stops_nothing() {
    let mut world = World::new();
    let desired = world.desired("table ip a { chain x { accept; }; }");
    let plan = world.plan(&desired);
    by_hand("table ip stranger { }");
    let report = world.apply_plan(&desired, plan);
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(listed(), expected("table ip stranger { }\ntable ip a { chain x { accept; }; }"));
}

#[test]
fn a_chain_goes_together_with_the_rule_that_jumps_to_it() {
    let from = "table ip a { chain x { accept; }; chain i { type filter hook input priority 0; jump x; counter; }; }";
    becomes(from, "table ip a { chain i { type filter hook input priority 0; counter; }; }");
    let map = "table ip a { map m { type inet_service : verdict; elements = { 1 : jump x }; }; chain x { accept; }; }";
    becomes(
        map,
        "table ip a { map m { type inet_service : verdict; elements = { 1 : accept }; }; }",
    );
}

#[test]
fn a_set_changes_its_type_while_rules_use_it() {
    let text = |kind: &str, element: &str, rule: &str| {
        format!(
            "table inet a {{ set s {{ type {kind}; elements = {{ {element} }}; }}; \
             chain i {{ type filter hook input priority 0; counter; {rule} @s drop; counter; }}; }}"
        )
    };
    let v4 = text("ipv4_addr", "10.0.0.1", "ip saddr");
    becomes(&v4, &text("ipv6_addr", "fd00::1", "ip6 saddr"));
}

#[test]
fn a_set_that_is_made_again_keeps_its_data_and_what_others_count() {
    let text = |size: u32| {
        format!(
            "table ip a {{ set s {{ type ipv4_addr; size {size}; flags dynamic, timeout; timeout 1h; }}; \
             chain i {{ type filter hook input priority 0; ip saddr @s counter packets 5 bytes 9; }}; }}"
        )
    };
    let mut world = World::new();
    world.converge(&text(100));
    by_hand("add element ip a s { 10.0.0.7 timeout 30m }");
    world.converge(&text(200));
    let list = nft(&["list", "ruleset"], "").unwrap();
    assert!(list.contains("size 200") && list.contains("10.0.0.7 timeout 30m expires"), "{list}");
    assert_eq!(rules("a", "i")[0].1, Some(5));
}

#[test]
fn comments_that_the_kernel_ignores_on_existing_objects_are_written_nevertheless() {
    let text = |words: &str| {
        format!(
            "table ip a {{ \
             chain x {{ comment \"{words} chain\"; counter packets 3 bytes 4 comment \"{words} rule\"; }}; \
             set s {{ type ipv4_addr; comment \"{words} set\"; elements = {{ 10.0.0.1 comment \"{words} element\" }}; }}; \
             counter c {{ packets 7 bytes 8; comment \"{words} counter\"; }}; \
             chain i {{ type filter hook input priority 0; jump x; ip saddr @s counter name c; }}; }}"
        )
    };
    becomes(&text("old"), &text("new"));
    let list = nft(&["list", "ruleset"], "").unwrap();
    for part in ["chain", "rule", "set", "element", "counter"] {
        assert!(list.contains(&format!("new {part}")), "{part}: {list}");
    }
    assert!(!list.contains("old"), "{list}");
    assert_eq!(rules("a", "x")[0].1, Some(3), "a rule that got another comment counts on");
}

#[test]
fn a_limit_declared_with_another_rate_gets_it() {
    let text = |rate: u32| {
        format!(
            "table ip a {{ limit l {{ rate {rate}/second; }}; \
             map m {{ type ipv4_addr : limit; elements = {{ 10.0.0.1 : \"l\" }}; }}; \
             chain i {{ type filter hook input priority 0; limit name l accept; limit name ip saddr map @m drop; }}; }}"
        )
    };
    becomes(&text(5), &text(9));
}

#[test]
fn quotas_timeouts_and_sizes_change() {
    let text = |number: u32| {
        format!(
            "table ip a {{ quota q {{ over {number} mbytes; }}; \
             set s {{ type ipv4_addr; timeout {number}m; size {number}; }}; \
             chain i {{ type filter hook input priority 0; quota name q drop; ip saddr @s drop; }}; }}"
        )
    };
    becomes(&text(50), &text(70));
}

#[test]
fn a_value_of_a_map_changes() {
    let text = |values: [u32; 3]| {
        let [a, b, c] = values;
        format!(
            "table ip a {{ map m {{ type ipv4_addr : mark; elements = {{ 10.0.0.1 : {a}, 10.0.0.2 : {b} }}; }}; \
             map r {{ type ipv4_addr : mark; flags interval; elements = {{ 10.0.0.0/8 : {c} }}; }}; }}"
        )
    };
    becomes(&text([1, 2, 3]), &text([1, 5, 6]));
}

#[test]
fn intervals_grow_shrink_split_and_join() {
    let text = |elements: &str| {
        format!(
            "table inet a {{ set s {{ type inet_service; flags interval; elements = {{ {elements} }}; }}; }}"
        )
    };
    let texts =
        ["10-20, 30-40", "10-25, 30-40", "10-40", "10-15, 16-20, 22-40", "0-9, 50-65535", "7"];
    for (from, to) in texts.iter().zip(texts.iter().cycle().skip(1)) {
        let (from, to) = (text(from), text(to));
        std::thread::spawn(move || drop(becomes(&from, &to))).join().unwrap();
    }
}

#[test]
fn a_change_inside_of_a_jump_replaces_the_jumping_rule_only() {
    let text = |port: u16| {
        format!(
            "table ip a {{ chain i {{ type filter hook input priority 0; counter; \
             iifname \"x\" jump {{ tcp dport {port} accept; counter; }}; counter; }}; }}"
        )
    };
    let mut world = World::new();
    world.converge(&text(1));
    let before = rules("a", "i");
    let plan = world.planned(&text(2));
    assert_eq!(plan.lines().count(), 1, "{plan}");
    world.converge(&text(2));
    let after = rules("a", "i");
    assert_eq!((before[0], before[2]), (after[0], after[2]));
}

#[test]
fn a_policy_changes_in_place_and_a_priority_by_making_the_chain_again() {
    let text = |policy: &str, priority: i32| {
        format!(
            "table ip a {{ chain i {{ type filter hook input priority {priority}; policy {policy}; \
             counter packets 5 bytes 6; }}; }}"
        )
    };
    let mut world = becomes(&text("accept", 0), &text("drop", 0));
    let handles = rules("a", "i");
    world.converge(&text("accept", 0));
    assert_eq!(rules("a", "i"), handles);
    let plan = world.planned(&text("accept", 5));
    assert!(plan.starts_with("-/+ table ip a chain i"), "{plan}");
    world.converge(&text("accept", 5));
    assert_eq!(listed(), expected(&text("accept", 5)));
    assert_eq!(rules("a", "i")[0].1, Some(5), "its counts go on");
}

const COUNTING: &str = "table ip a { chain o { type filter hook output priority 0; \
    udp dport 9999 counter comment \"1\"; udp dport 9999 counter comment \"2\"; \
    udp dport 9999 counter comment \"3\"; udp dport 9999 counter comment \"4\"; }; }";

#[test]
fn untouched_rules_keep_handle_and_counter_and_replaced_ones_carry_it_on() {
    let mut world = World::new();
    world.converge(COUNTING);
    send(&world, 5);
    let before = rules("a", "o");
    assert!(before.iter().all(|(_, packets)| *packets == Some(5)), "{before:?}");
    world.converge(&COUNTING.replace(
        "udp dport 9999 counter comment \"2\"",
        "udp dport 9998-9999 counter comment \"2\"",
    ));
    let after = rules("a", "o");
    assert_eq!((after[0], after[2], after[3]), (before[0], before[2], before[3]));
    assert_ne!(after[1].0, before[1].0);
    assert_eq!(after[1].1, Some(5));
}

#[test]
fn a_moved_rule_carries_its_counter_on() {
    let mut world = World::new();
    world.converge(COUNTING);
    by_hand("add rule ip a o udp dport 9999 counter comment \"5\"");
    send(&world, 3);
    let moved = COUNTING
        .replace("comment \"1\"", "comment \"x\"")
        .replace("comment \"4\"", "comment \"1\"")
        .replace("comment \"x\"", "comment \"4\"");
    world.converge(&moved);
    assert!(rules("a", "o").iter().all(|(_, packets)| *packets == Some(3)));
    assert_eq!(listed(), expected(&moved));
}

#[test]
fn what_packets_change_is_no_difference() {
    const TEXT: &str = "table ip a { counter c { }; quota q { over 100 mbytes; }; \
        set s { type ipv4_addr; counter; elements = { 127.0.0.1 }; }; \
        set d { type inet_service; flags dynamic, timeout; timeout 1h; }; \
        chain o { type filter hook output priority 0; counter; counter name c; quota name q; \
        quota over 5 mbytes; limit rate 5/second; ip saddr @s; add @d { udp dport }; \
        meter m { ip saddr limit rate 5/second }; }; }";
    let mut world = World::new();
    world.converge(TEXT);
    send(&world, 7);
    let list = nft(&["list", "ruleset"], "").unwrap();
    assert!(list.contains("elements = { 9999") && !list.contains("packets 0"), "{list}");
    assert_eq!(world.planned(TEXT), "");
}

#[test]
fn elements_of_a_set_without_any_declared_are_data() {
    const TEXT: &str = "table ip a { set s { type ipv4_addr; }; set i { type ipv4_addr; flags interval; }; map m { type ipv4_addr : mark; }; }";
    let mut world = World::new();
    world.converge(TEXT);
    by_hand(
        "add element ip a s { 10.0.0.1 }; add element ip a i { 10.0.0.0/8 }; add element ip a m { 10.0.0.1 : 5 }",
    );
    assert_eq!(world.planned(TEXT), "");
}

#[test]
fn a_set_with_declared_elements_is_exact() {
    const TEXT: &str =
        "table ip a { set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }; }";
    let mut world = World::new();
    world.converge(TEXT);
    by_hand("add element ip a s { 10.0.0.9 }; delete element ip a s { 10.0.0.2 }");
    let plan = world.planned(TEXT);
    assert_eq!(
        plan,
        "~ table ip a set s | {\"elements added\":1,\"elements removed\":1,\"samples\":[\"- 10.0.0.9\",\"+ 10.0.0.2\"]}"
    );
    world.converge(TEXT);
    assert_eq!(listed(), expected(TEXT));
}

#[test]
fn of_a_set_with_timeouts_only_declared_elements_that_never_expire_are_kept_present() {
    const TEXT: &str = "table ip a { set s { type ipv4_addr; flags timeout; elements = { 10.0.0.1 timeout 2h, 10.0.0.2 }; }; }";
    let mut world = World::new();
    world.converge(TEXT);
    by_hand("add element ip a s { 10.0.0.9 }; delete element ip a s { 10.0.0.2 }");
    world.converge(TEXT);
    let list = nft(&["list", "ruleset"], "").unwrap();
    for element in ["10.0.0.1", "10.0.0.2", "10.0.0.9"] {
        assert!(list.contains(element), "{list}");
    }
}

#[test]
fn a_list_of_elements_longer_than_sixteen_bits_goes_in_pieces() {
    let mut elements = String::new();
    for at in 0..4_000_u32 {
        let _ = write!(elements, "10.{}.{}.{}, ", at >> 16, at >> 8 & 255, at & 255);
    }
    let text = |more: &str| {
        format!(
            "table ip a {{ set s {{ type ipv4_addr; elements = {{ {elements}{more} }}; }}; \
             chain i {{ type filter hook input priority 0; ip saddr {{ {elements}{more} }} drop; }}; }}"
        )
    };
    let mut world = World::new();
    world.converge(&text("1.1.1.1"));
    let plan = world.planned(&text("1.1.1.2"));
    assert!(plan.contains("{\"elements added\":1,\"elements removed\":1,"), "{plan}");
    world.converge(&text("1.1.1.2"));
    assert_eq!(listed(), expected(&text("1.1.1.2")));
}

#[test]
fn a_table_that_wants_an_owner_is_refused_with_the_reason() {
    let world = World::new();
    let error = world.compile("table ip a { flags owner; }").unwrap_err();
    assert!(error.to_string().contains("flags owner"), "{error}");
    assert!(error.help().is_some());
}

#[test]
fn commands_that_clear_are_accepted_and_mentioned_once() {
    let mut world = World::new();
    by_hand("table ip stranger { }");
    let text =
        "flush ruleset\ndelete table ip gone\ntable ip a { chain x { accept; }; }\ntable ip b { }";
    let plan = world.planned(text);
    assert_eq!(plan.matches("`flush ruleset`, `delete table ip gone`").count(), 1, "{plan}");
    world.converge(text);
    assert!(nft(&["list", "ruleset"], "").unwrap().contains("stranger"));
}

/// A chain with a rule for each of these ports.
fn ports(order: &[u16]) -> String {
    let rules: Vec<_> = order.iter().map(|port| format!("tcp dport {port} accept;")).collect();
    format!("table ip a {{ chain x {{ {} }}; }}", rules.join(" "))
}

#[test]
fn rules_stand_in_the_order_in_which_they_are_written() {
    let orders: [&[u16]; 6] = [
        &[1, 2, 3, 4, 5],
        &[5, 4, 3, 2, 1],
        &[3, 1, 2],
        &[9, 3, 8, 1, 7, 2, 6],
        &[],
        &[2, 2, 1, 2],
    ];
    let mut world = World::new();
    for order in orders {
        world.converge(&ports(order));
        assert_eq!(listed(), expected(&ports(order)));
    }
}

#[test]
fn the_smallest_script_moves_one_rule_and_leaves_the_others() {
    let mut world = World::new();
    world.converge(&ports(&[1, 2, 3, 4, 5]));
    let desired = world.desired(&ports(&[2, 3, 4, 5, 1]));
    let plan = world.plan(&desired);
    assert_eq!(
        explained(&plan),
        "~ table ip a chain x | tcp dport 1 accept (moves to place 5; fw.nft:1)"
    );
    assert_eq!(plan.summary().total(), 1);
}
