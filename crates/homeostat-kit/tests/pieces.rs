//! Desired states of pieces: joined, refused, taken away, and known to be changed.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use homeostat_kit::pieces::{ByName, pieces};
use homeostat_kit::provider::{Answer, Provider, channel};

type Words = Vec<String>;

fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_owned).collect()
}

fn join(base: &Words, pieces: &ByName<Words>) -> Result<Words, String> {
    let mut all = base.clone();
    for (name, piece) in pieces {
        if let Some(twice) = piece.iter().find(|word| all.contains(*word)) {
            return Err(format!("`{name}` declares `{twice}` again"));
        }
        all.extend(piece.iter().cloned());
    }
    Ok(all)
}

fn declared(text: &str) -> Answer<Words> {
    Answer::DesiredState(Arc::new(words(text)))
}

/// Polls once.
fn is_ready(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut context), Poll::Ready(_))
}

#[tokio::test]
async fn pieces_are_joined_in_the_order_of_their_names_until_they_are_taken_away() {
    let (sender, mut provider) = pieces(Arc::new(words("base")), join);
    assert_eq!(provider.answer().await, declared("base"));
    sender.put("two", words("b")).unwrap();
    sender.put("one", words("a")).unwrap();
    assert_eq!(provider.answer().await, declared("base a b"));
    sender.put("two", words("c")).unwrap();
    assert_eq!(provider.answer().await, declared("base a c"));
    assert_eq!(sender.names(), ["one", "two"]);
    sender.drop_piece("one");
    sender.drop_piece("one");
    assert_eq!(sender.names(), ["two"]);
    assert_eq!(provider.answer().await, declared("base c"));
}

#[tokio::test]
async fn a_piece_that_does_not_fit_is_refused_and_the_one_before_stays() {
    let (sender, mut provider) = pieces(Arc::new(words("base")), join);
    provider.answer().await;
    sender.put("one", words("a")).unwrap();
    provider.answer().await;
    assert_eq!(sender.put("two", words("a")).unwrap_err(), "`two` declares `a` again");
    assert_eq!(sender.put("one", words("base")).unwrap_err(), "`one` declares `base` again");
    assert!(!is_ready(provider.changed()), "nothing has changed");
    assert_eq!(provider.answer().await, declared("base a"));
}

#[tokio::test]
async fn a_change_of_either_part_is_a_change_until_it_is_answered() {
    let (base, channel) = channel();
    let (sender, mut provider) = pieces(channel, join);
    assert!(matches!(provider.answer().await, Answer::Unknown { .. }));
    assert!(!is_ready(provider.changed()));
    sender.put("one", words("a")).unwrap();
    assert!(is_ready(provider.changed()) && is_ready(provider.changed()));
    base.put(words("base"));
    assert_eq!(provider.answer().await, declared("base a"));
    assert!(!is_ready(provider.changed()));
    base.put(words("base more"));
    assert!(is_ready(provider.changed()));
}

#[tokio::test]
async fn a_base_that_no_longer_fits_its_pieces_is_unknown_with_the_reason() {
    let (base, channel) = channel();
    let (sender, mut provider) = pieces(channel, join);
    base.put(words("base"));
    provider.answer().await;
    sender.put("one", words("a")).unwrap();
    base.put(words("base a"));
    let why = "`one` declares `a` again".to_owned();
    assert_eq!(provider.answer().await, Answer::Unknown { why });
    sender.drop_piece("one");
    assert_eq!(provider.answer().await, declared("base a"));
}
