//! Silence is no wish to delete, section by section: each one that documents have is in a table here, and a new one
//! that is not makes a test fail.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::world::World;

/// A section, and what becomes of its objects when it is no longer written.
struct Row {
    /// Its name in the schema; for a section of a link, after a slash.
    section: &'static str,
    /// How it is written, with `@` where the path of the scope goes.
    text: &'static str,
    /// How a document says that it is empty, with `@` for the scope.
    empty: &'static str,
    /// The keys that it declares.
    keys: &'static [&'static str],
    /// How a message names it: at the top level, and in the namespace `blue`.
    named: [&'static str; 2],
    /// What a message says to write, in the same places.
    write: [&'static str; 2],
}

const ROWS: [Row; 10] = [
    Row {
        section: "links",
        text: "[@links.br0]\nkind = \"bridge\"\nup = true\n\
               [@links.br1]\nkind = \"bridge\"\n\
               [@links.p0]\nkind = \"veth\"\npeer = \"p1\"\nmaster = \"br1\"\n",
        empty: "[@links]\n",
        // With the last link its section is lost, and what it declared of other links with it.
        keys: &["link br0", "link br1", "link p0", "link lo up", "address 10.7.0.1/32 dev lo"],
        named: ["`[links]`", "`[namespaces.blue.links]`"],
        write: ["an empty `[links]`", "an empty `[namespaces.blue.links]`"],
    },
    Row {
        section: "links/addresses",
        text: "[@links.lo]\nup = true\naddresses = [\"10.7.0.1/32\"]\n",
        empty: "[@links.lo]\nup = true\naddresses = []\n",
        keys: &["address 10.7.0.1/32 dev lo"],
        named: ["`addresses` of `[links.lo]`", "`addresses` of `[namespaces.blue.links.lo]`"],
        write: ["`addresses = []` there", "`addresses = []` there"],
    },
    Row {
        section: "routes",
        text: "[[@routes]]\nto = \"10.1.0.0/16\"\ntype = \"blackhole\"\n",
        empty: "@routes = []\n",
        keys: &["route 10.1.0.0/16"],
        named: ["`[[routes]]`", "`routes` of `[namespaces.blue]`"],
        write: ["`routes = []` at the top level", "`routes = []` there"],
    },
    Row {
        section: "rules",
        text: "[[@rules]]\npriority = 100\nfrom = \"10.0.0.0/8\"\ntable = 100\n",
        empty: "@rules = []\n",
        keys: &["rule priority 100 from 10.0.0.0/8"],
        named: ["`[[rules]]`", "`rules` of `[namespaces.blue]`"],
        write: ["`rules = []` at the top level", "`rules = []` there"],
    },
    Row {
        section: "neighbours",
        text: "[[@neighbours]]\nto = \"10.0.0.9\"\ndev = \"br0\"\nmac = \"02:00:00:00:00:09\"\n",
        empty: "@neighbours = []\n",
        keys: &["neighbour 10.0.0.9 dev br0"],
        named: ["`[[neighbours]]`", "`neighbours` of `[namespaces.blue]`"],
        write: ["`neighbours = []` at the top level", "`neighbours = []` there"],
    },
    Row {
        section: "fdb",
        text: "[[@fdb]]\ndev = \"p0\"\nmac = \"02:00:00:00:00:08\"\n",
        empty: "@fdb = []\n",
        keys: &["fdb 02:00:00:00:00:08 dev p0"],
        named: ["`[[fdb]]`", "`fdb` of `[namespaces.blue]`"],
        write: ["`fdb = []` at the top level", "`fdb = []` there"],
    },
    Row {
        section: "nexthops",
        text: "[[@nexthops]]\nid = 7\ndev = \"br0\"\n",
        empty: "@nexthops = []\n",
        keys: &["nexthop 7"],
        named: ["`[[nexthops]]`", "`nexthops` of `[namespaces.blue]`"],
        write: ["`nexthops = []` at the top level", "`nexthops = []` there"],
    },
    Row {
        section: "sysctl",
        text: "[@sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n",
        empty: "[@sysctl]\n",
        keys: &["sysctl net.ipv4.tcp_retries1"],
        named: ["`[sysctl]`", "`[namespaces.blue.sysctl]`"],
        write: ["an empty `[sysctl]`", "an empty `[namespaces.blue.sysctl]`"],
    },
    Row {
        section: "sysfs",
        text: "[@sysfs]\n\"class/net/lo/gro_flush_timeout\" = 1000\n",
        empty: "[@sysfs]\n",
        keys: &["sysfs class/net/lo/gro_flush_timeout"],
        named: ["`[sysfs]`", "`[namespaces.blue.sysfs]`"],
        write: ["an empty `[sysfs]`", "an empty `[namespaces.blue.sysfs]`"],
    },
    Row {
        section: "nftables",
        text: "[@nftables]\nruleset = \"table inet filter {}\\n\"\n",
        empty: "[@nftables]\nruleset = \"\"\n",
        keys: &["table inet filter"],
        named: ["`[nftables]`", "`[namespaces.blue.nftables]`"],
        write: ["an empty `[nftables]`", "an empty `[namespaces.blue.nftables]`"],
    },
];

/// Sections that another test is about, or that declare nothing.
const ELSEWHERE: [(&str, &str); 16] = [
    ("settings", "declares nothing"),
    ("modules", "loaded and never unloaded"),
    ("resolver", "resolver: name_servers_are_written_healed_and_given_back"),
    ("namespaces", "lost: a_whole_namespace_that_leaves_while_others_stay_is_held"),
    ("links/sysctl", "lost: knobs_of_a_link_belong_to_the_link_or_to_the_global_section"),
    ("links/vnis", "a field of the link: left as it is, like every option that is not written"),
    ("links/vlans", "a field of the link: left as it is, as homeostat-rtnl shows in bridges"),
    (
        "links/arp-targets",
        "an option of a bond: left as it is, like every option that is not written",
    ),
    (
        "links/peers",
        "a field of the link: left to other programs, like every field that is not written",
    ),
    ("guests", "lost: guests_whose_section_is_lost_stay_ours"),
    ("proxmox", "clusters: without it, what we own there waits for it"),
    ("services", "services: a_section_that_disappears_stops_nothing"),
    ("cgroups", "homeostat-knobs: a_lost_section_of_cgroups_is_named"),
    ("files", "files: a_lost_section_of_files_is_held_and_an_empty_one_is_not"),
    ("fleet", "fleet: a_machines_own_document_is_in_force_until_the_fleet_assigns_one"),
    ("values", "rendered: mistakes_in_templates_are_found_by_check_at_their_places"),
];

/// Fields of a namespace that are no sections.
const OF_A_NAMESPACE: [&str; 3] = ["path", "pid-file", "create"];

/// Where sections are written.
#[derive(Clone, Copy)]
enum Place {
    Top,
    Blue,
}

impl Place {
    const ALL: [Self; 2] = [Place::Top, Place::Blue];

    fn write(self, text: &str) -> String {
        text.replace('@', if matches!(self, Place::Blue) { "namespaces.blue." } else { "" })
    }

    fn of(self, words: [&'static str; 2]) -> &'static str {
        words[self as usize]
    }

    fn scope(self) -> &'static str {
        self.of(["host", "blue"])
    }
}

#[test]
fn every_section_of_the_schema_is_in_the_table() {
    let world = World::new();
    let schema: Value = world.finish(world.bare("schema")).json(0);
    let fields = |of: &str, is_one: &dyn Fn(&Value) -> bool| -> BTreeSet<String> {
        let fields = schema["$defs"][of]["properties"].as_object().unwrap().iter();
        fields.filter(|(_, field)| is_one(field)).map(|(name, _)| name.clone()).collect()
    };
    let rows = || ROWS.iter().map(|row| row.section);
    let names = |all: &mut dyn Iterator<Item = &str>, inner: bool| -> BTreeSet<String> {
        all.filter(|name| name.contains('/') == inner).map(str::to_owned).collect()
    };
    let all = || rows().chain(ELSEWHERE.iter().map(|(name, _)| *name));
    assert_eq!(fields("document", &|_| true), names(&mut all(), false));
    let mut inside = fields("namespace", &|_| true);
    inside.retain(|name| !OF_A_NAMESPACE.contains(&name.as_str()));
    assert_eq!(inside, names(&mut rows(), false), "every section of a namespace is tested in one");
    // What a link has many of is a section of the link.
    let many = |field: &Value| matches!(field["type"].as_str(), Some("array" | "object"));
    let of_links = fields("link", &many).iter().map(|name| format!("links/{name}")).collect();
    assert_eq!(names(&mut all(), true), of_links);
}

/// A world with a document of one file a section, in which everything is written.
fn written(place: Place) -> World {
    let world = World::new().with_own_names();
    world.ip("netns add blue");
    restore(&world, place);
    world
}

fn file(row: &Row) -> String {
    format!("conf/{}.toml", row.section.replace('/', "-"))
}

/// Takes a section out of the document. A section of a link is lost only while the link is still written, and that of
/// all links only without the last one.
fn lose(world: &World, row: &Row, place: Place) {
    if row.section.contains('/') {
        world.write(&file(row), place.write("[@links.lo]\nup = true\n"));
        return;
    }
    for lost in ROWS.iter().filter(|one| one.section.split('/').next() == Some(row.section)) {
        fs::remove_file(world.path().join(file(lost))).unwrap();
    }
}

/// Writes all sections as they were.
fn restore(world: &World, place: Place) {
    for row in &ROWS {
        world.write(&file(row), place.write(row.text));
    }
}

/// The entries about removals of a list in a plan, report or status: key and reason.
fn entries(list: &Value) -> Vec<(&str, &str)> {
    let entries = list.as_array().unwrap().iter();
    entries
        .map(|one| (one["key"].as_str().unwrap(), one["reason"].as_str().unwrap_or("")))
        .collect()
}

#[track_caller]
fn check_held(row: &Row, place: Place, held: &[(&str, &str)], by: &str) {
    let keys: BTreeSet<&str> = held.iter().map(|(key, _)| *key).collect();
    let expected: BTreeSet<&str> = row.keys.iter().copied().collect();
    assert!(keys.is_subset(&expected) && !keys.is_empty(), "{by}, {}: {held:?}", row.section);
    for (_, why) in held {
        let (named, write) = (place.of(row.named), place.of(row.write));
        assert!(why.starts_with(&format!("{named} is missing from the document")), "{by}: {why}");
        assert!(why.contains(&format!("write {write}, or ")), "{by}: {why}");
    }
}

#[test]
fn a_section_that_disappears_is_held_and_named_by_plan_and_apply() {
    for place in Place::ALL {
        let world = written(place);
        world.run("apply --yes -q conf").exits(0);
        for row in &ROWS {
            lose(&world, row, place);
            for command in ["plan --json conf", "apply --yes --json conf"] {
                let report: Value = serde_json::from_str(&world.run(command).stdout).unwrap();
                check_held(row, place, &entries(&report["held"]), command);
                let done = if command.starts_with("plan") { "changes" } else { "applied" };
                assert_eq!(report[done], Value::Array(Vec::new()), "{}: {report}", row.section);
            }
            restore(&world, place);
        }
        // Nothing was lost on the way.
        world.run("verify conf").exits(0);
    }
}

#[test]
fn a_daemon_holds_each_section_that_disappears_and_deletes_what_is_written_as_empty() {
    for place in Place::ALL {
        let world = written(place);
        let _daemon = world.keep_at("conf");
        world.converges();
        let open = || world.run("status --json").exits(2).stdout;
        for row in &ROWS {
            lose(&world, row, place);
            world.run("reload").exits(1);
            let status: Value = serde_json::from_str(&open()).unwrap();
            let keys = status["open_keys"].as_array().unwrap().iter();
            let keys: Vec<(&str, &str)> = keys
                .map(|one| {
                    assert_eq!(one["scope"], place.scope(), "{one}");
                    (one["key"].as_str().unwrap(), one["reason"].as_str().unwrap_or_default())
                })
                .collect();
            check_held(row, place, &keys, "the daemon");
            restore(&world, place);
            world.run("reload").exits(0);
        }
        // What is said is done: first what refers to others.
        for row in ROWS.iter().rev() {
            world.write(&file(row), place.write(row.empty));
            world.run("reload").exits(0);
        }
    }
}
