//! Several writers edit tables at once, at random, while a hearing reader follows them.

use std::fmt::Write as _;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use crate::shadow::Subscribed;
use crate::world::{World, by_hand, nft};

/// Numbers that look random and are the same each time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.roll(all.len() as u64)).unwrap()]
    }
}

const TABLES: [&str; 3] = ["ip a", "ip b", "inet c"];

fn table(name: &str) -> String {
    // Tables that share a hook are read where one of them is not as declared, for the counters of the others.
    let priority = TABLES.iter().position(|one| *one == name).unwrap();
    format!(
        "table {name} {{
    counter c {{ }}
    counter d {{ }}
    quota q {{ over 10 mbytes; }}
    limit l {{ rate 3/second; }}
    set s {{ type ipv4_addr; }}
    set i {{ type ipv4_addr; flags interval; auto-merge; }}
    set j {{ type inet_service; flags interval; }}
    set p {{ type ipv4_addr . inet_service; flags interval; }}
    set t {{ type ipv4_addr; flags timeout; }}
    set k {{ type ipv4_addr; counter; }}
    map m {{ type ipv4_addr : verdict; }}
    map o {{ type ipv4_addr : counter; }}
    map r {{ type ipv4_addr : mark; flags interval; }}
    chain z {{ }}
    chain y {{ }}
    chain x {{ tcp dport 1 accept; jump y; }}
    chain h {{ type filter hook input priority {priority}; policy accept; }}
}}\n"
    )
}

/// What the writers agree on.
#[derive(Default)]
struct Stage {
    /// Held for reading by the writers; the judge holds it for writing.
    calm: RwLock<()>,
    is_over: AtomicBool,
    commits: AtomicU32,
}

impl Stage {
    fn write(&self, seed: u64) {
        let mut dice = Dice(seed);
        while !self.is_over.load(Ordering::Relaxed) {
            let at = *dice.one_of(&TABLES);
            let commands = 1 + dice.roll(4);
            let mut text = String::new();
            for _ in 0..commands {
                let _ = writeln!(text, "{}", command(&mut dice, at));
            }
            let _calm = self.calm.read().unwrap();
            // Many of them do not fit what is there. That is no commit then.
            let is_done = nft(&["-f", "-"], &text).is_ok();
            self.commits.fetch_add(u32::from(is_done), Ordering::Relaxed);
        }
    }
}

const RULES: [&str; 14] = [
    "counter",
    "tcp dport 2 accept",
    "tcp dport { 3, 4 } drop",
    "ip saddr @s drop",
    "ip saddr @i counter drop",
    "ip saddr vmap @m",
    "counter name c",
    "quota name q drop",
    "limit name l accept",
    "jump { counter; tcp dport { 5, 6 } accept; jump { drop; }; }",
    "tcp dport vmap { 1 : jump z, 3-9 : accept }",
    "meter seen { ip saddr limit rate 3/minute }",
    "counter name ip saddr map @o",
    "ip saddr . tcp dport { 10.0.0.0/24 . 1-3, 10.0.1.1 . 5 } accept",
];

fn address(dice: &mut Dice) -> String {
    format!("10.0.{}.{}", dice.roll(4), dice.roll(64))
}

fn range(dice: &mut Dice) -> String {
    match dice.roll(3) {
        0 => format!("10.{}.0.0/{}", dice.roll(8), 13 + dice.roll(8)),
        1 => format!("10.0.{}.1-10.0.{}.9", dice.roll(4), 4 + dice.roll(4)),
        _ => address(dice),
    }
}

/// An element of a set, and what it leads to.
fn element(dice: &mut Dice, set: &str) -> (String, &'static str) {
    if set != "s"
        && set != "j"
        && set != "i"
        && set != "p"
        && set != "t"
        && set != "k"
        && dice.roll(8) == 0
    {
        let to = match set {
            "m" => " : drop",
            "o" => " : \"c\"",
            _ => " : 9",
        };
        return ("*".to_owned(), to);
    }
    match set {
        "i" => (range(dice), ""),
        "j" => (format!("{}-{}", dice.roll(20) * 10, dice.roll(20) * 10 + 200), ""),
        "p" => (format!("{} . {}-{}", range(dice), dice.roll(9), 9 + dice.roll(9)), ""),
        "t" => (address(dice), *dice.one_of(&["", " timeout 1h", " timeout 2h"])),
        "m" => (address(dice), *dice.one_of(&[" : accept", " : jump z", " : goto y"])),
        "o" => (address(dice), *dice.one_of(&[" : \"c\"", " : \"d\""])),
        "r" => (range(dice), *dice.one_of(&[" : 1", " : 2"])),
        _ => (address(dice), ""),
    }
}

fn elements(dice: &mut Dice, table: &str) -> String {
    let set = *dice.one_of(&["s", "i", "j", "p", "t", "k", "m", "o", "r"]);
    let count = *dice.one_of(&[1, 1, 2, 5, 40]);
    let all: Vec<_> = (0..count).map(|_| element(dice, set)).collect();
    let (whole, keys): (Vec<_>, Vec<_>) =
        all.into_iter().map(|(key, to)| (format!("{key}{to}"), key)).unzip();
    match dice.roll(5) {
        0 => format!("delete element {table} {set} {{ {} }}", keys[0]),
        1 if dice.roll(4) == 0 => format!("flush set {table} {set}"),
        _ => format!("add element {table} {set} {{ {} }}", whole.join(", ")),
    }
}

