//! Hints from an API, also by notices that are numbered, so that a gap is noticed.

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Hint, Retry};
use tokio::sync::mpsc::UnboundedReceiver;

/// An open subscription.
pub trait Watch<K>: Send {
    /// The next hint. Dropping the future loses nothing; an error ends the subscription.
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>>;
}

/// A subscription to nothing: no hint ever comes.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl<K: 'static> Watch<K> for Silent {
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>> {
        Box::pin(std::future::pending())
    }
}

/// Keys that another task receives and passes on; nothing where it does not know which. The subscription ends with the
/// task's end of the channel.
impl<K: Ord + Send + 'static> Watch<K> for UnboundedReceiver<Option<K>> {
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>> {
        Box::pin(async {
            match self.recv().await {
                Some(Some(key)) => Ok(Hint::keys([key])),
                Some(None) => Ok(Hint::Lost),
                None => Err(Failure::new("the subscription has ended", Retry::Soon)),
            }
        })
    }
}

/// A subscription with what has to live as long: the client of a connection that is closed when the client is dropped.
impl<K: 'static, W: Watch<K>, T: Send> Watch<K> for (W, T) {
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>> {
        self.0.next()
    }
}

/// One notice of a target that numbers them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice<K> {
    /// Its number; each is one more than the last.
    pub number: u64,
    /// What may have changed; nothing for a notice that is only a sign of life.
    pub key: Option<K>,
}

impl<K> Notice<K> {
    /// A notice about a key, or a sign of life.
    pub fn new(number: u64, key: Option<K>) -> Self {
        Notice { number, key }
    }
}

/// Where numbered notices come from.
pub trait Notices<K>: Send {
    /// The next notice. Dropping the future loses nothing; an error ends the subscription.
    fn next(&mut self) -> Later<'_, Result<Notice<K>, Failure>>;
}

/// Makes hints of numbered notices. A gap in the numbers means that hints were lost, and that
/// everything is listed again; a number that goes back means that the target started over, and is
/// taken for a gap.
#[derive(Debug)]
pub struct Numbered<N> {
    notices: N,
    last: Option<u64>,
}

impl<N> Numbered<N> {
    /// Has received nothing yet: the first notice says where the numbers begin.
    pub fn new(notices: N) -> Self {
        Numbered { notices, last: None }
    }

    /// Takes a number in, and returns whether none is missing before it.
    fn follows(&mut self, number: u64) -> bool {
        let last = self.last.replace(number);
        last.is_none_or(|last| last.checked_add(1) == Some(number))
    }
}

impl<K: Ord + Send + 'static, N: Notices<K>> Watch<K> for Numbered<N> {
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>> {
        Box::pin(async move {
            loop {
                let notice = self.notices.next().await?;
                match (self.follows(notice.number), notice.key) {
                    (false, _) => return Ok(Hint::Lost),
                    (true, Some(key)) => return Ok(Hint::keys([key])),
                    (true, None) => {}
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Script(VecDeque<Notice<u8>>);

    impl Notices<u8> for Script {
        fn next(&mut self) -> Later<'_, Result<Notice<u8>, Failure>> {
            let next = self.0.pop_front().ok_or_else(|| Failure::new("over", Retry::Soon));
            Box::pin(std::future::ready(next))
        }
    }

    async fn check(notices: &[(u64, Option<u8>)], expected: &[Option<u8>]) {
        let notices = notices.iter().map(|(number, key)| Notice { number: *number, key: *key });
        let mut watch = Numbered::new(Script(notices.collect()));
        let mut received = Vec::new();
        while let Ok(hint) = watch.next().await {
            received.push(match hint {
                Hint::Keys(keys) => keys.keys().next().copied(),
                Hint::Lost => None,
            });
        }
        assert_eq!(received, expected);
    }

    #[tokio::test]
    async fn notices_in_order_are_hints_about_their_keys() {
        check(&[(5, None), (6, Some(1)), (7, Some(2))], &[Some(1), Some(2)]).await;
        check(&[(5, Some(9))], &[Some(9)]).await;
    }

    #[tokio::test]
    async fn a_gap_means_that_hints_were_lost_and_so_does_a_step_back() {
        check(&[(5, None), (7, Some(1)), (8, Some(2))], &[None, Some(2)]).await;
        check(&[(5, None), (7, None), (3, Some(1)), (4, Some(2))], &[None, None, Some(2)]).await;
    }
}
