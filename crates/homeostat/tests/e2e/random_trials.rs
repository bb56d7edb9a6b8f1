//! Random trials: a random confirmed document, random objects of others, a random document that is tried, and an end at
//! random. Whatever happens, all is as it was, or the trial is confirmed. Seeds are fixed; `HOMEOSTAT_SOAK` adds more, and
//! `HOMEOSTAT_SEED` runs one of them again.

use std::fmt::Write as _;

use serde_json::Value;

use crate::keeping::until;
use crate::network::cabled;
use crate::soak::dice::Dice;
use crate::trial_kills::Killer;
use crate::undone::{begin, spawn};
use crate::world::World;

/// Of two addresses in one network the first is the primary one, which no document says.
const ADDRESSES: [&str; 7] = [
    "10.0.0.1/24",
    "10.0.1.1/24",
    "10.0.2.7/24",
    "10.0.0.3/24",
    "10.0.1.4/24",
    "2001:db8::1/64",
    "2001:db8::3/64",
];

const ROUTES: [&str; 5] = [
    "to = \"10.9.0.0/16\", via = \"10.0.0.2\"",
    "to = \"10.10.0.0/16\", via = \"10.0.1.2\"",
    "to = \"10.11.0.0/16\", dev = \"vb\"",
    "to = \"10.12.0.0/16\", type = \"blackhole\"",
    "to = \"default\", via = \"10.0.0.9\", metric = 100, adopt = true",
];

const RULES: [&str; 2] = [
    "priority = 900, from = \"10.7.0.0/16\", table = 901, adopt = true",
    "priority = 950, to = \"10.8.0.0/16\", table = 902",
];

const KNOBS: [(&str, [&str; 2]); 4] = [
    ("net.ipv4.ip_forward", ["0", "1"]),
    ("net.ipv6.conf.all.forwarding", ["0", "1"]),
    ("net.ipv4.tcp_retries1", ["4", "6"]),
    ("net.ipv4.conf.va.rp_filter", ["0", "2"]),
];

const RULESETS: [&str; 4] = [
    "",
    "table ip f { chain i { type filter hook input priority 0; policy accept; tcp dport 9 drop; }; }",
    "table ip f { chain i { type filter hook input priority 0; policy accept; counter; }; set s { type ipv4_addr; }; }",
    "table inet g { chain o { type filter hook output priority 5; policy accept; udp dport 9 drop; }; }",
];

/// What links of ours can be, by their names: each may be there or not, and be one of these.
const LINKS: [(&str, &[&str]); 5] = [
    (
        "br7",
        &[
            "kind = \"bridge\"",
            "kind = \"bridge\"\nmcast-snooping = false",
            "kind = \"veth\"\npeer = \"br8\"",
        ],
    ),
    (
        "x0",
        &["kind = \"veth\"\npeer = \"x1\"", "kind = \"veth\"\npeer = \"x2\"", "kind = \"bridge\""],
    ),
    ("m0", &["kind = \"macvlan\"\nparent = \"x0\"", "kind = \"macvlan\"\nparent = \"vb\""]),
    (
        "t5",
        &[
            "kind = \"vxlan\"\nid = 5",
            "kind = \"vxlan\"\nid = 5\nport = 4790",
            "kind = \"vxlan\"\nid = 6",
        ],
    ),
    ("t6", &["kind = \"vxlan\"\nid = 6", "kind = \"vxlan\"\nid = 7", "kind = \"bridge\""]),
];

