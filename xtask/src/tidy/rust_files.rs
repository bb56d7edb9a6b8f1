//! What every Rust file keeps to: it opens with its purpose, has no notes of unfinished work (clippy refuses
//! `todo!`) and no test that is switched off or sleeps; core stays pure; libraries name no flags of a command line.

use super::lex::{Line, after_word};
use super::workspace::{File, Problem, Workspace};

const UNFINISHED_NOTES: &[&str] = &["TODO", "FIXME", "XXX"];
const SWITCHED_OFF: &[&str] = &["#[ignore", "```ignore"];

const CORE: &str = "crates/homeostat-core/src/";

/// The program; all other crates are libraries. What the kit for tests says is for people who write tests.
const WITH_COMMAND_LINE: [&str; 2] = ["crates/homeostat/", "crates/homeostat-testkit/"];

/// Words that core may not use outside of tests.
const NOT_IN_CORE: &[&str] = &[
    "fs",
    "env",
    "process",
    "thread",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "std::os",
    "stderr",
    "stdin",
    "stdout",
    "Instant::now",
    "SystemTime::now",
];

pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in workspace.rust() {
        if file.is_member_source() && !file.text.starts_with("//! ") {
            problems.push(file.problem_at(0, "does not open with `//!` and what the file is for"));
        }
        for (index, line) in file.lines.iter().enumerate() {
            let texts = complaints(file, line).into_iter();
            problems.extend(texts.map(|text| file.problem_at(index, text)));
        }
    }
    problems
}

fn complaints(file: &File, line: &Line) -> Vec<String> {
    let is_test = file.is_test() || line.is_test;
    let mut found = Vec::new();
    for word in UNFINISHED_NOTES.iter().filter(|word| after_word(&line.comment, word).is_some()) {
        found.push(format!("`{word}`: finish it, or write down where it is tracked"));
    }
    if SWITCHED_OFF.iter().any(|mark| line.code.contains(mark) || line.comment.contains(mark)) {
        found.push("a test is switched off: mend it or delete it".to_owned());
    }
    if is_test && after_word(&line.code, "sleep(").is_some() {
        found.push("a test sleeps: inject the clock, or wait for what should happen".to_owned());
    }
    if file.path.starts_with(CORE) && !is_test {
        let used = NOT_IN_CORE.iter().filter(|word| after_word(&line.code, word).is_some());
        found.extend(used.map(|word| format!("`{word}`: core has no I/O and no clock")));
    }
    let is_library = file.path.starts_with("crates/")
        && !WITH_COMMAND_LINE.iter().any(|program| file.path.starts_with(program));
    if is_library && !is_test && names_flag(&line.string) {
        found.push(
            "a library's text names a flag: say it in words, and let the program name the flag"
                .to_owned(),
        );
    }
    found
}

/// Whether a sentence names a flag. A string that begins with one is an argument for another program.
fn names_flag(string: &str) -> bool {
    string.split([' ', '`', '(']).any(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|letter: char| letter.is_ascii_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::workspace::assert_problems;
    use super::*;

    #[test]
    fn a_file_that_opens_with_its_purpose_passes() {
        let files = [("crates/x/src/a.rs", "//! Adds.\n"), ("crates/x/tests/b.rs", "fn f() {}\n")];
        assert_problems(&check(&Workspace::of(&files)), &[]);
    }

    #[test]
    fn a_file_that_opens_with_anything_else_is_found() {
        let files = [("xtask/src/a.rs", "\n//! Late.\n")];
        let expected = ["xtask/src/a.rs:1: does not open with `//!` and what the file is for"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }

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

    #[test]
    fn a_flag_in_the_text_of_a_library_is_found() {
        let says = |path: &str, text: &str, expected: &[&str]| {
            check_text(path, &format!("//! A.\nconst A: &str = {text};\n"), expected);
        };
        let library = "crates/homeostat-nft/src/a.rs";
        let complaint =
            "a library's text names a flag: say it in words, and let the program name the flag";
        for text in ["\"use --force\"", "\"it is locked (`--force`)\"", "\"a \\\n    --force\""] {
            let line = 2 + text.matches('\n').count();
            says(library, text, &[&format!("{library}:{line}: {complaint}")]);
        }
        says(library, "[\"nft\", \"--debug=mnl\"]", &[]);
        says(library, "\"-- a comment\"", &[]);
        says("crates/homeostat/src/a.rs", "\"use --force\"", &[]);
    }

    #[track_caller]
    fn check_core(text: &str, expected: &[&str]) {
        assert_problems(
            &check(&Workspace::of(&[(
                "crates/homeostat-core/src/a.rs",
                &format!("//! A.\n{text}"),
            )])),
            expected,
        );
    }

    #[test]
    fn pure_code_passes() {
        check_core("use std::{fmt, io, net::{IpAddr, Ipv4Addr}};\nuse std::time::Instant;\n", &[]);
        check_core("//! Never uses std::fs.\nfn f(now: Instant) {}\n", &[]);
        check_core("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", &[]);
    }

    #[test]
    fn other_crates_may_do_io() {
        let files = [("crates/homeostat-engine/src/a.rs", "//! A.\nuse std::fs;\n")];
        assert_problems(&check(&Workspace::of(&files)), &[]);
    }

    #[test]
    fn impure_paths_are_found() {
        let check = |line: &str, name: &str| {
            let expected =
                format!("crates/homeostat-core/src/a.rs:3: `{name}`: core has no I/O and no clock");
            check_core(&format!("fn f() {{}}\n{line}\n"), &[&expected]);
        };
        check("use std::fs::File;", "fs");
        check("fn g() { io::stdout(); }", "stdout");
        check("fn g() { Instant::now(); }", "Instant::now");
        check("fn g() { std::time::SystemTime::now(); }", "SystemTime::now");
        check("use std::{fmt, fs};", "fs");
        check("use std::{fmt, fs::{self, File}};", "fs");

        check("use std::net::{IpAddr, UdpSocket};", "UdpSocket");
        let expected =
            "crates/homeostat-core/src/a.rs:4: `TcpStream`: core has no I/O and no clock";
        check_core("use std::{\n    fmt,\n    net::{IpAddr, TcpStream},\n};", &[expected]);
    }
}
