//! Answers of the API.

use serde_json::{Value, json};

/// An answer. As with the real one, the text of an error is in the status line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The text of an error.
    pub(crate) reason: Option<String>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn data(data: Value) -> Self {
        Answer { status: 200, reason: None, body: Value::from_iter([("data", data)]) }
    }

    pub(crate) fn error(status: u16, reason: impl Into<String>) -> Self {
        Answer { status, reason: Some(reason.into()), body: json!({ "data": null }) }
    }

    /// Most errors: the Perl code died with this text.
    pub(crate) fn died(reason: impl Into<String>) -> Self {
        Answer::error(500, reason)
    }

    /// A parameter is wrong.
    pub(crate) fn parameter(name: &str, why: &str) -> Self {
        let body = json!({ "data": null, "errors": { name: why } });
        Answer { body, ..Answer::error(400, "Parameter verification failed.") }
    }

    /// A privilege is missing.
    pub(crate) fn forbidden(vmid: u32, privilege: &str) -> Self {
        Answer::error(403, format!("Permission check failed (/vms/{vmid}, {privilege})"))
    }
}
