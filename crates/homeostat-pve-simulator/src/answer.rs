//! Answers of the API.

use serde_json::{Value, json};

/// An answer. As with the real one, the text of an error is in the status line.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// The text of an error.
    pub reason: Option<String>,
    pub body: Value,
}

impl Answer {
    #[must_use]
    pub fn data(data: impl Into<Value>) -> Self {
        Answer { status: 200, reason: None, body: json!({ "data": data.into() }) }
    }

    pub fn error(status: u16, reason: impl Into<String>) -> Self {
        Answer { status, reason: Some(reason.into()), body: json!({ "data": null }) }
    }

    /// Most errors: the Perl code died with this text.
    pub fn died(reason: impl Into<String>) -> Self {
        Answer::error(500, reason)
    }

    /// A parameter is wrong.
    #[must_use]
    pub fn parameter(name: &str, why: &str) -> Self {
        Answer {
            status: 400,
            reason: Some("Parameter verification failed.".to_owned()),
            body: json!({ "data": null, "errors": { name: why } }),
        }
    }

    /// A privilege is missing.
    #[must_use]
    pub fn forbidden(vmid: u32, privilege: &str) -> Self {
        Answer::error(403, format!("Permission check failed (/vms/{vmid}, {privilege})"))
    }
}
