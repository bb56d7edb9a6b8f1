//! Random networks: what others have made, documents, and edits between documents.
//!
//! Names and numbers come from small pools, so that keys collide and edits hit what is there. Links of
//! the world begin with `f`; those that documents create begin with `o`, their other ends with `p`.
//! Network 0 is that of `fa`, which others have configured; networks 1 to 4 are the document's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::document::{Document, Entry, Link, Need, SECTIONS};
use crate::soak::dice::Dice;

/// Links that every world has.
pub(super) const FOREIGN_LINKS: [&str; 6] = ["fa", "fb", "fbr", "fc", "fd", "lo"];

/// A world, and what is to be made of it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Commands of `ip`, each with the keys that it occupies.
    pub(super) foreign: Vec<(String, Vec<String>)>,
    /// Applied one after the other.
    pub(super) documents: Vec<Document>,
    /// Commands that are run after each document was applied, if a daemon keeps it.
    pub(super) sabotage: Vec<Vec<String>>,
    /// What differs for longer than this stays different.
    pub(super) patience: Duration,
}

impl Case {
    pub(super) fn random(seed: u64, length: usize) -> Self {
        let mut dice = Dice::new(seed);
        let foreign = foreign(&mut dice);
        let mut document = Document::empty();
        let mut documents: Vec<Document> = Vec::new();
        for number in 0..length {
            let edits = if number == 0 { 14 } else { 1 + dice.below(6) };
            for _ in 0..edits {
                edit(&mut document, &mut dice);
            }
            if number > 0 && dice.below(8) == 0 {
                let (section, _) = dice.pick(&SECTIONS);
                document.entries.insert(*section, BTreeMap::new());
            }
            document.leave_out_ambiguous();
            document.prune();
            let mut document = document.clone();
            // A link of the world is not ours to make where the world has none of that name.
            if !foreign.iter().any(|(_, keys)| keys.iter().any(|key| key == "link fi"))
                && let Some(link) = document.links.get_mut("fi")
            {
                link.kind = None;
            }
            // Now and then there is something that waits or fails.
            if dice.below(8) == 0 {
                add_impossible(&mut document, &mut dice);
            }
            documents.push(document);
        }
        let mut sabotage = |document: &Document| {
            let mut all = document.sabotage();
            // What stands on such a key may be foreign, and what others have on a link may go with a change of it.
            let is_foreign = |key: &String| foreign.iter().any(|(_, keys)| keys.contains(key));
            let costs = |line: &str| FOREIGN_LINKS.iter().any(|link| is_used(&foreign, line, link));
            all.retain(|one| !is_foreign(&one.key) && !costs(&one.line));
            let count = if all.is_empty() { 0 } else { dice.below(5) };
            (0..count).map(|_| dice.pick(&all).line.clone()).collect()
        };
        let sabotage = documents.iter().map(&mut sabotage).collect();
        Case { foreign, documents, sabotage, patience: super::PATIENCE }
    }
}

/// Whether a command is about a link on which others have more than addresses.
fn is_used(foreign: &[(String, Vec<String>)], command: &str, link: &str) -> bool {
    let is_about = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words.array_windows().any(|[word, name]| *name == link && ["dev", "set"].contains(word))
    };
    let is_more = |line: &str| line.contains("proto");
    is_about(command) && foreign.iter().any(|(line, _)| is_more(line) && is_about(line))
}

