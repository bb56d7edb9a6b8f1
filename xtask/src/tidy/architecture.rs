//! The architecture map names only what exists, and names every crate and every file with unsafe code.

use super::documents::code_spans;
use super::workspace::{File, Problem, Workspace};

const MAP: &str = "ARCHITECTURE.md";

/// Passes if there is no map: the list of required documents has it.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let Some(map) = workspace.file(MAP) else { return Vec::new() };
    let mut problems = Vec::new();
    for (index, span) in code_spans(&map.text) {
        if looks_like_path(workspace, span) && !is_somewhere(workspace, span) {
            problems.push(map.problem_at(index, format!("`{span}` does not exist")));
        }
    }
    for member in workspace.members.iter().filter(|member| !names(&map.text, &member.name)) {
        let text = format!("the crate `{}` is not on the map", member.name);
        problems.push(Problem::of(MAP, text));
    }
    for file in workspace.rust().filter(|file| !file.is_test() && allows_unsafe_code(file)) {
        if !map.text.contains(&file.path) {
            let text = format!("`{}` has unsafe code and is not on the map", file.path);
            problems.push(Problem::of(MAP, text));
        }
    }
    problems
}

fn allows_unsafe_code(file: &File) -> bool {
    let code: String = file.lines.iter().map(|line| line.code.trim()).collect();
    ["expect(unsafe_code", "allow(unsafe_code"].iter().any(|attribute| code.contains(attribute))
}

/// A path ends like a file of ours or with `/`, or begins with a top-level directory. Anything
/// else with a slash may be a kernel's key or a pair of words.
fn looks_like_path(workspace: &Workspace, span: &str) -> bool {
    let written = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    if span.is_empty() || span.starts_with(['/', '.', '-']) || !span.chars().all(written) {
        return false;
    }
    let ends = [".rs", ".md", ".toml", "/"].iter().any(|end| span.ends_with(end));
    let first = span.split_once('/').map(|(first, _)| first);
    ends || first.is_some_and(|first| workspace.exists(first))
}

/// Whether it is a path or its last parts: `src/diff.rs`, `homeostat-core/`.
fn is_somewhere(workspace: &Workspace, span: &str) -> bool {
    let wanted = span.trim_end_matches('/');
    let (inside, at_end) = (format!("/{wanted}/"), format!("/{wanted}"));
    workspace.files.iter().any(|file| {
        let rooted = format!("/{}", file.path);
        rooted.contains(&inside) || rooted.ends_with(&at_end)
    })
}

/// Whether `text` has the name as a whole word: `homeostat-core` does not name `homeostat`.
fn names(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    text.split(|letter| !is_part(letter)).any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{assert_problems, member};
    use super::*;

    #[track_caller]
    fn check_map(map: &str, expected: &[&str]) {
        let files = [(MAP, map), ("crates/homeostat-core/src/diff.rs", "")];
        let members = vec![member("homeostat", &[]), member("homeostat-core", &[])];
        assert_problems(&check(&Workspace::of(&files).with(members)), expected);
    }

    #[test]
    fn a_true_map_passes() {
        let map = "`homeostat` stands on `crates/homeostat-core`: `homeostat-core/src/`, `src/diff.rs`, \
                   `diff.rs`; it writes `net/ipv4/ip_forward` and `/var/lib/homeostat/`.\n";
        check_map(map, &[]);
    }

    #[test]
    fn a_vanished_path_is_found() {
        let expected = [
            "ARCHITECTURE.md:2: `src/gone.rs` does not exist",
            "ARCHITECTURE.md:2: `crates/gone` does not exist",
            "ARCHITECTURE.md:2: `gone/` does not exist",
        ];
        check_map("homeostat homeostat-core\n`src/gone.rs` `crates/gone` `gone/`\n", &expected);
    }

    #[test]
    fn a_crate_that_is_not_named_is_found() {
        let expected = ["ARCHITECTURE.md: the crate `homeostat` is not on the map"];
        check_map("only homeostat-core\n", &expected);
    }

    #[test]
    fn a_file_with_unsafe_code_that_is_not_named_is_found() {
        let over_lines = "//! Calls.\n#![expect(\n    unsafe_code,\n    reason = \"x\"\n)]\n";
        let files = [
            (MAP, "`crates/a/src/sys.rs` is on the map\n"),
            ("crates/a/src/sys.rs", "#![expect(unsafe_code, reason = \"x\")]\n"),
            ("crates/b/src/sys.rs", over_lines),
            (
                "crates/c/src/lib.rs",
                "//! No `expect(unsafe_code)`.\nfn f() { g(\"unsafe_code\") }\n",
            ),
            ("crates/c/tests/a.rs", "#![expect(unsafe_code, reason = \"x\")]\n"),
        ];
        let expected =
            ["ARCHITECTURE.md: `crates/b/src/sys.rs` has unsafe code and is not on the map"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }
}
