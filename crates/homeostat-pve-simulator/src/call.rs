//! A request, as it came in and after authentication.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

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
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
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
pub(crate) fn form(text: &[u8]) -> BTreeMap<String, String> {
    form_urlencoded::parse(text).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        let form = form(b"description=a+b%0Ac&tags=x%3By&delete=");
        assert_eq!(form["description"], "a b\nc");
        assert_eq!(form["tags"], "x;y");
        assert_eq!(form["delete"], "");
    }
}
