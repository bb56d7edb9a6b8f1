//! Classifies errors by their text, since Proxmox VE uses status 500 for nearly everything.

use crate::model::Run;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Likely to succeed soon.
    Transient,
    /// The guest is locked, for a backup or a migration.
    Locked,
    /// The configuration has changed since it was read.
    Conflict,
    /// The text says that the guest is running, or not running. It means success only if that state was asked for
    /// and a read confirms it, since other things can be "not running" too.
    AlreadyDone(Run),
    NotFound,
    /// The task is unknown, or not known yet.
    NoSuchTask,
    /// The token lacks a privilege, or is invalid.
    Forbidden,
    /// It may have been done or not.
    UnknownOutcome,
    /// The request itself is wrong.
    Malformed,
    /// An unknown text.
    Other,
}

/// Parts of error texts. The first that is contained decides.
const TEXTS: &[(&str, Class)] = &[
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

/// Whether a request writes: only then a lost answer leaves an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

#[must_use]
pub fn classify(status: u16, text: &str, access: Access) -> Class {
    // A proxy, or the node that we asked, got no answer from the node that does the work.
    if matches!(status, 502 | 504 | 595..=599) {
        return match access {
            Access::Read => Class::Transient,
            Access::Write => Class::UnknownOutcome,
        };
    }
    let text = text.to_lowercase();
    let known = TEXTS.iter().find(|(part, _)| text.contains(part)).map(|(_, class)| *class);
    known.unwrap_or(match status {
        401 | 403 => Class::Forbidden,
        400 | 404 | 405 | 501 => Class::Malformed,
        408 | 425 | 429 | 503 => Class::Transient,
        _ => Class::Other,
    })
}

/// Why a task failed, by its exit status; none, if it succeeded, with or without warnings. The outcome is unknown if the
/// target has not recorded the status.
#[must_use]
pub fn exit(status: &str) -> Option<Class> {
    match status {
        "OK" => None,
        text if text.starts_with("WARNINGS: ") => None,
        "unexpected status" | "" => Some(Class::UnknownOutcome),
        text => Some(classify(500, text, Access::Write)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, text: &str, expected: Class) {
        assert_eq!(classify(status, text, Access::Write), expected, "{status} {text}");
    }

    #[test]
    fn a_digest_that_does_not_fit_is_a_conflict() {
        let text = "detected modified configuration - file changed by other user? Try again.";
        check(500, text, Class::Conflict);
    }

    #[test]
    fn a_held_lock_is_locked() {
        check(500, "CT is locked (backup)", Class::Locked);
        check(500, "VM is locked (snapshot-delete)", Class::Locked);
    }

    #[test]
    fn a_lock_file_that_was_not_free_in_time_is_transient() {
        let text = "can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout";
        check(500, text, Class::Transient);
    }

    #[test]
    fn already_running_and_not_running_are_done_already() {
        check(500, "CT 101 already running", Class::AlreadyDone(Run::Running));
        check(500, "VM 101 already running", Class::AlreadyDone(Run::Running));
        check(500, "CT 101 not running", Class::AlreadyDone(Run::Stopped));
    }

    #[test]
    fn a_missing_file_is_not_found() {
        check(500, "Configuration file 'nodes/pve1/lxc/101.conf' does not exist", Class::NotFound);
    }

    #[test]
    fn an_unknown_task_has_a_class_of_its_own() {
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
            assert_eq!(classify(status, "", Access::Read), Class::Transient, "{status}");
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
    fn an_unknown_text_is_classified_as_other() {
        check(500, "startup for container '101' failed", Class::Other);
    }

    #[test]
    fn a_task_that_ended_with_warnings_ended_well() {
        assert_eq!(exit("OK"), None);
        assert_eq!(exit("WARNINGS: 2"), None);
        assert_eq!(exit("unexpected status"), Some(Class::UnknownOutcome));
        assert_eq!(exit("CT 101 already running"), Some(Class::AlreadyDone(Run::Running)));
        assert_eq!(exit("CT 101 not running"), Some(Class::AlreadyDone(Run::Stopped)));
        assert_eq!(exit("CT is locked (backup)"), Some(Class::Locked));
        assert_eq!(exit("startup for container '101' failed"), Some(Class::Other));
    }
}
