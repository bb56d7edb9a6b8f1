//! "Did you mean": the nearest of some names. Pure.

/// The name that differs from `wanted` in the fewest letters, if it is near enough to be meant.
pub(crate) fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let most = (wanted.len() / 3).clamp(1, 3);
    let near = names.iter().map(|name| (distance(wanted, name), name.as_str()));
    near.filter(|(edits, _)| *edits <= most).min().map(|(_, name)| name)
}

/// How many letters have to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (deleted, letter) in one.chars().enumerate() {
        let mut corner = deleted;
        let mut left = deleted + 1;
        for (cell, same) in row.iter_mut().skip(1).zip(other.iter().map(|c| *c == letter)) {
            let changed = corner + usize::from(!same);
            corner = *cell;
            left = changed.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = deleted + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (one, other, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("ip_forwrd", "ip_forward", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["ip_forward", "ip_default_ttl", "."].map(str::to_owned);
        assert_eq!(nearest("ip_forwarding", &names), Some("ip_forward"));
        assert_eq!(nearest("ip_forwrd", &names), Some("ip_forward"));
        assert_eq!(nearest("tcp_rmem", &names), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