/// The gateway of a network, of either family.
fn gateway(network: usize, host: usize, is_ipv6: bool) -> String {
    match (network, is_ipv6) {
        (0, false) => format!("172.16.0.{host}"),
        (0, true) => format!("fdf0::{host}"),
        (_, false) => format!("10.{network}.0.{host}"),
        (_, true) => format!("fd0{network}::{host}"),
    }
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

fn foreign(dice: &mut Dice) -> Vec<(String, Vec<String>)> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    let mut say = |line: &str, keys: &[&str]| {
        lines.push((line.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect()));
    };
    say("link set lo up", &["link lo"]);
    say(
        "link add fa address 02:00:00:00:0f:00 type veth peer name fb address 02:00:00:00:0f:01",
        &["link fa", "link fb"],
    );
    say(FOLLOWING_BRIDGE, &["link fbr"]);
    for link in ["fa", "fb", "fbr"] {
        say(&format!("link set {link} up"), &[]);
    }
    say("address add 172.16.0.1/24 dev fa", &["address 172.16.0.1/24 dev fa"]);
    say("address add fdf0::1/64 dev fa", &["address fdf0::1/64 dev fa"]);
    // The bridge has a carrier whatever else is in it.
    say(
        "link add fc address 02:00:00:00:0f:03 type veth peer name fd address 02:00:00:00:0f:04",
        &["link fc", "link fd"],
    );
    say("link set fc master fbr", &[]);
    say("link set fc up", &[]);
    say("link set fd up alias theirs", &[]);
    if dice.below(2) == 0 {
        say(
            &format!("link add link fb name fm address 02:00:00:00:0f:05 {}", stacked(7)),
            &["link fm"],
        );
        say("address add 172.17.0.1/24 dev fm", &["address 172.17.0.1/24 dev fm"]);
    }
    if dice.below(2) == 0 {
        say(&format!("link add fi address 02:00:00:00:0f:06 type {}", plain()), &["link fi"]);
    }
    // On keys that documents may want, in every kind.
    for _ in 0..dice.below(3) {
        let (network, host) = (1 + dice.below(4), 1 + dice.below(2));
        let address = format!("{}/24", gateway(network, host, false));
        say(&format!("address add {address} dev fbr"), &[&format!("address {address} dev fbr")]);
    }
    for (section, add) in SECTIONS {
        for _ in 0..dice.below(4) {
            let (key, entry) = entry(section, dice);
            // It may rest on nothing that only a document brings.
            let is_free = |need: &Need| match need {
                Need::Link(name) => FOREIGN_LINKS.contains(&name.as_str()),
                Need::Network((number, _)) | Need::NetworkOn((number, _), _) => *number == 0,
                Need::Nexthop(_) => false,
            };
            if entry.needs.iter().all(is_free) {
                let add = format!("{}{add} {}", entry.family, entry.add.replace("76", "bird"));
                say(&add, &[&key]);
            }
        }
    }
    // The same key twice is refused by the kernel, and is not part of the world.
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|(_, keys)| keys.is_empty() || keys.iter().all(|key| seen.insert(key.clone())));
    // A port may give its bridge another hardware address, unless neighbours would go with it.
    if !lines.iter().any(|(line, _)| line.contains("lladdr") && line.contains("dev fbr")) {
        let bridge = lines.iter_mut().find(|(line, _)| line == FOLLOWING_BRIDGE).unwrap();
        "link add fbr address 02:00:00:00:0f:02 type bridge".clone_into(&mut bridge.0);
    }
    lines
}

const FOLLOWING_BRIDGE: &str = "link add fbr type bridge";

/// A plain kind that the kernel has.
fn plain() -> &'static str {
    if super::kernel_has("probe type dummy") { "dummy" } else { "ifb" }
}

/// A kind on a parent that the kernel has, as `ip` writes it.
fn stacked(id: usize) -> String {
    if super::kernel_has("link base name probe type vlan id 9") {
        format!("type vlan id {id}")
    } else {
        "type macvlan mode bridge".to_owned()
    }
}

