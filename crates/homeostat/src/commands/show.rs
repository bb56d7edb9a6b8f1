//! `homeostat show`: the observed state as a document.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::Settings;
use homeostat_engine::SqlitePages;
use homeostat_nft::Shown;
use serde_json::{Map, Value, json};

use crate::cli::{Global, ShowArgs};
use crate::context::Context;
use crate::output::line::plain;
use crate::output::stream;
use crate::scope::Scope;
use crate::sources::{knobs, nft, rtnl};

/// Prints a document that `plan` finds without changes.
pub(crate) fn run(args: &ShowArgs, global: Global) -> Result<ExitCode> {
    let context = Context::enter(global, &Settings::default())?;
    let scope = Scope::top(&context)?;
    let (mut document, firewall) = document(&context, &scope, args)?;
    let text = if args.json {
        if !firewall.ruleset.is_empty() {
            document.insert("nftables".into(), json!({ "ruleset": firewall.ruleset }));
        }
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        toml::to_string(&document)? + &section(&firewall)?
    };
    let mut stdout = stream::stdout(context.color);
    stream::ignore_closed_pipe(print(&text, &mut stdout))?;
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str, to: &mut dyn Write) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// The firewall as people write it, with a word about the tables of others.
fn section(firewall: &Shown) -> Result<String> {
    let Shown { ruleset, foreign } = firewall;
    let mut text = String::new();
    if !ruleset.is_empty() && !ruleset.contains("'''") {
        text = format!("\n[nftables]\nruleset = '''\n{ruleset}'''\n");
    } else if !ruleset.is_empty() {
        let ruleset = toml::to_string(&json!({ "nftables": { "ruleset": ruleset } }))?;
        text = format!("\n{ruleset}");
    }
    if !foreign.is_empty() {
        let names: Vec<String> = foreign.iter().map(|key| plain(&key.to_string())).collect();
        text = format!("{text}\n# Not ours, and not shown: {}\n", names.join(", "));
    }
    Ok(text)
}

fn document(
    context: &Context,
    scope: &Scope,
    args: &ShowArgs,
) -> Result<(Map<String, Value>, Shown)> {
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
    let firewall = nft::show(context, scope, &pages)?;
    Ok((document, firewall))
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
