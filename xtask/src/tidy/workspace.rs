//! The files and packages that checks read. Only [`Workspace::read`] reads the disk.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::lex::{self, Rust};
use super::packages::Package;

/// All files of the repository and all packages that it builds from.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    /// Members and everything they depend on.
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// From the root.
    pub(crate) path: String,
    /// Empty if the file is not UTF-8.
    pub(crate) text: String,
    /// For Rust files.
    pub(crate) rust: Option<Rust>,
}

impl Workspace {
    /// Reads the tree below `root`, except for what `.gitignore` names there.
    pub(crate) fn read(root: &Path, packages: Vec<Package>) -> Result<Self> {
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let mut skipped: Vec<&str> = ignored
            .lines()
            .filter_map(|line| line.trim_end_matches('/').strip_prefix('/'))
            .collect();
        skipped.push(".git");
        let mut files = Vec::new();
        walk(root, "", &mut |path| {
            if skipped.contains(&path) {
                return Ok(Visit::Skip);
            }
            let whole = root.join(path);
            if whole.is_file() {
                let bytes = fs::read(&whole).with_context(|| format!("cannot read {path}"))?;
                files.push(File::new(path, String::from_utf8(bytes).unwrap_or_default()));
            }
            Ok(Visit::Enter)
        })?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files, packages })
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

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// A tree of these paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File::new(path, (*text).to_owned()));
        Self { files: files.collect(), packages: Vec::new() }
    }

    /// The same tree with these packages.
    #[cfg(test)]
    pub(crate) fn with(mut self, packages: Vec<Package>) -> Self {
        self.packages = packages;
        self
    }
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let is_rust = path.rsplit_once('.').is_some_and(|(_, ending)| ending == "rs");
        let rust = is_rust.then(|| lex::split(&text));
        Self { path: path.to_owned(), text, rust }
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// Whether it is a source file of a member: `crates/*/src`, `xtask/src`, `bench/src`.
    pub(crate) fn is_member_source(&self) -> bool {
        let mut parts = self.path.split('/');
        let below_member = match parts.next() {
            Some("crates") => parts.next().is_some(),
            Some(top) => top == "xtask" || top == "bench",
            None => false,
        };
        below_member && parts.next() == Some("src") && self.rust.is_some()
    }
}

enum Visit {
    Enter,
    Skip,
}

/// Visits everything below `path`, directories before their content.
fn walk(root: &Path, path: &str, visit: &mut dyn FnMut(&str) -> Result<Visit>) -> Result<()> {
    let entries = fs::read_dir(root.join(path)).with_context(|| format!("cannot list `{path}`"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list `{path}`"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = if path.is_empty() { name } else { format!("{path}/{name}") };
        let enter = matches!(visit(&below)?, Visit::Enter);
        if enter && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &below, visit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    #[test]
    fn the_real_tree_is_read_without_what_git_ignores() {
        let workspace = Workspace::read(&root(), Vec::new()).unwrap();
        assert!(
            workspace.file("xtask/src/tidy/workspace.rs").is_some_and(|own| own.rust.is_some())
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
}
