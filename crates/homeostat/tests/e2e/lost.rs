//! Sections and files that disappear: what they declared is held, and the rest goes on.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::fs;
use std::process::Command;

use serde_json::Value;
use snapbox::str;

use crate::guests::{GUEST, Ground};
use crate::keeping::until;
use crate::world::World;

const LINKS: &str = "[links.br0]\nkind = \"bridge\"\nup = true\nmtu = 1450\n";
/// Something in every list of the network.
const NETWORK: &str = r#"
[[routes]]
to = "10.1.0.0/16"
type = "blackhole"
[[routes]]
to = "10.2.0.0/16"
type = "blackhole"
[[rules]]
priority = 100
from = "10.0.0.0/8"
table = 100
[[neighbours]]
to = "10.0.0.9"
dev = "br0"
mac = "02:00:00:00:00:09"
[[nexthops]]
id = 7
dev = "br0"
"#;
const FIREWALL: &str =
    "table inet filter {\n chain input { type filter hook input priority 0; policy drop; }\n}\n";

impl World {
    /// The keys that a plan or report holds back, with the reason.
    #[track_caller]
    fn held(&self, args: &str) -> Vec<(String, String)> {
        let report: Value = serde_json::from_str(&self.run(args).stdout).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let held = report["held"].as_array().unwrap().iter();
        held.map(|one| (text(&one["key"]), text(&one["reason"]))).collect()
    }

    /// The keys of removals that the plan of the document holds back or makes.
    #[track_caller]
    fn removals(&self, what: &str) -> Vec<String> {
        let plan = self.plan();
        let entries = plan[what].as_array().unwrap().iter();
        let deletes = entries.filter(|entry| entry["action"] == "delete");
        deletes.map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
    }

    /// How many routes of ours `ip` shows.
    #[track_caller]
    fn routes(&self) -> usize {
        self.listed("route show table all proto 76").len()
    }

    /// How many keys the loop of a source holds back.
    fn held_by(&self, source: &str) -> u64 {
        let status: Value = serde_json::from_str(&self.run("status --json").stdout).unwrap();
        let loops = status["loops"].as_array().unwrap().iter();
        let held = loops.filter(|one| one["source"] == source).map(|one| &one["open"]["held"]);
        held.map(|held| held.as_u64().unwrap()).sum()
    }
}

fn ruleset() -> String {
    let output = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What may happen to a file of a directory.
type Loss = fn(&World, &str);

const LOSSES: [(&str, Loss); 4] = [
    ("removed", |world, file| fs::remove_file(world.path().join(file)).unwrap()),
    ("renamed", |world, file| {
        fs::rename(world.path().join(file), world.path().join(format!("{file}.bak"))).unwrap();
    }),
    ("emptied", |world, file| _ = world.write(file, "")),
    ("commented out", |world, file| _ = world.write(file, "# later\n")),
];

#[test]
fn a_file_of_a_directory_that_disappears_deletes_nothing_and_the_rest_goes_on() {
    for (what, lose) in LOSSES {
        let world = World::new();
        world.write("conf/10-links.toml", LINKS);
        world.write("conf/20-routes.toml", NETWORK);
        world.run("apply --yes conf").exits(0);
        lose(&world, "conf/20-routes.toml");
        world.write("conf/10-links.toml", LINKS.replace("1450", "1400"));
        let held = world.held("apply --yes --json conf");
        let keys: Vec<&str> = held.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys.len(), 5, "{what}: {held:?}");
        assert_eq!(world.routes(), 2, "{what}");
        let link = &world.listed("link show br0")[0];
        assert_eq!(link["mtu"], 1400, "{what}: the rest goes on");
        world.run("verify -q conf").exits(2);
        world.run("apply --yes --allow-mass-delete conf").exits(0);
        assert_eq!(world.routes(), 0, "{what}");
    }
}