/// What others do; not all of it is possible beside every document.
const FOREIGN: [&str; 19] = [
    "route add 10.20.0.0/16 via 10.0.0.5 proto bird metric 7 initcwnd 9",
    "route add default via 10.0.0.6 proto dhcp metric 100",
    "route add 10.21.0.0/16 dev va proto static",
    "rule add from 10.7.0.0/16 priority 900 table 900 protocol bird",
    "address add 10.0.5.200/24 dev va",
    "address add 10.0.0.200/24 dev va label va:theirs",
    "-6 address add 2001:db8::99/64 dev va nodad",
    "-6 route add 2001:db8:7::/48 via 2001:db8::9 proto bird",
    "neighbour add 10.0.0.66 lladdr 02:00:00:00:00:66 dev va nud permanent",
    "address add 10.30.0.9/24 dev br7",
    "-6 address add 2001:db8:30::9/64 dev br7 nodad",
    "route add 10.40.0.0/16 via 10.30.0.7 dev br7 proto bird metric 9",
    "link set t5 up",
    "address add 10.31.0.9/24 dev t5",
    "route add 10.41.0.0/16 via 10.31.0.7 dev t5 proto bird",
    "link set x0 type bridge_slave cost 55",
    "address add 10.32.0.9/24 dev m0",
    "link set br7 type bridge ageing_time 777",
    "link set x0 mtu 1400",
];

impl Dice {
    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        of.iter().copied().filter(|_| self.below(2) == 0).collect()
    }

    /// Links of ours, with what they need.
    fn links(&mut self, text: &mut String) {
        let mut kinds = std::collections::BTreeMap::new();
        for (name, of) in LINKS {
            if self.below(3) > 0 {
                kinds.insert(name, of[self.below(of.len())]);
            }
        }
        let has_tunnel_6 =
            |name: &str| kinds.get(name).is_some_and(|kind| kind.ends_with("id = 6"));
        if has_tunnel_6("t5") && has_tunnel_6("t6") {
            kinds.remove("t6");
        }
        let is_veth = |kind: Option<&&str>| kind.is_some_and(|kind| kind.contains("veth"));
        let x0_is_pair = is_veth(kinds.get("x0"));
        // A bridge has the packets of its ports, and a macvlan those of its parent.
        let is_parent = kinds.get("m0").is_some_and(|kind| kind.contains("x0"));
        if is_parent && !x0_is_pair {
            kinds.remove("m0");
        }
        let has_bridge = kinds.get("br7").is_some_and(|kind| kind.contains("bridge"));
        for (number, (name, kind)) in kinds.iter().enumerate() {
            writeln!(text, "[links.{name}]\n{kind}").unwrap();
            if self.below(4) > 0 {
                text.push_str("up = true\n");
            }
            let can_join = match *name {
                "x0" => x0_is_pair && !is_parent,
                "m0" | "t5" => true,
                _ => false,
            };
            if has_bridge && can_join && self.below(2) == 0 {
                text.push_str("master = \"br7\"\n");
            } else if self.below(2) == 0 {
                writeln!(
                    text,
                    "addresses = [\"10.5{number}.0.1/24\", \"2001:db8:5{number}::1/64\"]"
                )
                .unwrap();
            } else {
                text.push_str("addresses = []\n");
            }
        }
    }

    fn document(&mut self) -> String {
        let mut text = String::from("[links.vb]\nup = true\n[links.va]\nup = true\n");
        if self.below(3) == 0 {
            let mtu = [1400, 1300, 1200][self.below(3)];
            writeln!(text, "mtu = {mtu}").unwrap();
        }
        let mut addresses = self.some(&ADDRESSES);
        // There is no IPv6 with so small packets.
        if text.contains("mtu = 1200") {
            addresses.retain(|address| !address.contains(':'));
        }
        writeln!(text, "addresses = {addresses:?}").unwrap();
        self.links(&mut text);
        text += "[sysctl]\n";
        for (name, values) in KNOBS {
            if self.below(2) == 0 {
                writeln!(text, "{name:?} = {}", values[self.below(2)]).unwrap();
            }
        }
        let ruleset = RULESETS[self.below(RULESETS.len())];
        writeln!(text, "[nftables]\nruleset = \"{ruleset}\\n\"").unwrap();
        // A document that cannot be applied completely has no state to return to.
        let is_reached = |route: &&str| {
            let is_near = |net: &str| addresses.iter().any(|address| address.starts_with(net));
            ["10.0.0.", "10.0.1."]
                .iter()
                .all(|net| !route.contains(&format!("via = \"{net}")) || is_near(net))
        };
        let routes = self.some(&ROUTES).into_iter().filter(is_reached).collect();
        let lists = [("routes", routes), ("rules", self.some(&RULES))];
        let mut head = String::new();
        for (name, entries) in lists {
            let entries: Vec<String> =
                entries.iter().map(|entry| format!("{{ {entry} }}")).collect();
            writeln!(head, "{name} = [{}]", entries.join(", ")).unwrap();
        }
        head + &text
    }
}

