//! `plan` and `verify`: what they say, in text and in JSON, and how they end.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};
use snapbox::str;

use crate::terminal::Terminal;
use crate::world::World;

const MIXED: &str = r#"[sysctl]
"net.ipv4.ip_forward" = 1
"net.ipv4.conf.all.rp_filter" = 2
"net.ipv4.tcp_sack" = 1
"net.ipv4.nosuch" = 1

[links.eth9]
sysctl = { "ipv4/rp_filter" = 1 }
"#;

#[test]
fn a_plan_shows_changes_what_is_refused_and_what_waits() {
    World::with(MIXED).run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.ip_forward          0 -> 1
    ~ sysctl net.ipv4.conf.all.rp_filter  0 -> 2
  refused:
    ! sysctl net.ipv4.nosuch  the kernel has no such knob
  waiting:
    . sysctl net.ipv4.conf.eth9.rp_filter  waits on link eth9
Plan: 0 to create, 2 to update, 0 to replace, 0 to delete; 1 refused.

"#]],
    );
}

#[test]
fn a_plan_in_json_holds_every_list() {
    World::with(MIXED).run("plan --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[
  {"source":"knobs","scope":"host","action":"update","key":"sysctl net.ipv4.ip_forward","before":"0","after":"1","cause":"config","note":null},
  {"source":"knobs","scope":"host","action":"update","key":"sysctl net.ipv4.conf.all.rp_filter","before":"0","after":"2","cause":"config","note":null}],"conflicts":[],"pending":[
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.conf.eth9.rp_filter","on":"link eth9"}],"matched":[],"settled":[],"unknown":[],"held":[],"refused":[
  {"source":"knobs","scope":"host","action":null,"key":"sysctl net.ipv4.nosuch","error":"the kernel has no such knob","help":null}],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":2,"replace":0,"delete":0}}

"#]]);
}

#[test]
fn each_list_of_a_plan_in_json_is_there_even_if_empty() {
    let world = World::with("[sysctl]\n");
    let empty = json!({
        "format_version": "1.0", "changes": [], "conflicts": [], "pending": [], "matched": [],
        "settled": [], "unknown": [], "held": [], "refused": [], "irreversible": [],
        "optional": [], "withdrawn": [], "warnings": [],
        "summary": { "create": 0, "update": 0, "replace": 0, "delete": 0 },
    });
    assert_eq!(world.plan(), empty);
}

#[test]
fn nothing_to_do_is_said_in_two_words() {
    World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 0\n")
        .run("plan host.toml")
        .says(0, "No changes.\n");
    World::with("").run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_changed_document_is_distinguished_from_drift() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 4\n");
    world.meddle("net/ipv4/ip_forward", "0");
    let changed = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 5\n";
    world.write("host.toml", changed);
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.tcp_retries1  4 -> 5
  drifted:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
Plan: 0 to create, 2 to update, 0 to replace, 0 to delete.

"#]],
    );
    let causes: Vec<_> = world.plan()["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["key"].clone(), change["cause"].clone()))
        .collect();
    let expected = [("ip_forward", "drift"), ("tcp_retries1", "config")]
        .map(|(name, cause)| (json!(format!("sysctl net.ipv4.{name}")), json!(cause)));
    assert_eq!(causes, expected);
}

#[test]
fn a_released_knob_keeps_its_value_unless_asked_otherwise() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.tcp_retries1\" = 4\n");
    world.meddle("net/ipv4/tcp_retries1", "6");
    world.write("host.toml", "[sysctl]\n");
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  config changed:
    - sysctl net.ipv4.ip_forward    1  (released, the value stays)
    - sysctl net.ipv4.tcp_retries1  6  (released, the value stays)
Plan: 0 to create, 0 to update, 0 to replace, 2 to delete.

