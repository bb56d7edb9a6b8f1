//! The files and members that checks read, and the problems that they find. Only [`Workspace::read`] reads the disk.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::lex::{self, Line};
use crate::run::{metadata, root};

#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    pub(crate) members: Vec<Package>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// From the root.
    pub(crate) path: String,
    /// Empty if the file is not UTF-8.
    pub(crate) text: String,
    /// Of Rust files.
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The path of its manifest, from the root of the workspace.
    pub(crate) manifest: String,
    /// Without dependencies of tests, with build dependencies.
    pub(crate) dependencies: Vec<String>,
}

/// The result of a check. Sorts by place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) path: String,
    /// Counts from 0; none for a problem of the whole file.
    pub(crate) line: Option<usize>,
    pub(crate) text: String,
}

impl Workspace {
    /// Reads the tree, except for what `.gitignore` names in its root.
    pub(crate) fn read() -> Result<Self> {
        let ignored = fs::read_to_string(root().join(".gitignore")).unwrap_or_default();
        let ignored =
            ignored.lines().filter_map(|line| line.trim_end_matches('/').strip_prefix('/'));
        let skipped: Vec<&str> = ignored.chain([".git"]).collect();
        let mut files = Vec::new();
        read_files(&root(), "", &skipped, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files, members: members(&metadata()?)? })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or a directory has this path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&inside))
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }
}

fn read_files(root: &Path, below: &str, skipped: &[&str], files: &mut Vec<File>) -> Result<()> {
    let entries =
        fs::read_dir(root.join(below)).with_context(|| format!("cannot list `{below}`"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list `{below}`"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if skipped.contains(&path.as_str()) {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            read_files(root, &path, skipped, files)?;
        } else if entry.path().is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            files.push(File::new(&path, String::from_utf8(bytes).unwrap_or_default()));
        }
    }
    Ok(())
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let mut file = Self { path: path.to_owned(), text, lines: Vec::new() };
        if file.has_extension("rs") {
            file.lines = lex::split(&file.text);
        }
        file
    }

    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// Whether it is a Rust file in `crates/*/src`, `xtask/src` or `bench/src`.
    pub(crate) fn is_member_source(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        let below_member =
            matches!(parts[..], ["crates", _, "src", _, ..] | ["xtask" | "bench", "src", _, ..]);
        below_member && self.has_extension("rs")
    }

    /// A problem in one line; `index` counts from 0.
    pub(crate) fn problem_at(&self, index: usize, text: impl Into<String>) -> Problem {
        Problem { line: Some(index), ..Problem::of(&self.path, text) }
    }
}

/// The packages in the answer of `cargo metadata --no-deps`.
fn members(metadata: &Value) -> Result<Vec<Package>> {
    let string = |value: &Value, field: &str| value[field].as_str().map(str::to_owned);
    let root = string(metadata, "workspace_root").context("cargo metadata names no root")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let read = |package: &Value| {
        let manifest = string(package, "manifest_path")?;
        let dependencies = package["dependencies"].as_array()?.iter();
        Some(Package {
            name: string(package, "name")?,
            description: string(package, "description").unwrap_or_default(),
            manifest: manifest.strip_prefix(&root)?.trim_start_matches('/').to_owned(),
            dependencies: dependencies
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .filter_map(|dependency| string(dependency, "name"))
                .collect(),
        })
    };
    packages.iter().map(|package| read(package).context("cargo metadata lacks a field")).collect()
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of(path: &str, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|index| format!(":{}", index + 1)).unwrap_or_default();
        write!(f, "{}{line}: {}", self.path, self.text)
    }
}

#[cfg(test)]
pub(super) use tests::{assert_problems, member};

#[cfg(test)]
mod tests {
    use super::*;

    impl Workspace {
        /// A tree of these paths and texts.
        pub(crate) fn of(files: &[(&str, &str)]) -> Self {
            let files = files.iter().map(|(path, text)| File::new(path, (*text).to_owned()));
            Self { files: files.collect(), members: Vec::new() }
        }

        /// The same tree with these members.
        pub(crate) fn with(mut self, members: Vec<Package>) -> Self {
            self.members = members;
            self
        }
    }

    /// Fails unless `found` reads exactly as `expected`.
    #[track_caller]
    pub(crate) fn assert_problems(found: &[Problem], expected: &[&str]) {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    /// A member `crates/NAME` with these dependencies.
    pub(crate) fn member(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            description: "something".to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_real_tree_is_read_without_what_git_ignores() {
        let workspace = Workspace::read().unwrap();
        assert!(
            workspace.file("xtask/src/tidy/workspace.rs").is_some_and(|own| !own.lines.is_empty())
        );
        assert!(workspace.exists("xtask/src"));
        assert!(!workspace.exists(".git"));
        assert!(!workspace.exists("target"));
    }

    #[test]
    fn files_know_their_place() {
        let check = |path: &str, member: bool, test: bool| {
            let file = File::new(path, String::new());
            assert_eq!((file.is_member_source(), file.is_test()), (member, test), "{path}");
        };
        check("crates/x/src/a/b.rs", true, false);
        check("xtask/src/main.rs", true, false);
        check("bench/src/main.rs", true, false);
        check("crates/x/src/a/tests.rs", true, true);
        check("crates/x/tests/a.rs", false, true);
        check("crates/x/src/a.txt", false, false);
        check("examples/a.rs", false, false);
    }

    #[test]
    fn the_metadata_is_read() {
        let text = r#"{"workspace_root": "/r", "packages": [{
            "name": "x", "description": "d", "manifest_path": "/r/crates/x/Cargo.toml",
            "dependencies": [
                {"name": "a", "kind": null}, {"name": "b", "kind": "dev"}, {"name": "c", "kind": "build"}
            ]}]}"#;
        let expected = Package { description: "d".to_owned(), ..member("x", &["a", "c"]) };
        assert_eq!(members(&serde_json::from_str(text).unwrap()).unwrap(), [expected]);
    }

    #[test]
    fn other_text_is_refused() {
        assert!(members(&Value::Null).is_err());
    }
}
