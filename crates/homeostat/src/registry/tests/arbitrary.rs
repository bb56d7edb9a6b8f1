//! No text whatsoever makes the parsers panic, overflow the stack or take long.

use homeostat_document::Format;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::fs;

use super::{READER, folder};

const FORMATS: [Format; 3] = [Format::Toml, Format::Yaml, Format::Json];

/// Reads the text in each format and draws what is wrong with it.
fn check(text: &str) {
    for format in FORMATS {
        check_one(format, text);
    }
}

fn check_one(format: Format, text: &str) {
    let Err(found) = READER.parse("a document", format, text) else { return };
    assert!(!found.is_empty(), "an error says what is wrong");
    assert_eq!(found.iter().count(), found.len());
    let lines = text.split('\n').count();
    for entry in found.iter() {
        assert!(entry.line.is_some_and(|line| (1..=lines).contains(&line)), "{entry:?}");
        assert!(entry.column.is_some_and(|column| column >= 1), "{entry:?}");
    }
    assert!(found.render(false).contains("--> a document:"), "{}", found.render(false));
    assert!(!found.render(true).is_empty());
}

fn good(name: &str) -> String {
    fs::read_to_string(folder("good").join(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// A valid document with some stretches cut out, doubled or overwritten.
fn mutated(name: &'static str) -> impl Strategy<Value = String> {
    let text: Vec<char> = good(name).chars().collect();
    let place = 0..text.len();
    let scrap = "[ -~\u{e4}\t\n]{0,6}";
    proptest::collection::vec((place, 0_usize..12, scrap), 1..6).prop_map(move |edits| {
        let mut text = text.clone();
        for (at, length, scrap) in edits {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, scrap.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn any_text_is_read_or_explained(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_soup_of_syntax_is_read_or_explained(
        text in "([\\[\\]{}:,=.\"'#&*!|>%@`\\\\?-]|[a-c0-9]|null|\n|  |\t|\r\n|\u{fc}|\u{feff}|links|to){0,60}",
    ) {
        check(&text);
    }
}

proptest! {
    #![proptest_config(Config { cases: 120, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_damaged_toml_document_is_read_or_explained(text in mutated("everything.toml")) {
        check_one(Format::Toml, &text);
    }

    #[test]
    fn a_damaged_yaml_document_is_read_or_explained(text in mutated("design.yaml")) {
        check_one(Format::Yaml, &text);
    }

    #[test]
    fn a_damaged_json_document_is_read_or_explained(text in mutated("design.json")) {
        check_one(Format::Json, &text);
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
    const DEPTH: usize = 100_000;
    for text in [
        format!("a = {}", "[".repeat(DEPTH)),
        "[".repeat(DEPTH),
        "{\"a\":".repeat(DEPTH),
        format!("a = {}", "{a=".repeat(DEPTH)),
        format!("{}a = 1", "a.".repeat(DEPTH)),
        format!("[{}a]", "a.".repeat(DEPTH)),
        format!("a = 1\na = 2\nb = {}", "[".repeat(DEPTH)),
        "- ".repeat(DEPTH),
        "? ".repeat(DEPTH),
        (0..2000).map(|depth| " ".repeat(depth) + "a:\n").collect(),
    ] {
        check(&text);
    }
}

#[test]
fn many_mistakes_in_one_long_line_are_still_shown_quickly() {
    let text = format!("{{\"x\": [{}]}}", "\"\u{e4}\", ".repeat(20_000));
    check_one(Format::Json, &text);
    let fields: String =
        (0..300).map(|field| ["\"f", &field.to_string(), "\": 1, "].concat()).collect();
    check_one(Format::Json, &format!("{{{fields}\"g\": 1}}"));
}

#[test]
fn an_alias_bomb_is_cheap() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        text.extend([format!("a{level}: &a{level} [{before}]\n")]);
    }
    check_one(Format::Yaml, &text);
}
