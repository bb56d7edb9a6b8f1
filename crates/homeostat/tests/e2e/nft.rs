//! The firewall of a document, judged by `nft`.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::process::Command;

use crate::world::World;

const TEXT: &str = r#"
[nftables]
ruleset = """
flush ruleset
table inet filter {
    set admins { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        ip saddr @admins tcp dport 22 counter accept
    }
}
"""
"#;

fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_firewall_is_planned_applied_and_left_alone() {
    let world = World::with(TEXT);
    let plan = world.run("plan host.toml").exits(0).stdout;
    for line in ["+ table inet filter", "tcp dport 22 counter", "`flush ruleset` at the beginning"]
    {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert_eq!(nft(&["list", "ruleset"]), "", "a plan writes nothing");
    world.run("apply --yes host.toml").exits(0);
    assert!(nft(&["list", "ruleset"]).contains("homeostat:default"));
    world.run("plan host.toml").says(0, "No changes.\n");
    world.run("verify host.toml").exits(0);
}

#[test]
fn a_plan_shows_the_authors_own_lines_and_json_what_nft_makes_of_them() {
    let world = World::with("[nftables]\nfile = \"fw.nft\"\n");
    let text = "define web = { 80, 443 }\ntable ip a {\n  chain x {\n    tcp dport $web counter accept\n  }\n}\n";
    world.write("fw.nft", text);
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("  tcp dport $web counter accept\n"), "{plan}");
    let plan = world.plan();
    let rule = plan["changes"].as_array().unwrap().iter().find_map(|one| one["after"].as_object());
    let rule = rule.unwrap();
    assert_eq!(rule["rule"], "tcp dport $web counter accept");
    assert_eq!(rule["normalized"], "tcp dport { 80, 443 } counter packets 0 bytes 0 accept");
    assert_eq!(rule["place"], "fw.nft:4");
    world.run("apply --yes host.toml").exits(0);
    world.write("fw.nft", text.replace("accept", "drop"));
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("tcp dport $web counter drop  (fw.nft:4)"), "{plan}");
}

