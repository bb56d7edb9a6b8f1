//! Any edit between two rulesets converges in one pass, and never touches a stranger.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use homeostat_engine::Explain as _;
use proptest::prelude::*;

use crate::packets::{Sender, counted};
use crate::world::{World, by_hand, expected, explained, listed, nft};

const STRANGER: &str =
    "table ip stranger { set s { type ipv4_addr; }; chain x { counter packets 7 bytes 8; }; }";

/// A ruleset that these numbers stand for.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    set: u8,
    elements: u8,
    base: u8,
    input: Vec<u8>,
    y: Vec<u8>,
    z: Vec<u8>,
    /// Which name the second chain has.
    name: u8,
}

pub(crate) fn numbers() -> impl Strategy<Value = Numbers> {
    let rules = || proptest::collection::vec(0_u8..14, 0..8);
    let chains = (rules(), rules(), rules(), 0_u8..3);
    (0_u8..4, any::<u8>(), 0_u8..6, chains).prop_map(
        |(set, elements, base, (input, y, z, name))| Numbers {
            set,
            elements,
            base,
            input,
            y,
            z,
            name,
        },
    )
}

impl Numbers {
    pub(crate) fn text(&self) -> String {
        let (kind, key, value): (_, _, fn(u8) -> String) = match self.set {
            0 => ("type ipv4_addr", "ip saddr", |at| format!("10.0.0.{at}")),
            1 => ("type ipv4_addr; flags interval", "ip saddr", |at| format!("10.{at}.0.0/16")),
            2 => ("type inet_service", "tcp dport", |at| at.to_string()),
            _ => ("type inet_service; comment \"c\"", "tcp dport", |at| at.to_string()),
        };
        let chosen = || (1..8_u8).filter(|at| self.elements >> at & 1 == 1);
        let elements: Vec<_> = chosen().map(value).collect();
        // Without any declared the content would be data, and others would stay.
        let elements = if elements.is_empty() { vec![value(9)] } else { elements };
        let mut verdicts = vec!["9 : jump z".to_owned()];
        verdicts.extend(
            chosen().map(|at| format!("{at} : {}", ["accept", "drop"][usize::from(at % 2)])),
        );
        let mut text = String::from("table ip a {\n");
        let _ = writeln!(text, "set s {{ {kind}; elements = {{ {} }}; }}", elements.join(", "));
        let _ = writeln!(
            text,
            "map m {{ type inet_service : verdict; elements = {{ {} }}; }}",
            verdicts.join(", ")
        );
        let _ = writeln!(text, "counter c {{ comment \"{}\"; }}", self.base % 2);
        let _ = writeln!(text, "limit l {{ rate {}/second; }}", self.base + 1);
        chain(&mut text, "z", "", &self.z, &[]);
        let y = ["y", "y", "renamed"][usize::from(self.name % 3)];
        chain(&mut text, y, "", &self.y, &["jump z"]);
        let policy = if self.base.is_multiple_of(2) { "accept" } else { "drop" };
        let hook = format!("type filter hook input priority {}; policy {policy};", self.base / 2);
        let named = [
            &format!("jump {y}"),
            "jump z",
            &format!("{key} @s counter drop"),
            &format!("{key} != @s accept"),
            "tcp dport vmap @m",
            "counter name c",
            "limit name l accept",
            "tcp dport vmap { 1 : jump z, 2 : accept }",
        ];
        chain(&mut text, "i", &hook, &self.input, &named);
        text.push('}');
        text
    }
}

