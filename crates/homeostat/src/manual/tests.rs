//! The pages have every command and every field, and so does the reference in the docs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;

fn page(name: &str) -> String {
    let mut pages = pages().unwrap().into_iter();
    pages.find(|page| page.file_name() == name).unwrap().text
}

#[test]
fn every_command_that_is_shown_has_a_page() {
    fn names(command: &clap::Command, name: &str, to: &mut BTreeSet<String>) {
        to.insert(format!("{name}.1"));
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            names(one, &format!("{name}-{}", one.get_name()), to);
        }
    }
    let mut expected = BTreeSet::from(["homeostat.toml.5".to_owned(), "homeostat.7".to_owned()]);
    names(&Cli::command(), "homeostat", &mut expected);
    let found: BTreeSet<String> = pages().unwrap().iter().map(Page::file_name).collect();
    assert_eq!(found, expected);
    assert!(found.contains("homeostat-fleet-sign.1"), "{found:?}");
}

#[test]
fn pages_are_found_by_the_words_of_their_commands() {
    let found = |words: &str| -> Vec<String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let pages = pages().unwrap();
        pages.iter().filter(|page| page.is_called(&words)).map(Page::file_name).collect()
    };
    for (words, expected) in [
        ("", "homeostat.1"),
        ("apply", "homeostat-apply.1"),
        ("fleet sign", "homeostat-fleet-sign.1"),
        ("homeostat-apply.1", "homeostat-apply.1"),
        ("homeostat.toml", "homeostat.toml.5"),
        ("homeostat.7", "homeostat.7"),
    ] {
        assert_eq!(found(words), [expected], "{words}");
    }
    assert_eq!(found("aply"), [""; 0]);
}

#[test]
fn a_page_says_how_its_command_is_called_and_how_it_exits() {
    let page = page("homeostat-apply.1");
    for text in [
        ".SH SYNOPSIS\n\\fBhomeostat apply\\fR [OPTIONS] <DOC>...\n",
        "\\fB\\-\\-confirm\\-within\\fR [\\fI<TIME>\\fR]",
        ".SH \"EXIT STATUS\"\n0 converged, 1 not converged or error.\n",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    assert!(!page.contains("\\-\\-allow\\-mass\\-delete"), "options of all commands are repeated");
}

/// Every field of every table, straight from the schema.
fn fields_of_the_schema() -> BTreeSet<(String, String)> {
    let schema = registry::READER.schema();
    let tables = schema["$defs"].as_object().unwrap().iter();
    let fields = tables.flat_map(|(table, one)| {
        let names = one["properties"].as_object().unwrap().keys();
        names.map(|name| (table.clone(), name.clone())).collect::<Vec<_>>()
    });
    fields.collect()
}

#[test]
fn the_page_about_documents_has_every_field_below_its_table() {
    let page = page("homeostat.toml.5");
    let mut found = BTreeSet::new();
    let mut table = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix(".SH ") {
            let heading = heading.trim_matches('"').replace("\\-", "-");
            table = heading.to_lowercase().replace("the document", "document");
        } else if let Some((name, _)) =
            line.strip_prefix("\\fB").and_then(|rest| rest.split_once("\\fR ="))
        {
            found.insert((table.clone(), name.replace("\\-", "-")));
        }
    }
    assert_eq!(found, fields_of_the_schema());
}

#[test]
fn every_field_says_what_it_is_for() {
    let about = |field: &Field| field.about.trim().len() > 3 && !field.value.is_empty();
    for table in fields::tables(&registry::READER.schema()) {
        assert!(!table.about.is_empty(), "{}", table.name);
        for field in &table.fields {
            assert!(about(field), "{} of {}", field.name, table.name);
        }
    }
}

#[test]
fn values_are_written_for_people() {
    let check = |schema: &str, expected: &str| {
        let text = format!(r#"{{"$defs":{{"t":{{"properties":{{"f":{schema}}}}}}}}}"#);
        let schema: Value = serde_json::from_str(&text).unwrap();
        let tables = fields::tables(&schema);
        assert_eq!(plain(&tables[0].fields[0].value), expected);
    };
    check(r#"{"type":"boolean"}"#, "true | false");
    check(r#"{"type":"integer","minimum":1,"maximum":9}"#, "1 to 9");
    check(r#"{"enum":["a","b"]}"#, r#""a" | "b""#);
    check(r##"{"type":"array","items":{"$ref":"#/$defs/t"}}"##, "[ t, ... ]");
    check(r#"{"anyOf":[{"type":"string"},{"const":0}]}"#, "text | 0");
    let map = r##"{"type":"object","properties":{"adopt":{"type":"boolean"}},"additionalProperties":{"$ref":"#/$defs/t"}}"##;
    check(map, "{ adopt = true | false, NAME = t }");
}

fn plain(value: &[Piece]) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Table(text) => text.clone(),
    };
    value.iter().map(text).collect()
}

/// The tables of the document in Markdown.
fn reference() -> String {
    let mut page = "# Reference of the document\n\n\
        Every table and field that a document can have, made from the JSON Schema (`homeostat schema`) by a test. \
        `[ x, ... ]` is a list, `{ NAME = x }` a table whose names you choose. The same is the manual page `homeostat.toml(5)`.\n"
        .to_owned();
    for table in fields::tables(&registry::READER.schema()) {
        write!(page, "\n## {}\n\n{}.\n\n", table.name, table.about).unwrap();
        page.push_str("| field | value | |\n|---|---|---|\n");
        for Field { name, value, about, is_required } in table.fields {
            let required = if is_required { " (required)" } else { "" };
            let value: String = value.iter().map(in_markdown).collect();
            let about = about.replace('|', "\\|");
            writeln!(page, "| `{name}`{required} | {value} | {about} |").unwrap();
        }
    }
    page
}

fn in_markdown(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.replace('|', "\\|"),
        Piece::Table(name) => format!("[{name}](#{name})"),
    }
}

#[test]
fn the_reference_in_the_docs_is_that_of_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let expected = reference();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/reference.md is old: run this test with BLESS=1");
}
