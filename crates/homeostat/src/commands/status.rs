//! `homeostat status`: how the daemon's loops stand, or one key.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use homeostat_engine::{Kind, Mode, OpenCounts};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::{Global, StatusArgs};
use crate::client::{Client, is_converged, read, socket_path};
use crate::commands::plan::NOT_CONVERGED;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::{
    About, CheckState, CheckStatus, Contended, KeyStatus, LastTrial, LoopStatus, OpenItem,
    Overview, PieceStatus, ProviderStatus, Request, Role, RoleStatus, TrialEnd, TrialStatus,
    millis, time_in_words as time,
};

/// How long a daemon that is just starting may take to listen.
const STARTING: Duration = Duration::from_secs(10);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How many pieces are listed.
const SHOWN: usize = 20;
/// The longest that is asked for in one request.
const ROUND: Duration = Duration::from_secs(30);

/// Prints how things stand.
pub(super) fn run(args: &StatusArgs, global: &Global) -> Result<ExitCode> {
    let mut answer = match &args.key {
        Some(key) => {
            let about = About { key: key.clone(), scope: args.scope.clone() };
            Client::connect(&socket_path(global))?.ask(Request::Key(about))?
        }
        None if args.wait => wait(args.timeout.get(), global)?,
        None => Client::connect(&socket_path(global))?.ask(Request::Status { wait_ms: None })?,
    };
    // While the document of the provider is refused, a former one is as declared.
    let is_refused = answer.pointer("/provider/ok") == Some(&Value::Bool(false));
    let converged = is_converged(&answer) && !is_refused;
    match (args.json, &args.key) {
        (true, _) => stream::print(global.color, |to| writeln!(to, "{answer}")),
        (false, Some(_)) => {
            let keys = read(answer.get_mut("keys").map(Value::take).unwrap_or_default())?;
            stream::print(global.color, |to| draw_keys(keys, to))
        }
        (false, None) => {
            let overview = read(answer)?;
            stream::print(global.color, |to| draw(&overview, to))
        }
    }?;
    Ok(if converged { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

/// Asks until everything is as declared, or the time is over.
fn wait(timeout: Duration, global: &Global) -> Result<Value> {
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let client = appear(began, timeout.min(STARTING), global)?;
        let wait_ms = Some(millis(left.min(ROUND)));
        let answer = client.ask(Request::Status { wait_ms })?;
        if is_converged(&answer) || began.elapsed() >= timeout {
            return Ok(answer);
        }
    }
}

/// The daemon, which may be about to listen.
fn appear(began: Instant, patience: Duration, global: &Global) -> Result<Client> {
    let path = socket_path(global);
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
    draw_checks(&overview.checks, to)?;
    draw_pieces(&overview.pieces, to)?;
    match overview.handed_number {
        _ if !overview.handed || overview.trial.is_some() => {}
        Some(number) => writeln!(
            to,
            "The confirmed document {number} is in force, also after a restart. The daemon's own files have an older one: \
             write it there, or bring the older one back with `reload`."
        )?,
        None => writeln!(
            to,
            "A document is in force that `apply` handed over; `reload` brings the daemon's own back."
        )?,
    }
    if let Some(LastTrial { id, ended: TrialEnd::RolledBack(end) }) = &overview.last_trial {
        writeln!(to, "trial {id}: {}", end.to_string().replace('\n', "\n  "))?;
    }
    if let Some(trial) = &overview.trial {
        draw_trial(trial, to)?;
    }
    if let Some(number) = overview.fallback {
        writeln!(
            to,
            "The confirmed document {number} is in force until the daemon's own can be taken; `history` lists it."
        )?;
    }
    if overview.tried_before {
        writeln!(
            to,
            "This document was tried and rolled back. It is in force all the same, since no other one was ever confirmed."
        )?;
    }
    let is_refused = overview.provider.as_ref().is_some_and(|provider| !provider.ok);
    match (overview.ready, overview.converged) {
        (_, true) if is_refused => writeln!(to, "Converged by the last good document."),
        (_, true) => writeln!(to, "Converged."),
        (false, _) => writeln!(to, "Not converged: starting."),
        _ => writeln!(to, "Not converged."),
    }
}

/// The checks that are not good first, and how many others there are.
fn draw_checks(checks: &[CheckStatus], to: &mut dyn Write) -> io::Result<()> {
    let (good, others): (Vec<_>, Vec<_>) =
        checks.iter().partition(|check| check.state == CheckState::Good);
    for check in others.iter().chain(&good).take(SHOWN) {
        let since = check.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        let state = match check.state {
            CheckState::Good => "good",
            CheckState::Failing => "fails",
            CheckState::Undecided => "not decided yet",
        };
        let (name, scope) = (check.check.to_string(), &check.scope);
        writeln!(to, "check {} in {}: {state}{since}", plain(&name), plain(scope))?;
        row("reason", check.reason.as_deref().filter(|_| check.state != CheckState::Good), to)?;
        let held = check
            .held_ms
            .map(|left| format!("for {} more: it failed soon after it had come back", time(left)));
        row("held", held.as_deref(), to)?;
    }
    match checks.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        others => writeln!(to, "{others} other checks; --json lists all of them."),
    }
}

/// The first pieces, and how many others there are.
fn draw_pieces(pieces: &[PieceStatus], to: &mut dyn Write) -> io::Result<()> {
    for PieceStatus { name, put_at, put_by, .. } in pieces.iter().take(SHOWN) {
        writeln!(to, "piece {}: put at {put_at} by {}", plain(name), plain(put_by))?;
    }
    match pieces.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        others => writeln!(to, "{others} other pieces; --json lists all of them."),
    }
}

