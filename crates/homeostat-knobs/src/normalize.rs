//! Brings the text of a knob into its one normal form, and compares a desired value with what is there. Pure.
//!
//! The kernel prints values its own way (tabs, decimal numbers, merged ranges), so that text is compared by what it
//! means to the file. Keyed lines, such as those of `io.max`, are `NAME KEY=VALUE...` or `NAME VALUE`: only declared
//! names and keys count, and `max` (or `default`) means the same as nothing. Start at [`Form::of`].

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use crate::cgroup::{self, bytes};
use crate::key::Key;
use crate::sysfs;

/// What the text in a knob's file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Words and numbers, separated by blanks; numbers count by value.
    Tokens,
    /// Text in which `010` is not a number.
    Text,
    /// A set of numbers: `0-3,8`.
    Ranges,
    /// One IPv6 address.
    Address,
    /// Bytes, rounded down to a multiple of `grain`, or `max`.
    Size { grain: u64 },
    /// `QUOTA [PERIOD]`.
    Quota,
    /// One line for each thing: `8:0 rbps=1048576`, or `mlx4_0 100`.
    Lines,
    /// Tokens, or one of several words: the one in brackets.
    Choice,
    /// Tokens, or a switch of a module, where `Y` is 1.
    Parameter,
    /// A mask of bits in hexadecimal: `00000000,00000003`.
    Mask,
}

impl Form {
    /// The form of the knob's file.
    pub(crate) fn of(key: &Key) -> Self {
        match key {
            Key::Sysctl(path) => match path.name() {
                "hostname"
                | "domainname"
                | "core_pattern"
                | "modprobe"
                | "poweroff_cmd"
                | "hotplug"
                | "rps_default_mask"
                | "flow_limit_cpu_bitmap" => Form::Text,
                "ip_local_reserved_ports" => Form::Ranges,
                "stable_secret" => Form::Address,
                _ => Form::Tokens,
            },
            Key::Cgroup(file) => cgroup::form(file.file()),
            Key::Sysfs(path) => sysfs::form(path),
        }
    }

    /// The normal form of `text`. Idempotent; what makes no sense to the file stays as it is, for
    /// the kernel to refuse it in its own words.
    pub(crate) fn normalize(self, text: &str) -> String {
        match self {
            Form::Text => text.trim().to_owned(),
            Form::Tokens | Form::Quota | Form::Parameter => tokens(text),
            Form::Choice => sysfs::chosen(text).map_or_else(|| tokens(text), str::to_owned),
            Form::Mask => sysfs::mask(text).unwrap_or_else(|| tokens(text)),
            Form::Ranges => normalize_ranges(text).unwrap_or_else(|| tokens(text)),
            Form::Address => address(text).unwrap_or_else(|| tokens(text)),
            Form::Size { grain } => cgroup::size(text, grain)
                .unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" ")),
            // Lines and keys sorted, numbers in decimal.
            Form::Lines => show_lines(&parse_lines(text)),
        }
    }

    /// Whether what is there is as declared, both in normal form. Only what is declared counts.
    pub(crate) fn agrees(self, wanted: &str, seen: &str) -> bool {
        match self {
            // The period is the kernel's own as long as none is declared.
            Form::Quota if !wanted.contains(' ') => seen.split(' ').next() == Some(wanted),
            Form::Lines => lines_agree(wanted, seen),
            Form::Parameter => {
                let switch = sysfs::switch(wanted);
                wanted == seen || switch.is_some() && switch == sysfs::switch(seen)
            }
            _ => wanted == seen,
        }
    }
}

fn tokens(text: &str) -> String {
    let number = |token: &str| number(token).unwrap_or_else(|| token.to_owned());
    text.split_whitespace().map(number).collect::<Vec<_>>().join(" ")
}

/// Quirk `base-zero` (Linux 6.18): the kernel reads `0x1` as 1, `02` as 2 and `010` as 8, and prints
/// decimal numbers; `+2` and `08` it refuses, so they are no numbers here.
fn number(token: &str) -> Option<String> {
    let (sign, digits) = match token.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", token),
    };
    let value = unsigned(digits)?;
    Some(if value == 0 { "0".to_owned() } else { format!("{sign}{value}") })
}

