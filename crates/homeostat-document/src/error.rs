//! Why a single value is refused.

use crate::node::shorten;

/// A value that is not what it should be, with the way out where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ValueError {
    /// What is wrong; quotes the value.
    pub message: String,
    /// The way out.
    pub help: Option<String>,
}

impl ValueError {
    /// A message without help.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    /// "`text` is not WHAT".
    #[must_use]
    pub fn is_not(text: &str, what: &str) -> Self {
        Self::new(format!("`{}` is not {what}", shorten(text)))
    }

    /// The same with the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
