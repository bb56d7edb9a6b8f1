//! `homeostat history`: the documents that were confirmed, and what each of them changed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use similar::TextDiff;

use crate::cli::{Global, HistoryArgs};
use crate::confirmed::{ConfirmedDocuments, EndedTrial, Entry, RecordedTrial};
use crate::context::state_dir;
use crate::failure::helped;
use crate::output::line::plain;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// How long the smallest difference of one file is looked for; then a larger one is shown.
const LOOK_FOR: Duration = Duration::from_secs(2);
/// How many pieces of a document are named before the last one.
const NAMED: usize = 8;

/// Prints the history, or the difference that one document made.
pub(super) fn run(args: &HistoryArgs, global: &Global) -> Result<ExitCode> {
    let confirmed = ConfirmedDocuments::of(&state_dir(global), global.owner_name());
    if let Some(number) = args.diff {
        let text = difference(&confirmed, number)?;
        stream::print(global.color, |to| to.write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (entries, rolled_back) = (confirmed.entries()?, confirmed.rolled_back());
    let draw = if args.json { print_json } else { print_text };
    stream::print(global.color, |to| draw(&entries, &rolled_back, to))?;
    Ok(ExitCode::SUCCESS)
}

fn print_json(entries: &[Entry], rolled_back: &[EndedTrial], to: &mut dyn Write) -> io::Result<()> {
    let entry = |entry: &Entry| {
        json!({
            "number": entry.number,
            "confirmed_at": entry.confirmed_at,
            "from": entry.origin.from,
            "scope": entry.origin.scope,
            "applied_by": entry.origin.applied_by,
            "confirmed_by": entry.origin.confirmed_by,
            "confirmed_by_checks": entry.confirmed_by_checks,
            "pieces": entry.pieces().collect::<Vec<_>>(),
        })
    };
    let history: Vec<_> = entries.iter().map(entry).collect();
    let ended = |EndedTrial { trial, ended_at, end }: &EndedTrial| {
        json!({
            "trial": trial.record.id,
            "began_at": trial.record.began_at,
            "ended_at": ended_at,
            "from": trial.origin.from,
            "scope": trial.origin.scope,
            "applied_by": trial.origin.applied_by,
            "why": end.why,
            "to": end.to,
            "not": end.not,
            "not_count": end.not_count,
            "made_again": end.made_again,
            "left": end.left,
            "went_along": end.went_along,
            "checks": end.checks,
        })
    };
    let rolled_back: Vec<_> = rolled_back.iter().map(ended).collect();
    let all = json!({
        "format_version": FORMAT_VERSION, "history": history, "rolled_back": rolled_back,
    });
    writeln!(to, "{all}")
}

fn print_text(entries: &[Entry], rolled_back: &[EndedTrial], to: &mut dyn Write) -> io::Result<()> {
    if entries.is_empty() {
        writeln!(to, "No document was confirmed yet.")?;
    }
    for entry in entries {
        let Entry { number, origin, confirmed_at, .. } = entry;
        let from: Vec<_> = origin.from.iter().map(|path| path.to_string_lossy()).collect();
        let by = plain(&format!("confirmed by {}", entry.confirmer()));
        let (from, scope) = (plain(&from.join(" ")), plain(&origin.scope));
        writeln!(to, "{number:>4}  {confirmed_at}  {from} in {scope}")?;
        writeln!(to, "      applied by {}, {by}", origin.applied_by)?;
        let pieces: Vec<_> = entry.pieces().collect();
        if let Some((last, others)) = pieces.split_last() {
            let others = others.iter().take(NAMED).map(|name| format!("{name}, "));
            let more = pieces.len().saturating_sub(NAMED + 1);
            let more = if more > 0 { format!("{more} others and ") } else { String::new() };
            let names = plain(&format!("{}{more}{last}", others.collect::<String>()));
            writeln!(to, "      with the pieces {names}")?;
        }
    }
    if !rolled_back.is_empty() {
        writeln!(to, "Trials that were rolled back:")?;
    }
    for EndedTrial { trial: RecordedTrial { record, origin }, ended_at, end } in rolled_back {
        let from: Vec<_> = origin.from.iter().map(|path| path.to_string_lossy()).collect();
        let (from, scope) = (plain(&from.join(" ")), plain(&origin.scope));
        writeln!(to, "{:>4}  {ended_at}  {from} in {scope}", record.id)?;
        writeln!(to, "      applied by {} at {}", origin.applied_by, record.began_at)?;
        for line in end.to_string().lines() {
            writeln!(to, "      {line}")?;
        }
    }
    Ok(())
}

/// What a document changed, compared with the one that was confirmed before it.
fn difference(confirmed: &ConfirmedDocuments, number: u64) -> Result<String> {
    let entry = confirmed.entry(number)?;
    let entries = confirmed.entries()?;
    let before = entries.iter().rev().find(|other| other.number < number);
    let Some(before) = before else {
        return Err(helped(
            format!("there is no document before {number} to compare it with"),
            "`homeostat history` lists those that are kept",
        ));
    };
    let [mut old, new] = [contents(confirmed, before)?, contents(confirmed, &entry)?];
    let mut text = String::new();
    for (name, now) in &new {
        let was = old.remove(name).unwrap_or_default();
        text += &unified(name, &was, now);
    }
    for (name, was) in &old {
        text += &unified(name, was, "");
    }
    Ok(text)
}

/// The texts of a document and of the files that it names.
fn contents(confirmed: &ConfirmedDocuments, entry: &Entry) -> Result<BTreeMap<String, String>> {
    let texts = confirmed.texts(entry)?.into_iter().map(|text| (text.name, text.text));
    Ok(texts.chain(confirmed.files(entry)?).collect())
}

fn unified(name: &str, was: &str, now: &str) -> String {
    if was == now {
        return String::new();
    }
    let difference = TextDiff::configure().timeout(LOOK_FOR).diff_lines(was, now);
    let text = difference.unified_diff().header(name, name).to_string();
    let lines = text.lines().map(|line| plain(line) + "\n");
    lines.collect()
}