/// A number without a sign, as the kernel reads it: the prefix is that of the base.
pub(crate) fn unsigned(digits: &str) -> Option<u64> {
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, base) = match (hex, digits.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    // A second sign would be taken by the parser, but never by the kernel.
    digits.chars().all(|c| c.is_digit(base)).then_some(())?;
    u64::from_str_radix(digits, base).ok()
}

/// The kernel prints all eight groups in full.
fn address(text: &str) -> Option<String> {
    let addr: Ipv6Addr = text.trim().parse().ok()?;
    Some(addr.segments().map(|group| format!("{group:04x}")).join(":"))
}

/// The name of a line to the keys on it; a value without a key has the empty key.
type Lines = BTreeMap<String, BTreeMap<String, String>>;

/// Whether everything that is declared in `wanted` is so in `seen`.
fn lines_agree(wanted: &str, seen: &str) -> bool {
    let seen = parse_lines(seen);
    parse_lines(wanted).iter().all(|(name, keys)| {
        keys.iter().all(|(key, value)| match seen.get(name).and_then(|keys| keys.get(key)) {
            Some(there) => there == value,
            None => matches!(value.as_str(), "max" | "default"),
        })
    })
}

/// Whether each line says something.
pub(crate) fn lines_are_complete(text: &str) -> bool {
    let lines = parse_lines(text);
    !lines.is_empty() && lines.values().all(|keys| !keys.is_empty())
}

/// The value to write so that `original` is restored over `wrote`: limits that it lacks are lifted.
pub(crate) fn lines_restoring(original: &str, wrote: &str) -> String {
    let mut lines = parse_lines(original);
    for (name, keys) in parse_lines(wrote) {
        let line = lines.entry(name).or_default();
        for key in keys.into_keys() {
            let lifted = if key.is_empty() { "default" } else { "max" };
            line.entry(key).or_insert_with(|| lifted.to_owned());
        }
    }
    show_lines(&lines)
}

