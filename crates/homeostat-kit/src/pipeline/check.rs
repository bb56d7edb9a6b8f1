//! Makes a desired state of text, or says why it is none.

use std::fmt;
use std::future::Future;

/// Why text is no desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is bad, and will be for as long as it is the same.
    Bad(String),
    /// It could not be checked: another try may end otherwise.
    Unchecked(String),
}

/// Makes a desired state of text.
pub trait Check: Send + Sync {
    /// What comes out.
    type DesiredState: Send + Sync + 'static;

    /// The desired state, or why the text is none.
    fn check(
        &self,
        text: String,
    ) -> impl Future<Output = Result<Self::DesiredState, Refused>> + Send;
}

/// A check by a function that parses.
#[derive(Clone, Copy, Debug)]
pub struct Typed<F>(pub F);

impl<W, E, F> Check for Typed<F>
where
    W: Send + Sync + 'static,
    E: fmt::Display,
    F: Fn(&str) -> Result<W, E> + Send + Sync,
{
    type DesiredState = W;

    async fn check(&self, text: String) -> Result<W, Refused> {
        (self.0)(&text).map_err(|error| Refused::Bad(error.to_string()))
    }
}
