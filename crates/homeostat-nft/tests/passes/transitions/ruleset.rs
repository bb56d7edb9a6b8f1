//! A random ruleset as a model, and edits of it.
//!
//! A name says what kind of thing it is, so that edits keep the text valid: `sa` is a set of addresses,
//! `si` of intervals, `sp` of ports, `sc` of both, `st` one whose elements expire, `sd` one that rules
//! fill, `su` one whose type is that of an expression, `se` one with a statement for each element, `mv` a map to
//! verdicts, `mm` to marks, `mi` the same for intervals, `mt` one whose elements expire, `md` one that rules fill, `mo` a
//! map to counters, `b` a base chain, `c` a regular one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A small generator of numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Dice(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// A line, and the names of its table that it needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    text: String,
    needs: Vec<String>,
}

/// A chain, a set, a map or a named object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// `set`, `chain`, ...
    keyword: &'static str,
    /// What comes before elements or rules.
    header: String,
    /// Elements, or rules.
    lines: Vec<Line>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    is_dormant: bool,
    comment: Option<&'static str>,
    parts: BTreeMap<String, Part>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    /// By family and name.
    tables: BTreeMap<(&'static str, &'static str), Table>,
}

/// The place of something that can be taken away: a table, a part of it, a line of that.
pub(super) type Place = ((&'static str, &'static str), Option<(String, Option<usize>)>);

/// Two to four rulesets, each an edit of the one before, or another one altogether.
pub(super) fn sequence(seed: u64) -> Vec<Ruleset> {
    let mut dice = Dice::new(seed);
    let mut ruleset = Ruleset::default();
    let mut all = Vec::new();
    for number in 0..2 + dice.below(3) {
        if dice.below(8) == 0 {
            ruleset = Ruleset::default();
        }
        let edits = if number == 0 { 30 } else { 1 + dice.below(12) };
        for _ in 0..edits {
            ruleset.edit(&mut dice);
        }
        ruleset.prune();
        all.push(ruleset.clone());
    }
    all
}

const TABLES: [(&str, &str); 7] = [
    ("ip", "t0"),
    ("ip", "t1"),
    ("inet", "t0"),
    ("ip6", "t2"),
    ("bridge", "t0"),
    ("arp", "t3"),
    ("netdev", "t0"),
];
/// In the order in which they are written: what is needed first comes first.
const NAMES: [&str; 31] = [
    "k0", "k1", "q0", "l0", "c3", "c2", "c1", "c0", "sa0", "sa1", "si0", "sp0", "sp1", "sc0",
    "st0", "su0", "se0", "sd0", "sd1", "mv0", "mv1", "mm0", "mi0", "mt0", "md0", "mo0", "b0", "b1",
    "b2", "b3", "b4",
];

impl Ruleset {
    /// The text, with a number in the names of its tables.
    pub(super) fn text(&self, number: usize) -> String {
        let mut text = String::new();
        for ((family, name), table) in &self.tables {
            let _ = writeln!(text, "table {family} {name}_{number} {{");
            if table.is_dormant {
                let _ = writeln!(text, "    flags dormant");
            }
            if let Some(comment) = table.comment {
                let _ = writeln!(text, "    comment \"{comment}\"");
            }
            let parts = NAMES.iter().filter_map(|name| Some((name, table.parts.get(*name)?)));
            for (name, part) in parts {
                part.write(name, &mut text);
            }
            text.push_str("}\n");
        }
        text
    }

    /// Everything that can be taken away.
    pub(super) fn parts(&self) -> Vec<Place> {
        let mut all = Vec::new();
        for (key, table) in &self.tables {
            all.push((*key, None));
            for (name, part) in &table.parts {
                all.push((*key, Some((name.clone(), None))));
                let lines = (0..part.lines.len()).map(|at| (*key, Some((name.clone(), Some(at)))));
                all.extend(lines);
            }
        }
        all
    }

    pub(super) fn remove(&mut self, (key, rest): &Place) {
        match rest {
            None => drop(self.tables.remove(key)),
            Some((name, None)) => drop(self.tables.get_mut(key).unwrap().parts.remove(name)),
            Some((name, Some(at))) => {
                let table = self.tables.get_mut(key).unwrap();
                table.parts.get_mut(name).unwrap().lines.remove(*at);
            }
        }
        self.prune();
    }

