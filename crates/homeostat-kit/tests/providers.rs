//! Unknown is not empty: what each provider answers, and what stands afterwards.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::UNIX_EPOCH;

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Retry};
use homeostat_kit::finished_files::Unfinished;
use homeostat_kit::provider::{
    Answer, CurrentDesired, File, Latest, Provider, Validated, Validator, Validity, Verdict,
    channel,
};
use tokio::time::Instant;

type Words = Vec<String>;

fn words(text: &[&str]) -> Words {
    text.iter().map(|word| (*word).to_owned()).collect()
}

fn parse(text: &str) -> Result<Words, String> {
    match text.split_once('?') {
        Some(_) => Err("a question is no desired state".to_owned()),
        None => Ok(text.split_whitespace().map(str::to_owned).collect()),
    }
}

fn fresh(text: &[&str]) -> CurrentDesired<Words> {
    CurrentDesired::Fresh(Arc::new(words(text)))
}

/// Polls once.
fn is_ready(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut context), Poll::Ready(_))
}

#[tokio::test]
async fn a_desired_state_that_does_not_change_provides_itself() {
    let mut provider = Arc::new(words(&["a"]));
    assert_eq!(provider.answer().await, Answer::DesiredState(Arc::new(words(&["a"]))));
    assert_eq!(provider.answer().await, Answer::DesiredState(Arc::new(words(&["a"]))));
    assert!(!is_ready(provider.changed()));
}

#[tokio::test]
async fn an_empty_desired_state_is_a_desired_state() {
    let mut latest = Latest::new(Arc::new(words(&[])));
    assert_eq!(latest.ask().await, fresh(&[]));
}

#[tokio::test]
async fn a_file_is_read_again_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("desired state");
    let mut latest = Latest::new(File::new(&path, parse));
    save(&path, "a b");
    assert_eq!(latest.ask().await, fresh(&["a", "b"]));
    save(&path, "c");
    assert_eq!(latest.ask().await, fresh(&["c"]));
}

/// Writes a file as if that had been long ago, and waits until no process that another test starts has it open.
fn save(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::File::options().append(true).open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
    assert!((0..1_000_000).any(|_| Unfinished::find_open([path]).is_none()));
}

#[tokio::test]
async fn a_file_that_is_being_written_or_empty_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("desired state");
    let mut latest = Latest::new(File::new(&path, parse));
    save(&path, "a b");
    assert_eq!(latest.ask().await, fresh(&["a", "b"]));
    let stale = |asked| match asked {
        CurrentDesired::Stale { desired, why } => {
            assert_eq!(*desired, words(&["a", "b"]));
            why
        }
        other => panic!("{other:?}"),
    };
    for empty in ["", " \n"] {
        save(&path, empty);
        assert!(stale(latest.ask().await).ends_with("it is empty"));
    }
    // Half of it is a valid text.
    let writer = fs::File::create(&path).unwrap();
    fs::write(&path, "a").unwrap();
    writer.set_modified(UNIX_EPOCH).unwrap();
    let why = stale(latest.ask().await);
    assert!(why.contains("is being written: a process has it open"), "{why}");
    drop(writer);
    save(&path, "a c");
    assert_eq!(latest.ask().await, fresh(&["a", "c"]));
}

#[tokio::test]
async fn a_broken_or_missing_file_is_unknown_and_the_last_good_desired_state_stands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("desired state");
    let mut latest = Latest::new(File::new(&path, parse));
    let CurrentDesired::Unknown { why } = latest.ask().await else { panic!("there is no file") };
    assert!(why.contains("desired state`: No such file"), "{why}");

    save(&path, "a");
    assert_eq!(latest.ask().await, fresh(&["a"]));
    save(&path, "what?");
    let CurrentDesired::Stale { desired, why } = latest.ask().await else { panic!("it is broken") };
    assert_eq!(*desired, words(&["a"]));
    assert!(why.ends_with("desired state`: a question is no desired state"), "{why}");

    fs::remove_file(&path).unwrap();
    let CurrentDesired::Stale { desired, .. } = latest.ask().await else { panic!("it is gone") };
    assert_eq!(desired.len(), 1);
}

