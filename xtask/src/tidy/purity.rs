//! The core crate stays pure and small: no I/O, no clock, no threads, no printing.

use super::lex::{Line, after_word};
use super::problem::Problem;
use super::workspace::{File, Workspace};

const CORE: &str = "crates/homeostat-core/src/";
const MOST_LINES: usize = 3_200;

/// What core's shipped code may not name, by whole path.
const REFUSED: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "io::stderr",
    "io::stdin",
    "io::stdout",
    "Instant::now",
    "SystemTime::now",
];

/// Checks the shipped code of core.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut size = 0;
    let shipped = |file: &File| file.path.starts_with(CORE) && !file.is_test();
    for (file, rust) in workspace.rust().filter(|(file, _)| shipped(file)) {
        let lines: Vec<(usize, &Line)> = rust.production().collect();
        // Documentation is not counted: the contract should have plenty of it.
        size += lines.iter().filter(|(_, line)| !line.code.is_empty()).count();
        let used = inline_uses(&lines).into_iter().chain(grouped_uses(&lines));
        problems.extend(used.map(|(index, name)| {
            Problem::at(&file.path, index, format!("`{name}`: core has no I/O and no clock"))
        }));
    }
    if size > MOST_LINES {
        let text = format!("{size} lines of code; core has at most {MOST_LINES}");
        problems.push(Problem::of(CORE, text));
    }
    problems
}

/// Paths written in one piece.
fn inline_uses(lines: &[(usize, &Line)]) -> Vec<(usize, &'static str)> {
    let in_line = |(index, line): &(usize, &Line)| {
        let (index, code) = (*index, line.code.clone());
        let used = REFUSED.iter().filter(move |name| after_word(&code, name).is_some());
        used.map(move |name| (index, *name))
    };
    lines.iter().flat_map(in_line).collect()
}

/// Paths taken apart by braces, as in `use std::{fs, net::{IpAddr, TcpStream}};`.
fn grouped_uses(lines: &[(usize, &Line)]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut statement: Option<(usize, String)> = None;
    for (index, line) in lines {
        let begins = after_word(&line.code, "use std::{").is_some()
            || after_word(&line.code, "use std::net::{").is_some();
        if begins {
            statement = Some((*index, String::new()));
        }
        let Some((start, text)) = &mut statement else { continue };
        text.push_str(line.code.trim());
        if text.ends_with(';') {
            let paths = expand(text.split_once("use ").map_or("", |(_, tree)| tree));
            found.extend(refused(&paths).map(|name| (*start, name)));
            statement = None;
        }
    }
    found
}

fn refused(paths: &[String]) -> impl Iterator<Item = &'static str> {
    REFUSED.iter().copied().filter(|name| {
        let below = format!("{name}::");
        paths.iter().any(|path| path == name || path.starts_with(&below))
    })
}

/// All paths that a tree with braces stands for: `std::{fs, net::{A, B}}` is three.
fn expand(tree: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut prefixes = vec![String::new()];
    let mut name = String::new();
    for letter in tree.chars() {
        let prefix = prefixes.last().cloned().unwrap_or_default();
        match letter {
            '{' => prefixes.push(prefix + &std::mem::take(&mut name)),
            ',' | '}' | ';' => {
                let path = prefix + std::mem::take(&mut name).trim_end_matches("::self");
                paths.push(path.trim_end_matches("::self").to_owned());
                prefixes
                    .truncate(prefixes.len() - usize::from(letter == '}' && prefixes.len() > 1));
            }
            ' ' => {}
            _ => name.push(letter),
        }
    }
    paths.retain(|path| !path.ends_with("::") && !path.is_empty());
    paths
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;

    #[track_caller]
    fn check_core(text: &str, expected: &[&str]) {
        assert_problems(
            &check(&Workspace::of(&[("crates/homeostat-core/src/a.rs", text)])),
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
        let files = [("crates/homeostat-engine/src/a.rs", "use std::fs;\n")];
        assert_problems(&check(&Workspace::of(&files)), &[]);
    }

    #[test]
    fn impure_paths_are_found() {
        let check = |line: &str, name: &str| {
            let expected =
                format!("crates/homeostat-core/src/a.rs:2: `{name}`: core has no I/O and no clock");
            check_core(&format!("fn f() {{}}\n{line}\n"), &[&expected]);
        };
        check("use std::fs::File;", "std::fs");
        check("fn g() { io::stdout(); }", "io::stdout");
        check("fn g() { Instant::now(); }", "Instant::now");
        check("fn g() { std::time::SystemTime::now(); }", "SystemTime::now");
        check("use std::{fmt, fs};", "std::fs");
        check("use std::{fmt, fs::{self, File}};", "std::fs");
        check("use std::{\n    fmt,\n    net::{IpAddr, TcpStream},\n};", "std::net::TcpStream");
        check("use std::net::{IpAddr, UdpSocket};", "std::net::UdpSocket");
    }

    #[test]
    fn documentation_and_blank_lines_are_not_counted() {
        check_core(&"x();\n/// Why.\n\n".repeat(3_200), &[]);
    }

    #[test]
    fn a_large_core_is_found() {
        let text = "x();\n/// Why.\n\n".repeat(3_201);
        let expected = "crates/homeostat-core/src/: 3201 lines of code; core has at most 3200";
        check_core(&text, &[expected]);
    }
}