    /// Takes away what needs names that are not there.
    fn prune(&mut self) {
        for table in self.tables.values_mut() {
            let names: BTreeSet<String> = table.parts.keys().cloned().collect();
            let is_there = |name: &String| names.contains(name);
            for part in table.parts.values_mut() {
                part.lines.retain(|line| line.needs.iter().all(is_there));
            }
        }
    }

    fn edit(&mut self, dice: &mut Dice) {
        let key = TABLES[dice.below(TABLES.len())];
        if dice.below(14) == 0 {
            self.tables.remove(&key);
            return;
        }
        let is_new = !self.tables.contains_key(&key);
        let table = self.tables.entry(key).or_default();
        if dice.below(40) == 0 {
            table.is_dormant = !table.is_dormant;
        }
        if is_new || dice.below(20) == 0 {
            table.comment = if dice.below(2) == 0 { Some("table") } else { None };
        }
        let name = dice.pick(&NAMES);
        match dice.below(8) {
            0 => drop(table.parts.remove(name)),
            // Another header over the same lines, if they go together.
            1 => {
                let fresh = part(name, key.0, dice);
                if let Some(part) = table.parts.get_mut(name) {
                    part.header = fresh.header;
                }
            }
            2 | 3 => {
                let part =
                    table.parts.entry(name.to_owned()).or_insert_with(|| part(name, key.0, dice));
                change_lines(part, name, key.0, dice);
            }
            _ => {
                let mut fresh = part(name, key.0, dice);
                for _ in 0..=dice.below(4) {
                    change_lines(&mut fresh, name, key.0, dice);
                }
                table.parts.entry(name.to_owned()).or_insert(fresh);
            }
        }
    }
}

/// Adds a line, takes one away, or moves one.
fn change_lines(part: &mut Part, name: &str, family: &str, dice: &mut Dice) {
    let count = part.lines.len();
    match dice.below(6) {
        0 if count > 0 => drop(part.lines.remove(dice.below(count))),
        1 if count > 1 => {
            let line = part.lines.remove(dice.below(count));
            part.lines.insert(dice.below(count), line);
        }
        _ => {
            let Some(line) = line(name, family, dice) else { return };
            let at = dice.below(count + 1);
            let value =
                |line: &Line| line.text.split([' ', ':']).next().unwrap_or_default().to_owned();
            // A key is in a set once; rules may be there more often.
            if part.keyword != "chain" {
                let (new, fresh) = (value(&line), line.clone());
                if let Some(old) = part.lines.iter_mut().find(|old| value(old) == new) {
                    *old = fresh;
                    return;
                }
            }
            part.lines.insert(at, line);
        }
    }
}

impl Part {
    fn write(&self, name: &str, text: &mut String) {
        let _ = write!(text, "    {} {name} {{ {}", self.keyword, self.header);
        if self.keyword == "chain" {
            for line in &self.lines {
                let _ = write!(text, "\n        {}", line.text);
            }
            text.push_str("\n    }\n");
            return;
        }
        if !self.lines.is_empty() {
            let elements: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
            let _ = write!(text, " elements = {{ {} }};", elements.join(", "));
        }
        text.push_str(" }\n");
    }
}

/// A part of this name without lines.
fn part(name: &str, family: &str, dice: &mut Dice) -> Part {
    let comment = if dice.below(4) == 0 { " comment \"part\";" } else { "" };
    let (keyword, header) = match &name[..1] {
        "k" => ("counter", String::new()),
        "q" => {
            ("quota", format!("{} {} mbytes;", dice.pick(&["over", "until"]), 1 + dice.below(3)))
        }
        "l" => ("limit", format!("rate {}/second;", 1 + dice.below(3))),
        "c" => ("chain", String::new()),
        "b" => ("chain", base(family, dice)),
        "m" => {
            let rest = ["", " size 1000;", " policy memory;"];
            let (value, rest): (_, &[&str]) = match &name[..2] {
                "mv" => ("inet_service : verdict;", &["", " size 1000;", " flags constant;"]),
                "mm" => ("ipv4_addr : mark;", &rest),
                "mi" => ("ipv4_addr : mark;", &[" flags interval;"]),
                "mt" => ("ipv4_addr : mark;", &[" flags timeout;", " timeout 1h;"]),
                "md" => {
                    ("ipv4_addr : inet_service;", &[" size 99; flags dynamic,timeout; timeout 1h;"])
                }
                _ => ("ipv4_addr : counter;", &rest),
            };
            ("map", format!("type {value}{}", dice.pick(rest)))
        }
        _ => ("set", set(name, dice)),
    };
    Part { keyword, header: format!("{header}{comment}"), lines: Vec::new() }
}

