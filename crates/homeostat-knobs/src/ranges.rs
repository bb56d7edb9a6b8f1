//! Sets of numbers as the kernel writes them: `0-3,8`, sorted and merged. Pure.

/// The normal form of a list, or nothing if the text is no list.
pub(crate) fn normalize(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return Some(String::new());
    }
    let mut ranges: Vec<(u32, u32)> =
        text.split(',').map(|range| parse(range.trim())).collect::<Option<_>>()?;
    ranges.sort_unstable();
    let shown: Vec<String> = merge(ranges).into_iter().map(show).collect();
    Some(shown.join(","))
}

fn parse(range: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then_some((from, to))
}

fn merge(sorted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn show((from, to): (u32, u32)) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_merged() {
        for (text, expected) in [
            ("0-1", Some("0-1")),
            ("0,1", Some("0-1")),
            ("3,1,0\n", Some("0-1,3")),
            ("8080,100-102,103", Some("100-103,8080")),
            ("1-5,2-3", Some("1-5")),
            ("", Some("")),
            ("3-1", None),
            ("a", None),
            ("1,,2", None),
            ("+1", None),
            ("4294967295,0", Some("0,4294967295")),
            ("99999999999", None),
        ] {
            assert_eq!(normalize(text).as_deref(), expected, "{text:?}");
        }
    }
}
