//! The log of the daemon on stderr, by `tracing`: one constant message, everything else in fields. A converged
//! daemon logs nothing.

use homeostat_engine::{Cause, Event, EventKind};
use tracing::{Level, debug, error, info, warn};
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
        // Whoever keeps stderr, such as journald, adds the time.
        LogForm::Text => ours.with(lines.without_time()).try_init(),
        LogForm::Json => ours.with(lines.json().flatten_event(true)).try_init(),
    };
}

/// Logs what went wrong outside of any loop. A diagnosis keeps its lines.
pub(super) fn log_error(error: &anyhow::Error, message: &str) {
    let text = failure::text(error);
    let text: Vec<String> = text.trim_start_matches("error: ").lines().map(plain).collect();
    error!(error = %text.join("\n"), help = failure::help(error), "{message}");
}

/// Logs an event, and returns its level; none, if it is not worth a line. A pass that found nothing is not.
pub(super) fn log_event(event: &Event) -> Option<Level> {
    let Event { pass, source, scope, kind } = event;
    let (pass, scope) = (pass.0, &**scope);
    Some(match kind {
        EventKind::Failed { failure } => {
            error!(pass, source, scope, error = failure.error, help = failure.help, "pass failed");
            Level::ERROR
        }
        EventKind::StepFailed { key, failure, .. } => {
            let (error, outcome) = (&failure.error, "failed");
            warn!(pass, source, scope, key, outcome, error, help = failure.help, "step failed");
            Level::WARN
        }
        EventKind::Conflict { key, owner } => {
            warn!(pass, source, scope, key, outcome = "conflict", owner, "conflict");
            Level::WARN
        }
        EventKind::Contention { key, culprit, pause } => {
            let outcome = "contention";
            warn!(pass, source, scope, key, outcome, culprit, ?pause, "contention");
            Level::WARN
        }
        EventKind::NotConverging { key } => {
            warn!(pass, source, scope, key, outcome = "not-converging", "not converging");
            Level::WARN
        }
        EventKind::Lost => {
            warn!(pass, source, scope, "hints were lost, looking at everything again");
            Level::WARN
        }
        EventKind::StepApplied { action, key, cause, by } => {
            let (action, outcome) = (action.word(), "applied");
            let cause = if *cause == Cause::Drift { "drift" } else { "config" };
            let by = by.as_deref();
            info!(pass, source, scope, key, action, cause, outcome, by, "step applied");
            Level::INFO
        }
        EventKind::Pending { key, on } => {
            info!(pass, source, scope, key, outcome = "pending", waits_on = %on, "pending");
            Level::INFO
        }
        EventKind::More { steps } => {
            info!(pass, source, scope, more = steps, "more steps");
            Level::INFO
        }
        EventKind::Paused { .. } => {
            info!(pass, source, scope, "paused");
            Level::INFO
        }
        EventKind::Resumed => {
            info!(pass, source, scope, "resumed");
            Level::INFO
        }
        EventKind::Stopped => {
            info!(pass, source, scope, "stopped");
            Level::INFO
        }
        EventKind::Woken { keys, by: Some(by), .. } => {
            debug!(pass, source, scope, keys = keys.join(", "), by = &**by, "woken");
            Level::DEBUG
        }
        EventKind::Completed { summary, converged, took } if summary.total() > 0 || !converged => {
            let steps = summary.total();
            debug!(pass, source, scope, steps, converged, ?took, "pass completed");
            Level::DEBUG
        }
        EventKind::Woken { by: None, .. }
        | EventKind::Started { .. }
        | EventKind::Rendered { .. }
        | EventKind::Validated
        | EventKind::Planned { .. }
        | EventKind::Completed { .. }
        | EventKind::Resubscribed => return None,
    })
}
