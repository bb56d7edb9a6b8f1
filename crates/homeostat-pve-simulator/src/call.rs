//! A request, as it came in and after authentication.

use std::collections::BTreeMap;

/// A request as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    /// The path below `/api2/json`.
    pub path: String,
    /// Parameters of the query and the body.
    pub parameters: BTreeMap<String, String>,
    pub authorization: Option<String>,
}

impl Call {
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The parts of the path, decoded.
    pub(crate) fn parts(&self) -> Vec<String> {
        self.path.split('/').filter(|part| !part.is_empty()).map(decode).collect()
    }
}

/// A request of an authenticated user.
#[derive(Clone, Copy)]
pub(crate) struct Authenticated<'a> {
    pub(crate) call: &'a Call,
    /// With the token: `user@realm!token`.
    pub(crate) user: &'a str,
}

/// Parses `a=b&c=d`.
pub(crate) fn form(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Decodes `%XX`.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = tail.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        let form = form("description=a+b%0Ac&tags=x%3By&delete=");
        assert_eq!(form["description"], "a b\nc");
        assert_eq!(form["tags"], "x;y");
        assert_eq!(form["delete"], "");
    }
}
