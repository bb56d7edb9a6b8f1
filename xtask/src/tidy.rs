//! `cargo xtask tidy`: the rules that no compiler checks. Start at [`CHECKS`].
//!
//! Each check is a pure function over the [`Workspace`], so that a test can show that it finds problems.

mod architecture;
mod crates;
mod documents;
mod impls;
mod lex;
mod rust_files;
mod structs;
mod workspace;

use anyhow::{Result, bail};

use crate::console;
use workspace::{Problem, Workspace};

/// One rule over the whole tree.
type Check = fn(&Workspace) -> Vec<Problem>;

/// All rules: a new one is one module and one line.
const CHECKS: &[Check] = &[
    architecture::check,
    crates::check,
    documents::check,
    impls::check,
    rust_files::check,
    structs::check,
];

/// Checks the workspace and shows all problems together.
pub(crate) fn tidy() -> Result<()> {
    let workspace = Workspace::read()?;
    let problems = problems(&workspace);
    for problem in &problems {
        console::note(&format!("error: {problem}"));
    }
    if !problems.is_empty() {
        bail!("the tree is not tidy: {} problem(s)", problems.len());
    }
    Ok(())
}

fn problems(workspace: &Workspace) -> Vec<Problem> {
    let mut problems: Vec<Problem> = CHECKS.iter().flat_map(|check| check(workspace)).collect();
    problems.sort();
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_of_all_checks_come_together_sorted_by_place() {
        let workspace =
            Workspace::of(&[("crates/x/src/b.rs", "fn f() {}\n"), ("docs/a.md", "[x](no.md)")]);
        let found: Vec<String> = problems(&workspace).iter().map(ToString::to_string).collect();
        assert!(found.is_sorted(), "{found:?}");
        for place in ["README.md: ", "crates/x/src/b.rs:1: ", "docs/a.md:1: "] {
            assert!(found.iter().any(|problem| problem.starts_with(place)), "{place} {found:?}");
        }
    }
}
