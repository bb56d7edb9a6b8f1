//! The law suite passes good sources and names the law that a bad one breaks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use homeostat_engine::{Exclusive, Ownership, Prefixes, Table};
use homeostat_testkit::laws::{
    self, Ability, Broken, DesiredState, Disturbance, Harness, Meter, Verdict,
};
use homeostat_testkit::memory::{
    Atomic, Behaviour, Bench, Flaw, Independent, Lanes, Ordered, Quiet,
};

async fn check<M: Behaviour>(ownership: Ownership) -> Verdict {
    laws::check(&mut Bench::<M>::new(ownership)).await.unwrap()
}

async fn passes_all<M: Behaviour>() {
    for ownership in [Ownership::Marked, Ownership::Checkpoint] {
        assert_eq!(check::<M>(ownership.clone()).await, Verdict::default(), "{ownership:?}");
    }
}

#[tokio::test]
async fn an_ordered_source_passes() {
    passes_all::<Ordered>().await;
}

#[tokio::test]
async fn an_independent_source_passes() {
    passes_all::<Independent>().await;
}

#[tokio::test]
async fn an_atomic_source_passes() {
    passes_all::<Atomic>().await;
}

#[tokio::test]
async fn a_source_with_lanes_passes() {
    passes_all::<Lanes>().await;
}

#[tokio::test]
async fn a_source_without_hints_passes() {
    passes_all::<Quiet>().await;
}

#[tokio::test]
async fn a_name_prefix_passes_and_the_verdict_says_what_has_no_meaning_there() {
    let prefix = Prefixes::default().claim("web").unwrap();
    let verdict = check::<Independent>(Ownership::Prefix(prefix)).await;
    assert_eq!(verdict.unchecked, [(4, "a foreign object on a declared key")]);
}

#[tokio::test]
async fn an_exclusive_scope_passes_and_the_verdict_says_that_there_are_no_strangers() {
    let mine = Exclusive::everything_in_this_scope_is_mine();
    let verdict = check::<Independent>(Ownership::Exclusive(mine)).await;
    let laws: Vec<u8> = verdict.unchecked.iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, [4, 4, 5]);
}

#[tokio::test]
async fn values_that_belong_to_nobody_pass_and_the_verdict_says_that_they_cannot_vanish() {
    let verdict = laws::check(&mut Bench::<Independent>::of_values()).await.unwrap();
    let expected =
        [(4, "a foreign object on a declared key"), (5, "an object of ours that vanished")];
    assert_eq!(verdict.unchecked, expected);
}

#[tokio::test]
async fn each_flaw_is_found_and_its_law_is_named() {
    let flaws = [
        (Flaw::LooksWrite, 1),
        (Flaw::BlindIsEmpty, 1),
        (Flaw::UnreadableIsAbsent, 1),
        (Flaw::NotNormalized, 2),
        (Flaw::NormalizesAgain, 2),
        (Flaw::Fickle, 3),
        (Flaw::Sprawls, 4),
        (Flaw::Mute, 4),
        (Flaw::AnswersTwice, 4),
        (Flaw::Usurps, 4),
        (Flaw::Greedy, 4),
        (Flaw::Heedless, 4),
        (Flaw::Steals, 5),
        (Flaw::Restless, 6),
        (Flaw::Credulous, 7),
        (Flaw::Unmarked, 8),
        (Flaw::GivesUp, 9),
        (Flaw::Storms, 9),
        (Flaw::Deaf, 10),
    ];
    for (flaw, law) in flaws {
        check_named::<Independent>(flaw, law).await;
    }
    check_named::<Quiet>(Flaw::Chatty, 10).await;
    check_named::<Ordered>(Flaw::Unordered, 9).await;
    check_named::<Ordered>(Flaw::DeletesParentsFirst, 9).await;
    check_named::<Lanes>(Flaw::DeletesParentsFirst, 9).await;
}

