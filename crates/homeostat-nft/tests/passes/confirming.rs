//! A small edit is shown by the kernel's own words; whatever is larger is looked at again.

use std::ops::Range;
use std::sync::Mutex;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Alone, Failure, Outcome, Outcomes, Source as _, Work, Writer as _};
use homeostat_nft::Object;

use crate::world::{World, by_hand, done, expected, listed};

/// Whether the kernel's echo confirmed each step.
#[derive(Default)]
struct Shown(Mutex<Vec<bool>>);

impl Outcomes<Object> for Shown {
    fn put(&self, steps: Range<usize>, outcome: Outcome<Object>) {
        let Outcome::Applied { now } = outcome else { panic!("{outcome:?}") };
        self.0.lock().unwrap().extend(steps.map(|_| now.is_some()));
    }

    fn intent(&self, _step: usize) -> Later<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn note(&self, _: usize) -> Later<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn dispatched<'a>(&'a self, _step: usize, _task: &'a str) -> Later<'a, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Writes what a text asks for, without any other look.
fn shown(world: &mut World, text: &str) -> Vec<bool> {
    let desired = world.desired(text);
    let plan = world.plan(&desired);
    let writer = world.source.writer(&Alone::i_am_the_only_writer()).unwrap();
    let shown = Shown::default();
    let work = Work { desired: &*desired, moment: &*plan.moment, first: 0, steps: &plan.steps };
    done(writer.apply(work, &shown));
    assert_eq!(listed(), expected(text));
    shown.0.into_inner().unwrap()
}

const TEXT: &str = "table ip a {
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2, 10.0.0.3 }; }
    set i { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 10.0.1.0/24, 10.9.0.0/16 }; }
    map m { type ipv4_addr : verdict; counter; elements = { 10.0.0.1 : accept, 10.0.0.2 : jump x }; }
    chain x { counter; }
    chain i { type filter hook input priority 0; policy accept; tcp dport 1 counter accept; tcp dport 2 accept; ip saddr @s drop; ip saddr vmap @m; tcp dport { 7, 8 } accept; }
}";

#[test]
fn a_small_edit_is_shown_by_the_kernels_own_words() {
    let edits = [
        ("10.0.0.3 ", "10.0.0.4 "),
        ("10.0.1.0/24", "10.0.1.0/25"),
        ("10.0.0.0/24, ", ""),
        ("10.0.0.2 : jump x", "10.0.0.2 : drop, 10.0.0.7 : goto x"),
        ("policy accept", "policy drop"),
        ("tcp dport 1 counter accept;", ""),
        ("tcp dport 2 accept;", "tcp dport 3 accept comment \"three\"; tcp dport 4 counter;"),
        (
            "tcp dport 1 counter accept; tcp dport 2 accept;",
            "tcp dport 2 accept; tcp dport 1 counter accept;",
        ),
        ("ip saddr @s drop; ", ""),
        ("chain x { counter; }", "chain x { ip saddr @s counter; counter; log; }"),
    ];
    for (from, to) in edits {
        assert!(TEXT.contains(from), "{from}");
        let edited = TEXT.replace(from, to);
        std::thread::spawn(move || {
            let mut world = World::new();
            world.converge(TEXT);
            assert_eq!(shown(&mut world, &edited), [true], "{edited}");
            assert_eq!(shown(&mut world, TEXT), [true], "{edited}");
            assert_eq!(world.planned(TEXT), "");
        })
        .join()
        .unwrap();
    }
}

#[test]
fn what_the_words_do_not_show_is_looked_at_again() {
    let mut world = World::new();
    assert_eq!(shown(&mut world, TEXT), [false], "a table that is made");
    let other_inside = TEXT.replace("{ 7, 8 }", "{ 7, 9 }");
    assert_eq!(shown(&mut world, &other_inside), [false], "a set inside of a rule");
    let other_type = TEXT.replace("set s { type ipv4_addr;", "set s { type ipv4_addr; size 9;");
    assert_eq!(shown(&mut world, &other_type), [false], "a set that is made again");
}

#[test]
fn a_pass_that_needs_no_second_look_leaves_nothing_to_do() {
    let mut world = World::new();
    world.converge(TEXT);
    by_hand(
        "delete element ip a s { 10.0.0.1 }; add element ip a s { 10.0.0.8 }; flush chain ip a x",
    );
    world.converge(TEXT);
    assert_eq!(listed(), expected(TEXT));
}
