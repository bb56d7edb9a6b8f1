//! `show`: what it prints is a document that plans without changes.

use crate::world::World;

#[track_caller]
fn round_trip(world: &World, args: &str, name: &str) -> String {
    let shown = world.run(args).exits(0);
    assert_eq!(shown.stderr, "", "{args}");
    world.write(name, &shown.stdout);
    let ran = world.run(&format!("plan --detailed-exitcode {name}"));
    ran.says(0, "No changes.\n");
    shown.stdout
}

#[test]
fn what_is_shown_plans_without_changes() {
    let world = World::new();
    let toml = round_trip(&world, "show", "shown.toml");
    assert!(toml.contains("\"net.ipv4.ip_forward\" = 0\n"), "{toml}");
    assert_eq!(round_trip(&world, "show --toml", "again.toml"), toml);
    let json = round_trip(&world, "show --json", "shown.json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sysctl"]["net.ipv4.ip_forward"], 0);
}

#[test]
fn all_that_can_be_shown_plans_without_changes() {
    let world = World::new();
    world.add_pair("lan.10", "peer0");
    world.meddle("net/ipv4/ip_local_reserved_ports", "80,90-92");
    let toml = round_trip(&world, "show --full", "full.toml");
    assert!(toml.contains("\"net/ipv4/conf/lan.10/rp_filter\" = 0\n"), "{toml}");
    assert!(toml.contains("\"net.ipv4.ip_local_reserved_ports\" = \"80,90-92\"\n"), "{toml}");
    round_trip(&world, "show --full --json", "full.json");
}

