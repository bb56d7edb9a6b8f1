//! Rates, sizes, times and shares in the words of `tc`. Pure.

use std::fmt;
use std::str::FromStr;

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub i64);

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub i64);

/// Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

/// A probability; `u32::MAX` is always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub i64);

/// Why a text is none of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct NotAQuantity {
    pub text: String,
    pub what: &'static str,
    pub help: String,
}

type Units = &'static [(&'static str, u64)];

/// In bits a second. Without a unit, `tc` reads bits; with `bps`, bytes.
const RATES: Units = &[
    ("bit", 1),
    ("kbit", 1000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
];
const SIZES: Units = &[("b", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
const TIMES: Units = &[("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The longest time that is read: the kernel has 32 bits of microseconds for most.
const LONGEST: u64 = 4_000_000_000_000;
/// A terabyte a second.
const FASTEST: u64 = 8_000_000_000_000;
/// What 32 bits hold.
const LARGEST: u64 = 0xffff_ffff;

impl Rate {
    pub const WHAT: &'static str = "a rate such as \"10mbit\"";
}

impl Size {
    pub const WHAT: &'static str = "a size such as \"32k\"";
}

impl Time {
    pub const WHAT: &'static str = "a time such as \"5ms\"";
}

impl Share {
    pub const WHAT: &'static str = "a share such as \"0.5%\"";
}

impl FromStr for Rate {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let refuse = |help: String| NotAQuantity { text: text.to_owned(), what: Self::WHAT, help };
        let usual =
            || refuse("write bits a second with a unit: bit, kbit, mbit, gbit or tbit".to_owned());
        if let Some(number) = text.strip_suffix("bps") {
            // `mbps` are megabytes in `tc`, and megabits to most people.
            let (digits, prefix) = number.split_at(digits(number));
            let bits = decimal(digits).filter(|_| matches!(prefix, "" | "k" | "m" | "g" | "t"));
            let Some((mantissa, 0)) = bits else { return Err(usual()) };
            let bits = mantissa.saturating_mul(8);
            let help = format!(
                "`tc` reads {prefix}bps as bytes a second: write `{bits}{prefix}bit` for them, or \
                 `{mantissa}{prefix}bit`"
            );
            return Err(refuse(help));
        }
        let bits = scaled(text, RATES).filter(|bits| (8..=FASTEST).contains(bits));
        bits.and_then(|bits| i64::try_from(bits / 8).ok()).map(Rate).ok_or_else(usual)
    }
}

impl FromStr for Size {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let plain = text.strip_suffix("kb").map(|number| format!("{number}k"));
        let bytes = scaled(plain.as_deref().unwrap_or(text), SIZES);
        let bytes = bytes.filter(|bytes| *bytes <= LARGEST);
        bytes.and_then(|bytes| i64::try_from(bytes).ok()).map(Size).ok_or_else(|| NotAQuantity {
            text: text.to_owned(),
            what: Self::WHAT,
            help: "write bytes with a unit, b, k, m or g (1k is 1024 bytes), up to 4g".to_owned(),
        })
    }
}

impl FromStr for Time {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let nanos = scaled(text, TIMES).filter(|nanos| *nanos <= LONGEST);
        nanos.and_then(|nanos| i64::try_from(nanos).ok()).map(Time).ok_or_else(|| NotAQuantity {
            text: text.to_owned(),
            what: Self::WHAT,
            help: "write a number and a unit, s, ms, us or ns, up to an hour".to_owned(),
        })
    }
}

impl FromStr for Share {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let refuse = || NotAQuantity {
            text: text.to_owned(),
            what: Self::WHAT,
            help: "write 0% to 100%".to_owned(),
        };
        let (mantissa, decimals) = text.strip_suffix('%').and_then(decimal).ok_or_else(refuse)?;
        let whole = 100 * 10_u128.pow(decimals);
        let exact = u128::from(mantissa) * u128::from(LARGEST);
        let share = exact.saturating_add(whole / 2) / whole;
        let is_share = u128::from(mantissa) <= whole;
        i64::try_from(share).ok().filter(|_| is_share).map(Share).ok_or_else(refuse)
    }
}

/// How many of the first bytes belong to a number.
fn digits(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count()
}

/// A number in plain decimal form: its digits, and how many of them are behind the point.
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_point = text.len() > whole.len();
    if whole.is_empty() || (has_point && part.is_empty()) || part.len() > 9 {
        return None;
    }
    let all = format!("{whole}{part}");
    let decimals = u32::try_from(part.len()).ok()?;
    all.parse().ok().filter(|_| is_plain(&all)).map(|mantissa| (mantissa, decimals))
}

