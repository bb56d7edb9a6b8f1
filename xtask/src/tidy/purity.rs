//! The core crate stays pure: no I/O, no clock, no threads, no printing.

use super::lex::{Line, after_word};
use super::problem::Problem;
use super::workspace::{File, Workspace};

const CORE: &str = "crates/homeostat-core/src/";

/// Paths that core may not use outside of tests.
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

pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    let shipped = |file: &File| file.path.starts_with(CORE) && !file.is_test();
    for (file, rust) in workspace.rust().filter(|(file, _)| shipped(file)) {
        let lines: Vec<(usize, &Line)> = rust.production().collect();
        let used = inline_uses(&lines).into_iter().chain(grouped_uses(&lines));
        problems.extend(used.map(|(index, name)| {
            Problem::at(&file.path, index, format!("`{name}`: core has no I/O and no clock"))
        }));
    }
    problems
}

/// Paths without braces.
fn inline_uses(lines: &[(usize, &Line)]) -> Vec<(usize, &'static str)> {
    let in_line = |(index, line): &(usize, &Line)| {
        let (index, code) = (*index, line.code.clone());
        let used = REFUSED.iter().filter(move |name| after_word(&code, name).is_some());
        used.map(move |name| (index, *name))
    };
    lines.iter().flat_map(in_line).collect()
}

/// Paths with braces, as in `use std::{fs, net::{IpAddr, TcpStream}};`.
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

/// Expands braces: `std::{fs, net::{A, B}}` is three paths.
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
}
