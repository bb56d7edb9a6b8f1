//! What a plain YAML scalar is. Where YAML 1.1, 1.2 and their readers disagree (`no`, `0755`,
//! `1_000`, `12:30`, dates) it is nothing in particular, and no field takes it.

use crate::node::Value;

/// The value of a scalar without quotes.
pub(crate) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if is_plain_integer(text) {
        return text.parse().map_or_else(|_| Value::Float(text.to_owned()), Value::Int);
    }
    if is_float(text) {
        return Value::Float(text.to_owned());
    }
    if is_switch(text) || is_odd_number(text) || is_date(text) {
        return Value::Ambiguous(text.to_owned());
    }
    Value::Text(text.to_owned())
}

/// A decimal number in its one canonical form.
fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_digits(digits) && (digits == "0" || !digits.starts_with('0')) && text != "-0"
}

/// A number with a fraction, an exponent, or the words for infinite and undefined.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    if matches!(lower.as_str(), ".inf" | ".nan") {
        return true;
    }
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    numeric && unsigned.contains(['.', 'e', 'E']) && unsigned.parse::<f64>().is_ok()
}

/// The words that YAML 1.1 takes for true and false, and their spellings.
fn is_switch(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    matches!(lower.as_str(), "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false")
}

/// Digits with signs, leading zeros, underscores, colons or the prefix of another base.
fn is_odd_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let based = |prefix, digit: fn(&char) -> bool| {
        let rest = unsigned.strip_prefix(prefix);
        rest.is_some_and(|rest: &str| rest.chars().all(|c| c == '_' || digit(&c)))
    };
    let underscored = unsigned.chars().all(|c| c.is_ascii_digit() || c == '_' || c == '.');
    let plain_dots = unsigned.matches('.').count() > 1 && !unsigned.contains('_');
    (underscored && !plain_dots)
        || is_sexagesimal(unsigned)
        || based("0x", char::is_ascii_hexdigit)
        || based("0o", char::is_ascii_digit)
        || based("0b", char::is_ascii_digit)
}

/// `12:30`, which YAML 1.1 reads as 750. Hardware addresses of digits only look the same.
fn is_sexagesimal(text: &str) -> bool {
    text.contains(':')
        && text.split(':').all(|part| (1..=2).contains(&part.len()) && is_digits(part))
}

/// `2001-12-14` and the like.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let year = parts.next().is_some_and(|year| year.len() == 4 && is_digits(year));
    let month =
        parts.next().is_some_and(|month| (1..=2).contains(&month.len()) && is_digits(month));
    year && month && parts.next().is_some_and(|day| day.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(text: &str) -> &'static str {
        match plain(text) {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
            Value::Ambiguous(_) => "ambiguous",
            Value::List(_) | Value::Table(_) => "nested",
        }
    }

    #[test]
    fn only_what_every_reader_agrees_on_has_a_type() {
        for (texts, expected) in [
            (&["", "~", "null"][..], "null"),
            (&["true", "false"], "bool"),
            (&["0", "7", "-5", "1500"], "int"),
            (&["1.10", "1e3", "-0.5", ".5", ".inf", "-.INF", ".nan"], "float"),
            (&["no", "NO", "Yes", "on", "off", "y", "True", "FALSE"], "ambiguous"),
            (&["0755", "1_000", "+1", "-0", "0x1f", "0o17", "0b1", "1_0.5"], "ambiguous"),
            (&["12:30", "1:2:3", "02:00:00:00:00:09", "2001-12-14", "2001-1-1T00:00"], "ambiguous"),
            (
                &["eth0", "192.0.2.1", "10.0.0.0/8", "fd00::1/64", "::/0", "30s", "50%", "256M"],
                "text",
            ),
            (&["02:00:00:00:00:0a", "802.1q", "1::2", "l3", "none", "2001:db8::1", "e5"], "text"),
        ] {
            for text in texts {
                assert_eq!(sort(text), expected, "{text}");
            }
        }
    }
}
