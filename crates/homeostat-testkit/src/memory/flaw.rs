//! Sources that break a law, one each.

/// What a source does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Law 1: observe writes.
    LooksWrite,
    /// Law 1: a failed observe is reported as an empty target.
    BlindIsEmpty,
    /// Law 1: an object that could not be read is reported as absent.
    UnreadableIsAbsent,
    /// Law 2: objects do not read back as they were written.
    NotNormalized,
    /// Law 3: the same input gives another plan the next time.
    Fickle,
    /// Law 4: a write touches an object that its step does not name.
    Sprawls,
    /// Law 4: a step gets no outcome.
    Mute,
    /// Law 4: a foreign object on a desired key is reported as ours.
    Usurps,
    /// Law 5: a foreign object on another key is reported as ours.
    Steals,
    /// Law 6: every plan has a step.
    Restless,
    /// Law 7: an object is reported as changed because of a hint.
    Credulous,
    /// Law 8: created objects have no mark, and are not recorded.
    Unmarked,
    /// Law 9: after a refused step all others fail.
    GivesUp,
    /// Law 10: hints are promised, and none arrive.
    Deaf,
    /// Law 10: no hints are promised, and some arrive.
    Chatty,
}
