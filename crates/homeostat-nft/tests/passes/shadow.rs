//! Following the notifications of commits gives the same tables as another look at all of them would.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Focus, Reader as _, Records, Seen, Source as _, View};
use homeostat_nft::{DesiredState, Nft, Reader};
use proptest::prelude::*;

use crate::corpus::{corpus, failed, pairs};
use crate::random::numbers;
use crate::world::{World, by_hand, done, explained, ip_here, nft};

/// A reader with a subscription to commits.
pub(crate) struct Subscribed {
    source: Nft,
    desired: Arc<DesiredState>,
    reader: Reader,
}

/// What a look has shown, down to the handles, and whether tables were read for it.
#[derive(Debug, PartialEq)]
struct Look {
    tables: Vec<String>,
    was_read: bool,
}

impl Subscribed {
    /// One that has seen everything.
    pub(crate) fn of(world: &World, desired: &Arc<DesiredState>) -> Self {
        let (source, desired) = (world.source.clone(), Arc::clone(desired));
        let mut reader = source.reader().unwrap();
        look(&mut reader, &desired, &Focus::All);
        Subscribed { source, desired, reader }
    }

    pub(crate) fn before_each_call(&mut self, run: impl FnMut() + Send + 'static) {
        self.reader.before_each_call(run);
    }

    /// A look at everything, which is read, or at the tables of the desired state, whatever it shows.
    pub(crate) fn look_anyhow(&mut self, at_all: bool) {
        self.reader.read_again_after(Duration::ZERO);
        let keys = Focus::Keys(self.desired.keys().into_iter().collect());
        let focus = if at_all { Focus::All } else { keys };
        let records = Records::new();
        let view = View::new(&focus, &self.desired, &records);
        // Where writers never rest, a look may fail.
        let _ = done(self.reader.observe(&view, &mut |_| {}));
    }

    /// What a look at everything shows, which is read.
    pub(crate) fn seen(&mut self) -> String {
        self.reader.read_again_after(Duration::ZERO);
        look(&mut self.reader, &self.desired, &Focus::All).tables.join("\n")
    }

    /// What a look at everything shows, which may be answered by what was read before.
    pub(crate) fn seen_at_rest(&mut self) -> String {
        look(&mut self.reader, &self.desired, &Focus::All).tables.join("\n")
    }

    /// A look at the tables of the desired state that shows what another reader sees with its own eyes: whether it had
    /// to read any of them.
    pub(crate) fn had_to_read(&mut self) -> bool {
        let mut other = self.source.reader_without_hints().unwrap();
        let expected = look(&mut other, &self.desired, &Focus::All);
        let focus = Focus::Keys(self.desired.keys().into_iter().collect());
        let followed = look(&mut self.reader, &self.desired, &focus);
        let (followed_tables, expected) = (followed.tables.join("\n"), expected.tables.join("\n"));
        let same =
            followed_tables.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
        let part = |text: &str| {
            text.get(same.saturating_sub(600)..)
                .map(|rest| rest.chars().take(900).collect::<String>())
        };
        assert!(
            followed_tables == expected,
            "followed:\n{:?}\nseen:\n{:?}",
            part(&followed_tables),
            part(&expected)
        );
        followed.was_read
    }
}

fn look(
    reader: &mut Reader,
    desired: &Arc<DesiredState>,
    focus: &Focus<homeostat_nft::Key>,
) -> Look {
    let records = Records::new();
    let view = View::new(focus, desired, &records);
    let mut tables = Vec::new();
    let moment = done(reader.observe(&view, &mut |seen| {
        let Seen::Present { key, object, owner } = seen else { panic!("{seen:?}") };
        let whole = format!("{key} {owner:?} {object:?}");
        // What was found out about a table comes after it.
        let (table, _) = whole.split_once(", recorded:").unwrap();
        tables.push(without_time(table));
    }));
    tables.sort();
    Look { tables, was_read: moment.unwrap().was_read() }
}