/// One step from a document to the next.
fn edit(document: &mut Document, dice: &mut Dice) {
    match dice.below(10) {
        0..3 => {
            let (name, mut link) = link(dice);
            if let Some(before) = document.links.get(&name) {
                link.addresses.clone_from(&before.addresses);
            }
            document.links.insert(name, link);
        }
        3 => {
            let names: Vec<String> = document.links.keys().cloned().collect();
            if !names.is_empty() {
                document.links.remove(dice.pick(&names));
            }
        }
        4..6 => move_address(document, dice),
        6 => {
            let (section, _) = dice.pick(&SECTIONS);
            let entries = document.entries.get_mut(section).unwrap();
            let keys: Vec<String> = entries.keys().cloned().collect();
            if !keys.is_empty() {
                entries.remove(dice.pick(&keys));
            }
        }
        _ => {
            let (section, _) = dice.pick(&SECTIONS);
            let (key, entry) = entry(section, dice);
            document.entries.get_mut(section).unwrap().insert(key, entry);
        }
    }
}

/// An entry that rests on what no document and no world has.
fn add_impossible(document: &mut Document, dice: &mut Dice) {
    let (section, key, toml, add) = match dice.below(3) {
        0 => {
            let add = "10.120.0.0/16 proto 76 via 10.99.0.9";
            let toml = "to = \"10.120.0.0/16\", via = \"10.99.0.9\"";
            ("routes", "route 10.120.0.0/16", toml, add)
        }
        1 => {
            let add = "10.121.0.0/16 proto 76 dev nowhere";
            let toml = "to = \"10.121.0.0/16\", dev = \"nowhere\"";
            ("routes", "route 10.121.0.0/16", toml, add)
        }
        _ => {
            let add = "10.1.0.77 lladdr 02:00:00:00:00:77 dev nowhere nud permanent protocol 76";
            let toml = "to = \"10.1.0.77\", dev = \"nowhere\", mac = \"02:00:00:00:00:77\"";
            ("neighbours", "neighbour 10.1.0.77 dev nowhere", toml, add)
        }
    };
    let entry = Entry {
        toml: toml.to_owned(),
        family: "",
        add: add.to_owned(),
        delete: "link show lo".to_owned(),
        needs: Vec::new(),
    };
    document.entries.get_mut(section).unwrap().insert(key.to_owned(), entry);
}

/// Adds an address to a link, and removes it where it was.
fn move_address(document: &mut Document, dice: &mut Dice) {
    let mut names: Vec<String> = document.link_names().into_iter().collect();
    names.retain(|name| name != "lo");
    let (network, host) = (1 + dice.below(4), 1 + dice.below(3));
    let is_ipv6 = dice.below(3) == 0;
    let length = if is_ipv6 { 64 } else { 24 };
    let address = format!("{}/{length}", gateway(network, host, is_ipv6));
    for link in document.links.values_mut() {
        link.addresses.remove(&address);
    }
    if dice.below(5) > 0 {
        let name = dice.pick(&names).clone();
        let is_own = !name.starts_with('f');
        let link = document.links.entry(name).or_default();
        link.addresses.insert(address, (network, is_ipv6));
        // As in [`link`]: the far end of a pair would be as an earlier document has left it.
        link.up = link.up.or(is_own.then_some(true));
    }
}

