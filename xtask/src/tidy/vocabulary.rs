//! Names say what a thing is: the words that `STYLE.md` rules out are refused in definitions.

use super::lex::{after_word, production};
use super::workspace::{Problem, Workspace};

/// Say nothing anywhere in a name.
const EMPTY_WORDS: &[&str] =
    &["manager", "handler", "util", "utils", "helper", "helpers", "info", "misc"];
/// Say nothing at the end of a type's name.
const EMPTY_TYPE_ENDS: &[&str] = &["data", "inner"];
/// Say nothing at the start of a function's name that goes on.
const EMPTY_VERBS: &[&str] = &["get", "do", "perform", "process", "sync"];

/// Names that stay although a rule refuses them, each with its reason.
const ALLOWED: &[(&str, &str)] = &[];

const TYPES: &[&str] = &["struct ", "enum ", "trait ", "type ", "union "];

/// Checks file names and definitions in production code.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in workspace.rust().filter(|file| !file.is_test()) {
        let parts = file.path.trim_end_matches(".rs").split(['/', '-']);
        let empty = parts.filter_map(|part| complaint(Kind::Module, part));
        problems.extend(empty.map(|text| Problem::of(&file.path, text)));
        for (index, line) in production(&file.lines) {
            let texts = definitions(&line.code).filter_map(|(kind, name)| complaint(kind, name));
            problems.extend(texts.map(|text| file.problem_at(index, text)));
        }
    }
    problems
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Type,
    Module,
    Function,
}

fn definitions(code: &str) -> impl Iterator<Item = (Kind, &str)> {
    let keywords = TYPES.iter().map(|keyword| (Kind::Type, *keyword));
    let others = [(Kind::Module, "mod "), (Kind::Function, "fn ")];
    keywords.chain(others).filter_map(|(kind, keyword)| {
        let rest = after_word(code, keyword)?.trim_start();
        let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
        (!name.is_empty()).then_some((kind, name))
    })
}

fn complaint(kind: Kind, name: &str) -> Option<String> {
    if ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
        return None;
    }
    let words = words(name);
    if let Some(word) = words.iter().find(|word| EMPTY_WORDS.contains(&word.as_str())) {
        return Some(format!("`{name}`: `{word}` says nothing; name what it is"));
    }
    let last = words.last().map(String::as_str).unwrap_or_default();
    if last == "inner" || (kind == Kind::Type && EMPTY_TYPE_ENDS.contains(&last)) {
        return Some(format!("`{name}`: `{last}` says nothing; name what it is"));
    }
    let first = words.first().map(String::as_str).unwrap_or_default();
    if kind == Kind::Function && words.len() > 1 && EMPTY_VERBS.contains(&first) {
        return Some(format!("`{name}`: `{first}_` says nothing; name what it does or returns"));
    }
    let numbered = kind == Kind::Type && is_numbered(name);
    numbered.then(|| format!("`{name}`: a number tells no difference; name it"))
}

/// `Foo2`, but neither `Ipv4` nor `Crc32`.
fn is_numbered(name: &str) -> bool {
    let stem = name.trim_end_matches(['2', '3']);
    let version = stem.ends_with(['v', 'V']);
    stem.len() + 1 == name.len() && !version && stem.ends_with(char::is_lowercase)
}

/// The words of a name in either case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        let begins = letter == '_' || (letter.is_uppercase() && !before.is_uppercase());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::super::workspace::assert_problems;
    use super::*;

    #[track_caller]
    fn check_line(line: &str, expected: &[&str]) {
        assert_problems(&check(&Workspace::of(&[("src/a.rs", line)])), expected);
    }

    #[test]
    fn names_that_say_what_they_are_pass() {
        for line in [
            "pub(crate) struct Ledger { inner: Info }",
            "enum Ipv4 {}",
            "struct Crc32;",
            "fn get(&self) {}",
            "fn resync(&self) {}",
            "fn processes() {}",
            "trait Information {}",
            "// struct Manager",
            "fn f(g: \"fn get_x\") {}",
            "fn dominant_data() {}",
        ] {
            check_line(line, &[]);
        }
    }

    #[test]
    fn empty_words_are_found() {
        let check = |line: &str, name: &str, word: &str| {
            let expected = format!("src/a.rs:1: `{name}`: `{word}` says nothing; name what it is");
            check_line(line, &[&expected]);
        };
        check("pub struct RouteManager;", "RouteManager", "manager");
        check("trait StepHandler {}", "StepHandler", "handler");
        check("pub(crate) mod net_utils;", "net_utils", "utils");
        check("fn parse_helper() {}", "parse_helper", "helper");
        check("enum LinkInfo {}", "LinkInfo", "info");
        check("fn apply_inner() {}", "apply_inner", "inner");
        check("struct RouteData;", "RouteData", "data");
    }

    #[test]
    fn empty_verbs_and_numbers_are_found() {
        let expected = "src/a.rs:1: `get_key`: `get_` says nothing; name what it does or returns";
        check_line("pub const fn get_key(&self) {}", &[expected]);
        let expected = "src/a.rs:1: `do_scan`: `do_` says nothing; name what it does or returns";
        check_line("async fn  do_scan() {}", &[expected]);
        let expected = "src/a.rs:1: `Plan2`: a number tells no difference; name it";
        check_line("struct Plan2;", &[expected]);
    }

    #[test]
    fn file_names_count_and_tests_do_not() {
        let files = [("crates/x/src/utils.rs", ""), ("crates/x/tests/helper.rs", "fn get_x() {}")];
        let expected = ["crates/x/src/utils.rs: `utils`: `utils` says nothing; name what it is"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }
}
