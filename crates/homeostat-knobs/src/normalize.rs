//! Brings the text of a knob into its one normal form, and compares a desired state with what is there.
//!
//! Pure. The kernel prints values its own way (tabs, decimal numbers, merged ranges), so that text
//! is compared by what it means to the file. Start at [`Form::of`].

use std::net::Ipv6Addr;

use crate::cgroup;
use crate::key::Key;
use crate::lines;
use crate::ranges;

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
    /// Bytes, rounded down to a grain, or `max`.
    Size {
        /// The grain in bytes.
        grain: u64,
    },
    /// `QUOTA [PERIOD]`.
    Quota,
    /// One line for each thing: `8:0 rbps=1048576`, or `mlx4_0 100`.
    Lines,
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
        }
    }

    /// The normal form of `text`. Idempotent; what makes no sense to the file stays as it is, for
    /// the kernel to refuse it in its own words.
    pub(crate) fn normalize(self, text: &str) -> String {
        match self {
            Form::Text => text.trim().to_owned(),
            Form::Tokens | Form::Quota => tokens(text),
            Form::Ranges => ranges::normalize(text).unwrap_or_else(|| tokens(text)),
            Form::Address => address(text).unwrap_or_else(|| tokens(text)),
            Form::Size { grain } => {
                cgroup::size(text, grain).unwrap_or_else(|| join(text.split_whitespace()))
            }
            Form::Lines => lines::normalize(text),
        }
    }

    /// Whether what is there is as declared, both in normal form. Only what is declared counts.
    pub(crate) fn agrees(self, wanted: &str, seen: &str) -> bool {
        match self {
            // The period is the kernel's own as long as nobody declares one.
            Form::Quota if !wanted.contains(' ') => seen.split(' ').next() == Some(wanted),
            Form::Lines => lines::agree(wanted, seen),
            _ => wanted == seen,
        }
    }
}

fn tokens(text: &str) -> String {
    join(text.split_whitespace().map(|token| number(token).unwrap_or_else(|| token.to_owned())))
}

fn join<T: AsRef<str>>(tokens: impl Iterator<Item = T>) -> String {
    let mut text = String::new();
    for token in tokens {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(token.as_ref());
    }
    text
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

/// A number without a sign, as the kernel reads it: the prefix tells the base.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMS: [Form; 7] = [
        Form::Tokens,
        Form::Text,
        Form::Ranges,
        Form::Address,
        Form::Size { grain: 4096 },
        Form::Quota,
        Form::Lines,
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
