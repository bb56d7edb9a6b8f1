//! Sources that break a law, one each.

/// What a source does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Law 1: looking writes.
    LooksWrite,
    /// Law 1: a look that failed is told as an empty target.
    BlindIsEmpty,
    /// Law 1: what could not be read is told as absent.
    UnreadableIsAbsent,
    /// Law 2: objects are told otherwise than they were written.
    NotNormalized,
    /// Law 3: the same input gives another plan the next time.
    Fickle,
    /// Law 4: a write touches an object that its step does not name.
    Sprawls,
    /// Law 4: a step stays without an answer.
    Mute,
    /// Law 4: a foreign object on a wanted key is told as ours.
    Usurps,
    /// Law 5: a foreign object that nobody wishes is told as ours.
    Steals,
    /// Law 6: there is always something to write.
    Restless,
    /// Law 7: an object is told as changed because somebody hinted at it.
    Credulous,
    /// Law 8: what is made carries no mark, and no record is asked for.
    Unmarked,
    /// Law 9: one refused step takes all others down.
    GivesUp,
    /// Law 10: hints are promised, and none come.
    Deaf,
    /// Law 10: no hints are promised, and some come.
    Chatty,
}
