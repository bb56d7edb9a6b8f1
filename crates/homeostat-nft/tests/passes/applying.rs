//! A ruleset is applied whole, changed by the smallest difference, and left alone otherwise.

use homeostat_engine::Explain as _;

use homeostat_nft::Wording;

use crate::world::{World, by_hand, expected, explained, listed, nft};

const FIREWALL: &str = r#"
table inet filter {
    comment "the firewall"
    set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.1.1 } }
    map m { type inet_service : verdict; elements = { 22 : jump other } }
    counter c1 { comment "x"; }
    chain other { counter accept; }
    chain input { type filter hook input priority 0; policy accept;
        tcp dport { 22, 80 } accept comment "web"
        ip saddr @s drop
        tcp dport vmap @m
        iif lo jump { counter; accept; }
        tcp dport vmap { 1: accept, 2: jump other }
        counter name c1
        meta l4proto { tcp, udp } th dport 53 limit rate 5/second accept
    }
}
"#;

#[test]
fn a_ruleset_is_as_nft_would_have_loaded_it_and_a_second_pass_writes_nothing() {
    let mut world = World::new();
    world.converge(FIREWALL);
    assert_eq!(listed(), expected(FIREWALL));
    let text = nft(&["list", "ruleset"], "").unwrap();
    assert!(text.contains("comment \"the firewall homeostat:test\""), "{text}");
}

#[test]
fn what_is_no_longer_declared_goes_and_what_is_not_ours_stays() {
    let mut world = World::new();
    by_hand("table ip theirs { chain x { accept; }; }");
    world.converge(FIREWALL);
    world.converge("");
    assert_eq!(listed(), expected("table ip theirs { chain x { accept; }; }"));
}

#[test]
fn a_plan_shows_each_line_in_nfts_own_words() {
    let mut world = World::new();
    let plan = world.planned(FIREWALL);
    assert!(
        plan.contains(
            "+ table inet filter chain input | tcp dport { 22, 80 } accept comment \"web\""
        ),
        "{plan}"
    );
    assert!(plan.contains("+ table inet filter set s"), "{plan}");
    world.converge(FIREWALL);
    let desired = world.desired(&FIREWALL.replace("ip saddr @s drop", "ip saddr @s reject"));
    let plan = world.plan(&desired);
    assert_eq!(plan.summary().total(), 1, "{}", explained(&plan));
    let line = "~ table inet filter chain input | handle";
    assert!(explained(&plan).starts_with(line), "{}", explained(&plan));
}

#[test]
fn a_plan_for_people_shows_rules_that_go_in_nfts_own_words() {
    let mut world = World::worded(Wording::Listed);
    world.converge(FIREWALL);
    let plan = world.planned(&FIREWALL.replace("ip saddr @s drop", ""));
    assert_eq!(plan, "- table inet filter chain input | ip saddr @s drop");
    by_hand("add rule inet filter input tcp dport 99 drop");
    let plan = world.planned(FIREWALL);
    assert_eq!(plan, "- table inet filter chain input | tcp dport 99 drop");
}

#[test]
fn elements_that_come_and_go_are_counted_and_some_are_named() {
    let text = |elements: &str| {
        format!(
            "table ip a {{ set s {{ type ipv4_addr; flags interval; elements = {{ {elements} }}; }}; }}"
        )
    };
    let mut world = World::new();
    let plan = world.planned(&text("10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.1.0/24"));
    assert!(plan.contains(r#""elements added":4"#), "{plan}");
    world.converge(&text("10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.1.0/24"));
    let plan = world.planned(&text("10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.1.0/24"));
    let line = r#"~ table ip a set s | {"elements added":1,"elements removed":1,"samples":["- 10.0.0.1","+ 10.0.0.4"]}"#;
    assert_eq!(plan, line);
    let plan = world.planned(&text("10.0.0.1, 10.0.0.2, 10.0.0.3"));
    assert!(plan.contains(r#""samples":["- 10.0.1.0-10.0.1.255"]"#), "{plan}");
}

#[test]
fn commands_after_the_first_table_act_on_the_text_alone() {
    let mut world = World::new();
    by_hand("table ip theirs { chain x { accept; }; }");
    let text = "table ip a { chain x { drop; }; }\nflush ruleset\ntable ip b { chain x { drop; }; }\n\
        add rule ip b x accept\ninsert rule ip b x counter\ntable ip c { }\ndelete table ip c\n";
    world.converge(text);
    let both = format!(
        "table ip theirs {{ chain x {{ accept; }}; }}\n{}",
        &text[text.find("table ip b").unwrap()..]
    );
    assert_eq!(listed(), expected(&both));
    // What is not in the text is not there to be deleted.
    let error = world.compile("table ip a { }\ndelete table ip theirs\n").unwrap_err().to_string();
    assert!(error.starts_with("fw.nft:2:17: Could not process rule: No such file"), "{error}");
}

#[test]
fn commands_that_clear_are_mentioned_once() {
    let mut world = World::new();
    by_hand("table ip theirs { }");
    let text = "flush ruleset\ndelete table ip a\ndestroy table ip b\ntable ip a { }\ntable ip b { chain x { drop; }; }\n";
    let plan = world.planned(text);
    let note = "`flush ruleset`, `delete table ip a`, `destroy table ip b` at the beginning of the text means";
    assert_eq!(plan.matches(note).count(), 1, "{plan}");
    world.converge(text);
    assert!(nft(&["list", "tables"], "").unwrap().contains("table ip theirs"));
}