fn set(name: &str, dice: &mut Dice) -> String {
    match &name[..2] {
        "sa" => {
            let rest = ["", " size 1000;", " policy memory;", " flags constant;", " counter;"];
            format!("type ipv4_addr;{}", dice.pick(&rest))
        }
        "si" => {
            let rest = ["", " auto-merge;"];
            format!("type ipv4_addr; flags interval;{}", dice.pick(&rest))
        }
        "sp" => format!("type inet_service;{}", dice.pick(&["", " size 500;", " flags constant;"])),
        "sc" => {
            let rest = ["", " flags interval;"];
            format!("type ipv4_addr . inet_service;{}", dice.pick(&rest))
        }
        "st" => {
            let rest = ["", " timeout 1h;", " timeout 2h; gc-interval 1m;"];
            format!("type ipv4_addr; flags timeout;{}", dice.pick(&rest))
        }
        "su" => format!("typeof tcp dport . meta mark;{}", dice.pick(&["", " size 50;"])),
        "se" => {
            let rest = [" quota 500 bytes;", " limit rate 1/second;", " counter;"];
            format!("type ipv4_addr; size 90; flags dynamic;{}", dice.pick(&rest))
        }
        _ => {
            let rest = ["", " timeout 1h;"];
            format!("type ipv4_addr; size 2000; flags dynamic,timeout;{}", dice.pick(&rest))
        }
    }
}

fn base(family: &str, dice: &mut Dice) -> String {
    if family == "netdev" {
        let priority = dice.pick(&["0", "5"]);
        return format!("type filter hook ingress device lo priority {priority};");
    }
    let kind = if ["bridge", "arp"].contains(&family) { 0 } else { dice.below(5) };
    let (kind, hook) = match kind {
        _ if family == "arp" => ("filter", dice.pick(&["input", "output"])),
        3 => ("nat", dice.pick(&["prerouting", "postrouting"])),
        4 => ("route", "output"),
        _ => ("filter", dice.pick(&["input", "forward", "output"])),
    };
    let priority = dice.pick(&["0", "5", "-10"]);
    let policy = dice.pick(&["", " policy accept;", " policy drop;"]);
    let policy = if kind == "filter" { policy } else { "" };
    format!("type {kind} hook {hook} priority {priority};{policy}")
}

/// An element, or a rule.
fn line(name: &str, family: &str, dice: &mut Dice) -> Option<Line> {
    let number = 1 + dice.below(6);
    let comment = if dice.below(3) == 0 { " comment \"element\"" } else { "" };
    let mut needs = Vec::new();
    let text = match &name[..2] {
        "sa" | "se" => format!("10.0.0.{number}{comment}"),
        "si" => {
            dice.pick(&["10.1.0.0/24", "10.2.0.0/16", "10.3.0.1-10.3.0.9", "10.4.0.4"]).to_owned()
        }
        "sp" => format!("{}{comment}", 20 + number),
        "sc" => format!("10.0.0.{number} . {}", 20 + dice.below(3)),
        "st" => expiring(number, dice),
        "su" => format!("{} . {:#x}{comment}", 20 + number, 1 + dice.below(3)),
        "mi" => {
            let key = dice.pick(&["10.1.0.0/24", "10.2.0.0/16", "10.3.0.1-10.3.0.9"]);
            format!("{key} : {:#x}", 1 + dice.below(3))
        }
        "mt" => {
            let timeout = dice.pick(&["", " timeout 1h", " timeout 3h"]);
            format!("10.0.0.{number}{timeout} : {:#x}", 1 + dice.below(3))
        }
        "sd" | "md" | "k0" | "k1" | "q0" | "l0" => return None,
        "mv" => {
            let chain = dice.pick(&["c1", "c2", "c3"]);
            let verdict = match dice.below(3) {
                0 => "accept".to_owned(),
                1 => "drop".to_owned(),
                _ => {
                    needs.push(chain.to_owned());
                    format!("{} {chain}", dice.pick(&["jump", "goto"]))
                }
            };
            format!("{} : {verdict}", 20 + number)
        }
        "mm" => format!("10.0.0.{number} : {:#x}", 1 + dice.below(3)),
        "mo" => {
            let counter = dice.pick(&["k0", "k1"]);
            needs.push(counter.to_owned());
            format!("10.0.0.{number} : \"{counter}\"")
        }
        _ => return Some(rule(name, family, dice)),
    };
    Some(Line { text, needs })
}