/// What others set; not all links are there.
const SET_BY_OTHERS: [(&str, &str); 8] = [
    ("net/ipv4/conf/va/forwarding", "1"),
    ("net/ipv4/conf/br7/forwarding", "1"),
    ("net/ipv4/conf/t5/rp_filter", "2"),
    ("net/ipv6/conf/va/hop_limit", "77"),
    ("net/ipv6/conf/br7/forwarding", "1"),
    ("net/ipv6/conf/m0/accept_ra", "0"),
    ("net/ipv6/neigh/va/retrans_time_ms", "1700"),
    ("net/ipv6/neigh/t5/retrans_time_ms", "1800"),
];

impl World {
    /// Somebody else does something, if it is possible.
    fn try_ip(&self, args: &str) {
        let _ = self.command("ip").args(args.split_whitespace()).output().unwrap();
    }

    /// Whether the kernel has taken all IPv6 addresses into use: each has its local route.
    ///
    /// Quirk `anycast-is-joined-twice` (Linux 6.18): `ip -6 address add 2001:db8::9/64 dev br7 nodad` leaves the rest to a
    /// worker. If `net.ipv6.conf.br7.forwarding` is set to 1 before that has run, the anycast address of the network has
    /// two users for one address (`/proc/net/anycast6`), and its route does not return when the link was down.
    pub(crate) fn uses_all_addresses(&self) -> bool {
        let routes = self.listed("-6 route show table all type local");
        let links = self.listed("-6 address show");
        let mut addresses = links.iter().flat_map(|link| link["addr_info"].as_array().unwrap());
        addresses.all(|address| {
            address["tentative"] != true
                && routes.iter().any(|route| route["dst"] == address["local"])
        })
    }
}

