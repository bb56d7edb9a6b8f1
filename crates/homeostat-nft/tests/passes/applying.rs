//! A ruleset is applied whole, changed by the smallest difference, and left alone otherwise.

use homeostat_engine::Explain as _;

use crate::world::{World, by_hand, expected, listed, nft, told};

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
fn what_is_no_longer_wished_goes_and_what_is_not_ours_stays() {
    let mut world = World::new();
    by_hand("table ip theirs { chain x { accept; }; }");
    world.converge(FIREWALL);
    world.converge("");
    assert_eq!(listed(), expected("table ip theirs { chain x { accept; }; }"));
}

#[test]
fn a_plan_tells_each_line_in_nfts_own_words() {
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
    let wish = world.wish(&FIREWALL.replace("ip saddr @s drop", "ip saddr @s reject"));
    let plan = world.plan(&wish);
    assert_eq!(plan.summary().total(), 1, "{}", told(&plan));
    let line = "~ table inet filter chain input | handle";
    assert!(told(&plan).starts_with(line), "{}", told(&plan));
}