/// The time that an element has left is another at each look.
fn without_time(text: &str) -> String {
    // An attribute of twelve bytes and the type of NFTA_SET_ELEM_EXPIRATION.
    const BEGINS: &str = "12, 0, 5, 0, ";
    let mut parts = text.split(BEGINS);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.splitn(9, [',', ']']).nth(8).unwrap_or(part);
        format!("{text}{BEGINS}?{rest}")
    })
}

const TEXT: &str = "table ip a {
    comment \"mine\"
    counter c { packets 1 bytes 2; }
    quota q { over 10 mbytes; }
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2, 10.0.0.3 }; }
    set i { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 10.0.1.0/24, 10.9.0.0/16 }; }
    map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : accept, 10.0.0.2 : jump x }; }
    chain x { counter; tcp dport 5 accept; }
    chain y { }
    chain i { type filter hook input priority 0; policy accept; tcp dport 1 counter accept; tcp dport 2 accept; ip saddr @s drop; ip saddr vmap @m; tcp dport { 7, 8 } accept; jump { counter; drop; }; }
}
table ip b { }
";

/// Whether a commit had to be read after it, though its table had been seen.
fn check(commits: &[&str], expected: bool) {
    let world = World::new();
    by_hand(TEXT);
    let mut subscribed = Subscribed::of(&world, &world.desired(TEXT));
    for commit in commits {
        by_hand(commit);
        assert_eq!(subscribed.had_to_read(), expected, "{commit}");
        // What was read is known again.
        assert!(!subscribed.had_to_read(), "{commit}, a second time");
    }
}

#[test]
fn the_notifications_of_a_commit_are_enough() {
    check(
        &[
            "add rule ip a y counter",
            "add rule ip a y tcp dport 2 accept",
            "insert rule ip a y tcp dport 1 accept",
            "insert rule ip a y tcp dport { 3, 4 } accept; add rule ip a y jump { counter; tcp dport vmap { 1 : accept }; }",
            "add rule ip a i meter seen { ip saddr limit rate 3/minute }",
            "flush chain ip a i",
            "delete chain ip a y; add chain ip a y; add rule ip a y accept",
            "chain ip a i { type filter hook input priority 0; policy drop; }",
            "add element ip a s { 10.0.0.4, 10.0.0.0 }; delete element ip a s { 10.0.0.2 }",
            "flush set ip a s",
            "add element ip a i { 10.0.2.0/24, 10.0.4.0-10.0.4.7, 10.1.0.0/16, 255.0.0.0/8 }",
            "delete element ip a i { 10.0.1.0/24 }; add element ip a i { 10.0.1.0/25 }",
            "delete element ip a m { 10.0.0.1 }; add element ip a m { 10.0.0.1 : drop, 10.0.0.3 : goto y }",
            "add set ip a t { type ipv4_addr; flags timeout; }; add element ip a t { 10.0.0.2 timeout 1h }",
            "delete element ip a t { 10.0.0.2 }",
            "add set ip a n { type inet_service; elements = { 1, 2 }; }; add rule ip a y tcp dport @n drop",
            "flush chain ip a y; delete set ip a n",
            "add counter ip a d; add limit ip a l { rate 1/second }",
            "delete limit ip a l; delete counter ip a d",
            "add table ip a { flags dormant; }",
            "add table ip a",
            "add table ip stranger; add chain ip stranger x",
            "delete table ip b",
            "table ip b { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; chain x { ip saddr @s accept; }; }",
            "flush ruleset",
            TEXT,
        ],
        false,
    );
}

#[test]
fn what_notifications_leave_uncertain_is_read() {
    // The new name stands in rules that were not touched.
    check(&["rename chain ip a x z"], true);
    // Rules that come before rules of the same commit.
    check(&["insert rule ip a i tcp dport 6 accept; insert rule ip a i tcp dport 7 accept"], true);
    // More than is worth being followed.
    let many = (0..1001).map(|at| format!("add rule ip a y tcp dport {at} accept"));
    check(&[&many.collect::<Vec<_>>().join("\n")], true);
}

