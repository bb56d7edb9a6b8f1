//! What the target's words mean. It says nearly everything with status 500, so the words decide.

use crate::model::Run;

/// What an error answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It may work in a moment.
    Transient,
    /// Somebody holds the guest's lock: a backup, a migration.
    Locked,
    /// The configuration moved under the plan.
    Conflict,
    /// It says that the guest runs already, or does not run. That is success only for whoever asked for just
    /// that, and only if another look shows it: other things are "not running", too.
    AlreadyDone(Run),
    /// There is no such guest.
    NotFound,
    /// A task of this name is not known, or not yet.
    NoSuchTask,
    /// The token may not do that.
    Forbidden,
    /// Done or not, nobody knows.
    UnknownOutcome,
    /// The request itself is wrong.
    Malformed,
    /// Words that we do not know.
    Other,
}

/// Words of errors, and what each means. The first that fits decides.
const WORDS: &[(&str, Class)] = &[
    ("detected modified configuration", Class::Conflict),
    ("can't lock file", Class::Transient),
    ("got timeout", Class::Transient),
    ("is locked (", Class::Locked),
    ("already running", Class::AlreadyDone(Run::Running)),
    ("not running", Class::AlreadyDone(Run::Stopped)),
    ("no such task", Class::NoSuchTask),
    ("does not exist", Class::NotFound),
    ("permission check failed", Class::Forbidden),
    ("permission denied", Class::Forbidden),
    ("authentication failure", Class::Forbidden),
    ("no such token", Class::Forbidden),
    ("invalid token", Class::Forbidden),
    ("parameter verification failed", Class::Malformed),
    ("cluster not ready", Class::Transient),
    ("no quorum", Class::Transient),
    ("hostname lookup", Class::Transient),
    ("connection refused", Class::Transient),
    ("connection timed out", Class::Transient),
    ("too many redirections", Class::Transient),
];

/// Whether a request changes anything: only then an answer can be lost that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// It only reads.
    Read,
    /// It writes.
    Write,
}

/// Classifies an error answer.
#[must_use]
pub fn classify(status: u16, words: &str, asks: Asks) -> Class {
    // The node's own daemon did not answer the one that we asked, or a proxy before it: what it did is not known.
    if matches!(status, 502 | 504 | 595..=599) {
        return match asks {
            Asks::Read => Class::Transient,
            Asks::Write => Class::UnknownOutcome,
        };
    }
    let words = words.to_lowercase();
    let known = WORDS.iter().find(|(part, _)| words.contains(part)).map(|(_, class)| *class);
    known.unwrap_or(match status {
        401 | 403 => Class::Forbidden,
        400 | 404 | 405 | 501 => Class::Malformed,
        408 | 425 | 429 | 503 => Class::Transient,
        _ => Class::Other,
    })
}

/// How a task ended, by its exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Well, with or without warnings.
    Ok,
    /// It says that it found the guest running, or not running; see [`Class::AlreadyDone`].
    AlreadyDone(Run),
    /// Nobody wrote down how.
    Unknown,
    /// Badly.
    Failed(Class),
}

/// Classifies the exit status of a task.
#[must_use]
pub fn exit(status: &str) -> Exit {
    match status {
        "OK" => Exit::Ok,
        "unexpected status" | "" => Exit::Unknown,
        words if words.starts_with("WARNINGS: ") => Exit::Ok,
        words => match classify(500, words, Asks::Write) {
            Class::AlreadyDone(run) => Exit::AlreadyDone(run),
            class => Exit::Failed(class),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, words: &str, expected: Class) {
        assert_eq!(classify(status, words, Asks::Write), expected, "{status} {words}");
    }

    #[test]
    fn a_digest_that_does_not_fit_is_a_conflict() {
        let words = "detected modified configuration - file changed by other user? Try again.";
        check(500, words, Class::Conflict);
    }

    #[test]
    fn a_held_lock_is_locked() {
        check(500, "CT is locked (backup)", Class::Locked);
        check(500, "VM is locked (snapshot-delete)", Class::Locked);
    }

    #[test]
    fn a_lock_file_that_was_not_free_in_time_is_transient() {
        let words = "can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout";
        check(500, words, Class::Transient);
    }

    #[test]
    fn already_running_and_not_running_are_done_already_for_whoever_asked_for_it() {
        check(500, "CT 101 already running", Class::AlreadyDone(Run::Running));
        check(500, "VM 101 already running", Class::AlreadyDone(Run::Running));
        check(500, "CT 101 not running", Class::AlreadyDone(Run::Stopped));
    }

    #[test]
    fn a_missing_file_is_not_found() {
        check(500, "Configuration file 'nodes/pve1/lxc/101.conf' does not exist", Class::NotFound);
    }

    #[test]
    fn a_task_that_is_not_known_yet_is_told_apart() {
        check(400, "no such task", Class::NoSuchTask);
        check(500, "no such task", Class::NoSuchTask);
    }

    #[test]
    fn missing_privileges_and_bad_tokens_are_forbidden() {
        check(403, "Permission check failed (/vms/101, VM.PowerMgmt)", Class::Forbidden);
        check(401, "authentication failure", Class::Forbidden);
        check(401, "no such token 'x' for user 'y'", Class::Forbidden);
        check(401, "invalid token value!", Class::Forbidden);
        check(403, "", Class::Forbidden);
    }

    #[test]
    fn a_write_that_met_595_to_599_or_a_gateway_without_an_answer_has_an_unknown_outcome() {
        for status in (595..=599).chain([502, 504]) {
            check(status, "Connection timed out", Class::UnknownOutcome);
            assert_eq!(classify(status, "", Asks::Read), Class::Transient, "{status}");
        }
        check(594, "", Class::Other);
    }

    #[test]
    fn a_wrong_request_is_malformed() {
        check(400, "Parameter verification failed.", Class::Malformed);
        check(501, "Method 'GET /x' not implemented", Class::Malformed);
    }

    #[test]
    fn a_cluster_that_is_not_ready_is_transient() {
        check(500, "cluster not ready - no quorum?", Class::Transient);
        check(503, "", Class::Transient);
    }

    #[test]
    fn words_that_nobody_knows_stay_unknown() {
        check(500, "startup for container '101' failed", Class::Other);
    }

    #[test]
    fn a_task_that_ended_with_warnings_ended_well() {
        assert_eq!(exit("OK"), Exit::Ok);
        assert_eq!(exit("WARNINGS: 2"), Exit::Ok);
        assert_eq!(exit("unexpected status"), Exit::Unknown);
        assert_eq!(exit("CT 101 already running"), Exit::AlreadyDone(Run::Running));
        assert_eq!(exit("CT 101 not running"), Exit::AlreadyDone(Run::Stopped));
        assert_eq!(exit("CT is locked (backup)"), Exit::Failed(Class::Locked));
        assert_eq!(exit("startup for container '101' failed"), Exit::Failed(Class::Other));
    }
}