/// A number with a unit, in the smallest unit; nothing if there is a part of that.
fn scaled(text: &str, units: Units) -> Option<u64> {
    let (number, unit) = text.split_at_checked(digits(text))?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (mantissa, decimals) = decimal(number)?;
    let (all, part) = (mantissa.checked_mul(*scale)?, 10_u64.checked_pow(decimals)?);
    all.is_multiple_of(part).then_some(all / part)
}

/// In the largest unit that needs no fraction.
fn write(number: i64, units: Units, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let number = u64::try_from(number).unwrap_or_default();
    let mut fitting = units.iter().rev().filter(|(_, scale)| number.is_multiple_of(*scale));
    match fitting.next() {
        Some((name, scale)) if number > 0 => write!(f, "{}{name}", number / scale),
        _ => write!(f, "0{}", units.first().map_or("", |(name, _)| name)),
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0.saturating_mul(8), RATES, f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, SIZES, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, TIMES, f)
    }
}

/// With as few decimals as say which it is.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = u128::try_from(self.0).unwrap_or_default();
        let most = u128::from(LARGEST);
        let with = |decimals: u32| {
            let whole = 10_u128.pow(decimals);
            let scaled = (share * 100 * whole + most / 2) / most;
            let (percent, part) = (scaled / whole, scaled % whole);
            match decimals {
                0 => format!("{percent}%"),
                _ => format!("{percent}.{part:0width$}%", width = decimals as usize),
            }
        };
        let exact = (0..=9).map(with).find(|text| text.parse() == Ok(*self));
        f.write_str(&exact.unwrap_or_else(|| with(9)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_in_the_words_of_tc() {
        for (text, bytes) in
            [("10mbit", 1_250_000), ("1gbit", 125_000_000), ("100kbit", 12_500), ("8bit", 1)]
        {
            assert_eq!(text.parse(), Ok(Rate(bytes)), "{text}");
        }
        assert_eq!("1.5mbit".parse(), Ok(Rate(187_500)));
        for (text, bytes) in [("32k", 32_768), ("32kb", 32_768), ("1600b", 1600), ("4m", 4 << 20)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for (text, nanos) in [("5ms", 5_000_000), ("1s", 1_000_000_000), ("0s", 0), ("1.5us", 1500)]
        {
            assert_eq!(text.parse(), Ok(Time(nanos)), "{text}");
        }
        assert_eq!("100%".parse(), Ok(Share(0xffff_ffff)));
        assert_eq!("0%".parse(), Ok(Share(0)));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "10", "mbit", "-1mbit", "1.mbit", ".5mbit", "1e3kbit", "10 mbit", "7bit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["99999999999999999999tbit", "9tbit", "+1mbit", "1..5mbit", "1mbits"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["", "k", "5g", "-1k", "0.0001b", "1x"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in ["", "5", "5m", "-1ms", "0.5ns", "5h", "4001s"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        for text in ["", "%", "5", "101%", "-1%", "100.000000001%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_a_second_are_refused_with_both_readings() {
        let help = "1mbps".parse::<Rate>().unwrap_err().help;
        assert!(help.contains("`8mbit`") && help.ends_with("`1mbit`"), "{help}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            rate in 1_i64..1_000_000_000_000,
            size in 0_i64..=0xffff_ffff,
            time in 0_i64..=4_000_000_000_000,
            share in 0_i64..=0xffff_ffff,
        ) {
            prop_assert_eq!(Rate(rate).to_string().parse(), Ok(Rate(rate)));
            prop_assert_eq!(Size(size).to_string().parse(), Ok(Size(size)));
            prop_assert_eq!(Time(time).to_string().parse(), Ok(Time(time)));
            prop_assert_eq!(Share(share).to_string().parse(), Ok(Share(share)));
        }
    }
}
