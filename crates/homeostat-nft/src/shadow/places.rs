//! Where rules of a commit stand that are told without a place: the first one of a chain, or the last one. Pure.

use std::collections::BTreeMap;

use crate::model::Handle;

/// What a commit did to chains so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The rule that went last, and where it was, if another one comes in its place.
    replaced: Option<(Handle, usize)>,
    frayed: BTreeMap<String, Frayed>,
}

/// Where a rule was asked to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// At which ends a chain lost rules.
///
/// Quirk `rules-beside-rules-that-go` (Linux 6.18): a rule may be put behind the first rule, or before the last
/// one, by the commit that deletes that one. Then it is told without a place, and with the flag of the other end:
/// `delete rule ip a x handle 2; add rule ip a x handle 2 accept`.
#[derive(Debug, Default)]
struct Frayed {
    first: bool,
    last: bool,
}

impl Places {
    /// A rule went, and the next one comes in its place.
    pub(super) fn replaced(&mut self, handle: Handle, at: usize) {
        self.replaced = Some((handle, at));
    }

    /// A rule went, and left so many others.
    pub(super) fn went(&mut self, chain: &str, at: usize, left: usize) {
        self.replaced = None;
        if at == 0 || at == left {
            let frayed = self.frayed.entry(chain.to_owned()).or_default();
            frayed.first |= at == 0;
            frayed.last |= at == left;
        }
    }

    /// A chain went.
    pub(super) fn forget(&mut self, chain: &str) {
        self.frayed.remove(chain);
    }

    /// The place of a rule among so many others; none where it cannot be told.
    pub(super) fn of(
        &mut self,
        chain: &str,
        (handle, end): (Handle, End),
        others: usize,
    ) -> Option<usize> {
        let frayed = self.frayed.get(chain);
        match (self.replaced.take(), end) {
            _ if others == 0 => Some(0),
            // Quirk `replacing-looks-like-appending` (Linux 6.18): both are told with the same flag, and one
            // that replaces another has its handle.
            (Some((gone, at)), _) if gone == handle => Some(at),
            (Some(_), End::Last) => None,
            (_, End::Last) => frayed.is_none_or(|frayed| !frayed.first).then_some(others),
            (_, End::First) => frayed.is_none_or(|frayed| !frayed.last).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(told: impl FnOnce(&mut Places), end: End, others: usize, expected: Option<usize>) {
        let mut places = Places::default();
        told(&mut places);
        assert_eq!(places.of("x", (Handle(9), end), others), expected, "{places:?}");
    }

    #[test]
    fn a_rule_without_a_place_is_the_first_or_the_last() {
        check(|_| {}, End::First, 3, Some(0));
        check(|_| {}, End::Last, 3, Some(3));
        check(|_| {}, End::Last, 0, Some(0));
    }

    #[test]
    fn a_rule_that_replaces_another_stands_where_that_stood() {
        check(|places| places.replaced(Handle(9), 1), End::Last, 3, Some(1));
        check(|places| places.replaced(Handle(8), 1), End::Last, 3, None);
    }

    #[test]
    fn beside_a_rule_that_went_at_an_end_nothing_is_certain() {
        check(|places| places.went("x", 0, 2), End::Last, 2, None);
        check(|places| places.went("x", 0, 2), End::First, 2, Some(0));
        check(|places| places.went("x", 2, 2), End::First, 2, None);
        check(|places| places.went("x", 2, 2), End::Last, 2, Some(2));
        check(|places| places.went("x", 1, 2), End::Last, 2, Some(2));
        check(|places| places.went("y", 0, 0), End::Last, 2, Some(2));
        check(|places| places.went("x", 0, 0), End::Last, 0, Some(0));
        let made_again = |places: &mut Places| {
            places.went("x", 0, 0);
            places.forget("x");
        };
        check(made_again, End::Last, 2, Some(2));
    }
}