#[tokio::test]
async fn sources_that_mark_in_the_creating_call_or_record_the_intent_survive_every_crash() {
    let marked = Bench::<Lanes>::new(Ownership::Marked);
    let recorded = Bench::<Independent>::new(Ownership::Checkpoint);
    let values = Bench::<Independent>::of_values();
    assert!(laws::check_crashes(&mut { marked }).await.unwrap() >= 2);
    assert!(laws::check_crashes(&mut { recorded }).await.unwrap() >= 4);
    assert!(laws::check_crashes(&mut { values }).await.unwrap() >= 4);
}

#[tokio::test]
async fn a_mark_that_is_set_in_a_second_call_is_found_by_a_crash_between_the_two() {
    let mut bench = Bench::<Independent>::flawed(Flaw::MarksLater);
    laws::check(&mut bench).await.unwrap();
    let broken = laws::check_crashes(&mut bench).await.unwrap_err();
    assert_eq!(broken.number(), Some(8));
    let text = broken.to_string();
    assert!(text.contains("set the mark in the creating call"), "{text}");
}

#[tokio::test]
async fn an_intent_that_counts_as_made_is_found_by_a_crash_between_the_record_and_the_create() {
    let mut bench = Bench::<Independent>::flawed_without_marks(Flaw::TrustsIntents);
    laws::check(&mut bench).await.unwrap();
    let broken = laws::check_crashes(&mut bench).await.unwrap_err();
    assert_eq!(broken.number(), Some(8), "{broken}");
    assert!(broken.to_string().contains("was not made"), "{broken}");
}

/// What authors get wrong, the law that finds it, and the help that they get.
const MISTAKES: [(&str, Flaw, u8, &str); 12] = [
    (
        "greedy create",
        Flaw::Greedy,
        4,
        "create only what is absent, by a precondition of the call itself",
    ),
    (
        "delete of foreign",
        Flaw::Steals,
        5,
        "report what does not carry our mark as `Owner::Foreign`",
    ),
    ("forgetful mark", Flaw::Unmarked, 8, "set the mark in the creating call"),
    ("unordered dependants", Flaw::Unordered, 9, "put its step into a later phase"),
    (
        "unknown taken as absent",
        Flaw::UnreadableIsAbsent,
        1,
        "as `Seen::Unknown`, and never leave it out",
    ),
    (
        "a normalizer that is not idempotent",
        Flaw::NormalizesAgain,
        2,
        "changes nothing when it is applied again",
    ),
    ("a retry storm", Flaw::Storms, 9, "answer with `Retry::Soon`"),
    ("a write in observe", Flaw::LooksWrite, 1, "let `observe` send nothing but reads"),
    ("a step answered twice", Flaw::AnswersTwice, 4, "answer for each step once"),
    ("a crash between create and mark", Flaw::MarksLater, 8, "set the mark in the creating call"),
    (
        "a crash between mark and create",
        Flaw::TrustsIntents,
        8,
        "report in `observe` what the target holds",
    ),
    (
        "dependants that are deleted too late",
        Flaw::DeletesParentsFirst,
        9,
        "a delete into a later phase",
    ),
];

#[tokio::test]
async fn what_authors_get_wrong_is_found_by_its_law_which_says_what_to_do() {
    for (mistake, flaw, law, help) in MISTAKES {
        let checked = match flaw {
            Flaw::Unordered | Flaw::DeletesParentsFirst => {
                laws::check(&mut Bench::<Ordered>::flawed(flaw)).await.map(drop)
            }
            Flaw::TrustsIntents => {
                let mut bench = Bench::<Independent>::flawed_without_marks(flaw);
                laws::check_crashes(&mut bench).await.map(drop)
            }
            Flaw::MarksLater => {
                let crashes = laws::check_crashes(&mut Bench::<Independent>::flawed(flaw)).await;
                crashes.map(drop)
            }
            _ => laws::check(&mut Bench::<Independent>::flawed(flaw)).await.map(drop),
        };
        let broken = checked.expect_err(mistake);
        assert_eq!(broken.number(), Some(law), "{mistake}: {broken}");
        assert!(broken.help().contains(help), "{mistake}: {broken}");
        assert!(broken.to_string().ends_with(broken.help()), "{mistake}: {broken}");
    }
}

