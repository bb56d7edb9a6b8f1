//! `homeostat events`: what happened lately, and what happens.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::cli::{EventsArgs, Global};
use crate::client::{Client, socket_path};
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::Request;

/// Fields that stand at the beginning of a line, or say nothing to people.
const LEADING: [&str; 7] = ["format_version", "time", "level", "source", "scope", "event", "pass"];

/// Prints the events, oldest first.
pub(super) fn run(args: &EventsArgs, global: &Global) -> Result<ExitCode> {
    let mut client = Client::connect(&socket_path(global))?;
    client.send(Request::Events { follow: args.follow })?;
    let mut stdout = std::io::stdout().lock();
    while let Some(event) = client.next()? {
        let line = if args.json { event.to_string() } else { line(&event) };
        if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            stream::ignore_closed_pipe(Err(error))?;
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One line for people: when, where, what, and everything that is said of it.
fn line(event: &Value) -> String {
    let word = |name: &str| event.get(name).map(show).unwrap_or_default();
    let is_shown =
        |(name, value): &(&String, &Value)| !LEADING.contains(&name.as_str()) && !value.is_null();
    let fields = event.as_object().into_iter().flatten().filter(is_shown);
    let fields: Vec<String> =
        fields.map(|(name, value)| format!(" {name}={}", quoted(value))).collect();
    let (time, name, fields) = (word("time"), word("event"), fields.concat());
    if event.get("source").is_none() {
        return format!("{time} {name}{fields}");
    }
    let (source, scope, pass) = (word("source"), word("scope"), word("pass"));
    format!("{time} {source} in {scope}: {name}{fields} pass={pass}")
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains(' ') => format!("\"{}\"", plain(text)),
        other => show(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = json!({
            "format_version": "1.0", "time": "t", "pass": 3, "source": "rtnl", "scope": "host",
            "event": "step-failed", "key": "route 10.0.0.0/8", "error": "no\nway", "help": null,
        });
        let expected =
            "t rtnl in host: step-failed key=\"route 10.0.0.0/8\" error=no\\u{a}way pass=3";
        assert_eq!(line(&event), expected);
    }
}
