//! No notes of unfinished work (clippy refuses `todo!`), no test that is switched off, no test that sleeps.

use super::lex::{Line, after_word};
use super::problem::Problem;
use super::workspace::{File, Workspace};

const UNFINISHED_NOTES: &[&str] = &["TODO", "FIXME", "XXX"];
const SWITCHED_OFF: &[&str] = &["#[ignore", "```ignore"];

/// Checks all Rust files.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in workspace.rust() {
        for (index, line) in rust.lines.iter().enumerate() {
            let texts = complaints(file, line).into_iter();
            problems.extend(texts.map(|text| Problem::at(&file.path, index, text)));
        }
    }
    problems
}

fn complaints(file: &File, line: &Line) -> Vec<String> {
    let mut found = Vec::new();
    for word in UNFINISHED_NOTES.iter().filter(|word| after_word(&line.comment, word).is_some()) {
        found.push(format!("`{word}`: finish it, or write down where it is tracked"));
    }
    let switches = [&line.code, &line.comment].map(|part| is_switched_off(part));
    if switches.contains(&true) {
        found.push("a test is switched off: mend it or delete it".to_owned());
    }
    if (file.is_test() || line.is_test) && after_word(&line.code, "sleep(").is_some() {
        found.push("a test sleeps: inject the clock, or wait for what should happen".to_owned());
    }
    found
}

fn is_switched_off(part: &str) -> bool {
    SWITCHED_OFF.iter().any(|mark| part.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;

    #[track_caller]
    fn check_text(path: &str, text: &str, expected: &[&str]) {
        assert_problems(&check(&Workspace::of(&[(path, text)])), expected);
    }

    #[test]
    fn finished_code_passes() {
        let text =
            "//! Says \"to do\" and ignores XXXL.\nfn f() { g(\"TODO\"); thread::sleep(a); }\n";
        check_text("src/a.rs", text, &[]);
    }

    #[test]
    fn a_note_of_unfinished_work_is_found() {
        let expected = ["src/a.rs:1: `FIXME`: finish it, or write down where it is tracked"];
        check_text("src/a.rs", "// FIXME: later\nfn f() {}\n", &expected);
    }

    #[test]
    fn a_test_that_is_switched_off_is_found() {
        let expected = ["tests/a.rs:2: a test is switched off: mend it or delete it"];
        check_text("tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n", &expected);
        let expected = ["src/a.rs:1: a test is switched off: mend it or delete it"];
        check_text("src/a.rs", "/// ```ignore\n/// f();\n", &expected);
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        let text = "#[cfg(test)]\nmod tests {\n    fn f() { std::thread::sleep(a) }\n}\n";
        let complaint = "a test sleeps: inject the clock, or wait for what should happen";
        check_text("src/a.rs", text, &[&format!("src/a.rs:3: {complaint}")]);
        check_text(
            "tests/a.rs",
            "async { sleep(a).await }",
            &[&format!("tests/a.rs:1: {complaint}")],
        );
    }
}
