//! Events as lines on stderr, as text or as JSON. A converged daemon is silent.

use std::io::Write as _;

use homeostat_engine::{Event, EventKind};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::clock::Stamp;
use super::json;
use crate::cli::{Color, LogForm};
use crate::failure;
use crate::output::line::plain;
use crate::output::text::Detail;

/// How the log is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) form: LogForm,
    pub(crate) detail: Detail,
    pub(crate) color: Color,
}

impl Log {
    /// Writes a line for each event that people want to know of.
    pub(super) async fn follow(self, mut events: Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Some(line) = self.line(&event) {
                        say(&line);
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn line(self, event: &Event) -> Option<String> {
        match self.form {
            LogForm::Text => line(event, self.detail),
            LogForm::Json => {
                let level = level(event).filter(|level| is_shown(level, self.detail))?;
                let mut line = json!({ "time": Stamp::now().to_string(), "level": level });
                line.as_object_mut()?.extend(json::event(event));
                Some(line.to_string())
            }
        }
    }

    /// Tells of what went wrong outside of any loop.
    pub(super) fn failed(self, error: &anyhow::Error) {
        match self.form {
            LogForm::Text => _ = failure::report(error, self.color),
            LogForm::Json => {
                let (text, help) = (failure::text(error), failure::help(error));
                let time = Stamp::now().to_string();
                let line = json!({ "time": time, "level": "error", "error": text, "help": help });
                say(&line.to_string());
            }
        }
    }

    /// Tells of what the daemon does, outside of any loop.
    pub(super) fn told(self, text: &str) {
        match self.form {
            _ if self.detail == Detail::Quiet => {}
            LogForm::Text => say(&format!("info {}", plain(text))),
            LogForm::Json => {
                let time = Stamp::now().to_string();
                say(&json!({ "time": time, "level": "info", "message": text }).to_string());
            }
        }
    }
}

fn say(line: &str) {
    // There is nobody left to tell if stderr is closed.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// How much an event matters; nothing, if it is not worth a line.
pub(super) fn level(event: &Event) -> Option<&'static str> {
    words(&event.kind).map(|(level, _)| level)
}

fn is_shown(level: &str, detail: Detail) -> bool {
    match detail {
        Detail::Quiet => level == "error" || level == "warn",
        Detail::Normal => level != "debug",
        Detail::Verbose => true,
    }
}

/// One line for an event; nothing, if it is not worth one.
pub(crate) fn line(event: &Event, detail: Detail) -> Option<String> {
    let (level, text) = words(&event.kind)?;
    let Event { pass, source, scope, .. } = event;
    is_shown(level, detail)
        .then(|| format!("{level} pass={} source={source} scope={scope} {text}", pass.0))
}

fn words(kind: &EventKind) -> Option<(&'static str, String)> {
    Some(match kind {
        EventKind::Woken { keys, by: Some(by), .. } => {
            ("debug", format!("keys=\"{}\" by=\"{}\"", plain(&keys.join(", ")), plain(by)))
        }
        EventKind::StepApplied { action, key, cause } => {
            let cause = if *cause == homeostat_engine::Cause::Drift { "drift" } else { "config" };
            let text = format!(
                "key=\"{}\" action={} cause={cause} outcome=applied",
                plain(key),
                action.word()
            );
            ("info", text)
        }
        EventKind::StepFailed { key, failure, .. } => {
            let text = format!(
                "key=\"{}\" outcome=failed error=\"{}\"",
                plain(key),
                plain(&failure.error)
            );
            ("warn", text)
        }
        EventKind::More { steps } => ("info", format!("more={steps}")),
        EventKind::Conflict { key, owner } => {
            ("warn", format!("key=\"{}\" outcome=conflict owner=\"{}\"", plain(key), plain(owner)))
        }
        EventKind::Contention { key, culprit, pause } => {
            let text = format!(
                "key=\"{}\" outcome=contention culprit=\"{}\" pause={pause:?}",
                plain(key),
                plain(culprit)
            );
            ("warn", text)
        }
        EventKind::NotConverging { key } => {
            ("warn", format!("key=\"{}\" outcome=not-converging", plain(key)))
        }
        EventKind::Lost => ("warn", "hints were lost, looking at everything again".to_owned()),
        EventKind::Failed { failure } => ("error", format!("error=\"{}\"", plain(&failure.error))),
        EventKind::Completed { summary, converged, took } if summary.total() > 0 || !converged => {
            ("debug", format!("steps={} converged={converged} took={took:?}", summary.total()))
        }
        EventKind::Paused { .. } => ("info", "paused".to_owned()),
        EventKind::Resumed => ("info", "resumed".to_owned()),
        EventKind::Stopped => ("info", "stopped".to_owned()),
        _ => return None,
    })
}
