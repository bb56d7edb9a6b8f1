//! Which rules of a chain can stay: the smallest edit script. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The pairs of places, in order, whose entries stay. All others of `old` go, all others of `new` come.
pub(crate) fn kept<T: Eq + Hash>(
    old: &[T],
    new: &[T],
    may_stay: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let stays = |(at, (old, new)): &(usize, (&T, &T))| may_stay(*at) && old == new;
    // Most chains are as declared, and most edits are in one place.
    let start = old.iter().zip(new).enumerate().take_while(stays).count();
    let rest = old.len().min(new.len()) - start;
    let ends = (0..old.len()).rev().zip(old.iter().rev().zip(new.iter().rev()));
    let end = ends.take(rest).take_while(stays).count();
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    let old = old.get(start..old_end).unwrap_or_default();
    let new = new.get(start..new_end).unwrap_or_default();
    let between = between(old, new, |at| may_stay(start + at))
        .into_iter()
        .map(|(old, new)| (start + old, start + new));
    let last = (0..end).map(|at| (old_end + at, new_end + at));
    (0..start).map(|at| (at, at)).chain(between).chain(last).collect()
}

fn between<T: Eq + Hash>(
    old: &[T],
    new: &[T],
    may_stay: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut numbers: HashMap<&T, u32> = HashMap::new();
    let mut number = |entry| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(entry).or_insert(next)
    };
    let old = old.iter().map(&mut number).enumerate();
    let old: Vec<_> = old.filter(|(at, _)| may_stay(*at)).collect();
    let new: Vec<_> = new.iter().map(&mut number).enumerate().collect();
    // What only one side has cannot stay. Leaving it out keeps two long chains without anything in
    // common from being compared entry by entry.
    let (old, new) = (common(&old, &new), common(&new, &old));
    let numbers_of = |entries: &[(usize, u32)]| -> Vec<u32> {
        entries.iter().map(|(_, number)| *number).collect()
    };
    let (old_numbers, new_numbers) = (numbers_of(&old), numbers_of(&new));
    let mut kept = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &old_numbers, &new_numbers) {
        let DiffOp::Equal { old_index, new_index, len } = op else { continue };
        let pairs = old.iter().skip(old_index).zip(new.iter().skip(new_index)).take(len);
        kept.extend(pairs.map(|(old, new)| (old.0, new.0)));
    }
    kept
}

fn common(of: &[(usize, u32)], with: &[(usize, u32)]) -> Vec<(usize, u32)> {
    let there: HashSet<u32> = with.iter().map(|(_, number)| *number).collect();
    of.iter().filter(|(_, number)| there.contains(number)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(old: &str, new: &str, expected: &str) {
        let (old, new): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
        let kept: String = kept(&old, &new, |_| true).iter().map(|(at, _)| old[*at]).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn as_much_as_possible_stays() {
        check("abc", "abc", "abc");
        check("abc", "axc", "ac");
        check("abcd", "bcda", "bcd");
        check("", "abc", "");
        check("abc", "", "");
        check("xyz", "abc", "");
    }

    #[test]
    fn what_may_not_stay_does_not() {
        let old = ['a', 'b', 'c'];
        assert_eq!(kept(&old, &old, |at| at != 1), [(0, 0), (2, 2)]);
    }

    /// The length of the longest common subsequence, the slow way.
    fn longest(old: &[u8], new: &[u8]) -> usize {
        let mut row = vec![0; new.len() + 1];
        for a in old {
            let mut corner = 0;
            for (at, b) in new.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if a == b { corner + 1 } else { above.max(row[at]) };
                corner = above;
            }
        }
        row[new.len()]
    }

    proptest! {
        #[test]
        fn nothing_more_could_have_stayed(
            old in proptest::collection::vec(0_u8..6, 0..20),
            new in proptest::collection::vec(0_u8..6, 0..20),
        ) {
            let kept = kept(&old, &new, |_| true);
            prop_assert_eq!(kept.len(), longest(&old, &new));
            prop_assert!(kept.iter().all(|(a, b)| old[*a] == new[*b]));
            prop_assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        }
    }
}
