//! Guesses which known word a misspelt one was meant to be.

/// Words that other tools use for a field of ours.
const SYNONYMS: &[(&str, &str)] = &[
    ("address", "addresses"),
    ("destination", "to"),
    ("device", "dev"),
    ("dst", "to"),
    ("gateway", "via"),
    ("gw", "via"),
    ("hwaddr", "mac"),
    ("interface", "dev"),
    ("interfaces", "links"),
    ("lladdr", "mac"),
    ("neighbors", "neighbours"),
    ("netns", "namespaces"),
    ("nft", "nftables"),
    ("pref", "priority"),
    ("preference", "priority"),
    ("sysctls", "sysctl"),
];

/// The known word nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == word).map(|(_, ours)| *ours);
    let ranked = known.into_iter().map(|name| match synonym {
        Some(ours) if ours == name => (0, name),
        _ => (distance(&word, name), name),
    });
    let (far, name) = ranked.min()?;
    let most = (word.chars().count().max(name.len()) / 3).clamp(1, 3);
    (far <= most).then_some(name)
}

fn plain(word: &str) -> String {
    // Only the beginning matters: a key of a megabyte is near to nothing.
    word.chars().take(64).collect::<String>().to_lowercase().replace('_', "-")
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last = None;
    for (i, from) in a.chars().enumerate() {
        let next = next_row(&b, (from, last), (&before, &row), i + 1);
        before = std::mem::replace(&mut row, next);
        last = Some(from);
    }
    row.last().copied().unwrap_or(0)
}

/// One row of the edit table: `(this, previous)` letter, `(row before last, last row)`.
fn next_row(
    b: &[char],
    (from, last): (char, Option<char>),
    (before, row): (&[usize], &[usize]),
    first: usize,
) -> Vec<usize> {
    let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
    let mut next = vec![first];
    for (j, to) in b.iter().enumerate() {
        let replace = at(row, j) + usize::from(*to != from);
        let edit = replace.min(at(row, j + 1) + 1).min(at(&next, j) + 1);
        let swapped = j > 0 && b.get(j - 1) == Some(&from) && last == Some(*to);
        let swap = if swapped { at(before, j - 1) + 1 } else { usize::MAX };
        next.push(edit.min(swap));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["addresses", "kind", "mtu", "mac", "via", "to", "min-interval"];
        for (word, meant) in [
            ("adresses", Some("addresses")),
            ("addreses", Some("addresses")),
            ("address", Some("addresses")),
            ("mut", Some("mtu")),
            ("MTU", Some("mtu")),
            ("min_interval", Some("min-interval")),
            ("gateway", Some("via")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn a_swap_counts_once() {
        assert_eq!(distance("mut", "mtu"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