#[test]
fn all_that_is_shown_can_be_applied_and_given_up_again() {
    let world = World::new();
    let before = world.knobs();
    world.write("host.toml", world.run("show --full").exits(0).stdout);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --allow-mass-delete --revert-on-release host.toml").exits(0);
    assert!(world.knobs() == before, "a knob was turned");
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn owned_knobs_are_shown_beside_the_common_ones() {
    let world = World::new();
    let line = "\"net.ipv4.tcp_retries1\" = 5\n";
    assert!(!world.run("show").exits(0).stdout.contains("tcp_retries1"));
    world.apply("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    let shown = round_trip(&world, "show", "shown.toml");
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn v6_nowhere_dev_lo() {
    let world = World::new();
    for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
        world.ip(&format!("-6 route add {kind} fd66::/32 metric {}", 10 + kind.len()));
    }
    let shown = round_trip(&world, "show", "shown.toml");
    assert_eq!(shown.matches("to = \"fd66::/32\"\n").count(), 4, "{shown}");
}

#[test]
fn what_is_there_twice_is_left_out() {
    let world = World::new();
    world.add_pair("lan0", "peer0");
    world.ip("addr add 10.9.0.1/24 dev lan0");
    world.ip("link set lan0 up");
    world.ip("route add 10.71.0.0/16 via 10.9.0.2 metric 5");
    world.ip("route append 10.71.0.0/16 via 10.9.0.3 metric 5");
    world.ip("route add 10.72.0.0/16 via 10.9.0.2");
    let shown = round_trip(&world, "show", "shown.toml");
    assert!(shown.contains("10.72.0.0/16"), "{shown}");
    assert!(!shown.contains("10.71.0.0/16"), "{shown}");
}

#[test]
fn a_sandbox_can_be_shown() {
    let world = World::new();
    world.meddle("net/ipv4/tcp_retries1", "5");
    let ran = world.finish(world.bare("--sandbox show --full")).exits(0);
    assert!(ran.stdout.contains("\"net.ipv4.tcp_retries1\" = 3\n"), "{}", ran.stdout);
}

#[test]
fn our_firewall_is_shown_as_text_and_others_are_mentioned() {
    let world = World::new();
    world.apply(
        "[nftables]\nruleset = '''\ntable inet filter {\n  comment \"mine\"\n  set s { type ipv4_addr; flags interval; \
         elements = { 10.0.0.0/8, 11.0.0.1 }; }\n  set d { type ipv4_addr; flags dynamic; }\n  chain i { type filter hook input priority 0; \
         policy drop; tcp dport { 22, 80 } counter accept comment \"web\"; ip saddr @s jump { drop; }; }\n}\n\
         table ip empty { }\n'''\n",
    );
    world.sabotage("add table ip docker");
    world.sabotage("add element inet filter d { 10.0.0.9 }");
    let shown = round_trip(&world, "show", "shown.toml");
    assert!(shown.contains("[nftables]\nruleset = '''\ntable inet filter {"), "{shown}");
    assert!(shown.contains("# Not ours, and not shown: table ip docker"), "{shown}");
    for absent in ["homeostat:", "10.0.0.9", "packets"] {
        assert!(!shown.contains(absent), "{absent}: {shown}");
    }
    let json = round_trip(&world, "show --json", "shown.json");
    assert!(json.contains("\"ruleset\": \"table inet filter {"), "{json}");
}

#[test]
fn routes_of_the_local_table_that_the_kernel_did_not_make_are_shown() {
    let world = World::new();
    world.ip("link set lo up");
    world.apply(
        "[[routes]]\nto = \"10.7.0.0/16\"\ntype = \"local\"\ndev = \"lo\"\ntable = \"local\"\n",
    );
    let shown = round_trip(&world, "show", "shown.toml");
    assert!(shown.contains("to = \"10.7.0.0/16\"") && shown.contains("table = 255"), "{shown}");
}

/// Whatever is declared is kept against everybody: so what others keep is not in a first document.
#[test]
fn what_other_programs_keep_is_a_comment_with_their_name() {
    let world = World::new();
    for link in ["docker0", "br0"] {
        world.ip(&format!("link add {link} type bridge"));
        world.ip(&format!("link set {link} up"));
    }
    for (one, other) in [("vethdef", "p1"), ("lan0", "p2")] {
        world.add_pair(one, other);
        world.ip(&format!("link set {one} up"));
    }
    world.ip("link set vethdef master docker0");
    world.ip("address add 172.17.0.1/16 dev docker0");
    world.ip("address add 10.0.0.1/24 dev lan0");
    world.ip("address add 10.0.0.7/24 dev lan0 valid_lft 3600 preferred_lft 3600");
    world.ip("route add blackhole 10.1.0.0/16 proto static");
    world.ip("route add blackhole 10.2.0.0/16 proto bird");
    world.ip("route add blackhole 10.3.0.0/16 proto dhcp");
    world.ip("-6 route add blackhole fd01::/48 proto ra");
    world.ip("rule add from 10.9.0.0/16 table 7 protocol babel");
    let shown = world.run("show").exits(0).stdout;
    let (document, comments): (Vec<&str>, Vec<&str>) =
        shown.lines().partition(|line| !line.starts_with('#'));
    let (document, comments) = (document.join("\n"), comments.join("\n"));
    let kept = |keeper: &str, keys: &str| {
        let expected = format!("# Kept by {keeper}, and shown only by --all: {keys}");
        assert!(comments.lines().any(|line| line.starts_with(&expected)), "{expected}\n{comments}");
    };
    kept("Docker", "address 172.17.0.1/16 dev docker0, link docker0, link vethdef");
    kept("a lease or router advertisement", "address 10.0.0.7/24 dev lan0");
    kept("protocol bird", "route 10.2.0.0/16");
    kept("protocol dhcp", "route 10.3.0.0/16");
    kept("protocol ra", "route fd01::/48");
    kept("protocol babel", "rule ");
    for part in ["[links.br0]", "\"10.0.0.1/24\"", "10.1.0.0/16"] {
        assert!(document.contains(part), "{part}\n{document}");
    }
    for part in ["docker0", "vethdef", "10.0.0.7", "10.2.0.0", "10.3.0.0", "fd01::", "10.9.0.0"] {
        assert!(!document.contains(part), "{part}\n{document}");
    }
    world.write("shown.toml", &shown);
    world.run("plan --detailed-exitcode shown.toml").says(0, "No changes.\n");
    let all = world.run("show --all").exits(0).stdout;
    for part in ["[links.docker0]", "10.0.0.7", "10.2.0.0/16", "fd01::/48", "10.9.0.0/16"] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    assert!(!all.contains("Kept by"), "{all}");
}