/// The first open keys, and how many others there are.
fn draw_open(overview: &Overview, to: &mut dyn Write) -> io::Result<()> {
    for item in &overview.open_keys {
        let OpenItem { source, scope, key, kind, reason, owner, since, help, .. } = item;
        let OpenItem { command, next_try_in_ms, .. } = item;
        let command = command.as_ref().map(|command| format!("`{command}`"));
        let next_try = next_try_in_ms.map(|left| format!("in {}", time(left)));
        let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        writeln!(to, "{} ({source} in {}): {kind}{}", plain(key), plain(scope), plain(&since))?;
        for (name, text) in [
            ("reason", reason),
            ("owner", owner),
            ("help", help),
            ("resolved by", &command),
            ("next try", &next_try),
        ] {
            row(name, text.as_deref(), to)?;
        }
    }
    let counts =
        overview.loops.iter().flat_map(|one| Kind::listed().map(|kind| one.open.count(kind)));
    match counts.sum::<usize>().saturating_sub(overview.open_keys.len()) {
        0 => Ok(()),
        others => writeln!(to, "{others} other keys are not as declared."),
    }
}

fn draw_trial(trial: &TrialStatus, to: &mut dyn Write) -> io::Result<()> {
    let from: Vec<_> = trial.from.iter().map(|path| path.to_string_lossy()).collect();
    let (from, left) = (plain(&from.join(" ")), time(trial.left_ms));
    match &trial.rolls_back {
        None => writeln!(to, "trial {}: {from} is tried, {left} left", trial.id)?,
        Some(why) => {
            writeln!(to, "trial {}: {from} is being rolled back: {}", trial.id, plain(why))?;
        }
    }
    row("begun", Some(&format!("by {}, at {}", trial.by, trial.began_at)), to)?;
    let returns = match trial.returns_to {
        Some(number) => format!("the confirmed document {number}"),
        None => "nothing declared".to_owned(),
    };
    row("returns to", Some(&format!("{returns}, unless `homeostat confirm` comes")), to)?;
    for result in &trial.checks {
        row("check", Some(&result.to_string()), to)?;
    }
    let waits = "the daemon's files changed; they are the next trial when this one has ended";
    row("waits", trial.edit_waits.then_some(waits), to)
}

/// Says only what is wrong.
fn draw_provider(provider: &ProviderStatus, to: &mut dyn Write) -> io::Result<()> {
    let Some(failure) = &provider.last_error else { return Ok(()) };
    let (from, good) = (plain(&provider.from), time(provider.last_good_ago_ms));
    writeln!(to, "document: cannot be taken from {from}, last good {good} ago")?;
    for line in failure.error.lines() {
        writeln!(to, "  {}", plain(line))?;
    }
    row("help", failure.help.as_deref(), to)
}

/// A line with its name, if there is a text.
fn row(name: &str, text: Option<&str>, to: &mut dyn Write) -> io::Result<()> {
    text.map_or(Ok(()), |text| writeln!(to, "  {name}: {}", plain(text)))
}