"#]],
    );
    world.run("plan --revert-on-release host.toml").says(
        0,
        str![[r#"
knobs in host
  config changed:
    - sysctl net.ipv4.ip_forward    1 -> 0  (released, original restored)
    - sysctl net.ipv4.tcp_retries1  6  (released, the value stays)
Plan: 0 to create, 0 to update, 0 to replace, 2 to delete.

"#]],
    );
    world.run("plan --revert-on-release --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[
  {"source":"knobs","scope":"host","action":"delete","key":"sysctl net.ipv4.ip_forward","before":"1","after":"0","cause":"config","note":"released, original restored"},
  {"source":"knobs","scope":"host","action":"delete","key":"sysctl net.ipv4.tcp_retries1","before":"6","after":null,"cause":"config","note":"released, the value stays"}],"conflicts":[],"pending":[],"matched":[],"settled":[],"unknown":[],"held":[],"refused":[],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":0,"replace":0,"delete":2}}

"#]]);
}

#[test]
fn a_plan_without_changes_says_so_where_something_is_not_as_declared() {
    let world = World::with("[sysctl]\n\"net.ipv4.conf.v0.10.rp_filter\" = 1\n");
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  waiting:
    . sysctl net/ipv4/conf/v0.10/rp_filter  waits on link v0.10
Not converged: no changes.

"#]],
    );
}