/// When the daemon is killed, if it is.
#[derive(Clone, Copy, Debug)]
enum Moment {
    AfterThePasses,
    OfTheApply { call: &'static str, nth: u64 },
    OfTheEnd { call: &'static str, nth: u64 },
}

/// What makes something durable, and what asks the kernel for something.
const CALLS: [&str; 5] = ["sendmsg", "sendto", "fdatasync", "rename", "write"];

impl Moment {
    fn throw(dice: &mut Dice) -> Self {
        let (call, kind) = (CALLS[dice.below(CALLS.len())], dice.below(3));
        let nth = 1 + u64::try_from(dice.below(if call == "rename" { 3 } else { 30 })).unwrap();
        match kind {
            0 => Moment::AfterThePasses,
            1 => Moment::OfTheApply { call, nth },
            _ => Moment::OfTheEnd { call, nth },
        }
    }
}

impl World {
    /// What the daemon says, if it still does.
    pub(crate) fn status_if_any(&self) -> Value {
        serde_json::from_str(&self.run("status --json").stdout).unwrap_or_default()
    }
}

/// What others do in any case: a bridge that never had a port has a carrier, and after its first one has not.
const PORT: [&str; 4] = [
    "link add theirs type veth peer theirs1",
    "link set theirs up",
    "link set theirs1 up",
    "link set theirs master br7",
];

fn run(seed: u64) {
    let mut dice = Dice::new(seed);
    let world = cabled();
    // The kernel makes link-local addresses when a carrier comes, and from the hardware address that a bridge has then.
    if dice.below(2) == 0 {
        world.meddle("net/ipv6/conf/default/addr_gen_mode", "1");
    }
    let (before, tried) = (dice.document(), dice.document());
    let story = format!("seed {seed}\n--- before\n{before}\n--- tried\n{tried}");
    let mut daemon = world.keep(&before);
    world.confirms(1);
    for act in PORT {
        world.try_ip(act);
    }
    for act in dice.some(&FOREIGN) {
        // Two rules of one key are a conflict, which no document settles.
        let is_conflict = act.starts_with("rule") && before.contains("priority = 900");
        if !is_conflict {
            world.try_ip(act);
        }
    }
    until("addresses are used", || world.uses_all_addresses());
    for (knob, value) in SET_BY_OTHERS {
        if dice.below(3) == 0 {
            // One of a link that is not there cannot be set.
            let _ = std::fs::write(format!("/proc/sys/{knob}"), value);
        }
    }
    world.run("resync");
    // A worker of the kernel follows carriers; both ends are up.
    until("the carrier of others", || !world.ip("link show dev theirs").contains("NO-CARRIER"));
    until("addresses are used", || world.uses_all_addresses());
    let then = world.dump();
    let end = dice.below(4);
    let moment = Moment::throw(&mut dice);
    let options = "--allow-cascades --accept-loss";
    let mut client = if let (1, Moment::OfTheApply { call, nth }) = (end, moment) {
        let killer = Killer::at(&world, &daemon, call, nth);
        let mut client = spawn(&world, &tried, options);
        // It may not make that call so often.
        until("the kill or the trial", || {
            killer.has_killed() || !world.status_if_any()["trial"].is_null()
        });
        if !killer.has_killed() {
            world.run("resync");
        }
        client.kill().unwrap();
        client
    } else {
        let client = begin(&world, &tried, options);
        world.run("resync");
        client
    };
    let mut is_over = false;
    if let (1 | 3, Moment::OfTheEnd { call, nth }) = (end, moment) {
        let command = if end == 1 { "rollback" } else { "confirm --same-session" };
        let killer = Killer::at(&world, &daemon, call, nth);
        let _ = world.run(command);
        is_over = killer.ends_with_kill(&world);
    }
    if end == 1 || is_over {
        daemon.kill();
        daemon = world.keep_at("host.toml");
        until("the end of the trial", || world.stands()["trial"].is_null());
    }
    let is_confirmed = end == 3 && world.history().len() == 2;
    match end {
        1 => {}
        0 => _ = world.run("rollback").exits(0),
        2 => {
            client.kill().unwrap();
            world.run("rollback").exits(0);
        }
        _ if is_over && !is_confirmed => {}
        _ => {
            if !is_confirmed {
                world.run("confirm --same-session").exits(0);
            }
            world.run("resync");
            let plan = world.run("plan --json new.toml").stdout;
            let listed: Value = serde_json::from_str(&plan).unwrap();
            let of = |list: &str| listed[list].as_array().unwrap().clone();
            // Forwarding waits for the firewall, which may be held.
            let is_held = of("held").iter().any(|held| held["source"] == "nft");
            let waits = |change: &Value| is_held && change["source"] == "knobs";
            // A document that does not speak of a bridge leaves a link in it, which then has no macvlan.
            let is_port = world.ip("link show").contains("x0@")
                && world.ip("-d link show x0").contains("master");
            let is_impossible = |change: &Value| is_port && change["key"] == "link m0";
            let is_explained = |change: &Value| waits(change) || is_impossible(change);
            assert!(of("changes").iter().all(is_explained), "{story}\n{plan}");
        }
    }
    client.wait().unwrap();
    if world.history().len() == 1 {
        assert_ne!((end, is_over), (3, false), "{story}");
        world.is_again_after(&then, &story);
    }
    drop(daemon);
}

/// Seeds that have shown faults of rollbacks: the other end of a pair that was made again, a macvlan whose parent had joined
/// a bridge, carriers and anycast addresses of others.
const PINNED: [u64; 10] = [138, 141, 172, 338, 385, 403, 425, 454, 455, 521];

#[test]
fn whatever_is_tried_all_is_as_it_was_or_it_is_confirmed() {
    let count = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 500 } else { 30 };
    let given = std::env::var("HOMEOSTAT_SEED").ok();
    // One, or `200-299`.
    let seeds = given.and_then(|given| {
        let (first, last) = given.split_once('-').unwrap_or((&given, &given));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    match seeds {
        Some(seeds) => seeds.for_each(run),
        None => (1..=count).chain(PINNED.into_iter().filter(|seed| *seed > count)).for_each(run),
    }
}