#[test]
fn each_section_is_named_as_the_document_writes_it_with_what_to_write() {
    let world = World::new();
    let knob = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";
    let link = LINKS.replace("up = true\n", "up = true\naddresses = [\"10.0.0.1/24\"]\n");
    world.apply(&format!("{link}{NETWORK}{knob}"));
    world.write("host.toml", LINKS);
    world.run("plan host.toml").says(0, str![[r#"
rtnl in host
  held back:
    ! delete rule priority 100 from 10.0.0.0/8  `[[rules]]` is missing from the document; to delete what it declared, write `rules = []` at the top level, or use --allow-mass-delete
    ! delete neighbour 10.0.0.9 dev br0         `[[neighbours]]` is missing from the document; to delete what it declared, write `neighbours = []` at the top level, or use --allow-mass-delete
    ! delete route 10.1.0.0/16                  `[[routes]]` is missing from the document; to delete what it declared, write `routes = []` at the top level, or use --allow-mass-delete
    ! delete route 10.2.0.0/16                  `[[routes]]` is missing from the document; to delete what it declared, write `routes = []` at the top level, or use --allow-mass-delete
    ! delete nexthop 7                          `[[nexthops]]` is missing from the document; to delete what it declared, write `nexthops = []` at the top level, or use --allow-mass-delete
    ! delete address 10.0.0.1/24 dev br0        `addresses` of `[links.br0]` is missing from the document; to delete what it declared, write `addresses = []` there, or use --allow-mass-delete
knobs in host
  held back:
    ! delete sysctl net.ipv4.ip_forward  `[sysctl]` is missing from the document; to delete what it declared, write an empty `[sysctl]`, or use --allow-mass-delete
Not converged: no changes; 7 held back.

"#]]);
    // The last link takes its section along, and with it its addresses.
    world.write("host.toml", "");
    let held = world.held("plan --json host.toml");
    let of = |key: &str| held.iter().find(|one| one.0.starts_with(key)).unwrap().1.clone();
    assert!(of("link br0").starts_with("`[links]` is missing"), "{held:?}");
    assert_eq!(of("link br0"), of("address 10.0.0.1/24"));
    world.run("apply --yes host.toml").exits(1);
    assert_eq!(world.routes(), 2);
}

#[test]
fn explicit_empty_sections_delete() {
    let world = World::new();
    let knob = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";
    let link = LINKS.replace("up = true\n", "up = true\naddresses = [\"10.0.0.1/24\"]\n");
    world.apply(&format!("{link}{NETWORK}{knob}"));
    let empty = "routes = []\nrules = []\nneighbours = []\nnexthops = []\n[sysctl]\n";
    world.apply(&format!("{empty}{LINKS}addresses = []\n"));
    assert_eq!(world.routes(), 0);
    assert!(world.listed("nexthop show").is_empty());
    world.apply("routes = []\nrules = []\nneighbours = []\nnexthops = []\n[sysctl]\n[links]\n");
    assert!(world.listed("link show type bridge").is_empty());
    world.run("verify host.toml").says(0, "");
}

#[test]
fn an_entry_that_leaves_a_section_that_is_still_written_is_deleted() {
    let world = World::new();
    let two = "[links.br1]\nkind = \"bridge\"\naddresses = [\"10.0.1.1/24\"]\n";
    world.apply(&format!("{LINKS}{two}{NETWORK}"));
    // One link of two goes with its addresses, and one route of two; the rules are lost.
    let route = "[[routes]]\nto = \"10.1.0.0/16\"\ntype = \"blackhole\"\n";
    world.write("host.toml", format!("neighbours = []\nnexthops = []\n{LINKS}{route}"));
    assert_eq!(world.removals("held"), ["rule priority 100 from 10.0.0.0/8"]);
    assert_eq!(world.removals("changes").len(), 5, "{}", world.plan());
    world.run("apply --yes host.toml").exits(1);
    assert_eq!(world.routes(), 1);
    assert_eq!(world.listed("link show type bridge").len(), 1);
}

#[test]
fn what_a_lost_section_holds_is_not_counted_by_the_budget() {
    let world = World::new();
    let routes =
        (0..40).map(|nth| format!("[[routes]]\nto = \"10.{nth}.0.0/16\"\ntype = \"blackhole\"\n"));
    let two = "[links.br1]\nkind = \"bridge\"\n";
    world.apply(&format!("{LINKS}{two}{}", routes.collect::<String>()));
    world.write("host.toml", LINKS);
    assert_eq!(world.removals("changes"), ["link br1"]);
    assert_eq!(world.removals("held").len(), 40);
}

#[test]
fn sections_of_a_namespace_are_guarded_like_those_of_the_host() {
    let world = World::new().with_own_names();
    world.ip("netns add blue");
    let route = "to = \"10.1.0.0/16\"\ntype = \"blackhole\"\n";
    let lo = "[namespaces.blue.links.lo]\nup = true\n";
    let addressed = format!("{lo}addresses = [\"10.7.0.1/32\"]\n");
    world.apply(&format!("{addressed}[[namespaces.blue.routes]]\n{route}"));
    world.write("host.toml", lo);
    world.run("plan host.toml").says(0, str![[r#"
rtnl in blue
  held back:
    ! delete route 10.1.0.0/16           `routes` of `[namespaces.blue]` is missing from the document; to delete what it declared, write `routes = []` there, or use --allow-mass-delete
    ! delete address 10.7.0.1/32 dev lo  `addresses` of `[namespaces.blue.links.lo]` is missing from the document; to delete what it declared, write `addresses = []` there, or use --allow-mass-delete
Not converged: no changes; 2 held back.

"#]]);
    world.run("apply --yes host.toml").exits(1);
    assert_eq!(world.listed("-n blue route show table all proto 76").len(), 1);
    world.apply(&format!("namespaces.blue.routes = []\n{lo}addresses = []\n"));
    assert!(world.listed("-n blue route show table all proto 76").is_empty());
}

#[test]
fn a_whole_namespace_that_leaves_while_others_stay_is_held() {
    let world = World::new().with_own_names();
    world.ip("netns add red");
    let of = |name: &str, more: &str| {
        format!(
            "[namespaces.{name}]\n{more}routes = [{{ to = \"10.1.0.0/16\", type = \"blackhole\" }}]\n"
        )
    };
    let (own, other, rest) =
        (of("blue", "create = true\n"), of("red", ""), of("green", "create = true\n"));
    world.apply(&format!("{own}{other}{rest}"));
    world.write("host.toml", &rest);
    world.run("plan host.toml").says(0, str![[r#"
namespaces in host
  held back:
    ! delete namespace blue  `[namespaces.blue]` is missing from the document, and we own something in it; to delete it, empty its sections first, or use --allow-mass-delete
rtnl in blue
  held back:
    ! delete route 10.1.0.0/16  `[namespaces.blue]` is missing from the document; to delete what it declared, write it with `routes = []`, or use --allow-mass-delete
rtnl in red
  held back:
    ! delete route 10.1.0.0/16  `[namespaces.red]` is missing from the document; to delete what it declared, write it with `routes = []`, or use --allow-mass-delete
Not converged: no changes; 3 held back.

"#]]);
    world.run("apply --yes host.toml").exits(1);
    for name in ["blue", "red"] {
        assert_eq!(world.listed(&format!("-n {name} route show proto 76")).len(), 1, "{name}");
    }
    // One that is emptied first is removed like any other entry.
    world.apply(&format!(
        "{rest}[namespaces.blue]\ncreate = true\nroutes = []\n[namespaces.red]\nroutes = []\n"
    ));
    world.apply(&rest);
    assert_eq!(world.ip("netns list").lines().count(), 2, "{}", world.ip("netns list"));
    assert!(world.listed("-n red route show proto 76").is_empty());
}

#[test]
fn no_namespaces_at_all_can_be_said_aloud() {
    let world = World::new().with_own_names();
    world.ip("netns add red");
    let inside = "routes = [{ to = \"10.1.0.0/16\", type = \"blackhole\" }]\n";
    world.apply(&format!("[namespaces.blue]\ncreate = true\n{inside}[namespaces.red]\n{inside}"));
    world.apply("[namespaces]\n");
    assert_eq!(world.ip("netns list").trim(), "red");
    assert!(world.listed("-n red route show proto 76").is_empty());
}

#[test]
fn knobs_of_a_link_belong_to_the_link_or_to_the_global_section() {
    let world = World::new();
    let knobs = "[links.lo.sysctl]\n\"ipv4/rp_filter\" = 1\n\"ipv4/log_martians\" = 1\n";
    let routes = "[[routes]]\nto = \"10.1.0.0/16\"\ntype = \"blackhole\"\n";
    world.apply(&format!("{knobs}{routes}"));
    // Only one of them left a section that is still written.
    world.write("host.toml", format!("[links.lo.sysctl]\n\"ipv4/rp_filter\" = 1\n{routes}"));
    assert!(world.removals("held").is_empty());
    world.write("host.toml", format!("{routes}[links.lo]\nup = true\n"));
    let held = world.held("plan --json host.toml");
    assert_eq!(held.len(), 2, "{held:?}");
    assert!(held[0].1.starts_with("`[links.lo.sysctl]` is missing"), "{held:?}");
    // A link that has left takes its knobs along, unless `[sysctl]` is lost as well.
    world.write("host.toml", format!("{routes}[links]\n"));
    assert!(world.removals("held").is_empty());
    world.apply(&format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n{knobs}{routes}"));
    world.write("host.toml", format!("{routes}[links]\n"));
    let held = world.held("plan --json host.toml");
    assert_eq!(held.len(), 3, "{held:?}");
    assert!(held.iter().all(|(_, why)| why.starts_with("`[sysctl]` is missing")), "{held:?}");
}

#[test]
fn knobs_of_a_link_that_is_written_without_them_are_held_beside_the_global_section() {
    let world = World::new();
    let global = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
    let links = "[links.lo]\nup = true\n";
    let original = world.knob("net/ipv4/conf/lo/rp_filter");
    world.apply(&format!("{global}{links}[links.lo.sysctl]\n\"ipv4/rp_filter\" = 2\n"));
    world.write("host.toml", format!("{global}{links}"));
    let held = world.held("plan --json host.toml");
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0].1.starts_with("`[links.lo.sysctl]` is missing"), "{held:?}");
    world.run("apply --yes --revert-on-release host.toml");
    assert_eq!(world.knob("net/ipv4/conf/lo/rp_filter"), "2");
    // A section that is written and empty, and a link that has left, are ordinary edits.
    world.write("host.toml", format!("{global}{links}[links.lo.sysctl]\n"));
    assert!(world.held("plan --json host.toml").is_empty());
    world.write("host.toml", format!("{global}[links]\n"));
    assert!(world.held("plan --json host.toml").is_empty());
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/conf/lo/rp_filter"), original);
}

#[test]
fn guests_whose_cluster_is_lost_from_the_document_are_left_alone_and_stay_ours() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    let requests = || ground.cluster.with(|world| world.calls.len());
    let before = requests();
    ground.world.write("host.toml", "[[routes]]\nto = \"10.1.0.0/16\"\ntype = \"blackhole\"\n");
    let ran = ground.world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains("guests  waits on `[proxmox]`"), "{}", ran.stdout);
    assert_eq!(requests(), before, "no target is asked");
    assert!(ground.is_running());
    // Guests without a cluster are a mistake, not a wish.
    ground.world.write("host.toml", GUEST);
    ground.world.run("apply --yes host.toml").exits(1);
    assert_eq!(requests(), before);
    ground.declare("");
    let held = ground.world.held("plan --json host.toml");
    assert!(held.iter().any(|(key, _)| key.contains("101")), "it is still ours: {held:?}");
}

#[test]
fn guests_whose_section_is_lost_stay_ours() {
    let ground = Ground::new(GUEST);
    ground.world.run("apply --yes host.toml").exits(0);
    ground.declare("");
    let held = ground.world.held("plan --json host.toml");
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0].1.starts_with("`[guests]` is missing"), "{held:?}");
    ground.declare("[guests]\n");
    assert!(ground.world.held("plan --json host.toml").is_empty());
}

/// Texts that make no table.
const NO_TABLES: [&str; 5] =
    ["", "\n  \n", "# later\n", "#!/usr/sbin/nft -f\nflush ruleset\n", "define web = 80\n"];

#[test]
fn a_ruleset_without_a_table_keeps_the_firewall() {
    let world =
        World::with("[nftables]\nfile = \"fw.nft\"\n[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    for text in NO_TABLES {
        world.write("fw.nft", FIREWALL);
        world.run("apply --yes host.toml").exits(0);
        world.write("fw.nft", text);
        world.meddle("net/ipv4/tcp_retries1", "4");
        world.run("apply --yes host.toml").exits(1);
        assert!(ruleset().contains("policy drop"), "{text:?}");
        assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5", "{text:?}: the rest goes on");
    }
    world.write("fw.nft", "");
    world.run("plan host.toml").says(0, str![[r#"
nft in host
  held back:
    ! delete table inet filter  the ruleset `fw.nft` makes no table; to delete the tables, write `ruleset = ""` in `[nftables]`, or use --allow-mass-delete
Not converged: no changes; 1 held back.

"#]]);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(ruleset(), "");
}

#[test]
fn a_ruleset_in_the_document_is_empty_only_if_it_says_so() {
    let world = World::new();
    let inline = |text: &str| format!("[nftables]\nruleset = '''{text}'''\n");
    for empty in ["[nftables]\nruleset = \"\"\n", "[nftables]\n"] {
        world.apply(&inline(FIREWALL));
        for text in &NO_TABLES[1..] {
            world.write("host.toml", inline(text));
            world.run("apply --yes host.toml").exits(1);
            assert!(ruleset().contains("policy drop"), "{text:?}");
        }
        // What is left of a section whose file was named elsewhere.
        for lost in ["[nftables]\nadopt = true\n", ""] {
            world.write("host.toml", lost);
            world.run("apply --yes host.toml").exits(1);
            assert!(ruleset().contains("policy drop"), "{lost:?}");
        }
        world.apply(empty);
        assert_eq!(ruleset(), "");
    }
}

#[test]
fn includes_count_as_one_text() {
    let world = World::with("[nftables]\nfile = \"fw.nft\"\n");
    world.write("fw.nft", "include \"./parts/*.nft\"\n");
    world.write("parts/a.nft", FIREWALL);
    world.write("parts/b.nft", "table ip other {}\n");
    world.run("apply --yes host.toml").exits(0);
    // One of them is a table less.
    world.write("parts/b.nft", "# none\n");
    world.run("apply --yes host.toml").exits(0);
    assert!(!ruleset().contains("table ip other"));
    fs::remove_file(world.path().join("parts/a.nft")).unwrap();
    world.run("apply --yes host.toml").exits(1);
    assert!(ruleset().contains("policy drop"));
}

#[test]
fn a_daemon_holds_what_a_lost_file_declared_until_it_is_back() {
    for (what, lose) in LOSSES {
        let world = World::new();
        world.write("conf/10-links.toml", LINKS);
        world.write("conf/20-routes.toml", NETWORK);
        let _daemon = world.keep_at("conf");
        world.converges();
        lose(&world, "conf/20-routes.toml");
        until(what, || world.held_by("rtnl") == 5);
        assert_eq!(world.routes(), 2, "{what}");
        // Neither does a look at single keys take them away, and links are healed as ever.
        let mut events = world.follow();
        world.ip("route change blackhole 10.1.0.0/16 proto 76 realm 3");
        world.ip("link set br0 mtu 1440");
        events.until_healed("link br0");
        assert_eq!(world.routes(), 2, "{what}");
        assert_eq!(world.held_by("rtnl"), 5, "{what}");
        world.write("conf/20-routes.toml", NETWORK);
        world.converges();
        lose(&world, "conf/20-routes.toml");
        until(what, || world.held_by("rtnl") == 5);
        world.run("reload --allow-mass-delete").exits(0);
        assert_eq!(world.routes(), 0, "{what}");
    }
}

#[test]
fn a_daemon_keeps_a_namespace_whose_file_is_lost() {
    let world = World::new().with_own_names();
    let of = |name: &str| {
        format!(
            "[namespaces.{name}]\ncreate = true\nsysctl = {{ \"net.ipv4.tcp_retries1\" = 5 }}\n"
        )
    };
    world.write("conf/blue.toml", of("blue"));
    world.write("conf/red.toml", of("red"));
    let _daemon = world.keep_at("conf");
    world.converges();
    fs::remove_file(world.path().join("conf/blue.toml")).unwrap();
    until("the held namespace", || world.held_by("namespaces") == 1 && world.held_by("knobs") == 1);
    assert_eq!(world.ip("netns list").lines().count(), 2);
    world.run("reload --allow-mass-delete").exits(0);
    assert_eq!(world.ip("netns list").lines().count(), 1);
}

#[test]
fn a_daemon_keeps_the_firewall_while_its_file_is_empty() {
    for text in NO_TABLES {
        let world = World::new();
        world.write("fw.nft", FIREWALL);
        let _daemon = world.keep("[nftables]\nfile = \"fw.nft\"\n");
        world.converges();
        world.write("fw.nft", text);
        until("the empty text", || world.held_by("nft") == 1);
        assert!(ruleset().contains("policy drop"), "{text:?}");
        // A change of the table is looked at, and takes nothing away.
        let mut events = world.follow();
        world.sabotage("add chain inet filter more");
        events.until(|event| event["event"] == "completed" && event["source"] == "nft");
        assert!(ruleset().contains("policy drop"), "{text:?}");
        world.write("fw.nft", FIREWALL);
        world.converges();
        assert!(!ruleset().contains("more"), "{text:?}");
    }
}
