//! Events as lines on stderr. A converged daemon is silent.

use std::io::Write as _;

use homeostat_engine::{Event, What};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::output::line::plain;
use crate::output::text::Detail;

/// Writes a line for each event that people want to know of.
pub(super) async fn follow(mut events: Receiver<Event>, detail: Detail) {
    loop {
        match events.recv().await {
            Ok(event) => {
                if let Some(line) = line(&event, detail) {
                    // There is nobody left to tell if stderr is closed.
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                }
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// One line for an event; nothing, if it is not worth one.
pub(crate) fn line(event: &Event, detail: Detail) -> Option<String> {
    let (level, text) = words(&event.what)?;
    let shown = match detail {
        Detail::Quiet => level == "error" || level == "warn",
        Detail::Normal => level != "debug",
        Detail::Verbose => true,
    };
    let Event { pass, source, scope, .. } = event;
    shown.then(|| format!("{level} pass={} source={source} scope={scope} {text}", pass.0))
}

fn words(what: &What) -> Option<(&'static str, String)> {
    Some(match what {
        What::StepApplied { action, key, cause } => {
            let cause = if *cause == homeostat_engine::Cause::Drift { "drift" } else { "config" };
            let text = format!(
                "key=\"{}\" action={} cause={cause} outcome=applied",
                plain(key),
                action.word()
            );
            ("info", text)
        }
        What::StepFailed { key, failure, .. } => {
            let text = format!(
                "key=\"{}\" outcome=failed error=\"{}\"",
                plain(key),
                plain(&failure.error)
            );
            ("warn", text)
        }
        What::More { steps } => ("info", format!("more={steps}")),
        What::Conflict { key, owner } => {
            ("warn", format!("key=\"{}\" outcome=conflict owner=\"{}\"", plain(key), plain(owner)))
        }
        What::Contention { key, culprit, pause } => {
            let text = format!(
                "key=\"{}\" outcome=contention culprit=\"{}\" pause={pause:?}",
                plain(key),
                plain(culprit)
            );
            ("warn", text)
        }
        What::NotConverging { key } => {
            ("warn", format!("key=\"{}\" outcome=not-converging", plain(key)))
        }
        What::Lost => ("warn", "hints were lost, looking at everything again".to_owned()),
        What::Failed { failure } => ("error", format!("error=\"{}\"", plain(&failure.error))),
        What::Completed { summary, converged, took } if summary.total() > 0 || !converged => {
            ("debug", format!("steps={} converged={converged} took={took:?}", summary.total()))
        }
        What::Paused { .. } => ("info", "paused".to_owned()),
        What::Resumed => ("info", "resumed".to_owned()),
        What::Stopped => ("info", "stopped".to_owned()),
        _ => return None,
    })
}
