//! What is asked of a running daemon: `pause`, `resume`, `resync`, `reload`, `adopt`, `release`,
//! `forget`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::Period;
use serde_json::Value;

use crate::cli::{AdoptArgs, Color, FormArgs, Global, KeyArgs, PauseArgs, ScopeArgs};
use crate::client::{Client, is_converged, socket_path, text};
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::{Ask, Request, millis};

/// Holds passes off.
pub(super) fn pause(args: PauseArgs, global: &Global) -> Result<ExitCode> {
    let during = args.during.map(Period::get);
    let until =
        during.map_or("until `homeostat resume`".to_owned(), |time| format!("for {time:?}"));
    let ScopeArgs { scope, json } = args.scope;
    let answer = send(global, Request::Pause { for_ms: during.map(millis), scope })?;
    print(&answer, json, |answer| format!("Paused {}, {until}.\n", loops(answer)))
}

/// Lets passes go on.
pub(super) fn resume(args: ScopeArgs, global: &Global) -> Result<ExitCode> {
    let answer = send(global, Request::Resume { scope: args.scope })?;
    print(&answer, args.json, |answer| format!("Resumed {}.\n", loops(answer)))
}

/// Takes over the object on a declared key from its current owner.
pub(super) fn adopt(args: AdoptArgs, global: &Global) -> Result<ExitCode> {
    let AdoptArgs { about, form } = args;
    run_passes(form, global, |ask| Request::Adopt { about, ask })
}

/// Gives up ownership of a key.
pub(super) fn release(args: KeyArgs, global: &Global) -> Result<ExitCode> {
    let none = format!("Nothing of ours is on `{}`.\n", plain(&args.about.key));
    let answer = send(global, Request::Release(args.about))?;
    print(&answer, args.json, |answer| lines(answer, "released").unwrap_or(none))
}

/// Drops what the ledger knows of a key.
pub(super) fn forget(args: KeyArgs, global: &Global) -> Result<ExitCode> {
    let none = format!("The ledger knows nothing of `{}`.\n", plain(&args.about.key));
    let answer = send(global, Request::Forget(args.about))?;
    print(&answer, args.json, |answer| lines(answer, "forgotten").unwrap_or(none))
}

/// Asks for passes, and prints their report.
pub(super) fn run_passes(
    form: FormArgs,
    global: &Global,
    request: impl FnOnce(Ask) -> Request,
) -> Result<ExitCode> {
    let ask = Ask { text: form.drawing(global.detail()), leave: global.leave() };
    print_report(&send(global, request(ask))?, form, global.color)
}

fn send(global: &Global, request: Request) -> Result<Value> {
    Client::connect(&socket_path(global))?.by_right(&global.right).ask(request)
}

/// Prints the report of the daemon's passes.
pub(super) fn print_report(answer: &Value, form: FormArgs, color: Color) -> Result<ExitCode> {
    let printed = if form.json { format!("{answer}\n") } else { text(answer) };
    stream::print(color, |to| to.write_all(printed.as_bytes()))?;
    Ok(if is_converged(answer) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn print(
    answer: &Value,
    json: bool,
    text: impl FnOnce(&Value) -> String,
) -> Result<ExitCode> {
    let printed = if json { format!("{answer}\n") } else { text(answer) };
    stream::ignore_closed_pipe(std::io::stdout().write_all(printed.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

fn entries<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn loops(answer: &Value) -> String {
    let place = |one: &Value| format!("{} in {}", word(one, "source"), word(one, "scope"));
    let places: Vec<String> = entries(answer, "loops").iter().map(place).collect();
    if places.is_empty() { "nothing".to_owned() } else { places.join(", ") }
}

/// One line an entry, and what is left to be known of it.
fn lines(answer: &Value, verb: &str) -> Option<String> {
    let entries = entries(answer, verb);
    let line = |one: &Value| {
        let (key, source, scope) = (word(one, "key"), word(one, "source"), word(one, "scope"));
        let remains = one.get("remains").and_then(Value::as_str);
        let remains = remains.map(|text| format!("  note: {}\n", plain(text))).unwrap_or_default();
        format!("{verb} {key} ({source} in {scope})\n{remains}")
    };
    (!entries.is_empty()).then(|| entries.iter().map(line).collect())
}

fn word(one: &Value, name: &str) -> String {
    plain(one.get(name).and_then(Value::as_str).unwrap_or_default())
}
