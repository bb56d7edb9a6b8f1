//! `homeostat show`: the observed state as a document.

use std::process::ExitCode;

use anyhow::Result;
use homeostat_document::{Document, Settings};
use homeostat_engine::SqlitePages;
use homeostat_registry::{Binding, Extent, Shown};
use serde_json::{Map, Value, json};

use crate::cli::{Global, ShowArgs};
use crate::context::Context;
use crate::failure::of_source;
use crate::output::line::plain;
use crate::output::stream;
use crate::registry;

/// At most this many keys of one program are named; there may be a million routes.
const NAMED: usize = 20;

/// Prints a document that `plan` finds without changes.
pub(crate) fn run(args: &ShowArgs, global: Global) -> Result<ExitCode> {
    let context = Context::enter(global, &Settings::default())?;
    let (caller, scope) = (&context.caller, &context.top_scope()?);
    let pages = SqlitePages::open(&context.caller.state_dir)?;
    let (document, gate) = (&Document::default(), &context.gates.of(&scope.identity));
    let extent = Extent { every_knob: args.full, kept_by_others: args.all };
    let mut all = Shown::default();
    for source in registry::SOURCES {
        let (section, pages) = (None, &pages);
        let binding = Binding { source, caller, document, scope, section, pages, gate };
        let shown = (source.show)(&binding, extent).map_err(of_source)?;
        add(&mut all.sections, shown.sections);
        all.notes.extend(shown.notes);
        all.notes
            .extend(shown.kept_by_others.iter().map(|(program, keys)| left_out(program, keys)));
    }
    // Long texts come last.
    let (texts, sections): (Map<_, _>, Map<_, _>) =
        all.sections.into_iter().partition(|(_, section)| has_text(section));
    let text = if args.json {
        let document: Map<String, Value> = sections.into_iter().chain(texts).collect();
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        toml::to_string(&sections)? + &written(&texts)? + &comments(&all.notes)
    };
    stream::print(context.color, |to| to.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Several sources may have fields in one table: those of a link.
fn add(sections: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (sections.get_mut(&name), value) {
            (Some(Value::Object(table)), Value::Object(fields)) => add(table, fields),
            (_, value) => _ = sections.insert(name, value),
        }
    }
}

fn left_out(program: &str, keys: &[String]) -> String {
    let named = keys.get(..NAMED).unwrap_or(keys).join(", ");
    let more = match keys.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("Kept by {program}, and shown only by --all: {named}{more}")
}

/// Whether a section is a table of one text with several lines.
fn has_text(section: &Value) -> bool {
    let fields = section.as_object().into_iter().flatten();
    fields.count() == 1 && one_text(section).is_some()
}

fn one_text(section: &Value) -> Option<(&String, &str)> {
    let (name, text) = section.as_object()?.iter().next()?;
    Some((name, text.as_str().filter(|text| text.contains('\n'))?))
}

/// Long texts as people write them.
fn written(texts: &Map<String, Value>) -> Result<String> {
    let mut all = String::new();
    for (name, section) in texts {
        let text = match one_text(section) {
            Some((field, text)) if !text.contains("'''") => {
                format!("[{name}]\n{field} = '''\n{text}'''\n")
            }
            _ => toml::to_string(&json!({ name: section }))?,
        };
        all = all + "\n" + &text;
    }
    Ok(all)
}

fn comments(notes: &[String]) -> String {
    let lines = notes.iter().flat_map(|note| ["\n# ".to_owned(), plain(note), "\n".to_owned()]);
    lines.collect()
}