#[test]
fn quiet_says_only_what_is_wrong() {
    let world = World::with(MIXED);
    world.run("plan -q host.toml").says(
        0,
        str![[r#"
knobs in host
  refused:
    ! sysctl net.ipv4.nosuch  the kernel has no such knob
  waiting:
    . sysctl net.ipv4.conf.eth9.rp_filter  waits on link eth9

"#]],
    );
    world.write("good.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.run("plan -q good.toml").says(0, "");
}

#[test]
fn verbose_also_says_what_is_settled() {
    let world = World::new();
    world.apply("[sysctl]\n\"net.ipv4.neigh.lo.retrans_time_ms\" = 1234\n");
    world.run("plan host.toml").says(0, "No changes.\n");
    world.run("plan -v host.toml").says(
        0,
        str![[r#"
knobs in host
  settled:
    = sysctl net.ipv4.neigh.lo.retrans_time_ms  1234 is kept as [..]
No changes.

"#]],
    );
    world.run("plan --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[],"conflicts":[],"pending":[],"matched":[],"settled":[
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.neigh.lo.retrans_time_ms","wanted":"1234","held":"[..]"}],"unknown":[],"held":[],"refused":[],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":0,"replace":0,"delete":0}}

"#]]);
    world.run("verify host.toml").says(0, "");
}

/// Every knob of `lo` that can be written, set to one more than it is.
fn long_document() -> (String, usize) {
    let mut document = "[links.lo.sysctl]\n".to_owned();
    let mut count = 0;
    for entry in fs::read_dir("/proc/sys/net/ipv4/conf/lo").unwrap() {
        let path = entry.unwrap().path();
        let value: i64 = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "mc_forwarding" {
            // Only multicast routing daemons can set it.
            continue;
        }
        writeln!(document, "\"ipv4/{name}\" = {}", value + 1).unwrap();
        count += 1;
    }
    (document, count)
}

#[test]
fn a_long_list_is_cut_unless_all_of_it_is_asked_for() {
    let world = World::new();
    let (document, count) = long_document();
    assert!(count > 25, "{count}");
    world.write("host.toml", document);
    let cut = world.run("plan host.toml").exits(0);
    let lines: Vec<&str> = cut.stdout.lines().collect();
    assert_eq!(lines.len(), 2 + 20 + 2, "{}", cut.stdout);
    assert_eq!(lines[22], format!("    ... and {} more; --full shows them all", count - 20));
    let sum = format!("Plan: 0 to create, {count} to update, 0 to replace, 0 to delete.");
    assert_eq!(cut.last_line(), sum);
    let full = world.run("plan --full host.toml").exits(0);
    assert_eq!(full.stdout.lines().count(), 2 + count + 1, "{}", full.stdout);
    assert_eq!(full.last_line(), sum);
    assert_eq!(world.plan()["changes"].as_array().unwrap().len(), count, "JSON is complete");
}

#[test]
fn a_plan_ends_with_2_only_if_that_was_asked_for_and_something_differs() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.run("plan host.toml").exits(0);
    world.run("plan --detailed-exitcode host.toml").exits(2);
    world.run("plan --detailed-exitcode --json host.toml").exits(2);
    world.run("apply --yes host.toml").exits(0);
    world.run("plan --detailed-exitcode host.toml").exits(0);
    world.write("waits.toml", "[links.eth9.sysctl]\n\"ipv4/rp_filter\" = 1\n");
    world.run("plan --detailed-exitcode waits.toml").exits(2);
    world.write("broken.toml", "[sysctls]\n");
    world.run("plan --detailed-exitcode broken.toml").exits(1);
}

#[test]
fn verify_ends_with_0_if_all_is_as_declared_2_if_not_1_on_errors() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.run("verify host.toml").says(
        2,
        str![[r#"
knobs in host
  config changed:
    ~ sysctl net.ipv4.ip_forward  0 -> 1
Not converged.

"#]],
    );
    world.run("apply --yes host.toml").exits(0);
    world.run("verify host.toml").says(0, "");
    let report = world.run("verify --json host.toml").json(0);
    assert_eq!(report["changes"], json!([]));
    world.write("broken.toml", "[sysctls]\n");
    world.run("verify broken.toml").exits(1);
    world.run("verify missing.toml").exits(1);
}

#[test]
fn desired_states_that_fight_are_conflicts() {
    let fighting = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.conf.all.forwarding\" = 0\n";
    let world = World::with(fighting);
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in host
  conflicts:
    ! sysctl net.ipv4.conf.all.forwarding  fights with `sysctl net.ipv4.ip_forward`, which undoes it
    ! sysctl net.ipv4.ip_forward           fights with `sysctl net.ipv4.conf.all.forwarding`, which undoes it
Not converged: no changes; 2 in conflict.

"#]],
    );
    world.run("plan --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[],"conflicts":[
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.conf.all.forwarding","owner":"nobody","reason":"fights with `sysctl net.ipv4.ip_forward`, which undoes it"},
  {"source":"knobs","scope":"host","key":"sysctl net.ipv4.ip_forward","owner":"nobody","reason":"fights with `sysctl net.ipv4.conf.all.forwarding`, which undoes it"}],"pending":[],"matched":[],"settled":[],"unknown":[],"held":[],"refused":[],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":0,"replace":0,"delete":0}}

"#]]);
    world.run("verify -q host.toml").exits(2);
}

#[test]
fn no_look_at_the_machine_is_needed_to_check_a_document() {
    let world = World::with(MIXED);
    world.run("check host.toml").says(0, "");
    world.write(
        "broken.toml",
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.ip_forward\" = 1\n",
    );
    world.run("check broken.toml").exits(1);
}

/// A bridge that filters VLANs and has none is possible, and is a wall.
#[test]
fn check_and_plan_warn_of_a_bridge_that_filters_vlans_and_has_none() {
    let help = "(give the ports and the bridge `vlans`, such as `vlans = [\"10 pvid untagged\", \"20-30\"]`)";
    let bridge = "[links.br0]\nkind = \"bridge\"\nvlan-filtering = true\n";
    let port = "[links.lan0]\nmaster = \"br0\"\n";
    for (document, effect) in [
        (format!("{bridge}{port}"), Some("all its ports are in VLAN 1 only")),
        (format!("{bridge}vlan-default-pvid = 0\n{port}"), Some("it drops every frame")),
        (format!("{bridge}vlans = [10]\n{port}"), None),
        (format!("{bridge}{port}vlans = []\n"), None),
        ("[links.br0]\nkind = \"bridge\"\n".to_owned(), None),
    ] {
        let world = World::with(&document);
        let warning = effect.map(|effect| {
            format!(
                "host.toml:1:8: `br0` filters VLANs, and no VLANs are declared for it or its ports: {effect} {help}"
            )
        });
        let checked = world.run("check host.toml").exits(0);
        let expected = warning.as_ref().map(|warning| format!("warning: {warning}\n"));
        assert_eq!(checked.stderr, expected.unwrap_or_default(), "{document}");
        let planned = world.run("plan --json host.toml").exits(0);
        let json: Value = serde_json::from_str(&planned.stdout).unwrap();
        assert_eq!(json["warnings"], json!(Vec::from_iter(warning)), "{document}");
    }
}

/// A change that may cut off the operator's connection is named before it is made.
#[test]
fn a_plan_warns_of_changes_that_carry_the_operators_own_connection() {
    let world = World::new();
    world.add_pair("lan0", "peer0");
    for args in ["address add 192.0.2.1/24 dev lan0", "link set lan0 up", "link set peer0 up"] {
        world.ip(args);
    }
    let plan = |document: &str, args: &str| {
        world.write("host.toml", document);
        let mut command = world.homeostat(&format!("plan host.toml {args}"));
        command.env("SSH_CONNECTION", "192.0.2.9 40000 192.0.2.1 22");
        world.finish(command).exits(0)
    };
    let mtu = "[links.lan0]\nmtu = 1400\n";
    let warning = "`link lan0 mtu`: your SSH connection from 192.0.2.9 comes through it; `homeostat apply \
                   --confirm-within 2m` undoes the change if you are cut off";
    assert_eq!(plan(mtu, "").last_line(), format!("warning: {warning}"));
    let json: Value = serde_json::from_str(&plan(mtu, "--json").stdout).unwrap();
    assert_eq!(json["warnings"], json!([warning]));
    for (document, is_warned) in [
        ("routes = [{ to = \"192.0.2.8/29\", type = \"blackhole\" }]\n", true),
        ("routes = [{ to = \"192.0.0.0/16\", type = \"blackhole\" }]\n", false),
        ("routes = [{ to = \"10.0.0.0/8\", type = \"blackhole\" }]\n", false),
        ("[links.peer0]\nmtu = 1400\n", false),
        ("[links.lan0]\naddresses = [\"192.0.2.7/24\"]\n", false),
        ("[nftables]\nruleset = \"table ip t {}\"\n", true),
    ] {
        let drawn = plan(document, "").stdout;
        assert_eq!(drawn.contains("your SSH connection"), is_warned, "{document}: {drawn}");
    }
}

/// `sudo` takes the variable away; the shell of the session still has it.
#[test]
fn the_connection_is_found_in_a_parent_too() {
    let world = World::with("[nftables]\nruleset = \"table ip t {}\"\n");
    let plan = world.homeostat("plan host.toml");
    let mut shell = world.command("sh");
    shell.env("SSH_CONNECTION", "192.0.2.9 40000 192.0.2.1 22");
    shell.args(["-c", "env -u SSH_CONNECTION \"$0\" \"$@\"; exit $?"]);
    shell.arg(plan.get_program()).args(plan.get_args());
    let drawn = world.finish(shell).exits(0).stdout;
    assert!(drawn.contains("your SSH connection from 192.0.2.9"), "{drawn}");
}

/// What a change destroys is one thing, and what others may feel of it another: that is a note.
#[test]
fn a_plan_notes_what_others_may_feel_of_a_change() {
    let world = World::new();
    world.add_pair("va", "vb");
    world.ip("link set va up");
    world.ip("link add br0 type bridge");
    let ruleset = |policy: &str| {
        let chain = format!("type filter hook input priority 0; policy {policy};");
        format!("[nftables]\nruleset = \"table inet f {{ chain i {{ {chain} }}; }}\"\n")
    };
    let links = "[links.va]\nup = false\n[links.vb]\nmaster = \"br0\"\n";
    world.write("host.toml", format!("{links}{}", ruleset("drop")));
    let note_of = |key: &str| {
        let changes = world.plan()["changes"].as_array().unwrap().clone();
        let change = changes.into_iter().find(|change| change["key"] == key);
        change.unwrap_or_else(|| panic!("no change of {key}"))["note"].clone()
    };
    let cut = "connections that it does not accept are cut, also open ones";
    assert_eq!(note_of("table inet f"), cut);
    assert_eq!(note_of("link va up"), "programs that use it see it lose its carrier");
    let joins = "its packets go to its master, and its own addresses get none";
    assert_eq!(note_of("link vb master"), joins);
    let drawn = world.run("plan host.toml").exits(0).stdout;
    assert!(drawn.contains(cut) && drawn.contains(joins), "{drawn}");
    world.run("apply --yes host.toml").exits(0);
    // What drops already cuts nothing anew.
    world.write("host.toml", ruleset("drop").replace("policy drop;", "policy drop; accept;"));
    let plan = world.plan().to_string();
    assert!(!plan.contains(cut), "{plan}");
    world.write("host.toml", ruleset("accept"));
    let plan = world.plan().to_string();
    assert!(plan.contains("policy") && !plan.contains(cut), "{plan}");
}

#[test]
fn vrfs_without_a_table_of_their_own_get_the_first_that_no_other_has() {
    let vrf =
        |name: &str, table: &str| format!("[links.{name}]\nkind = \"vrf\"\ntable = {table}\n");
    let document = [
        vrf("red", "\"auto\""),
        vrf("blue", "1002"),
        vrf("green", "\"auto\""),
        vrf("first", "\"main\""),
    ];
    let world = World::with(&document.concat());
    let plan = world.run("plan --json host.toml").json(0);
    let tables: Vec<_> = plan["changes"].as_array().unwrap().iter().collect();
    let table = |name: &str| {
        let key = format!("link {name}");
        tables.iter().find(|change| change["key"] == *key).unwrap()["after"]["table"].clone()
    };
    let found = ["red", "blue", "green", "first"].map(table);
    assert_eq!(found, [1001, 1002, 1003, 254]);
}

/// What a terminal of twenty lines shows of a plan.
fn shown_of(routes: usize, pager: &str) -> String {
    let routes =
        (0..routes).map(|at| format!("{{ to = \"10.0.{at}.0/24\", type = \"blackhole\" }}"));
    let routes = routes.collect::<Vec<_>>().join(",");
    let world = World::with(&format!("routes = [{routes}]\n"));
    let terminal = Terminal::with_lines(20);
    let mut command = world.homeostat("plan --full host.toml");
    command.env("HOMEOSTAT_PAGER", pager).stdout(terminal.end());
    assert!(command.status().unwrap().success());
    drop(command);
    terminal.screen()
}

#[test]
fn a_plan_that_is_longer_than_the_terminal_goes_through_the_pager_of_the_reader() {
    let paged = shown_of(30, "sed s/^/paged:/");
    let lines: Vec<&str> = paged.lines().collect();
    assert_eq!(lines.len(), 33, "{paged}");
    assert!(lines.iter().all(|line| line.starts_with("paged:")), "{paged}");
    assert!(lines[32].ends_with("Plan: 30 to create, 0 to update, 0 to replace, 0 to delete."));
    for (routes, pager) in [(10, "sed s/^/paged:/"), (30, "cat"), (30, ""), (30, "/no/such/pager")]
    {
        let plain = shown_of(routes, pager);
        assert!(
            plain.starts_with("rtnl in host\n") || plain.starts_with('\u{1b}'),
            "{pager}: {plain}"
        );
        assert!(plain.contains(&format!("Plan: {routes} to create")), "{pager}: {plain}");
    }
}

#[test]
fn the_last_line_of_a_plan_names_what_will_not_be_done() {
    let world = World::with(
        "routes = [{ to = \"10.1.0.0/16\", type = \"blackhole\" }, { to = \"10.2.0.0/16\", type = \"blackhole\" }]\n",
    );
    world.ip("route add unreachable 10.1.0.0/16 proto static");
    let ran = world.run("plan host.toml").exits(0);
    assert_eq!(
        ran.last_line(),
        "Plan: 1 to create, 0 to update, 0 to replace, 0 to delete; 1 in conflict."
    );
}