fn chain(text: &mut String, name: &str, hook: &str, rules: &[u8], named: &[&str]) {
    const PLAIN: [&str; 6] = [
        "counter",
        "tcp dport 22 accept",
        "tcp dport { 1, 2 } drop",
        "udp dport 9999 counter comment \"u\"",
        "jump { counter; tcp dport 5 accept; }",
        "log prefix \"x\"",
    ];
    let _ = writeln!(text, "chain {name} {{ {hook}");
    for rule in rules {
        let all: Vec<_> = PLAIN.iter().chain(named).collect();
        let _ = writeln!(text, "{}", all[usize::from(*rule) % all.len()]);
    }
    let _ = writeln!(text, "}}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 500 } else { 24 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_edit_converges_in_one_pass(from in numbers(), to in numbers()) {
        std::thread::spawn(move || {
            let mut world = World::new();
            by_hand(STRANGER);
            let stranger = nft(&["-a", "list", "table", "ip", "stranger"], "").unwrap();
            world.converge(&from.text());
            world.converge(&to.text());
            assert_eq!(listed(), expected(&format!("{STRANGER}\n{}", to.text())));
            let after = nft(&["-a", "list", "table", "ip", "stranger"], "").unwrap();
            assert_eq!(after, stranger);
        })
        .join()
        .map_err(|_| TestCaseError::fail("it did not converge"))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 200 } else { 8 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn unchanged_rules_keep_what_they_counted_of_real_packets(from in numbers(), to in numbers()) {
        std::thread::spawn(move || keep_counts(&from, &to))
            .join()
            .map_err(|_| TestCaseError::fail("counts were lost"))?;
    }
}

fn keep_counts(from: &Numbers, to: &Numbers) {
    let mut world = World::new();
    let sender = Sender::beside(&world);
    world.converge(&from.text());
    sender.send(5);
    let before = counted("a");
    world.converge(&to.text());
    let after = counted("a");
    for (handle, packets) in &before.by_handle {
        let kept = after.by_handle.get(handle);
        assert!(kept.is_none_or(|kept| kept == packets), "rule {handle}: {before:?} {after:?}");
    }
    // As many equal rules as before in the same chain: those that moved carried their counts on.
    for (rule, counts) in &before.by_text {
        let now = after.by_text.get(rule).filter(|now| now.len() == counts.len());
        assert!(now.is_none_or(|now| now == counts), "{rule}: {counts:?} became {now:?}");
    }
    sender.send(5);
    world.converge(&to.text());
    assert_eq!(
        counted("a").by_handle.keys().collect::<Vec<_>>(),
        after.by_handle.keys().collect::<Vec<_>>()
    );
}

#[test]
fn packets_are_counted_at_all() {
    let mut world = World::new();
    let sender = Sender::beside(&world);
    world.converge("table ip a { chain i { type filter hook input priority 0; counter; udp dport 9999 counter; }; }");
    sender.send(5);
    assert!(counted("a").by_handle.values().all(|packets| *packets >= 5), "{:?}", counted("a"));
}

/// Ends the other writer also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_writer_that_never_rests_neither_stops_us_nor_loses_anything() {
    let mut world = World::new();
    by_hand(STRANGER);
    let (stop, commits) = (AtomicBool::new(false), AtomicU32::new(0));
    let netns = homeostat_netns::Netns::current().unwrap();
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            netns.enter().unwrap();
            while !stop.load(Ordering::Relaxed) {
                let at = commits.fetch_add(1, Ordering::Relaxed);
                by_hand(&format!("add element ip stranger s {{ 10.0.{}.{} }}", at >> 8, at & 255));
            }
        });
        for port in 1..=10_u16 {
            let text = format!("table ip a {{ chain x {{ tcp dport {port} accept; counter; }}; }}");
            let desired = world.desired(&text);
            let mut passes = (0..20).map(|_| world.pass(&desired));
            let converged = passes.any(|report| report.is_converged());
            assert!(converged, "port {port}: {}", explained(&world.plan(&desired)));
        }
    });
    let list = nft(&["list", "ruleset"], "").unwrap();
    assert!(list.contains("tcp dport 10 accept"), "{list}");
    assert_eq!(list.matches("10.0.").count(), usize::try_from(commits.into_inner()).unwrap());
}
