//! `homeostat show`: the observed state as a document.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::Settings;
use homeostat_engine::SqlitePages;
use serde_json::{Map, Value};

use crate::cli::{Global, ShowArgs};
use crate::context::Context;
use crate::output::stream;
use crate::scope::Scope;
use crate::sources::{knobs, rtnl};

/// Prints a document that `plan` finds without changes.
pub(crate) fn run(args: &ShowArgs, global: Global) -> Result<ExitCode> {
    let context = Context::enter(global, &Settings::default())?;
    let scope = Scope::top(&context)?;
    let document = document(&context, &scope, args)?;
    let text = if args.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        toml::to_string(&document)?
    };
    let mut stdout = stream::stdout(context.color);
    stream::ignore_closed_pipe(print(&text, &mut stdout))?;
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str, to: &mut dyn Write) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

fn document(context: &Context, scope: &Scope, args: &ShowArgs) -> Result<Map<String, Value>> {
    let mut document = rtnl::show(context, scope)?;
    let pages = SqlitePages::open(&context.state_dir)?;
    let extent = if args.full { knobs::Extent::All } else { knobs::Extent::Common };
    let place = knobs::place(&context.owner, scope);
    let shown = knobs::show(&place, scope, (&pages, extent))?;
    document.insert("sysctl".into(), values(&shown.sysctl));
    if !shown.cgroups.is_empty() {
        let groups = shown.cgroups.iter().map(|(path, all)| (path.clone(), values(all)));
        document.insert("cgroups".into(), Value::Object(groups.collect()));
    }
    Ok(document)
}

fn values(all: &BTreeMap<String, String>) -> Value {
    Value::Object(all.iter().map(|(key, text)| (key.clone(), value(text))).collect())
}

/// A number where the value is one, else text.
fn value(text: &str) -> Value {
    // Anything but the plain decimal form must stay text, or it would be read as another number.
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}