fn link(dice: &mut Dice) -> (String, Link) {
    let mut link = Link::default();
    // What is or has been a port cannot be a parent, and an undeclared master is left.
    let parents = ["fa", "fb", "fbr", "o1"];
    let name = match dice.below(9) {
        0 | 1 => {
            link.kind = Some((
                "kind = \"veth\", peer = \"p0\"".to_owned(),
                "link add o0 type veth peer name p0".to_owned(),
            ));
            "o0"
        }
        2 => {
            link.kind =
                Some(("kind = \"bridge\"".to_owned(), "link add o1 type bridge".to_owned()));
            "o1"
        }
        3 => {
            let parent = *dice.pick(&parents);
            let mode = *dice.pick(&["bridge", "private"]);
            link.kind = Some((
                format!("kind = \"macvlan\", mode = \"{mode}\""),
                format!("link add link {parent} name o2 type macvlan mode {mode}"),
            ));
            link.parent = Some(parent.to_owned());
            "o2"
        }
        4 => {
            let id = 40 + dice.below(2);
            link.kind = Some((
                format!("kind = \"vxlan\", id = {id}, port = 4789"),
                format!("link add o3 type vxlan id {id} dstport 4789"),
            ));
            "o3"
        }
        5 => {
            let kind = plain();
            link.kind = Some((format!("kind = \"{kind}\""), format!("link add o4 type {kind}")));
            "o4"
        }
        6 => {
            let parent = *dice.pick(&parents);
            let id = 10 + dice.below(2);
            let fields = if stacked(id).starts_with("type vlan") {
                format!("kind = \"vlan\", id = {id}")
            } else {
                "kind = \"macvlan\", mode = \"bridge\"".to_owned()
            };
            let create = format!("link add link {parent} name o5 {}", stacked(id));
            link.kind = Some((fields, create));
            link.parent = Some(parent.to_owned());
            "o5"
        }
        7 => "p0",
        _ => *dice.pick(&["fa", "fb", "fbr", "fc", "fi"]),
    };
    let number = usize::from(name.as_bytes()[1]);
    // What is not declared is left as it is, and would make a difference to addresses and routes.
    let is_own = !name.starts_with('f');
    link.up = (is_own || dice.below(3) == 0).then(|| !is_own || dice.below(5) > 0);
    let mtus: &[u32] = match name {
        "o0" | "p0" | "o1" | "o3" | "o4" => &[1300, 1400, 1500],
        _ => &[1200, 1300, 1500],
    };
    link.mtu = (link.parent.is_none() && dice.below(3) == 0).then(|| *dice.pick(mtus));
    link.alias = (dice.below(4) == 0).then(|| (*dice.pick(&["one", "two"])).to_owned());
    if name == "fa" && dice.below(2) == 0 {
        link.mac = Some(mac(number));
    }
    if name == "fb" {
        link.up = Some(dice.below(2) == 0);
    }
    if is_own {
        link.mac = (dice.below(3) == 0).then(|| mac(number + 16 * dice.below(2)));
        let can_be_port = link.parent.is_none() && !["o1", "o4"].contains(&name);
        if can_be_port && dice.below(3) == 0 {
            link.master = Some((*dice.pick(&["o1", "fbr"])).to_owned());
        }
    }
    if name.starts_with('f') && dice.below(12) == 0 {
        // The world has a link of this name: a conflict.
        link.kind = Some(("kind = \"bridge\"".to_owned(), format!("link add {name} type bridge")));
    }
    (name.to_owned(), link)
}

fn entry(section: &str, dice: &mut Dice) -> (String, Entry) {
    match section {
        "nexthops" => nexthop(dice),
        "routes" => route(dice),
        "rules" => rule(dice),
        _ => neighbour(dice),
    }
}

/// Which link a network of this number may be on.
fn device(network: usize, dice: &mut Dice) -> &'static str {
    if network == 0 { "fa" } else { dice.pick::<&str>(&["o0", "o1", "fbr", "p0", "o3"]) }
}

