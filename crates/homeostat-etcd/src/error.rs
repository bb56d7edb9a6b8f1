//! What an error of a call means for its caller.

use homeostat_store::{Error, LeaseId};

use crate::connection::CallError;

/// What a call does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing, or nothing that a second call would add to.
    Repeatable,
    /// Something that must not be done twice.
    Once,
}

/// What to do after an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another member may do better; if none does, this is the error.
    AskAnother(Error),
    /// This is the error, and not one of the member: the connection stays.
    Wait(Error),
    /// The same member does better in a moment; if it does not, this is the error.
    AskAgain(Error),
    /// This is the error.
    Fail(Error),
}

/// The numbers of gRPC.
mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// etcd tells errors of one number apart by text only; these have been the same since 3.0.
const NO_LEADER: &str = "etcdserver: no leader";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const TOO_MANY: &str = "etcdserver: too many requests";
const OLD_AUTH: &str = "etcdserver: revision of auth store is old";

/// `lease` is what a missing lease would be.
pub(crate) fn next(error: CallError, effect: Effect, lease: LeaseId) -> Next {
    let (code, message) = match error {
        CallError::NotSent { why } => return Next::AskAnother(Error::Unreachable { why }),
        CallError::NoAnswer { why } => return lost(why, effect),
        CallError::Status { code, message } => (code, message),
    };
    let why = message;
    match code {
        // Mostly no other member knows one either.
        _ if why == NO_LEADER => Next::Wait(Error::NoLeader),
        // It was refused before anything was done.
        _ if why == OLD_AUTH => Next::AskAgain(Error::Busy { why }),
        code::RESOURCE_EXHAUSTED if why == NO_SPACE => Next::Fail(Error::NoSpace),
        code::RESOURCE_EXHAUSTED if why == TOO_MANY => Next::Fail(Error::Busy { why }),
        code::NOT_FOUND => Next::Fail(Error::LeaseGone { lease }),
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => Next::Fail(Error::Denied { why }),
        // The exhausted resource is the size of a request.
        code::INVALID_ARGUMENT
        | code::RESOURCE_EXHAUSTED
        | code::FAILED_PRECONDITION
        | code::OUT_OF_RANGE => Next::Fail(Error::Refused { why }),
        // Such as a leader that was lost after the request had been proposed to it.
        _ => lost(why, effect),
    }
}

fn lost(why: String, effect: Effect) -> Next {
    match effect {
        Effect::Repeatable => Next::AskAnother(Error::Unreachable { why }),
        Effect::Once => Next::Fail(Error::InDoubt { why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &CallError, repeatable: &Next, once: &Next) {
        let lease = LeaseId(7);
        assert_eq!(&next(error.clone(), Effect::Repeatable, lease), repeatable, "{error:?}");
        assert_eq!(&next(error.clone(), Effect::Once, lease), once, "{error:?}");
    }

    #[test]
    fn only_a_write_that_may_have_been_made_is_in_doubt() {
        let status = |code, message: &str| CallError::Status { code, message: message.to_owned() };
        let why = || "x".to_owned();
        let both = |error: CallError, next: Next| check(&error, &next, &next);
        both(
            CallError::NotSent { why: why() },
            Next::AskAnother(Error::Unreachable { why: why() }),
        );
        for lost in
            [CallError::NoAnswer { why: why() }, status(14, "x"), status(4, "x"), status(2, "x")]
        {
            let another = Next::AskAnother(Error::Unreachable { why: why() });
            check(&lost, &another, &Next::Fail(Error::InDoubt { why: why() }));
        }
        both(status(14, NO_LEADER), Next::Wait(Error::NoLeader));
        both(status(8, NO_SPACE), Next::Fail(Error::NoSpace));
        both(status(8, TOO_MANY), Next::Fail(Error::Busy { why: TOO_MANY.to_owned() }));
        both(status(8, "x"), Next::Fail(Error::Refused { why: why() }));
        both(status(5, "x"), Next::Fail(Error::LeaseGone { lease: LeaseId(7) }));
        both(status(7, "x"), Next::Fail(Error::Denied { why: why() }));
        both(status(16, "x"), Next::Fail(Error::Denied { why: why() }));
        both(status(3, OLD_AUTH), Next::AskAgain(Error::Busy { why: OLD_AUTH.to_owned() }));
        both(status(3, "x"), Next::Fail(Error::Refused { why: why() }));
    }
}
