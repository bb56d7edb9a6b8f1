//! `homeostat show`: the observed state as a document.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::Settings;
use homeostat_engine::SqlitePages;
use serde_json::Value;

use crate::cli::{Global, ShowArgs};
use crate::context::Context;
use crate::output::stream;
use crate::scope::Scope;
use crate::sources::knobs::{self, Shown};

/// Prints a document that `plan` finds without changes.
pub(crate) fn run(args: &ShowArgs, global: Global) -> Result<ExitCode> {
    let context = Context::enter(global, &Settings::default())?;
    let scope = Scope::top(&context)?;
    let pages = SqlitePages::open(&context.state_dir)?;
    let extent = if args.full { knobs::Extent::All } else { knobs::Extent::Common };
    let place = knobs::place(&context.owner, &scope);
    let shown = knobs::show(&place, &scope, (&pages, extent))?;
    let mut stdout = stream::stdout(context.color);
    let printed = if args.json { json(&shown, &mut stdout) } else { toml(&shown, &mut stdout) };
    stream::ignore_closed_pipe(printed)?;
    Ok(ExitCode::SUCCESS)
}

/// A number where the value is one, else text.
fn value(text: &str) -> Value {
    // Anything but the plain decimal form must stay text, or it would be read as another number.
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

type Values = BTreeMap<String, String>;

fn json(shown: &Shown, to: &mut dyn Write) -> io::Result<()> {
    let values = |all: &Values| all.iter().map(|(key, text)| (key.clone(), value(text))).collect();
    let mut document = serde_json::Map::new();
    document.insert("sysctl".into(), Value::Object(values(&shown.sysctl)));
    if !shown.cgroups.is_empty() {
        let groups = shown.cgroups.iter().map(|(path, all)| (path.clone(), values(all).into()));
        document.insert("cgroups".into(), Value::Object(groups.collect()));
    }
    writeln!(to, "{}", serde_json::to_string_pretty(&document)?)?;
    to.flush()
}

fn toml(shown: &Shown, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "[sysctl]")?;
    lines(&shown.sysctl, to)?;
    for (path, limits) in &shown.cgroups {
        writeln!(to, "\n[cgroups.{}]", Value::from(path.as_str()))?;
        lines(limits, to)?;
    }
    to.flush()
}

/// A JSON string is a TOML basic string, and a JSON integer a TOML one.
fn lines(values: &Values, to: &mut dyn Write) -> io::Result<()> {
    values
        .iter()
        .try_for_each(|(key, text)| writeln!(to, "{} = {}", Value::from(key.as_str()), value(text)))
}