fn route(dice: &mut Dice) -> (String, Entry) {
    let is_ipv6 = dice.below(3) == 0;
    let number = dice.below(5);
    let to = if is_ipv6 { format!("fda{number}::/32") } else { format!("10.10{number}.0.0/16") };
    let (mut key, mut toml) = (format!("route {to}"), format!("to = \"{to}\""));
    let mut add = format!("{to} proto 76");
    let mut delete = format!("route del {to} proto 76");
    let mut needs = Vec::new();
    if dice.below(3) == 0 {
        let table = *dice.pick(&[100, 200]);
        write!(key, " table {table}").unwrap();
        write!(toml, ", table = {table}").unwrap();
        write!(add, " table {table}").unwrap();
        write!(delete, " table {table}").unwrap();
    }
    if dice.below(3) == 0 {
        let metric = *dice.pick(&[5, 50]);
        write!(key, " metric {metric}").unwrap();
        write!(toml, ", metric = {metric}").unwrap();
        write!(add, " metric {metric}").unwrap();
        write!(delete, " metric {metric}").unwrap();
    }
    let (network, host) = (dice.below(5), 8 + dice.below(2));
    let via = gateway(network, host, is_ipv6);
    if dice.below(4) == 0 {
        let mtu = *dice.pick(&[1300, 1400]);
        write!(toml, ", mtu = {mtu}").unwrap();
        write!(add, " mtu {mtu}").unwrap();
    }
    match dice.below(8) {
        0..3 => {
            write!(toml, ", via = \"{via}\"").unwrap();
            write!(add, " via {via}").unwrap();
            needs.push(Need::Network((network, is_ipv6)));
        }
        3 => {
            let dev = device(network, dice);
            if dice.below(4) == 0 {
                toml += ", type = \"local\"";
                // Without a word `ip` takes the local table, and a document the main one.
                let table = if add.contains(" table ") { "" } else { " table main" };
                add = format!("local {add}{table}");
            }
            write!(toml, ", dev = \"{dev}\"").unwrap();
            write!(add, " dev {dev}").unwrap();
            needs.push(Need::Link(dev.to_owned()));
        }
        4 => {
            let kind = *dice.pick(&["blackhole", "unreachable", "prohibit", "throw"]);
            write!(toml, ", type = \"{kind}\"").unwrap();
            add = format!("{kind} {add}");
        }
        5 => {
            // An IPv6 route cannot have the same way twice.
            let step = if is_ipv6 { 1 } else { dice.below(2) };
            let (other, weight) = ((network + step) % 5, 1 + dice.below(3));
            let second = gateway(other, host, is_ipv6);
            write!(
                toml,
                ", nexthops = [{{ via = \"{via}\", weight = {weight} }}, {{ via = \"{second}\" }}]"
            )
            .unwrap();
            write!(add, " nexthop via {via} weight {weight} nexthop via {second}").unwrap();
            needs.extend([network, other].map(|number| Need::Network((number, is_ipv6))));
        }
        6 => {
            let id = if is_ipv6 { 14 } else { 10 + u32::try_from(dice.below(2)).unwrap() };
            write!(toml, ", nexthop = {id}").unwrap();
            write!(add, " nhid {id}").unwrap();
            needs.push(Need::Nexthop(id));
        }
        _ => {
            let dev = device(network, dice);
            write!(toml, ", via = \"{via}\", dev = \"{dev}\", onlink = true").unwrap();
            write!(add, " via {via} dev {dev} onlink").unwrap();
            needs.push(Need::NetworkOn((network, is_ipv6), dev.to_owned()));
        }
    }
    (key, Entry { toml, family: "", add, delete, needs })
}

fn nexthop(dice: &mut Dice) -> (String, Entry) {
    let id = 10 + u32::try_from(dice.below(6)).unwrap();
    let (network, host) = (dice.below(5), 8 + dice.below(2));
    let (mut toml, mut add) = (format!("id = {id}"), format!("id {id} proto 76"));
    let mut needs = Vec::new();
    match id {
        // 12 is a group, 13 a hole, 14 of IPv6.
        12 => {
            let weight = 1 + dice.below(3);
            write!(toml, ", group = [10, {{ id = 11, weight = {weight} }}]").unwrap();
            write!(add, " group 10/11,{weight}").unwrap();
            needs.extend([Need::Nexthop(10), Need::Nexthop(11)]);
        }
        13 => {
            toml += ", blackhole = true";
            add += " blackhole";
        }
        _ => {
            let is_ipv6 = id == 14;
            let (via, dev) = (gateway(network, host, is_ipv6), device(network, dice));
            write!(toml, ", via = \"{via}\", dev = \"{dev}\"").unwrap();
            write!(add, " via {via} dev {dev}").unwrap();
            needs.push(Need::NetworkOn((network, is_ipv6), dev.to_owned()));
        }
    }
    let delete = format!("nexthop del id {id}");
    (format!("nexthop {id}"), Entry { toml, family: "", add, delete, needs })
}

