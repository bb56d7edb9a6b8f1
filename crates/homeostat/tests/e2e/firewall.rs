//! A daemon and its firewall: whatever other programs do to it is undone, and it is there before anything
//! is forwarded.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::process::Command;
use std::time::Duration;

use homeostat_netlink::uapi::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN};
use homeostat_netlink::{AsyncListener, Event, Family, Group, Listener, Options};
use homeostat_netns::Netns;
use homeostat_testkit::foreign_commits::ForeignCommits;
use serde_json::Value;

use crate::keeping::until;
use crate::world::World;

const FIREWALL: &str = r#"
[nftables]
ruleset = '''
table inet filter {
    set admins { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        tcp dport 80 accept
        ip saddr @admins tcp dport 22 accept
    }
}
'''
"#;

/// Runs one command of nft; a fresh process each time, as somebody else would.
fn nft(command: &str) -> String {
    let output = Command::new("nft").args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The ruleset without handles and counts.
fn listed() -> String {
    nft("-s list ruleset")
}

/// The number of the rule with these words.
fn handle(words: &str) -> String {
    let listing = nft("-a list chain inet filter input");
    let line = listing.lines().find(|line| line.contains(words)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// Everything that another program may do to it.
fn sabotage() -> Vec<Vec<String>> {
    let established = handle("established");
    let web = handle("dport 80");
    let acts: [&[&str]; 5] = [
        &["flush ruleset"],
        &[&format!("delete rule inet filter input handle {web}")],
        &[
            &format!("delete rule inet filter input handle {established}"),
            "add rule inet filter input ct state established,related accept",
        ],
        &["chain inet filter input { policy accept; }"],
        &["flush set inet filter admins"],
    ];
    acts.iter().map(|act| act.iter().map(ToString::to_string).collect()).collect()
}

#[test]
fn whatever_somebody_does_to_the_firewall_is_undone_by_hint() {
    let world = World::new();
    // Nothing is looked at again but by hint.
    let _daemon =
        world.keep(&format!("[settings.nft]\nresync = \"1h\"\nmin-interval = \"1ms\"\n{FIREWALL}"));
    world.converges();
    let whole = listed();
    assert!(whole.contains("ip saddr @admins"), "{whole}");
    let mut events = world.follow();
    for nth in 0..5 {
        // Handles are others after each act.
        let act = sabotage().swap_remove(nth);
        for command in &act {
            nft(command);
        }
        let woken = events.until(|event| event["event"] == "woken" && event["source"] == "nft");
        assert!(woken["by"].as_str().unwrap().starts_with("nft (pid "), "{woken}");
        events.until(|event| {
            event["event"] == "completed" && event["source"] == "nft" && event["converged"] == true
        });
        // An act of two commits may be noticed in two parts.
        until(&format!("the end of {act:?}"), || listed() == whole);
        world.converges();
    }
}

#[test]
fn what_happens_while_nobody_heals_is_undone_by_the_next_full_look() {
    for nth in 0..5 {
        let world = World::new();
        let _daemon = world.keep(&format!("[settings.nft]\nresync = \"1h\"\n{FIREWALL}"));
        world.converges();
        let whole = listed();
        world.run("pause").exits(0);
        let act = sabotage().swap_remove(nth);
        for command in &act {
            nft(command);
        }
        assert_ne!(listed(), whole, "{act:?}");
        world.run("resume").exits(0);
        world.run("resync").exits(0);
        assert_eq!(listed(), whole, "{act:?}");
    }
}

#[test]
fn who_keeps_undoing_it_is_named() {
    let world = World::new();
    let _daemon = world.keep(&format!("[settings.nft]\nmin-interval = \"1ms\"\n{FIREWALL}"));
    world.converges();
    let mut events = world.follow();
    // Five times within ten seconds; on a busy machine it may take some more to be so fast.
    let is_healed =
        |event: &Value| event["event"] == "completed" && event["summary"]["create"] != 0;
    let is_contention = |event: &Value| event["event"] == "contention";
    let mut flushed = (1..=50).map(|nth| {
        nft("flush ruleset");
        (nth, events.until(|event| is_healed(event) || is_contention(event)))
    });
    let (nth, contention) = flushed.find(|(_, event)| is_contention(event)).unwrap();
    assert!(nth >= 5, "{nth}");
    assert_eq!(contention["key"], "table inet filter");
    assert!(contention["culprit"].as_str().unwrap().starts_with("nft (pid "), "{contention}");
    let status = world.run("status").stdout;
    assert!(status.contains("keeps undoing table inet filter"), "{status}");
}

#[test]
fn the_healing_names_the_process_that_made_it_necessary() {
    let world = World::new();
    let _daemon = world.keep(FIREWALL);
    world.converges();
    let mut events = world.follow();
    let mut heal = || {
        nft("flush ruleset");
        let is_table =
            |event: &Value| event["event"] == "step-applied" && event["key"] == "table inet filter";
        events.until(is_table)
    };
    let mut healed = heal();
    // A resync that comes just now heals it, too, and knows of no process.
    for _ in 0..3 {
        if healed["by"].is_null() {
            healed = heal();
        }
    }
    assert_eq!(healed["cause"], "drift");
    assert!(healed["by"].as_str().unwrap().starts_with("nft (pid "), "{healed}");
    let text = world.run("events").exits(0).stdout;
    assert!(text.contains("key=\"table inet filter\" cause=drift by=\"nft (pid "), "{text}");
    let mut status = world.homeostat("status");
    status.arg("table inet filter");
    let text = world.finish(status).exits(0).stdout;
    assert!(text.contains("last heal: create after drift by nft (pid "), "{text}");
}

#[test]
fn a_link_that_is_made_again_is_meant_again() {
    let world = World::new();
    world.namespace.ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
    let _daemon = world.keep(
        "[settings.nft]\nresync = \"1h\"\n[nftables]\n\
         ruleset = 'table ip a { chain x { iif br0 accept; }; }'\n",
    );
    world.converges();
    let mut events = world.follow();
    world.namespace.ip(&["link", "del", "br0"]).unwrap();
    events.until(|event| event["event"] == "completed" && event["converged"] == false);
    let status = world.run("status").stdout;
    assert!(status.contains("waiting") || status.contains("pending"), "{status}");
    for name in ["br1", "br0"] {
        world.namespace.ip(&["link", "add", name, "type", "bridge"]).unwrap();
    }
    events.until(|event| event["event"] == "step-applied" && event["source"] == "nft");
    world.converges();
    assert!(nft("list chain ip a x").contains("iif \"br0\" accept"));
}

#[test]
fn a_firewall_may_speak_of_a_link_that_the_same_document_makes() {
    let world = World::with(
        "[links.br0]\nkind = \"bridge\"\n[nftables]\n\
         ruleset = 'table ip a { chain x { iif br0 accept; }; }'\n",
    );
    world.run("apply --yes host.toml").exits(0);
    assert!(nft("list chain ip a x").contains("iif \"br0\" accept"));
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[tokio::test]
async fn forwarding_is_never_on_before_the_firewall_is_there() {
    let world = World::new();
    // An independent listener receives commits, and forwarding, as the kernel makes them.
    let listen = |family, group| {
        let listener = Listener::open(family, &[Group(group)], &Options::for_events()).unwrap();
        AsyncListener::new(listener)
    };
    let mut commits = listen(Family::Netfilter, NFNLGRP_NFTABLES);
    let mut forwarding = listen(Family::Route, NETCONF);
    let _daemon = world.keep(&format!(
        "{FIREWALL}\n[links.br0]\nkind = \"bridge\"\nsysctl = {{ \"ipv4/rp_filter\" = 2 }}\n\
         [sysctl]\n\"net.ipv4.ip_forward\" = 1\n\"net.ipv4.conf.default.rp_filter\" = 1\n"
    ));
    let mut is_on = false;
    while !is_on {
        let mut each = |event: Event<'_>| is_on |= turns_on(&event);
        let received = tokio::time::timeout(PATIENCE, forwarding.receive(&mut each)).await;
        received.expect("forwarding is turned on").unwrap();
    }
    // What was committed before is in the queue already.
    let mut tables = 0;
    let mut each = |event: Event<'_>| tables += usize::from(is_commit(&event));
    while commits.receive_now(&mut each).unwrap() {}
    assert_eq!(tables, 1, "forwarding was on before the firewall was there");
    world.converges();
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    assert_eq!(world.knob("net/ipv4/conf/br0/rp_filter"), "2", "links come before their knobs");
}

/// However busy the machine is, silence for so long is a failure.
const PATIENCE: Duration = Duration::from_mins(2);
/// `RTNLGRP_IPV4_NETCONF`.
const NETCONF: u32 = 24;
/// `RTM_NEWNETCONF`, and its attributes for the link and for forwarding.
const NEW_NETCONF: u16 = 80;
const NETCONF_FORWARDING: u16 = 2;
/// A commit of nftables ends with its generation.
const NEW_GENERATION: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN;

fn turns_on(event: &Event<'_>) -> bool {
    let Event::Message(message) = event else { panic!("events were lost") };
    let Ok((_, attrs)) = message.split::<4>() else { return false };
    let value = attrs.first(NETCONF_FORWARDING).unwrap();
    message.kind == NEW_NETCONF && value.is_some_and(|value| value.value == 1_i32.to_ne_bytes())
}

fn is_commit(event: &Event<'_>) -> bool {
    let Event::Message(message) = event else { panic!("events were lost") };
    message.kind == NEW_GENERATION
}

/// A document with so many rules, and ten times as many elements.
fn sized(rules: u32) -> String {
    let elements: Vec<String> = (0..rules * 10)
        .map(|nth| format!("10.{}.{}.{}", nth >> 16, nth >> 8 & 255, nth & 255))
        .collect();
    let rules: Vec<String> = (1..=rules).map(|port| format!("tcp dport {port} accept")).collect();
    format!(
        "[nftables]\nruleset = '''\ntable ip a {{\n set s {{ type ipv4_addr; elements = {{ {} }}; }}\n \
         chain x {{\n{}\n }}\n}}\n'''\n",
        elements.join(", "),
        rules.join("\n")
    )
}

#[test]
fn a_refused_table_holds_back_no_other_one_and_status_says_when_it_is_tried_again() {
    let world = World::new();
    let document = "[settings.nft]\nresync = \"1h\"\n[nftables]\nruleset = \"\"\"\n\
        table ip bad { chain x { type filter hook input priority 0; drop; }; }\n\
        table ip good { chain x { accept; }; }\n\"\"\"\n";
    // As many chains as the kernel lets into a hook.
    let chain = |nth| format!("chain c{nth} {{ type filter hook input priority {nth}; }}\n");
    let crowd: String = (0..1024).map(chain).collect();
    let path = world.write("crowd.nft", format!("table ip crowd {{\n{crowd}}}\n"));
    nft(&format!("-f {}", path.display()));
    world.write("host.toml", document);
    let ran = world.run("apply --yes host.toml").exits(1);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("! table ip bad  table ip bad chain x: "), "{said}");
    assert_eq!(nft("list tables"), "table ip crowd\ntable ip good\n");
    let _daemon = world.keep(document);
    until("the refused table has a pause", || {
        let status = world.run("status").stdout;
        status.contains("table ip bad (nft in host): failed") && status.contains("next retry in")
    });
    nft("delete table ip crowd");
    world.converges();
    assert!(nft("list tables").contains("table ip bad"));
}

#[test]
fn apply_and_the_daemon_update_large_tables_beside_200_foreign_commits_a_second() {
    let world = World::with(&sized(1000));
    nft("add table ip foreign");
    nft("add set ip foreign s { type ipv4_addr; }");
    let commits = ForeignCommits::begin(Netns::current().unwrap(), "foreign", "s");
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", sized(1000).replace(" accept", " drop"));
    world.run("apply --yes host.toml").exits(0);
    let _daemon = world.keep(&sized(1000));
    world.converges();
    let mut events = world.follow();
    // `nft` would not end if it had to list what is there while others commit.
    nft("delete table ip a");
    events.until(|event| event["event"] == "step-applied" && event["source"] == "nft");
    world.converges();
    assert!(commits.end() > 0);
    assert_eq!(nft("list chain ip a x").matches(" accept").count(), 1000);
}

#[test]
fn a_firewall_is_tried_in_a_sandbox_by_an_unprivileged_user() {
    let world = World::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.path(), mode).unwrap();
    let program = world.path().join("homeostat");
    crate::program::copy_program(&program);
    let apply = |document: String| {
        world.write("host.toml", document);
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        command.arg(&program).args(["--sandbox", "apply", "--yes", "host.toml"]);
        world.finish(command)
    };
    let ran = apply(sized(300)).exits(0);
    let last = "Applied: 303 created, 0 updated, 0 replaced, 0 deleted.";
    assert_eq!(ran.last_line(), last, "{}", ran.stdout);
    // What does not fit the buffers of an unprivileged user is refused, with the way out.
    let ran = apply(sized(3000)).exits(1);
    assert!(ran.stderr.contains("Message too long"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: without CAP_NET_ADMIN"), "{}", ran.stderr);
    assert_eq!(listed(), "", "the sandbox is another network");
}

#[test]
fn without_a_firewall_in_the_document_nft_is_not_needed() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let run = |args: &str| {
        let mut command = world.homeostat(args);
        command.env("PATH", "/nonexistent");
        world.finish(command)
    };
    run("plan host.toml").exits(0);
    run("apply --yes host.toml").exits(0);
    run("show").exits(0);
    world.write("host.toml", FIREWALL);
    let ran = run("plan host.toml").exits(1);
    assert!(ran.stderr.contains("`nft` is not installed"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: install the package `nftables`"), "{}", ran.stderr);
}