fn parse_lines(text: &str) -> Lines {
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

fn show_lines(lines: &Lines) -> String {
    let line = |(name, keys): (&String, &BTreeMap<String, String>)| {
        keys.iter().fold(name.clone(), |line, (key, value)| match key.as_str() {
            "" => format!("{line} {value}"),
            key => format!("{line} {key}={value}"),
        })
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The normal form of a list, or nothing if the text is no list.
fn normalize_ranges(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return Some(String::new());
    }
    let ranges = text.split(',').map(|range| parse_range(range.trim()));
    let mut ranges: Vec<(u32, u32)> = ranges.collect::<Option<_>>()?;
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    let shown = merged
        .into_iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") });
    Some(shown.collect::<Vec<_>>().join(","))
}

fn parse_range(range: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMS: [Form; 10] = [
        Form::Tokens,
        Form::Text,
        Form::Ranges,
        Form::Address,
        Form::Size { grain: 4096 },
        Form::Quota,
        Form::Lines,
        Form::Choice,
        Form::Parameter,
        Form::Mask,
    ];

    fn check(form: Form, text: &str, expected: &str) {
        assert_eq!(form.normalize(text), expected, "{form:?} {text:?}");
    }

    #[test]
    fn numbers_count_by_value_as_the_kernel_reads_them() {
        for (text, expected) in [
            ("1\n", "1"),
            ("0x1", "1"),
            ("0XfF", "255"),
            ("02", "2"),
            ("010", "8"),
            ("0", "0"),
            ("00", "0"),
            ("-0", "0"),
            ("-1", "-1"),
            ("-0x10", "-16"),
            ("4096\t131072\t6291456\n", "4096 131072 6291456"),
            ("  1   2 ", "1 2"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            check(Form::Tokens, text, expected);
        }
    }

    #[test]
    fn what_the_kernel_takes_for_no_number_stays_as_it_is() {
        for text in ["+2", "08", "0x", "0xg", "--1", "-", "bbr", "1,2", "18446744073709551616"] {
            check(Form::Tokens, text, text);
        }
    }

    #[test]
    fn leading_zeros_in_names_and_masks_are_kept() {
        for name in ["kernel/hostname", "net/core/rps_default_mask"] {
            let form = Form::of(&Key::sysctl(name).unwrap());
            assert_eq!(form.normalize("010\n"), "010", "{name}");
        }
        check(Form::Text, "|/usr/bin/dump  %p\n", "|/usr/bin/dump  %p");
    }

    #[test]
    fn an_address_is_written_in_full() {
        check(Form::Address, "2001:db8::1\n", "2001:0db8:0000:0000:0000:0000:0000:0001");
        check(Form::Address, "", "");
        check(Form::Address, "secret", "secret");
    }

    #[test]
    fn a_quota_alone_agrees_with_any_period() {
        for (wanted, seen, expected) in [
            ("50000", "50000 100000", true),
            ("max", "max 100000", true),
            ("50000 100000", "50000 100000", true),
            ("50000 200000", "50000 100000", false),
            ("5000", "50000 100000", false),
            ("max", "50000 100000", false),
        ] {
            assert_eq!(Form::Quota.agrees(wanted, seen), expected, "{wanted} / {seen}");
        }
    }

    #[test]
    fn a_switch_of_a_module_is_on_by_either_word() {
        for (wanted, seen, expected) in
            [("1", "Y", true), ("N", "0", true), ("1", "N", false), ("2", "Y", false)]
        {
            assert_eq!(Form::Parameter.agrees(wanted, seen), expected, "{wanted} / {seen}");
        }
    }

    #[test]
    fn a_short_tuple_does_not_agree_with_a_long_one() {
        assert!(!Form::Tokens.agrees("4096 131072", "4096 131072 6291456"));
        assert!(!Form::Tokens.agrees("1 9 9", "1"));
    }

    proptest! {
        #[test]
        fn normalizing_is_idempotent_and_a_desired_state_agrees_with_itself(
            text in "([0-9xa-fKMG:=,. \t\n-]|max|rbps=|default ){0,12}",
        ) {
            for form in FORMS {
                let once = form.normalize(&text);
                prop_assert_eq!(form.normalize(&once), once.clone(), "{:?}", form);
                prop_assert!(form.agrees(&once, &once), "{:?} {:?}", form, once);
            }
        }

        #[test]
        fn every_spelling_of_a_number_is_one_value(value: u64) {
            for text in [format!("{value}"), format!("{value:#x}"), format!("0{value:o}")] {
                prop_assert_eq!(Form::Tokens.normalize(&text), value.to_string());
            }
        }
    }
}

#[cfg(test)]
mod line_tests {
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
            assert_eq!(Form::Lines.normalize(text), expected, "{text:?}");
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
            assert_eq!(
                lines_agree(&Form::Lines.normalize(wanted), &Form::Lines.normalize(SEEN)),
                expected,
                "{wanted:?}"
            );
        }
    }

    #[test]
    fn restoring_lifts_what_the_original_does_not_have() {
        let back = lines_restoring("8:16 rbps=5", "8:0 wbps=1\n8:16 rbps=6 wiops=7");
        assert_eq!(back, "8:0 wbps=max\n8:16 rbps=5 wiops=max");
        assert_eq!(
            lines_restoring("default 100", "8:0 200\ndefault 50"),
            "8:0 default\ndefault 100"
        );
    }

    #[test]
    fn a_line_that_says_nothing_is_incomplete() {
        assert!(lines_are_complete("8:0 rbps=1"));
        assert!(lines_are_complete("100"));
        assert!(!lines_are_complete("8:0"));
        assert!(!lines_are_complete(" \n"));
    }
}

#[cfg(test)]
mod range_tests {
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
            assert_eq!(normalize_ranges(text).as_deref(), expected, "{text:?}");
        }
    }
}
