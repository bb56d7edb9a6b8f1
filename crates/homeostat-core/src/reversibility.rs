//! Whether a step can be undone.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

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
    /// It is not put off, but another step does it so that it can be undone.
    Instead(S),
}

/// How an object goes of which a step needs a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taking {
    /// Along with what the step is about: it is another owner's, or a part of that.
    #[default]
    Along,
    /// It is what the step is about, and ours: it is made again by the former desired state and by its record.
    Itself,
    /// What objects stand on, which stays or returns: it is put right before them.
    Below,
    /// What the order of objects was: it is put right after them.
    Around,
}

impl Taking {
    /// All of them.
    pub const ALL: [Taking; 4] = [Taking::Along, Taking::Itself, Taking::Below, Taking::Around];

    /// When a rollback puts it right: what has a lower number comes first.
    #[must_use]
    pub fn turn(self) -> u8 {
        match self {
            Taking::Itself | Taking::Below => 0,
            Taking::Along => 1,
            Taking::Around => 2,
        }
    }
}

/// How a rollback undoes steps of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// By a pass with the former desired state.
    FormerDesired,
    /// By that, and by what was recorded before the step.
    Record,
    /// The object is put aside, and returns as it is.
    Aside,
    /// The object is recorded, and made again.
    MadeAgain,
    /// By a restart or a repeat of what the step has ended.
    Repeat,
    /// The step waits until it is certain.
    PutOff,
    /// Not at all.
    Never,
}

impl Undo {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Undo::FormerDesired => "undone by the former desired state",
            Undo::Record => "undone from a recorded copy",
            Undo::Aside => "put aside, and returns as it was",
            Undo::MadeAgain => "recorded, and made again",
            Undo::Repeat => "undone by a restart or a repeat",
            Undo::PutOff => "waits for the confirmation",
            Undo::Never => "cannot be undone",
        }
    }
}

/// A kind of steps of a source, for people who want to know what can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepKind {
    /// What such a step does.
    pub step: &'static str,
    /// How it is undone in a trial.
    pub undo: Undo,
    /// What is lost by it where nothing is put aside or recorded.
    pub loses: Option<&'static str>,
}

impl StepKind {
    /// Steps that are undone in this way.
    #[must_use]
    pub const fn new(step: &'static str, undo: Undo) -> Self {
        StepKind { step, undo, loses: None }
    }

    /// Steps by which something is lost.
    #[must_use]
    pub const fn losing(step: &'static str, undo: Undo, what: &'static str) -> Self {
        StepKind { step, undo, loses: Some(what) }
    }
}