fn draw_loop(one: &LoopStatus, to: &mut dyn Write) -> io::Result<()> {
    let by = one.pattern.as_ref().map(|pattern| format!(", by `{pattern}`")).unwrap_or_default();
    let (source, scope) = (plain(&one.source), plain(&one.scope));
    writeln!(to, "{source} in {scope}{}: {}", plain(&by), state(one))?;
    if let Some(on) = &one.waits_on {
        return writeln!(to, "  waits on {}", plain(on));
    }
    if let Some(RoleStatus { role, since, leader, trouble, .. }) = &one.role {
        let text = match (role, leader) {
            (Role::Leader, _) => format!("leader since {since}"),
            (Role::Standby, Some(leader)) => format!("standby since {since}; {leader} leads"),
            (Role::Standby, None) => format!("standby since {since}; no machine leads"),
        };
        row("role", Some(&text), to)?;
        row("no election", trouble.as_deref(), to)?;
    }
    let next = match (one.next_due_in_ms, &one.next_why) {
        (Some(due), Some(why)) => format!(", next {} in {}", plain(why), time(due)),
        _ => String::new(),
    };
    let good =
        one.last_success_ago_ms.map_or("none".to_owned(), |ago| format!("{} ago", time(ago)));
    // A pass in which keys failed is no good one.
    let is_newer = |ago: &u64| one.last_success_ago_ms.is_none_or(|good| *ago < good);
    let last = one.last_attempt_ago_ms.filter(is_newer);
    let last = last.map(|ago| format!("last pass {} ago, ", time(ago))).unwrap_or_default();
    writeln!(to, "  {last}last good pass {good}{next}")?;
    if let Some(failure) = &one.last_error {
        // A pass that was made, and could not be recorded, is no failure.
        let times = (one.failures > 0).then(|| format!("failed {} times in a row", one.failures));
        let what = times.as_deref().unwrap_or("not recorded");
        writeln!(to, "  {what}: {}", plain(&failure.error))?;
        row("  help", failure.help.as_deref(), to)?;
    }
    row("stalled", one.stall.as_deref(), to)?;
    for Contended { key, culprit, pause_ms } in &one.contended {
        let time = time(*pause_ms);
        let text = format!("{culprit} keeps undoing {key}; left alone for {time}");
        row("contention", Some(&text), to)?;
    }
    for key in &one.not_converging {
        let text = format!("{key} is written again and again, and never shows");
        row("not converging", Some(&text), to)?;
    }
    Ok(())
}

fn state(one: &LoopStatus) -> String {
    let mut words = vec![match (one.ready, one.converged) {
        (_, true) => "converged".to_owned(),
        (false, _) => "starting".to_owned(),
        _ => "not converged".to_owned(),
    }];
    for kind in Kind::listed().filter(|kind| one.open.count(*kind) > 0) {
        let word = match kind {
            Kind::Conflict => "in conflict",
            Kind::Held | Kind::Optional | Kind::Withdrawn => kind.title(),
            other => OpenCounts::name(other),
        };
        words.push(format!("{} {word}", one.open.count(kind)));
    }
    if one.paused {
        words.push("paused".to_owned());
    }
    let is_standby = one.role.as_ref().is_some_and(|role| role.role == Role::Standby);
    match one.mode {
        Mode::Observe if is_standby => words.push("standby".to_owned()),
        Mode::Heal => {}
        Mode::Observe => words.push("only observes".to_owned()),
    }
    words.join(", ")
}

fn draw_keys(keys: Vec<KeyStatus>, to: &mut dyn Write) -> io::Result<()> {
    for key in keys {
        let (name, scope) = (plain(&key.key), plain(&key.scope));
        writeln!(to, "{name} ({} in {scope}): {}", key.source, key.state)?;
        let heal = key.last_heal.and_then(|event| serde_json::from_value(event).ok());
        let heal = heal.map(|AppliedStep { action, cause, by, time }| {
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{action} after {cause}{by}, at {time}")
        });
        let rows = [
            ("owner", key.owner),
            ("wanted", key.wanted.as_ref().map(show)),
            ("declared at", key.declared_at),
            ("held", key.held.as_ref().map(show)),
            ("waits on", key.waits_on),
            ("reason", key.reason),
            ("last heal", heal),
            ("resolved by", key.command.map(|command| format!("`{command}`"))),
        ];
        for (name, text) in rows {
            row(name, text.as_deref(), to)?;
        }
        for (at, event) in key.events.iter().enumerate() {
            row(if at == 0 { "lately" } else { "      " }, lately(event).as_deref(), to)?;
        }
    }
    Ok(())
}

/// An event about one key, in a line.
fn lately(event: &Value) -> Option<String> {
    let field = |name: &str| event.get(name)?.as_str();
    let (time, kind) = (field("time")?, field("event")?);
    let text = match kind {
        "step-applied" => {
            let by = field("by").map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{} after {}{by}", field("action")?, field("cause")?)
        }
        "step-failed" => {
            let action = field("action").map(|action| format!("{action} "));
            format!("{}failed: {}", action.unwrap_or_default(), field("error")?)
        }
        "conflict" => format!("conflict with {}", field("owner")?),
        "pending" => format!("waits on {}", field("waits_on")?),
        "contention" => format!("{} keeps undoing it", field("culprit")?),
        other => other.replace('-', " "),
    };
    Some(format!("{time}  {text}"))
}

/// What is shown of a `step-applied` event.
#[derive(Deserialize)]
struct AppliedStep {
    action: String,
    cause: String,
    by: Option<String>,
    time: String,
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