#[tokio::test]
async fn a_channel_knows_nothing_before_the_first_desired_state() {
    let (sender, provider) = channel::<Words>();
    let mut latest = Latest::new(provider);
    assert!(matches!(latest.ask().await, CurrentDesired::Unknown { .. }));
    sender.put(words(&["a"]));
    assert_eq!(latest.ask().await, fresh(&["a"]));
}

#[tokio::test]
async fn a_channel_returns_a_change_once() {
    let (sender, mut provider) = channel::<Words>();
    assert!(!is_ready(provider.changed()));
    sender.put(words(&["a"]));
    sender.put(words(&["b"]));
    assert!(is_ready(provider.changed()));
    assert!(is_ready(provider.changed()), "a dropped wait loses nothing");
    assert_eq!(provider.answer().await, Answer::DesiredState(Arc::new(words(&["b"]))));
    assert!(!is_ready(provider.changed()));
}

#[tokio::test]
async fn a_waiting_receiver_is_woken_by_a_desired_state() {
    let (sender, mut provider) = channel::<Words>();
    let waiting = tokio::spawn(async move {
        provider.changed().await;
        provider.answer().await
    });
    tokio::task::yield_now().await;
    sender.put(words(&["a"]));
    assert_eq!(waiting.await.unwrap(), Answer::DesiredState(Arc::new(words(&["a"]))));
}

#[tokio::test]
async fn a_sender_that_fails_or_goes_leaves_the_last_good_desired_state() {
    let (sender, provider) = channel::<Words>();
    let mut latest = Latest::new(provider);
    sender.put(words(&["a"]));
    latest.ask().await;
    sender.unknown("the store is away");
    let why = "the store is away".to_owned();
    let desired = Arc::new(words(&["a"]));
    assert_eq!(latest.ask().await, CurrentDesired::Stale { desired: desired.clone(), why });
    drop(sender);
    let why = "the sender of the desired state is gone".to_owned();
    assert_eq!(latest.ask().await, CurrentDesired::Stale { desired, why });
}

#[tokio::test]
async fn a_sender_learns_whether_what_it_put_in_was_accepted() {
    let (sender, mut provider) = channel::<Words>();
    sender.put(words(&["a"]));
    provider.answer().await;
    assert_eq!(sender.verdict(), None, "nobody has judged it yet");
    let refused = Verdict::Refused { why: "there is no `a` here".to_owned() };
    provider.judged(refused.clone());
    assert_eq!(sender.verdict(), Some(refused.clone()));
    sender.put(words(&["b"]));
    assert_eq!(sender.verdict(), None);
    provider.judged(refused);
    assert_eq!(sender.verdict(), None, "that was about the desired state before");
    provider.answer().await;
    provider.judged(Verdict::Accepted);
    assert_eq!(sender.verdict(), Some(Verdict::Accepted));
}

/// A check that cannot be made for so many times; then a word with `x` in it is no good.
struct Away {
    times: Arc<AtomicU32>,
    runs: Arc<AtomicU32>,
}

