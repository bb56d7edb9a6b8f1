//! Keyed lines, such as those of `io.max`: one line for each device, each with its own keys. Pure.
//!
//! A line is `NAME KEY=VALUE...` or `NAME VALUE`. Only declared names and keys count, and `max` (or
//! `default`) means the same as nothing.

use std::collections::BTreeMap;

use crate::cgroup::bytes;

/// The name of a line to the keys on it; a value without a key has the empty key.
type Lines = BTreeMap<String, BTreeMap<String, String>>;

/// The normal form: lines and keys sorted, numbers in decimal.
pub(crate) fn normalize(text: &str) -> String {
    show(&parse(text))
}

/// Whether everything that is declared in `wanted` is so in `seen`.
pub(crate) fn agree(wanted: &str, seen: &str) -> bool {
    let seen = parse(seen);
    parse(wanted).iter().all(|(name, keys)| {
        keys.iter().all(|(key, value)| match seen.get(name).and_then(|keys| keys.get(key)) {
            Some(there) => there == value,
            None => is_nothing(value),
        })
    })
}

/// Whether each line says something.
pub(crate) fn is_complete(text: &str) -> bool {
    let lines = parse(text);
    !lines.is_empty() && lines.values().all(|keys| !keys.is_empty())
}

/// What has to be written so that `original` is back where `wrote` stands: what it lacks is lifted.
pub(crate) fn restoring(original: &str, wrote: &str) -> String {
    let mut lines = parse(original);
    for (name, keys) in parse(wrote) {
        let line = lines.entry(name).or_default();
        for key in keys.into_keys() {
            let lifted = if key.is_empty() { "default" } else { "max" };
            line.entry(key).or_insert_with(|| lifted.to_owned());
        }
    }
    show(&lines)
}

fn is_nothing(value: &str) -> bool {
    matches!(value, "max" | "default")
}

fn parse(text: &str) -> Lines {
    let mut lines = Lines::new();
    for line in text.lines() {
        let mut tokens = line.split_whitespace();
        let Some(first) = tokens.next() else { continue };
        let mut rest: Vec<&str> = tokens.collect();
        // Quirk `weight-default` (cgroup v2): `100` alone in io.weight means `default 100`.
        let name = if rest.is_empty() && bytes(first).is_some() {
            rest.push(first);
            "default"
        } else {
            first
        };
        let keys = lines.entry(name.to_owned()).or_default();
        keys.extend(rest.into_iter().map(setting));
    }
    lines
}

fn setting(token: &str) -> (String, String) {
    let (key, value) = match token.split_once('=') {
        Some((key, value)) if !key.is_empty() => (key, value),
        _ => ("", token),
    };
    let value = bytes(value).map_or_else(|| value.to_owned(), |number| number.to_string());
    (key.to_owned(), value)
}

fn show(lines: &Lines) -> String {
    let line = |(name, keys): (&String, &BTreeMap<String, String>)| {
        let mut text = name.clone();
        for (key, value) in keys {
            text.push(' ');
            if !key.is_empty() {
                text.push_str(key);
                text.push('=');
            }
            text.push_str(value);
        }
        text
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "8:0 rbps=max wbps=1048576 riops=max wiops=max\n8:16 rbps=5 wbps=max\n";

    #[test]
    fn lines_and_keys_are_sorted_and_sizes_are_numbers() {
        for (text, expected) in [
            ("8:16 wbps=1M rbps=4K\n8:0 riops=0x10\n", "8:0 riops=16\n8:16 rbps=4096 wbps=1048576"),
            ("8:0 rbps=1\n\n8:0 wbps=2", "8:0 rbps=1 wbps=2"),
            ("100", "default 100"),
            ("default 100\n8:0 200\n", "8:0 200\ndefault 100"),
            ("8:0 == rbps=", "8:0 == rbps="),
            ("", ""),
        ] {
            assert_eq!(normalize(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_declared_devices_and_keys_count_and_max_means_absent() {
        for (wanted, expected) in [
            ("8:0 wbps=1M", true),
            ("8:0 wbps=1M rbps=max", true),
            ("8:0 wbps=2M", false),
            ("8:0 wbps=max", false),
            ("8:32 rbps=max", true),
            ("8:32 rbps=1", false),
            ("8:0 wbps=1M\n8:16 rbps=5", true),
            ("8:0 wbps=1M\n8:16 rbps=6", false),
        ] {
            assert_eq!(agree(&normalize(wanted), &normalize(SEEN)), expected, "{wanted:?}");
        }
    }

    #[test]
    fn restoring_lifts_what_the_original_does_not_have() {
        let back = restoring("8:16 rbps=5", "8:0 wbps=1\n8:16 rbps=6 wiops=7");
        assert_eq!(back, "8:0 wbps=max\n8:16 rbps=5 wiops=max");
        assert_eq!(restoring("default 100", "8:0 200\ndefault 50"), "8:0 default\ndefault 100");
    }

    #[test]
    fn a_line_that_says_nothing_is_incomplete() {
        assert!(is_complete("8:0 rbps=1"));
        assert!(is_complete("100"));
        assert!(!is_complete("8:0"));
        assert!(!is_complete(" \n"));
    }
}
