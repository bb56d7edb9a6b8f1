//! Escapes parameters and parts of paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but letters, digits and `-._~`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `a=b&c=d`, escaped.
pub(crate) fn encode(parameters: &[(String, String)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Escapes a part of a path or of a parameter as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_path_or_a_parameter_is_escaped() {
        assert_eq!(escape("UPID:pve1:0A:vz@pam!x:"), "UPID%3Apve1%3A0A%3Avz%40pam%21x%3A");
        let form = [("a b".to_owned(), "ü&=\n+%".to_owned())];
        assert_eq!(encode(&form), "a%20b=%C3%BC%26%3D%0A%2B%25");
    }
}
