//! The log of the daemon on stderr, by `tracing`: one constant message, everything else in fields. A converged
//! daemon logs nothing.

use homeostat_engine::health::State;
use homeostat_engine::{Cause, Event, EventKind};
use tracing::{Level, error};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::LogForm;
use crate::failure;
use crate::output::line::plain;
use crate::output::text::Detail;

/// Starts the log of this process, of our own crates only. Without this call nothing is logged.
pub(crate) fn init(form: LogForm, detail: Detail) {
    let level = match detail {
        Detail::Quiet => Level::WARN,
        Detail::Normal => Level::INFO,
        Detail::Verbose => Level::DEBUG,
    };
    let ours = tracing_subscriber::registry().with(Targets::new().with_target("homeostat", level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // It would panic where stderr is closed.
        .log_internal_errors(false);
    // An error means that a log was started before.
    let _ = match form {
        // What keeps stderr, such as journald, adds the time.
        LogForm::Text => ours.with(lines.without_time()).try_init(),
        LogForm::Json => ours.with(lines.json().flatten_event(true)).try_init(),
    };
}

/// Logs what went wrong outside of any loop. A diagnosis keeps its lines.
pub(crate) fn log_error(error: &anyhow::Error, message: &str) {
    let text = failure::text(error);
    let text: Vec<String> = text.trim_start_matches("error: ").lines().map(plain).collect();
    error!(error = %text.join("\n"), help = failure::help(error), "{message}");
}

/// Logs an event, and returns its level; none, if it is not worth a line. A pass that found nothing is not.
pub(super) fn log_event(event: &Event) -> Option<Level> {
    let Event { pass, source, scope, kind, .. } = event;
    let (pass, scope) = (pass.0, &**scope);
    // One line with the pass and its loop, at a level that is returned.
    macro_rules! log {
        ($level:ident, $($field:tt)+) => {{
            tracing::event!(Level::$level, pass, source, scope, $($field)+);
            Level::$level
        }};
    }
    Some(match kind {
        EventKind::Failed { failure } => {
            log!(ERROR, error = failure.error, help = failure.help, "pass failed")
        }
        EventKind::StepFailed { key, failure, .. } => {
            let (error, outcome) = (&failure.error, "failed");
            log!(WARN, key, outcome, error, help = failure.help, "step failed")
        }
        EventKind::Conflict { key, owner } => {
            log!(WARN, key, outcome = "conflict", owner, "conflict")
        }
        EventKind::Contention { key, culprit, pause } => {
            log!(WARN, key, outcome = "contention", culprit, ?pause, "contention")
        }
        EventKind::NotConverging { key } => {
            log!(WARN, key, outcome = "not-converging", "not converging")
        }
        EventKind::Lost => log!(WARN, "hints were lost, looking at everything again"),
        EventKind::StepApplied { action, key, cause, by } => {
            let (action, outcome) = (action.word(), "applied");
            let cause = match cause {
                Cause::Config => "config",
                Cause::Drift => "drift",
                Cause::Check => "check",
            };
            log!(INFO, key, action, cause, outcome, by = by.as_deref(), "step applied")
        }
        EventKind::Pending { key, on } => {
            log!(INFO, key, outcome = "pending", waits_on = %on, "pending")
        }
        EventKind::Health { check, state: State::Failing, reason, held } => {
            log!(WARN, check, reason, ?held, "check fails, what depends on it is withdrawn")
        }
        EventKind::Health { check, .. } => log!(INFO, check, "check is good"),
        EventKind::RolledBack { failure } => {
            log!(WARN, error = failure.error, help = failure.help, "rolled back")
        }
        EventKind::Rendered { bytes, .. } => log!(DEBUG, bytes, "rendered"),
        EventKind::Validated => log!(DEBUG, "validated"),
        EventKind::Deployed { objects } => log!(INFO, objects, "deployed"),
        EventKind::Reloaded => log!(INFO, "reloaded"),
        EventKind::More { steps } => log!(INFO, more = steps, "more steps"),
        EventKind::Paused { .. } => log!(INFO, "paused"),
        EventKind::Resumed => log!(INFO, "resumed"),
        EventKind::Stopped => log!(INFO, "stopped"),
        EventKind::Woken { keys, more, by: Some(by), .. } => {
            log!(DEBUG, keys = keys.join(", "), more, by = &**by, "woken")
        }
        EventKind::Completed { summary, converged, took } if summary.total() > 0 || !converged => {
            log!(DEBUG, steps = summary.total(), converged, ?took, "pass completed")
        }
        EventKind::Woken { by: None, .. }
        | EventKind::Started { .. }
        | EventKind::Planned { .. }
        | EventKind::Completed { .. }
        | EventKind::Resubscribed => return None,
        other => log!(INFO, event = ?other, "event"),
    })
}
