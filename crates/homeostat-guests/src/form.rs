//! Escapes parameters and parts of paths.

use std::fmt::Write as _;

/// `a=b&c=d`, escaped.
pub(crate) fn encode(parameters: &[(String, String)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Escapes everything but letters, digits and `-._~` as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
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