#[test]
fn drift_is_shown_line_by_line_and_healed() {
    let world = World::with(TEXT);
    world.run("apply --yes host.toml").exits(0);
    nft(&["insert", "rule", "inet", "filter", "input", "accept"]);
    nft(&["delete", "element", "inet", "filter", "admins", "{ 10.0.0.2 }"]);
    let plan = world.run("plan host.toml").exits(0).stdout;
    assert!(plan.contains("Plan: 0 to create, 1 to update, 0 to replace, 1 to delete."), "{plan}");
    world.run("apply --yes host.toml").exits(0);
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_section_that_is_gone_is_held_and_an_empty_one_takes_the_tables_away() {
    let world = World::with(TEXT);
    world.run("apply --yes host.toml").exits(0);
    nft(&["add", "table", "ip", "stranger"]);
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes host.toml").exits(1);
    assert!(nft(&["list", "tables"]).contains("inet filter"));
    world.write("host.toml", "[nftables]\n");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(nft(&["list", "tables"]), "table ip stranger\n");
}

#[test]
fn a_mistake_in_a_text_of_the_document_is_reported_with_its_place_there() {
    let world = World::with(
        "[nftables]\nruleset = \"\"\"\ntable ip a {\n    chain x { foo bar; }\n}\n\"\"\"\n",
    );
    let ran = world.run("plan host.toml").exits(1);
    assert!(ran.stderr.contains("--> host.toml:4:15"), "{}", ran.stderr);
    assert!(ran.stderr.contains("4 |     chain x { foo bar; }"), "{}", ran.stderr);
    world.write("host.toml", "[nftables]\nruleset = '''\ntable ip a { }\n  reset rules\n'''\n");
    let ran = world.run("plan host.toml").exits(1);
    assert!(ran.stderr.contains("--> host.toml:4:3"), "{}", ran.stderr);
    // Where the place in the document is not known, the place in the text is reported.
    world.write("host.toml", "[nftables]\nruleset = \"table ip a {\\n foo }\\n\"\n");
    let ran = world.run("plan host.toml").exits(1);
    assert!(ran.stderr.contains("ruleset:2:"), "{}", ran.stderr);
}

#[test]
fn a_mistake_in_a_file_is_reported_with_its_place_and_nothing_is_changed() {
    let world =
        World::with("[nftables]\nfile = \"fw.nft\"\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let ran = world.run("check host.toml").exits(1);
    assert!(ran.stderr.contains("host.toml:2:") && ran.stderr.contains("fw.nft"), "{}", ran.stderr);
    world.write("fw.nft", "table ip a {\n    chain x { foo bar; }\n}\n");
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stderr.contains("fw.nft:2:"), "{}", ran.stderr);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
}

#[test]
fn texts_that_are_no_rulesets_are_refused_and_nothing_is_changed() {
    let world =
        World::with("[nftables]\nfile = \"fw.nft\"\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let bad: [(&str, &[u8], &str); 9] = [
        ("an unknown family", b"table outer a { }\n", "fw.nft:1:13: syntax error"),
        (
            "a missing set",
            b"table ip a {\n chain x { ip saddr @no drop; }\n}\n",
            "fw.nft:2:21: No such",
        ),
        ("bytes", &[0xff, 0xfe, 0, 1], "fw.nft:1:1: this is no text (byte 0xff)"),
        ("a NUL", b"table ip a { }\n \0\n", "fw.nft:2:2: this is no text (byte 0x00)"),
        (
            "an include of nothing",
            b"include \"./no.nft\"\n",
            "fw.nft:1:1: File not found: ./no.nft",
        ),
        ("a loop", b"include \"fw.nft\"\n", "fw.nft:1:1: Include nested too deeply"),
        ("a command that prints", b"table ip a { }\nreset counters\n", "fw.nft:2:1: `reset`"),
        (
            "an owned table",
            b"table ip a {\n flags owner\n}\n",
            "fw.nft:2:2: a table with `flags owner`",
        ),
        (
            "a name",
            b"table ip a { chain x { ip saddr no.such.invalid drop; }; }\n",
            "write addresses",
        ),
    ];
    for (what, text, words) in bad {
        world.write("fw.nft", text);
        for command in ["plan", "apply --yes"] {
            let ran = world.run(&format!("{command} host.toml")).exits(1);
            assert!(ran.stderr.contains(words), "{what}: {}", ran.stderr);
            assert!(ran.stderr.contains("nothing was changed"), "{what}: {}", ran.stderr);
        }
    }
    std::fs::File::create(world.path().join("fw.nft")).unwrap().set_len(100 << 20).unwrap();
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stderr.contains("more than a ruleset may have"), "{}", ran.stderr);
    assert_eq!(nft(&["list", "ruleset"]), "");
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
}

#[test]
fn a_namespace_of_ours_goes_with_its_firewall() {
    let world = World::new().with_own_names();
    world.apply(
        "[namespaces.blue]\ncreate = true\n[namespaces.blue.nftables]\n\
         ruleset = 'table ip a { chain x { accept; }; }'\n",
    );
    world.write("host.toml", "[namespaces]\n");
    world.run("apply --yes host.toml").exits(0);
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_namespace_of_ours_goes_with_a_table_that_was_taken_over_and_not_with_a_strangers() {
    let world = World::new().with_own_names();
    let document = "[namespaces.blue]\ncreate = true\n[namespaces.blue.nftables]\nadopt = true\n\
        ruleset = 'table ip a { chain x { accept; }; }'\n";
    world.apply("[namespaces.blue]\ncreate = true\n");
    let inside = |command: &str| {
        let mut ip = world.command("ip");
        ip.args(["netns", "exec", "blue", "nft"]).args(command.split(' '));
        world.finish(ip).exits(0);
    };
    inside("add table ip a");
    world.apply(document);
    world.write("host.toml", "[namespaces]\n");
    // Another one of the same name is somebody else's.
    inside("delete table ip a");
    inside("add table ip a");
    let held = world.run("apply --yes host.toml").exits(1);
    assert!(held.stdout.contains("table ip a"), "{}", held.stdout);
    inside("delete table ip a");
    // One that was taken over is ours, though nothing on it says so.
    inside("add table ip a");
    world.apply(document);
    world.write("host.toml", "[namespaces]\n");
    world.run("apply --yes host.toml").exits(0);
    world.run("plan host.toml").says(0, "No changes.\n");
}
