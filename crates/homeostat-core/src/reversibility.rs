//! Whether a step can be undone.

use std::borrow::Cow;

/// Whether a step can be undone. It speaks of what the step itself destroys, not of what others make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reversibility {
    /// By a pass with the former desired state, and with what was recorded before the step.
    Reversible,
    /// By a restart or a repeat of something else. Why, for people.
    Compensable(Cow<'static, str>),
    /// Never: what it destroys cannot be made again. Why, for people.
    Irreversible(Cow<'static, str>),
}

/// How a step is put off until it is certain that it will not be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parking<S> {
    /// Another step puts the object aside, so that it has no effect and can return as it is.
    By(S),
    /// There is nothing to do: it is aside, or it is left as it is.
    Nothing,
}