async fn check_named<M: Behaviour>(flaw: Flaw, law: u8) {
    let verdict = laws::check(&mut Bench::<M>::flawed(flaw)).await;
    let named = verdict.as_ref().err().and_then(Broken::number);
    assert_eq!(named, Some(law), "{flaw:?}: {verdict:?}");
}

#[tokio::test]
async fn a_breach_names_law_source_and_key() {
    let broken = laws::check(&mut Bench::<Independent>::flawed(Flaw::Mute)).await.unwrap_err();
    let expected = "law 4 is broken by source `memory-independent`: the step for `web/a` got no \
        answer (the law: a writer touches what its steps name, nothing foreign, and answers for \
        every step); help: answer for each step; with `Outcome::Unknown` if the target's answer was \
        lost";
    assert_eq!(broken.to_string(), expected);
}

/// A harness whose desired states could not fail any source.
struct Poor(Bench<Independent>);

impl Harness for Poor {
    type Source = <Bench<Independent> as Harness>::Source;

    fn reset(&mut self) {
        self.0.reset();
    }

    fn source(&self) -> Self::Source {
        self.0.source()
    }

    fn ownership(&self) -> Ownership {
        self.0.ownership()
    }

    fn desired(&self, _: DesiredState) -> Table<String, String> {
        self.0.desired(DesiredState::First)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        self.0.snapshot()
    }

    fn meter(&self) -> Meter {
        self.0.meter()
    }

    fn disturb(&mut self, _: Disturbance<'_, String>) -> Ability {
        Ability::Unable
    }
}

#[tokio::test]
async fn a_harness_that_could_fail_no_source_is_refused() {
    let verdict = laws::check(&mut Poor(Bench::new(Ownership::Marked))).await;
    assert!(matches!(verdict, Err(Broken::Harness { .. })), "{verdict:?}");
}

/// A harness that shows the objects of its target in another way.
struct Reshaped {
    bench: Bench<Independent>,
    reshape: fn(BTreeMap<String, String>) -> BTreeMap<String, String>,
}

impl Harness for Reshaped {
    type Source = <Bench<Independent> as Harness>::Source;

    fn reset(&mut self) {
        self.bench.reset();
    }

    fn source(&self) -> Self::Source {
        self.bench.source()
    }

    fn ownership(&self) -> Ownership {
        self.bench.ownership()
    }

    fn desired(&self, which: DesiredState) -> Table<String, String> {
        self.bench.desired(which)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        (self.reshape)(self.bench.snapshot())
    }

    fn meter(&self) -> Meter {
        self.bench.meter()
    }

    fn disturb(&mut self, how: Disturbance<'_, String>) -> Ability {
        self.bench.disturb(how)
    }
}

/// What both suites say about a harness.
async fn faults_of_snapshot(
    reshape: fn(BTreeMap<String, String>) -> BTreeMap<String, String>,
) -> [Option<Broken>; 2] {
    let reshaped = || Reshaped { bench: Bench::new(Ownership::Marked), reshape };
    let laws = laws::check(&mut reshaped()).await.err();
    [laws, laws::check_crashes(&mut reshaped()).await.err()]
}

#[tokio::test]
async fn a_snapshot_under_other_keys_than_the_source_has_is_a_fault_of_the_harness() {
    let with_other_keys = |objects: BTreeMap<String, String>| {
        objects.into_iter().map(|(key, object)| (format!("/objects/{key}"), object)).collect()
    };
    for broken in faults_of_snapshot(with_other_keys).await {
        let Some(Broken::Harness { how }) = &broken else { panic!("{broken:?}") };
        assert!(how.contains("`web`") && how.contains("`/objects/web`"), "{how}");
    }
}

#[tokio::test]
async fn a_snapshot_that_shows_no_write_is_a_fault_of_the_harness() {
    for broken in faults_of_snapshot(|_| BTreeMap::new()).await {
        assert!(matches!(broken, Some(Broken::Harness { .. })), "{broken:?}");
    }
}

#[tokio::test]
async fn a_snapshot_by_the_keys_of_the_source_is_none() {
    assert_eq!(faults_of_snapshot(|objects| objects).await, [None, None]);
}
