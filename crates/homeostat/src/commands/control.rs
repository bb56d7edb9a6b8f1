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
use crate::output::text::Detail;
use crate::wire::{About, Ask, Leave, Request};

/// Holds passes off.
pub(super) fn pause(args: &PauseArgs, global: &Global) -> Result<ExitCode> {
    let during = args.during.map(Period::get);
    let for_ms = during.map(|during| u64::try_from(during.as_millis()).unwrap_or(u64::MAX));
    let until =
        during.map_or("until `homeostat resume`".to_owned(), |time| format!("for {time:?}"));
    let ScopeArgs { scope, json } = &args.scope;
    let answer = speak(global, Request::Pause { for_ms, scope: scope.clone() })?;
    say(&answer, *json, |answer| format!("Paused {}, {until}.\n", loops(answer)))
}

/// Lets passes go on.
pub(super) fn resume(args: ScopeArgs, global: &Global) -> Result<ExitCode> {
    let answer = speak(global, Request::Resume { scope: args.scope })?;
    say(&answer, args.json, |answer| format!("Resumed {}.\n", loops(answer)))
}

/// Runs a full pass of everything.
pub(super) fn resync(form: FormArgs, global: &Global) -> Result<ExitCode> {
    report(form, global, Request::Resync)
}

/// Reads the document again.
pub(super) fn reload(form: FormArgs, global: &Global) -> Result<ExitCode> {
    report(form, global, Request::Reload)
}

/// Takes a declared key from whoever has it.
pub(super) fn adopt(args: AdoptArgs, global: &Global) -> Result<ExitCode> {
    let AdoptArgs { key, scope, form } = args;
    report(form, global, |ask| Request::Adopt { about: About { key, scope }, ask })
}

/// Gives up ownership of a key.
pub(super) fn release(args: KeyArgs, global: &Global) -> Result<ExitCode> {
    let none = format!("Nothing of ours is on `{}`.\n", plain(&args.key));
    let KeyArgs { key, scope: ScopeArgs { scope, json } } = args;
    let answer = speak(global, Request::Release(About { key, scope }))?;
    say(&answer, json, |answer| lines(answer, "released").unwrap_or(none))
}

/// Drops what the ledger knows of a key.
pub(super) fn forget(args: KeyArgs, global: &Global) -> Result<ExitCode> {
    let none = format!("The ledger knows nothing of `{}`.\n", plain(&args.key));
    let KeyArgs { key, scope: ScopeArgs { scope, json } } = args;
    let answer = speak(global, Request::Forget(About { key, scope }))?;
    say(&answer, json, |answer| lines(answer, "forgotten").unwrap_or(none))
}

fn speak(global: &Global, request: Request) -> Result<Value> {
    Client::connect(&socket_path(global))?.ask(request)
}

/// Asks for passes, and prints their report.
fn report(
    form: FormArgs,
    global: &Global,
    request: impl FnOnce(Ask) -> Request,
) -> Result<ExitCode> {
    let detail = match (global.quiet, global.verbose) {
        (true, _) => Detail::Quiet,
        (_, true) => Detail::Verbose,
        _ => Detail::Normal,
    };
    let leave = Leave { mass_delete: global.allow_mass_delete, cascades: global.allow_cascades };
    let answer = speak(global, request(Ask { text: form.drawing(detail), leave }))?;
    print_report(&answer, form, global.color)
}

/// Prints the report of the daemon's passes.
pub(super) fn print_report(answer: &Value, form: FormArgs, color: Color) -> Result<ExitCode> {
    let printed = if form.json { format!("{answer}\n") } else { text(answer) };
    stream::print(color, |to| to.write_all(printed.as_bytes()))?;
    Ok(if is_converged(answer) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(answer: &Value, json: bool, words: impl FnOnce(&Value) -> String) -> Result<ExitCode> {
    let said = if json { format!("{answer}\n") } else { words(answer) };
    stream::ignore_closed_pipe(std::io::stdout().write_all(said.as_bytes()))?;
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
