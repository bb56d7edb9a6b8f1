//! What the kernel announces ambiguously, or not at all, is never followed.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::shadow::Subscribed;
use crate::world::{World, by_hand, nft};

const TEXT: &str = "table ip a {
    chain x { tcp dport 1 accept; tcp dport 2 accept; tcp dport 3 accept; }
}";

/// The handle of each rule of the chain, in order.
fn handles() -> Vec<String> {
    let list = nft(&["-a", "list", "chain", "ip", "a", "x"], "").unwrap();
    let rules = list.lines().filter(|line| line.contains("dport"));
    rules.filter_map(|line| line.split("# handle ").nth(1)).map(str::to_owned).collect()
}

/// Commits next to rules that the same commit takes away; `#N` stands for the N-th rule.
fn check(commit: &str) {
    let world = World::new();
    by_hand(TEXT);
    let mut subscribed = Subscribed::of(&world, &world.desired(TEXT));
    let commit = handles().iter().enumerate().fold(commit.to_owned(), |text, (at, handle)| {
        text.replace(&format!("#{}", at + 1), &format!("handle {handle}"))
    });
    by_hand(&commit);
    subscribed.had_to_read();
    assert!(!subscribed.had_to_read(), "{commit}");
}

#[test]
fn a_rule_beside_one_that_goes_is_found_at_its_place() {
    for commit in [
        "delete rule ip a x #1; add rule ip a x #1 tcp dport 9 drop",
        "delete rule ip a x #3; insert rule ip a x #3 tcp dport 9 drop",
        "delete rule ip a x #2; insert rule ip a x #2 tcp dport 9 drop",
        "delete rule ip a x #2; add rule ip a x #2 tcp dport 9 drop",
        "delete rule ip a x #3; add rule ip a x #3 tcp dport 9 drop",
        "delete rule ip a x #1; insert rule ip a x #1 tcp dport 9 drop",
        "flush chain ip a x; add rule ip a x tcp dport 8 drop; add rule ip a x #1 tcp dport 9 drop",
        "flush chain ip a x; add rule ip a x tcp dport 8 drop; add rule ip a x tcp dport 9 drop",
        "replace rule ip a x #1 tcp dport 9 drop; delete rule ip a x #2",
        "replace rule ip a x #3 tcp dport 9 drop; add rule ip a x tcp dport 8 drop",
        "replace rule ip a x #3 tcp dport 9 drop; insert rule ip a x tcp dport 8 drop",
        "delete rule ip a x #2; replace rule ip a x #3 tcp dport 9 drop",
        "replace rule ip a x #2 tcp dport 9 drop; add rule ip a x tcp dport 8 drop",
        "replace rule ip a x #1 tcp dport 9 drop; replace rule ip a x #3 jump { counter; tcp dport {1,2} accept; }",
    ] {
        check(commit);
    }
}

/// A program that owns a table keeps its connection, as `nft -i` does while it waits for commands.
fn owned(command: &str) -> Child {
    let mut owner = Command::new("nft")
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(owner.stdin.as_mut().unwrap(), "{command}").unwrap();
    owner
}

/// Whether something comes true while others get the processor.
fn later(so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        so() || {
            std::thread::park_timeout(Duration::from_millis(10));
            false
        }
    })
}

#[test]
fn what_goes_with_an_owner_is_not_announced() {
    let world = World::new();
    let mut subscribed = Subscribed::of(&world, &world.desired("table ip a { }\ntable ip b { }"));
    let mut owner = owned("add table ip a { flags owner; }; add chain ip a x");
    let is_there = || nft(&["list", "chain", "ip", "a", "x"], "").is_ok();
    assert!(later(is_there));
    subscribed.had_to_read();
    drop(owner.stdin.take());
    owner.wait().unwrap();
    assert!(later(|| !is_there()));
    subscribed.had_to_read();
}

/// Quirk `counted-before-done`: a look in the midst of a commit shows all of it.
#[test]
fn a_commit_is_counted_before_it_is_done() {
    const ROUNDS: u32 = 12;
    const NO_ELEMENTS: &str = "elements: Elements { bytes: []";
    let world = World::new();
    let text = "table ip a {
        set p { type ipv4_addr . inet_service; flags interval; }
        chain h { type filter hook input priority 0; policy accept; }
    }";
    by_hand(text);
    by_hand("add element ip a p { 10.0.0.0/8 . 1-2 }");
    let mut subscribed = Subscribed::of(&world, &world.desired(text));
    let netns = homeostat_netns::Netns::current().unwrap();
    for round in 0..ROUNDS {
        // What is changed last is the policy, and what is seen last are the elements.
        let element = |at| format!("10.{round}.{}.{} . {at}", at / 250, at % 250);
        let elements = (0..3000).map(element).collect::<Vec<_>>().join(", ");
        let policy = ["drop", "accept"][usize::from(round % 2 == 1)];
        let commit = format!(
            "flush set ip a p\nadd element ip a p {{ {elements} }}\nadd chain ip a h {{ policy {policy}; }}"
        );
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                netns.enter().unwrap();
                by_hand(&commit);
            });
            while !writer.is_finished() {
                let seen = subscribed.seen();
                assert!(!seen.contains(NO_ELEMENTS), "round {round}: half of a commit was seen");
            }
        });
        subscribed.had_to_read();
    }
}

#[test]
fn waiting_for_commits_changes_and_announces_nothing() {
    let world = World::new();
    by_hand(TEXT);
    let mut subscribed = Subscribed::of(&world, &world.desired(TEXT));
    let before = nft(&["-a", "list", "ruleset"], "").unwrap();
    // Each of these looks waits.
    (0..3).for_each(|_| subscribed.look_anyhow(true));
    assert!(!subscribed.had_to_read(), "what was followed still counts: no generation moved");
    assert_eq!(nft(&["-a", "list", "ruleset"], "").unwrap(), before);
}
