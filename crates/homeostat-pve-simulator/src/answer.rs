//! What is answered: a status, a reason in words, and data.

use serde_json::{Value, json};

/// An answer. As with the real one, the words of an error are in the status line.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The words of an error.
    pub reason: Option<String>,
    /// What stands in the body.
    pub body: Value,
}

impl Answer {
    /// Data.
    #[must_use]
    pub fn data(data: impl Into<Value>) -> Self {
        Answer { status: 200, reason: None, body: json!({ "data": data.into() }) }
    }

    /// An error in words.
    pub fn error(status: u16, reason: impl Into<String>) -> Self {
        Answer { status, reason: Some(reason.into()), body: json!({ "data": null }) }
    }

    /// What most errors are: a script died with these words.
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