fn rule(dice: &mut Dice) -> (String, Entry) {
    let is_ipv6 = dice.below(3) == 0;
    let priority = 1000 + dice.below(4);
    let (mut key, mut toml) = ("rule".to_owned(), format!("priority = {priority}"));
    let mut add = format!("priority {priority} protocol 76");
    let from = dice.below(4);
    if is_ipv6 && from == 0 {
        key += " inet6";
        toml += ", family = \"ipv6\"";
    }
    write!(key, " priority {priority}").unwrap();
    if from > 0 {
        let from = if is_ipv6 { format!("fd0{from}::/64") } else { format!("10.{from}.0.0/16") };
        write!(key, " from {from}").unwrap();
        write!(toml, ", from = \"{from}\"").unwrap();
        write!(add, " from {from}").unwrap();
    }
    if dice.below(4) == 0 {
        let link = *dice.pick(&["fa", "o0", "nowhere"]);
        write!(key, " iif {link}").unwrap();
        write!(toml, ", iif = \"{link}\"").unwrap();
        write!(add, " iif {link}").unwrap();
    }
    if dice.below(4) == 0 {
        key += " fwmark 0x10/0xff";
        toml += ", fwmark = \"0x10/0xff\"";
        add += " fwmark 0x10/0xff";
    }
    if dice.below(4) == 0 {
        let port = *dice.pick(&["80", "8000-8080"]);
        write!(key, " ipproto tcp dport {port}").unwrap();
        write!(toml, ", ipproto = \"tcp\", dport = \"{port}\"").unwrap();
        write!(add, " ipproto tcp dport {port}").unwrap();
    }
    match dice.below(4) {
        0 => {
            let kind = *dice.pick(&["prohibit", "blackhole", "unreachable"]);
            // One that refuses all packets refuses all gateways, too, which then depend on what came first.
            let is_for_all =
                !["from", "iif", "fwmark", "dport"].iter().any(|one| key.contains(one));
            let (field, word) = if is_for_all {
                ("table = 100".to_owned(), "table 100".to_owned())
            } else {
                (format!("type = \"{kind}\""), format!("type {kind}"))
            };
            write!(toml, ", {field}").unwrap();
            write!(add, " {word}").unwrap();
        }
        1 => {
            toml += ", table = \"main\", suppress-prefixlength = 0";
            add += " table main suppress_prefixlength 0";
        }
        _ => {
            let table = *dice.pick(&[100, 200]);
            write!(toml, ", table = {table}").unwrap();
            write!(add, " table {table}").unwrap();
        }
    }
    let family = if is_ipv6 { "-6 " } else { "" };
    let delete = format!("{family}rule del priority {priority} protocol 76");
    (key, Entry { toml, family, add, delete, needs: Vec::new() })
}

fn neighbour(dice: &mut Dice) -> (String, Entry) {
    let is_ipv6 = dice.below(3) == 0;
    let network = dice.below(5);
    let (dev, to) = (device(network, dice), gateway(network, 8 + dice.below(3), is_ipv6));
    let needs = vec![Need::Link(dev.to_owned())];
    if dice.below(4) == 0 {
        let toml = format!("dev = \"{dev}\", to = \"{to}\", proxy = true");
        let add = format!("proxy {to} dev {dev} protocol 76");
        let delete = format!("neighbour del proxy {to} dev {dev}");
        let key = format!("neighbour {to} dev {dev} proxy");
        return (key, Entry { toml, family: "", add, delete, needs });
    }
    let mac = mac(dice.below(3));
    let toml = format!("dev = \"{dev}\", to = \"{to}\", mac = \"{mac}\"");
    let add = format!("{to} lladdr {mac} dev {dev} nud permanent protocol 76");
    let delete = format!("neighbour del {to} dev {dev}");
    (format!("neighbour {to} dev {dev}"), Entry { toml, family: "", add, delete, needs })
}
