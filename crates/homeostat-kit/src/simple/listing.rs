//! How an API can be asked for everything.

use std::collections::BTreeSet;
use std::time::Duration;

use homeostat_engine::{Failure, Focus};

/// What an API can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Everything at once.
    Whole,
    /// Nothing: only objects whose names are known can be looked at. What is declared and what the
    /// ledger knows is probed; what nobody knows is never seen, and so never deleted.
    KnownNames,
    /// So many parts, each by itself. A full look lists some of them, those that waited longest; what
    /// it tells of the others was seen before, and only if that is as declared. Everything else is
    /// looked at, key by key.
    Shards(Shards),
}

/// How an API is listed in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    /// How many there are.
    pub count: usize,
    /// How old the list of a part may be when it is told. It holds however rarely full looks come.
    pub max_age: Duration,
}

impl Shards {
    /// How many parts a look must list that comes this long after the last one: as many as it takes to
    /// list each within half of the greatest age, so that the other half is left for the time between
    /// two looks.
    #[must_use]
    pub fn due(&self, since_last: Duration) -> usize {
        let half = (self.max_age / 2).as_nanos().max(1);
        let due = (since_last.as_nanos().saturating_mul(self.count as u128)).div_ceil(half);
        usize::try_from(due).unwrap_or(self.count).clamp(1, self.count.max(1))
    }
}

/// The parts of a list that comes in pages, gathered until all of it is there.
///
/// A list that ends early is a failure, and never a short list: the objects of the missing page would
/// be made again, or forgotten.
#[derive(Debug)]
pub struct Pages<T> {
    found: Vec<T>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { found: Vec::new() }
    }
}

impl<T> Pages<T> {
    /// Adds a page.
    #[must_use]
    pub fn and(mut self, page: impl IntoIterator<Item = T>) -> Self {
        self.found.extend(page);
        self
    }

    /// How many objects there are until now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether nothing was found until now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The whole list, if it has as many objects as the API says that there are.
    pub fn whole(self, total: usize) -> Result<Vec<T>, Failure> {
        let told = self.found.len();
        if told == total {
            return Ok(self.found);
        }
        let text = format!("the list is not whole: {told} of {total} objects");
        Err(Failure::new(text, homeostat_engine::Retry::Soon))
    }
}

/// The keys that are probed where nothing can be listed.
pub(super) fn known<K: Ord + Clone>(
    focus: &Focus<K>,
    declared: impl Iterator<Item = K>,
    recorded: impl Iterator<Item = K>,
) -> BTreeSet<K> {
    match focus {
        Focus::Keys(keys) => keys.clone(),
        Focus::All => declared.chain(recorded).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_part_is_listed_within_half_of_the_greatest_age() {
        let shards = Shards { count: 10, max_age: 20 * SECOND };
        for (since, expected) in [(0, 1), (1, 1), (2, 2), (5, 5), (10, 10), (99, 10)] {
            assert_eq!(shards.due(since * SECOND), expected, "{since} s");
        }
    }

    #[test]
    fn a_list_that_is_not_whole_is_a_failure() {
        let pages = Pages::default().and([1, 2]).and([3]);
        assert_eq!(pages.len(), 3);
        assert_eq!(pages.whole(3), Ok(vec![1, 2, 3]));
        let failure = Pages::default().and([1]).whole(2).unwrap_err();
        assert_eq!(failure.error, "the list is not whole: 1 of 2 objects");
        assert!(Pages::<u8>::default().is_empty());
    }
}
