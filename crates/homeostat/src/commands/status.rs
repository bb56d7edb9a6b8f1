//! `homeostat status`: how the daemon's loops stand, or one key.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use homeostat_engine::{Kind, OpenCounts};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::{Global, StatusArgs};
use crate::client::{Client, place, read};
use crate::commands::plan::NOT_CONVERGED;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::{About, KeyStatus, LoopStatus, OpenItem, Overview, ProviderStatus, Request};

/// How long a daemon that is just starting may take to listen.
const STARTING: Duration = Duration::from_secs(10);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// The longest that is asked for in one request.
const ROUND: Duration = Duration::from_secs(30);

/// Prints how things stand.
pub(super) fn run(args: &StatusArgs, global: &Global) -> Result<ExitCode> {
    let answer = match &args.key {
        Some(key) => {
            let about = About { key: key.clone(), scope: args.scope.clone() };
            Client::connect(&place(global))?.ask(Request::Key(about))?
        }
        None if args.wait => wait(args.timeout.get(), global)?,
        None => Client::connect(&place(global))?.ask(Request::Status { wait_ms: None })?,
    };
    let converged = is_converged(&answer);
    let mut stdout = stream::stdout(global.color);
    let printed = match (args.json, &args.key) {
        (true, _) => writeln!(stdout, "{answer}"),
        (false, Some(_)) => draw_keys(&keys(answer)?, &mut stdout),
        (false, None) => draw(&read::<Overview>(answer)?, &mut stdout),
    };
    stream::ignore_closed_pipe(printed.and_then(|()| stdout.flush()))?;
    Ok(if converged { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn is_converged(answer: &Value) -> bool {
    answer.get("converged").and_then(Value::as_bool) == Some(true)
}

fn keys(mut answer: Value) -> Result<Vec<KeyStatus>> {
    read(answer.get_mut("keys").map(Value::take).unwrap_or_default())
}

/// Asks until everything is as declared, or the time is over.
fn wait(timeout: Duration, global: &Global) -> Result<Value> {
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let client = appear(began, timeout.min(STARTING), global)?;
        let wait_ms = u64::try_from(left.min(ROUND).as_millis()).unwrap_or(u64::MAX);
        let answer = client.ask(Request::Status { wait_ms: Some(wait_ms) })?;
        if is_converged(&answer) || began.elapsed() >= timeout {
            return Ok(answer);
        }
    }
}

/// The daemon, which may be about to listen.
fn appear(began: Instant, patience: Duration, global: &Global) -> Result<Client> {
    let path = place(global);
    loop {
        match Client::connect(&path) {
            Err(_) if began.elapsed() < patience => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

fn draw(overview: &Overview, to: &mut dyn Write) -> io::Result<()> {
    for one in &overview.loops {
        draw_loop(one, to)?;
    }
    draw_open(overview, to)?;
    if let Some(provider) = &overview.provider {
        draw_provider(provider, to)?;
    }
    if overview.handed {
        writeln!(
            to,
            "A document is in force that `apply` handed over; `reload` brings the daemon's own back."
        )?;
    }
    match (overview.ready, overview.converged) {
        (_, true) => writeln!(to, "Converged."),
        (false, _) => writeln!(to, "Not converged: starting."),
        _ => writeln!(to, "Not converged."),
    }
}

/// The first open keys, and how many others there are.
fn draw_open(overview: &Overview, to: &mut dyn Write) -> io::Result<()> {
    for OpenItem { source, scope, key, kind, reason, owner, since, help } in &overview.open_keys {
        let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        writeln!(to, "{} ({source} in {}): {kind}{}", plain(key), plain(scope), plain(&since))?;
        for (name, text) in [("reason", reason), ("owner", owner), ("help", help)] {
            if let Some(text) = text {
                writeln!(to, "  {name}: {}", plain(text))?;
            }
        }
    }
    let counts =
        overview.loops.iter().flat_map(|one| Kind::open().map(|kind| one.open.count(kind)));
    match counts.sum::<usize>().saturating_sub(overview.open_keys.len()) {
        0 => Ok(()),
        others => writeln!(to, "{others} other keys are not as declared."),
    }
}

/// Says only what is wrong.
fn draw_provider(provider: &ProviderStatus, to: &mut dyn Write) -> io::Result<()> {
    let Some(trouble) = &provider.last_error else { return Ok(()) };
    let (from, good) = (plain(&provider.from), time(provider.last_good_ago_ms));
    writeln!(to, "document: cannot be taken from {from}, last good {good} ago")?;
    for line in trouble.error.lines() {
        writeln!(to, "  {}", plain(line))?;
    }
    match &trouble.help {
        Some(help) => writeln!(to, "  help: {}", plain(help)),
        None => Ok(()),
    }
}

fn draw_loop(one: &LoopStatus, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{} in {}: {}", plain(&one.source), plain(&one.scope), state(one))?;
    if let Some(on) = &one.waits_on {
        return writeln!(to, "  waits on {}", plain(on));
    }
    let next = match (one.next_due_in_ms, &one.next_why) {
        (Some(due), Some(why)) => format!(", next {} in {}", plain(why), time(due)),
        _ => String::new(),
    };
    let last =
        one.last_success_ago_ms.map_or("none".to_owned(), |ago| format!("{} ago", time(ago)));
    writeln!(to, "  last good pass {last}{next}")?;
    if let Some(trouble) = &one.last_error {
        writeln!(to, "  failed {} times in a row: {}", one.failures, plain(&trouble.error))?;
        if let Some(help) = &trouble.help {
            writeln!(to, "    help: {}", plain(help))?;
        }
    }
    if let Some(stall) = &one.stall {
        writeln!(to, "  stalled: {}", plain(stall))?;
    }
    for contended in &one.contended {
        let (key, culprit) = (plain(&contended.key), plain(&contended.culprit));
        writeln!(
            to,
            "  contention: {culprit} keeps undoing {key}; left alone for {}",
            time(contended.pause_ms)
        )?;
    }
    for key in &one.not_converging {
        writeln!(
            to,
            "  not converging: {} is written again and again, and never shows",
            plain(key)
        )?;
    }
    Ok(())
}

fn state(one: &LoopStatus) -> String {
    let mut words = vec![match (one.ready, one.converged) {
        (_, true) => "converged".to_owned(),
        (false, _) => "starting".to_owned(),
        _ => "not converged".to_owned(),
    }];
    for kind in Kind::open().filter(|kind| one.open.count(*kind) > 0) {
        let word = match kind {
            Kind::Conflict => "in conflict",
            Kind::Held => "held back",
            other => OpenCounts::name(other),
        };
        words.push(format!("{} {word}", one.open.count(kind)));
    }
    if one.paused {
        words.push("paused".to_owned());
    }
    if one.mode != "heal" {
        words.push(format!("only {}s", one.mode));
    }
    words.join(", ")
}

/// A time as people say it.
fn time(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..120_000 => format!("{} s", millis / 1000),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

fn draw_keys(keys: &[KeyStatus], to: &mut dyn Write) -> io::Result<()> {
    for key in keys {
        writeln!(
            to,
            "{} ({} in {}): {}",
            plain(&key.key),
            key.source,
            plain(&key.scope),
            key.state
        )?;
        let value = |value: &Option<Value>| value.as_ref().map(show);
        let heal = key.last_heal.as_ref().map(heal);
        let rows = [
            ("owner", key.owner.clone()),
            ("wanted", value(&key.wanted)),
            ("held", value(&key.held)),
            ("waits on", key.waits_on.clone()),
            ("reason", key.reason.clone()),
            ("last heal", heal),
        ];
        for (name, text) in rows {
            if let Some(text) = text {
                writeln!(to, "  {name}: {}", plain(&text))?;
            }
        }
    }
    Ok(())
}

fn heal(event: &Value) -> String {
    let word = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let by = event.get("by").and_then(Value::as_str);
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    format!("{} after {}{by}, at {}", word("action"), word("cause"), word("time"))
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let declared = fields.iter().filter(|(_, field)| !field.is_null());
            let fields = declared.map(|(name, field)| format!("{name} {}", show(field)));
            fields.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_the_unit_that_fits() {
        let rows = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
        ];
        for (millis, expected) in rows {
            assert_eq!(time(millis), expected);
        }
    }
}