/// The handle of some rule of a chain.
fn handle(dice: &mut Dice, table: &str, chain: &str) -> String {
    let list =
        nft(&["-a", "-s", "list", "chain", &format!("{table} {chain}")], "").unwrap_or_default();
    let handles: Vec<&str> =
        list.lines().skip(2).filter_map(|line| line.split("# handle ").nth(1)).collect();
    if handles.is_empty() { "1".to_owned() } else { (*dice.one_of(&handles)).to_owned() }
}

fn command(dice: &mut Dice, table: &str) -> String {
    let chain = *dice.one_of(&["x", "y", "h"]);
    let rule = *dice.one_of(&RULES);
    let kind = dice.roll(24);
    let mut some =
        || if (6..14).contains(&kind) { handle(dice, table, chain) } else { String::new() };
    match (some(), some(), kind) {
        (_, _, 0..4) => format!("add rule {table} {chain} {rule}"),
        (_, _, 4..6) => format!("insert rule {table} {chain} {rule}"),
        (at, _, 6) => format!("add rule {table} {chain} handle {at} {rule}"),
        (at, _, 7) => format!("insert rule {table} {chain} handle {at} {rule}"),
        (at, _, 8..10) => format!("replace rule {table} {chain} handle {at} {rule}"),
        (at, _, 10..12) => format!("delete rule {table} {chain} handle {at}"),
        (at, to, 12) => format!(
            "delete rule {table} {chain} handle {at}\nadd rule {table} {chain} handle {to} {rule}"
        ),
        (at, _, 13) => format!(
            "delete rule {table} {chain} handle {at}\ninsert rule {table} {chain} handle {at} {rule}"
        ),
        (_, _, 14) => match dice.roll(6) {
            0 => format!("delete table {table}\n{}", self::table(table)),
            1 => format!("flush chain {table} {chain}"),
            2 => format!("rename chain {table} z w\nrename chain {table} w z"),
            3 => format!("delete table {table}"),
            _ => self::table(table),
        },
        (_, _, 15) => {
            let policy = *dice.one_of(&["accept", "drop"]);
            format!("add chain {table} h {{ policy {policy}; }}")
        }
        (_, _, 16) => {
            let flags = *dice.one_of(&["", "{ flags dormant; }"]);
            format!("add table {table} {flags}")
        }
        (_, _, 17) => match dice.roll(3) {
            0 => format!("add counter {table} e; add limit {table} f {{ rate 1/second; }}"),
            1 => format!("delete counter {table} e; delete limit {table} f"),
            _ => format!("add chain {table} v\nadd rule {table} v {rule}\ndelete chain {table} v"),
        },
        (_, _, 18) if dice.roll(4) == 0 => large(dice, table),
        _ => elements(dice, table),
    }
}

/// A commit that takes its time, with what is changed last at its end.
fn large(dice: &mut Dice, table: &str) -> String {
    let first = dice.roll(200);
    let all = (0..3000).map(|at| format!("10.{first}.{}.{} . {at}", at / 250, at % 250));
    let all: Vec<_> = all.collect();
    let policy = *dice.one_of(&["accept", "drop"]);
    format!(
        "flush set {table} p\nadd element {table} p {{ {} }}\nadd chain {table} h {{ policy {policy}; }}",
        all.join(", ")
    )
}

/// Ends the writers also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another one each time, unless the environment sets it, as all random tests are by `cargo xtask test`.
fn seed() -> u64 {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into())
}

/// More looks than any machine makes between two commits of the writers.
const MOST: u32 = 1_000_000;

#[test]
fn tables_are_followed_through_a_storm_of_writers() {
    let world = World::new();
    let text: String = TABLES.iter().map(|name| table(name)).collect();
    let netns = homeostat_netns::Netns::current().unwrap();
    by_hand(&text);
    let mut subscribed = Subscribed::of(&world, &world.desired(&text));
    let stage = Stage::default();
    let seed = seed();
    let looks: u32 = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 150 } else { 30 };
    let mut reads = 0;
    std::thread::scope(|scope| {
        let _end = End(&stage.is_over);
        for nth in 0..3 {
            let (stage, netns) = (&stage, &netns);
            scope.spawn(move || {
                netns.enter().unwrap();
                stage.write(seed + nth + 1);
            });
        }
        let mut dice = Dice(seed + 9);
        for _ in 0..looks {
            // In the wild nothing can be compared, but what is followed from there must be right.
            let enough =
                stage.commits.load(Ordering::Relaxed) + u32::try_from(dice.roll(6)).unwrap();
            let is_calm = || stage.commits.load(Ordering::Relaxed) < enough;
            for _ in (0..MOST).take_while(|_| is_calm()) {
                subscribed.look_anyhow(dice.roll(8) == 0);
            }
            assert!(!is_calm(), "there is no writer any more");
            let _calm = stage.calm.write().unwrap();
            reads += u32::from(subscribed.had_to_read());
            assert!(!subscribed.had_to_read(), "seed {seed}");
        }
    });
    assert!(reads < looks, "{reads} of {looks} looks had to read");
}