impl Validator<Words> for Away {
    fn validate<'a>(&'a mut self, desired: &'a Words) -> Later<'a, Result<Validity, Failure>> {
        self.runs.fetch_add(1, Relaxed);
        let left = self.times.try_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        let is_bad = desired.iter().any(|word| word.contains('x'));
        Box::pin(std::future::ready(match (left, is_bad) {
            (Ok(_), _) => Err(Failure::new("nobody answers", Retry::Soon)),
            (_, true) => Ok(Validity::Invalid { why: "an x".to_owned() }),
            (_, false) => Ok(Validity::Valid),
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_could_not_be_made_is_made_again_after_pauses_that_grow() {
    let (times, runs) = (Arc::new(AtomicU32::new(5)), Arc::<AtomicU32>::default());
    let away = Away { times: Arc::clone(&times), runs: Arc::clone(&runs) };
    let (sender, provider) = channel();
    let mut latest = Latest::new(Validated::new(provider, away));
    sender.put(words(&["a"]));
    let start = Instant::now();
    let mut pauses = Vec::new();
    loop {
        let began = Instant::now();
        match latest.ask().await {
            CurrentDesired::Unknown { why } => {
                assert_eq!(why, "it cannot be checked: nobody answers");
            }
            known => break assert_eq!(known, fresh(&["a"])),
        }
        // Who asks in between gets the same answer, and no check is made for it.
        assert!(matches!(latest.ask().await, CurrentDesired::Unknown { .. }));
        latest.changed().await;
        pauses.push(began.elapsed().as_millis());
    }
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000]);
    assert_eq!((runs.load(Relaxed), start.elapsed().as_millis()), (6, 7750));
    // What was checked is not checked again.
    assert_eq!(latest.ask().await, fresh(&["a"]));
    assert_eq!(runs.load(Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_checked_is_neither_valid_nor_invalid() {
    let (times, runs) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let away = Away { times: Arc::clone(&times), runs: Arc::clone(&runs) };
    let (sender, provider) = channel();
    let mut latest = Latest::new(Validated::new(provider, away));
    let stale = |why: &str| {
        let why = why.to_owned();
        CurrentDesired::Stale { desired: Arc::new(words(&["a"])), why }
    };
    sender.put(words(&["a"]));
    assert_eq!(latest.ask().await, fresh(&["a"]));
    sender.put(words(&["x"]));
    assert_eq!(latest.ask().await, stale("it is not valid: an x"));
    latest.ask().await;
    assert_eq!(runs.load(Relaxed), 2, "what is not valid is not checked again");
    // The last good one stands while nobody can say; another desired state is checked at once.
    times.store(100, Relaxed);
    for (round, word) in (1..).zip(["b", "c"]) {
        sender.put(words(&[word]));
        assert_eq!(latest.ask().await, stale("it cannot be checked: nobody answers"));
        assert_eq!(runs.load(Relaxed), 2 + round);
    }
    times.store(0, Relaxed);
    latest.changed().await;
    assert_eq!(latest.ask().await, fresh(&["c"]));
}

#[tokio::test]
async fn the_provider_of_an_invalid_state_learns_why_it_was_refused() {
    let away = Away { times: Arc::default(), runs: Arc::default() };
    let (sender, provider) = channel();
    let mut latest = Latest::new(Validated::new(provider, away));
    sender.put(words(&["x"]));
    latest.ask().await;
    let why = "it is not valid: an x".to_owned();
    assert_eq!(sender.verdict(), Some(Verdict::Refused { why }));
    sender.put(words(&["a"]));
    latest.ask().await;
    assert_eq!(sender.verdict(), None, "valid is not yet accepted");
}

/// Counts how often it learns of a pass.
struct Counting(Arc<AtomicU32>);

impl Provider for Counting {
    type DesiredState = Words;
    type Error = String;

    fn answer(&mut self) -> Later<'_, Answer<Words>> {
        Box::pin(std::future::ready(Answer::DesiredState(Arc::new(words(&["a"])))))
    }

    fn passed(&mut self, _: &dyn Fn(&str) -> bool) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn the_provider_of_a_state_that_is_checked_learns_of_passes() {
    let passes = Arc::<AtomicU32>::default();
    let away = Away { times: Arc::default(), runs: Arc::default() };
    Validated::new(Counting(Arc::clone(&passes)), away).passed(&|_| false);
    assert_eq!(passes.load(Relaxed), 1);
}

#[tokio::test]
async fn who_waits_for_the_next_desired_state_learns_once_why_there_is_none() {
    let (sender, provider) = channel::<Words>();
    let mut latest = Latest::new(provider);
    let not_yet = Err("no desired state has been put in yet".to_owned());
    assert_eq!(latest.next_desired().await, not_yet);
    assert!(!is_ready(latest.next_desired()), "the same reason is not returned again");
    sender.put(words(&["a"]));
    assert_eq!(latest.next_desired().await, Ok(Arc::new(words(&["a"]))));
    sender.unknown("the store is away");
    assert_eq!(latest.next_desired().await, Err("the store is away".to_owned()));
    // Between two outages it was as before: nothing to apply, but the second one is news.
    sender.put(words(&["a"]));
    assert!(!is_ready(latest.next_desired()));
    sender.unknown("the store is away");
    assert_eq!(latest.next_desired().await, Err("the store is away".to_owned()));
}