/// Whether a look at everything had to read, soon after one that did.
fn check_soon_after(text: &str, commit: &str, expected: bool) {
    let world = World::new();
    by_hand(text);
    let mut subscribed = Subscribed::of(&world, &world.desired(text));
    subscribed.reader.read_again_after(Duration::from_hours(1));
    by_hand(commit);
    let followed = look(&mut subscribed.reader, &subscribed.desired, &Focus::All);
    assert_eq!(followed.was_read, expected, "{commit}");
    subscribed.reader.read_again_after(Duration::ZERO);
    let read = look(&mut subscribed.reader, &subscribed.desired, &Focus::All);
    assert!(read.was_read && read.tables == followed.tables, "{followed:?}\n{read:?}");
}

#[test]
fn a_look_at_everything_soon_after_another_reads_only_what_is_not_announced() {
    check_soon_after(TEXT, "add table ip stranger", false);
    check_soon_after(TEXT, "add rule ip a y drop; delete table ip b", false);
    check_soon_after(TEXT, "flush ruleset", false);
    check_soon_after(TEXT, "rename chain ip a x z", true);
    // What expires is not announced.
    let text = "table ip a { set s { type ipv4_addr; timeout 1h; elements = { 10.0.0.1 }; }; }";
    check_soon_after(text, "add table ip stranger", true);
}

/// A table that has our mark and is not declared.
#[test]
fn a_look_at_everything_soon_after_another_finds_tables_that_are_ours() {
    let mut world = World::new();
    world.converge("table ip a { }\ntable ip b { }");
    let mut subscribed = Subscribed::of(&world, &world.desired("table ip a { }"));
    subscribed.reader.read_again_after(Duration::from_hours(1));
    let seen = look(&mut subscribed.reader, &subscribed.desired, &Focus::All);
    assert_eq!(seen.tables.len(), 2, "{seen:?}");
}

#[test]
fn a_replaced_rule_is_found_at_its_place() {
    let world = World::new();
    by_hand(TEXT);
    let mut subscribed = Subscribed::of(&world, &world.desired(TEXT));
    for text in ["tcp dport 1 ", "tcp dport 2 ", "jump {"] {
        let list = nft(&["-a", "list", "chain", "ip", "a", "i"], "").unwrap();
        let rule = list.lines().find(|line| line.contains(text)).unwrap();
        // A rule of several lines has its handle at the last of them.
        let inner = list.lines().rev().find_map(|line| line.strip_prefix("\t\t} # handle "));
        let handle = rule.split("# handle ").nth(1).or(inner).unwrap();
        by_hand(&format!("replace rule ip a i handle {handle} udp dport 9 drop"));
        subscribed.had_to_read();
        assert!(!subscribed.had_to_read(), "{text}");
    }
}

#[test]
fn a_table_without_a_shadow_is_read_and_known_from_then_on() {
    let world = World::new();
    let mut subscribed = Subscribed::of(&world, &world.desired(""));
    subscribed.desired = world.desired("table ip a { }");
    by_hand("table ip a { chain x { accept; }; }");
    assert!(subscribed.had_to_read());
    by_hand("add rule ip a x drop");
    assert!(!subscribed.had_to_read());
}

#[test]
fn lost_events_give_everything_up() {
    let world = World::new();
    by_hand(TEXT);
    let mut subscribed = Subscribed::of(&world, &world.desired(TEXT));
    // More than any buffer holds.
    for round in 0..40_u32 {
        let elements = (0..2000_u32).map(|at| format!("10.{round}.{}.{}", 1 + (at >> 8), at & 255));
        by_hand(
            &format!("add element ip b s {{ {} }}", elements.collect::<Vec<_>>().join(", "))
                .replace("ip b s", "ip a s"),
        );
    }
    assert!(subscribed.had_to_read());
    by_hand("add rule ip a y counter");
    assert!(!subscribed.had_to_read());
}

#[test]
fn counts_that_have_to_be_carried_on_are_read() {
    let mut world = World::new();
    world.converge(TEXT);
    // Nothing of the desired state has to carry a count of what another program added, but a rule that is to be changed does.
    let desired =
        world.desired(&TEXT.replace("tcp dport 1 counter accept", "tcp dport 11 counter accept"));
    let mut subscribed = Subscribed::of(&world, &desired);
    assert!(subscribed.had_to_read());
    let desired = world.desired(&TEXT.replace("tcp dport 2 accept", "tcp dport 12 accept"));
    subscribed.desired = desired;
    assert!(!subscribed.had_to_read());
}

