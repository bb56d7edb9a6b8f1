//! Guards against a desired state that is smaller than its author meant.

use std::fmt::Write as _;

use snapbox::str;

use crate::world::World;

const KNOBS: [&str; 12] = [
    "tcp_fin_timeout",
    "tcp_keepalive_time",
    "tcp_keepalive_probes",
    "tcp_keepalive_intvl",
    "tcp_retries1",
    "tcp_retries2",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_orphan_retries",
    "tcp_reordering",
    "tcp_max_reordering",
    "tcp_max_syn_backlog",
];

fn desired(names: &[&str]) -> String {
    let mut document = "[sysctl]\n".to_owned();
    for name in names {
        writeln!(document, "\"net.ipv4.{name}\" = 7").unwrap();
    }
    document
}

fn owning(count: usize) -> World {
    let world = World::new();
    world.apply(&desired(&KNOBS[..count]));
    world
}

#[test]
fn more_than_ten_deletes_and_more_than_half_are_held_unless_allowed() {
    let world = owning(12);
    world.write("host.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let held = world.run("apply --yes --revert-on-release --json host.toml").json(1);
    assert_eq!(held["held"].as_array().unwrap().len(), 12);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1", "the rest goes on");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "7");
    world.run("plan host.toml").says(0, str![[r#"
knobs in host
  held back:
    ! delete sysctl net.ipv4.tcp_fin_timeout       12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_keepalive_intvl   12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_keepalive_probes  12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_keepalive_time    12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_max_reordering    12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_max_syn_backlog   12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_orphan_retries    12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_reordering        12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_retries1          12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_retries2          12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_syn_retries       12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
    ! delete sysctl net.ipv4.tcp_synack_retries    12 of 13 owned objects would go, over the budget of 50 %; use --allow-mass-delete
Not converged: no changes; 12 held back.

"#]]);
    world.run("verify host.toml").exits(2);
    world.run("apply --yes --revert-on-release --allow-mass-delete host.toml").exits(0);
    assert_ne!(world.knob("net/ipv4/tcp_retries1"), "7");
    world.run("verify host.toml").says(0, "");
}

#[test]
fn up_to_ten_deletes_are_no_mass_delete() {
    let world = owning(10);
    world.apply("[sysctl]\n");
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn up_to_half_of_the_owned_is_no_mass_delete_and_the_budget_can_be_set() {
    let world = owning(12);
    world.write("host.toml", desired(&KNOBS[..1]));
    assert_eq!(world.plan()["held"].as_array().unwrap().len(), 11, "11 of 12 are over 50 %");
    let settings = |budget: &str| {
        format!("[settings.knobs]\ndelete-budget = \"{budget}\"\n{}", desired(&KNOBS[..1]))
    };
    world.write("host.toml", settings("91%"));
    assert_eq!(world.plan()["held"].as_array().unwrap().len(), 11, "11 of 12 are over 91 %");
    world.write("host.toml", settings("92%"));
    assert_eq!(world.plan()["held"].as_array().unwrap().len(), 0, "11 of 12 are under 92 %");
    world.run("apply --yes host.toml").exits(0);
}

#[test]
fn a_document_without_the_section_holds_even_a_single_delete() {
    let world = owning(1);
    world.write("host.toml", "");
    world.run("plan host.toml").says(0, str![[r#"
knobs in host
  held back:
    ! delete sysctl net.ipv4.tcp_fin_timeout  `[sysctl]` is missing from the document; to delete what it declared, write an empty `[sysctl]`, or use --allow-mass-delete
Not converged: no changes; 1 held back.

"#]]);
    world.run("plan --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[],"conflicts":[],"pending":[],"matched":[],"settled":[],"unknown":[],"held":[
  {"source":"knobs","scope":"host","action":"delete","key":"sysctl net.ipv4.tcp_fin_timeout","by":"missing-section","reason":"`[sysctl]` is missing from the document; to delete what it declared, write an empty `[sysctl]`, or use --allow-mass-delete"}],"refused":[],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":0,"replace":0,"delete":0}}

"#]]);
    world.run("apply --yes host.toml").exits(1);
    world.run("verify -q host.toml").exits(2);
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    - sysctl net.ipv4.tcp_fin_timeout  7  (released, the value stays)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
}

#[test]
fn a_missing_section_is_no_guard_where_the_operator_says_so() {
    let world = owning(1);
    world.write("host.toml", "");
    world.run("apply --yes --allow-mass-delete --revert-on-release host.toml").exits(0);
    assert_ne!(world.knob("net/ipv4/tcp_fin_timeout"), "7");
}