/// An element that expires; its attributes may change from one text to the next.
fn expiring(number: usize, dice: &mut Dice) -> String {
    let choice = dice.below(6);
    let rest =
        ["", " timeout 1h", " timeout 3h", " comment \"e\"", " timeout 2h comment \"f\"", ""];
    format!("10.0.0.{number}{}", rest[choice % rest.len()])
}

fn rule(chain: &str, family: &str, dice: &mut Dice) -> Line {
    let anywhere: [(&str, &[&str]); 24] = [
        ("counter", &[]),
        ("quota 500 bytes counter", &[]),
        ("udp dport 9 counter", &[]),
        ("jump { counter; tcp dport { 5, 6 } accept; }", &[]),
        ("meta length . meta mark { 1 . 2, 3-9 . 4 } counter", &[]),
        ("tcp dport . meta mark @su0 counter", &["su0"]),
        ("tcp dport 22 accept", &[]),
        ("tcp dport { 80, 443 } counter accept", &[]),
        ("tcp dport vmap { 1 : accept, 2 : drop }", &[]),
        ("meta l4proto { tcp, udp } th dport 53 accept comment \"dns\"", &[]),
        ("limit rate 10/second accept", &[]),
        ("quota over 5 mbytes drop", &[]),
        ("meta mark set 0x5", &[]),
        ("log prefix \"x\"", &[]),
        ("counter name \"k0\"", &["k0"]),
        ("counter name \"k1\" drop", &["k1"]),
        ("quota name \"q0\" drop", &["q0"]),
        ("limit name \"l0\" accept", &["l0"]),
        ("tcp dport @sp0 accept", &["sp0"]),
        ("tcp dport @sp1 counter drop", &["sp1"]),
        ("tcp dport vmap @mv0", &["mv0"]),
        ("udp dport vmap @mv1", &["mv1"]),
        ("jump CHAIN", &[]),
        ("tcp dport 7 goto CHAIN", &[]),
    ];
    let of_ipv4: [(&str, &[&str]); 16] = [
        ("update @se0 { ip daddr }", &["se0"]),
        ("ip saddr @se0 counter", &["se0"]),
        ("add @sd1 { ip daddr quota over 100 bytes } counter", &["sd1"]),
        ("meta mark set ip saddr map @mi0", &["mi0"]),
        ("meta mark set ip saddr map @mt0 counter", &["mt0"]),
        ("update @md0 { ip daddr timeout 2m : udp dport }", &["md0"]),
        ("ip saddr @sa0 accept", &["sa0"]),
        ("ip saddr != @sa1 drop", &["sa1"]),
        ("ip daddr @si0 counter", &["si0"]),
        ("ip saddr . tcp dport @sc0 accept", &["sc0"]),
        ("ip saddr @st0 drop", &["st0"]),
        ("add @sd0 { ip saddr timeout 1m }", &["sd0"]),
        ("update @sd0 { ip saddr limit rate 5/second }", &["sd0"]),
        ("meta mark set ip saddr map @mm0", &["mm0"]),
        ("counter name ip saddr map @mo0", &["mo0"]),
        ("ip saddr 10.0.0.0/8 accept", &[]),
    ];
    let is_fit = |(text, _): &&(&str, &[&str])| {
        family != "arp" || !["tcp", "udp", "th dport"].iter().any(|word| text.contains(word))
    };
    let mut all: Vec<_> = anywhere.iter().filter(is_fit).collect();
    if ["ip", "inet"].contains(&family) {
        all.extend(&of_ipv4);
    }
    let (text, needs) = *all[dice.below(all.len())];
    let mut line = Line {
        text: text.to_owned(),
        needs: needs.iter().map(|name| (*name).to_owned()).collect(),
    };
    if text.contains("CHAIN") || text.contains("@mv") {
        // Only downwards, and so never in a circle.
        let below: &[&str] = match chain {
            "c3" => &[],
            "c2" => &["c3"],
            "c1" => &["c2", "c3"],
            _ => &["c1", "c2", "c3"],
        };
        if below.is_empty() || text.contains("@mv") && !chain.starts_with('b') {
            return Line { text: "accept".to_owned(), needs: Vec::new() };
        }
        if text.contains("CHAIN") {
            let target = dice.pick(below);
            line.text = text.replace("CHAIN", target);
            line.needs.push(target.to_owned());
        }
    }
    line
}
