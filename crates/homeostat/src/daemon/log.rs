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

/// The level of an event; none, if it is not worth a line. A pass that found nothing is not.
pub(super) fn level(event: &Event) -> Option<Level> {
    Some(match &event.kind {
        EventKind::Failed { .. } => Level::ERROR,
        EventKind::StepFailed { .. }
        | EventKind::Conflict { .. }
        | EventKind::Contention { .. }
        | EventKind::NotConverging { .. }
        | EventKind::Lost => Level::WARN,
        EventKind::StepApplied { .. }
        | EventKind::Pending { .. }
        | EventKind::More { .. }
        | EventKind::Paused { .. }
        | EventKind::Resumed
        | EventKind::Stopped => Level::INFO,
        EventKind::Woken { by: Some(_), .. } => Level::DEBUG,
        EventKind::Completed { summary, converged, .. } if summary.total() > 0 || !converged => {
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

pub(super) fn log_event(event: &Event) {
    if level(event).is_none() {
        return;
    }
    let Event { pass, source, scope, kind } = event;
    let (pass, scope) = (pass.0, &**scope);
    match kind {
        EventKind::Woken { keys, by, .. } => {
            debug!(pass, source, scope, keys = keys.join(", "), by = by.as_deref(), "woken");
        }
        EventKind::StepApplied { action, key, cause, by } => {
            let (action, outcome) = (action.word(), "applied");
            let cause = if *cause == Cause::Drift { "drift" } else { "config" };
            let by = by.as_deref();
            info!(pass, source, scope, key, action, cause, outcome, by, "step applied");
        }
        EventKind::StepFailed { key, failure, .. } => {
            let (error, outcome) = (&failure.error, "failed");
            warn!(pass, source, scope, key, outcome, error, help = failure.help, "step failed");
        }
        EventKind::More { steps } => info!(pass, source, scope, more = steps, "more steps"),
        EventKind::Conflict { key, owner } => {
            warn!(pass, source, scope, key, outcome = "conflict", owner, "conflict");
        }
        EventKind::Pending { key, on } => {
            info!(pass, source, scope, key, outcome = "pending", waits_on = %on, "pending");
        }
        EventKind::Contention { key, culprit, pause } => {
            let outcome = "contention";
            warn!(pass, source, scope, key, outcome, culprit, ?pause, "contention");
        }
        EventKind::NotConverging { key } => {
            warn!(pass, source, scope, key, outcome = "not-converging", "not converging");
        }
        EventKind::Lost => {
            warn!(pass, source, scope, "hints were lost, looking at everything again");
        }
        EventKind::Failed { failure } => {
            error!(pass, source, scope, error = failure.error, help = failure.help, "pass failed");
        }
        EventKind::Completed { summary, converged, took } => {
            debug!(
                pass,
                source,
                scope,
                steps = summary.total(),
                converged,
                ?took,
                "pass completed"
            );
        }
        EventKind::Paused { .. } => info!(pass, source, scope, "paused"),
        EventKind::Resumed => info!(pass, source, scope, "resumed"),
        EventKind::Stopped => info!(pass, source, scope, "stopped"),
        EventKind::Started { .. }
        | EventKind::Rendered { .. }
        | EventKind::Validated
        | EventKind::Planned { .. }
        | EventKind::Resubscribed => {}
    }
}