#[test]
fn every_ruleset_is_followed_to_any_other() {
    let all = corpus();
    let check = |(from, to): (usize, usize)| {
        let ((from_name, from), (to_name, to)) = (all[from], all[to]);
        failed(format!("from {from_name} to {to_name}"), move || {
            let world = World::new();
            let to = format!("flush ruleset\n{}", to.replace("flush ruleset", ""));
            // Both may declare the same set in two ways: the names of the tables are enough.
            let keys = [from, &to].into_iter().flat_map(|text| world.desired(text).keys());
            let bare: Vec<String> = keys.map(|key| format!("{key} {{ }}")).collect();
            let desired = world.desired(&bare.join("\n"));
            by_hand(from);
            let mut subscribed = Subscribed::of(&world, &desired);
            by_hand(&to);
            subscribed.had_to_read();
            assert!(!subscribed.had_to_read() || to.contains("device"), "a second time");
        })
    };
    let count = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 300 } else { 30 };
    let failed: Vec<String> = pairs(count).into_iter().filter_map(check).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 500 } else { 24 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_edit_is_followed(rulesets in proptest::collection::vec(numbers(), 2..5)) {
        std::thread::spawn(move || {
            let mut world = World::new();
            world.converge(&rulesets[0].text());
            let mut subscribed = Subscribed::of(&world, &world.desired(&rulesets[0].text()));
            for numbers in &rulesets[1..] {
                let desired = world.desired(&numbers.text());
                let report = world.pass(&desired);
                assert!(homeostat_engine::Explain::is_converged(&report), "{}", explained(&report));
                subscribed.had_to_read();
            }
        })
        .join()
        .map_err(|_| TestCaseError::fail("it was not followed"))?;
    }
}

#[test]
fn what_goes_with_a_device_is_not_announced() {
    let world = World::new();
    ip_here("link add v0 type veth peer name v1");
    let text = "table netdev a { chain i { type filter hook ingress device v0 priority 0; accept; }; chain x { drop; }; }
        table inet b { chain i { type filter hook ingress device v0 priority 0; accept; }; }
        table ip c { chain i { type filter hook input priority 0; accept; }; }";
    by_hand(text);
    let mut subscribed = Subscribed::of(&world, &world.desired(text));
    assert!(subscribed.had_to_read());
    ip_here("link del v0");
    assert!(subscribed.had_to_read());
}

#[test]
fn a_refused_transaction_is_a_reason_to_read() {
    let mut world = World::new();
    world.converge("table ip a { set s { type ipv4_addr; flags timeout; }; chain x { accept; }; }");
    let desired = world
        .desired("table ip a { set s { type ipv4_addr; flags timeout; }; chain x { drop; }; }");
    let mut subscribed = Subscribed::of(&world, &desired);
    assert!(!subscribed.had_to_read());
    // A transaction that was planned before another program's commit does not fit any more.
    let plan = world.plan(&desired);
    by_hand("flush ruleset");
    assert!(!homeostat_engine::Explain::is_converged(&world.apply_plan(&desired, plan)));
    assert!(subscribed.had_to_read());
    assert!(!subscribed.had_to_read());
}

/// Quirk `elements-listed-twice`.
#[test]
fn a_set_that_was_just_filled_is_read_whole() {
    let world = World::new();
    let desired = world.desired("table ip a { }");
    let elements: Vec<_> = (0..100_000_u32)
        .map(|at| format!("10.{}.{}.{}", at >> 16, at >> 8 & 255, at & 255))
        .collect();
    let set = format!("set s {{ type ipv4_addr; elements = {{ {} }}; }}", elements.join(", "));
    let mut reader = world.source.reader_without_hints().unwrap();
    by_hand(&format!("table ip a {{ {set}; }}"));
    let first = look(&mut reader, &desired, &Focus::All);
    let later = look(&mut reader, &desired, &Focus::All);
    assert!(first == later, "some elements were read twice, and others not at all");
}
