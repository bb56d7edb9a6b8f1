//! A type's methods are in one file: the one that defines the type. Implementations of traits may be elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::workspace::{File, Problem, Workspace};

pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let files = || workspace.rust().filter(|file| file.is_member_source() && !file.is_test());
    // Types of the same name may be in several files.
    let mut definitions: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for file in files() {
        for name in code(file).filter_map(|(_, line)| defined(line)) {
            definitions.entry((package(file), name)).or_default().insert(&file.path);
        }
    }
    let mut problems = Vec::new();
    for file in files() {
        for (index, line) in code(file) {
            let Some(name) = with_methods(line) else { continue };
            let Some(defined_in) = definitions.get(&(package(file), name)) else { continue };
            if !defined_in.contains(&*file.path) {
                let places = defined_in.iter().copied().collect::<Vec<_>>().join(", ");
                let text = format!(
                    "methods of `{name}`, which is defined in {places}: move them there, or write functions"
                );
                problems.push(file.problem_at(index, text));
            }
        }
    }
    problems
}

fn package(file: &File) -> &str {
    file.path.split_once("/src/").map_or("", |(package, _)| package)
}

fn code(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let lines = file.lines.iter().enumerate().filter(|(_, line)| !line.is_test);
    lines.map(|(index, line)| (index, &*line.code))
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split([' ', '(', '<', '{', ';']).filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "union"))?;
    words.next()
}

/// The type whose methods begin in a line of the first column.
fn with_methods(line: &str) -> Option<&str> {
    let header = line.strip_prefix("impl")?;
    let header = match header.strip_prefix('<') {
        Some(parameters) => parameters.get(end_of_brackets(parameters)?..)?,
        None => header,
    };
    let header = header.strip_prefix(' ')?;
    if header.split(' ').any(|word| word == "for") {
        return None;
    }
    let path = header.split(['<', ' ', '{']).next()?;
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

/// Where the text after an opening bracket goes on after the closing one.
fn end_of_brackets(text: &str) -> Option<usize> {
    let mut depth = 1;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            // The arrow of a closure has no opening one.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::workspace::assert_problems;
    use super::*;

    #[test]
    fn methods_beside_their_type_and_implementations_of_traits_pass() {
        let files = [
            ("crates/x/src/a.rs", "pub struct A<T>(T);\nimpl<T: Fn() -> bool> A<T> {\n}\n"),
            ("crates/x/src/b.rs", "impl<T> Display for A<T> {\n}\nimpl Elsewhere {\n}\n"),
            ("crates/x/src/b/tests.rs", "impl A<u8> {\n}\n"),
            ("crates/y/src/c.rs", "#[cfg(test)]\nmod tests {\n}\nenum A {}\nimpl A {\n}\n"),
        ];
        assert_problems(&check(&Workspace::of(&files)), &[]);
    }

    #[test]
    fn methods_in_another_file_are_found() {
        let complaint = "methods of `A`, which is defined in crates/x/src/a.rs: move them there, or write functions";
        for header in ["impl A {", "impl<T: Fn() -> bool> A<T> {", "impl crate::a::A {"] {
            let text = format!("{header}\n}}\n");
            let files =
                [("crates/x/src/a.rs", "pub(crate) struct A;\n"), ("crates/x/src/b.rs", &text)];
            let expected = format!("crates/x/src/b.rs:1: {complaint}");
            assert_problems(&check(&Workspace::of(&files)), &[&expected]);
        }
    }
}
