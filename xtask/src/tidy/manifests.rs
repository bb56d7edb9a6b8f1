//! Every member takes the workspace's lints and says in its manifest what it is.

use super::packages::Package;
use super::problem::Problem;
use super::workspace::Workspace;

/// Checks the manifests of all members.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    workspace.members().flat_map(|member| complaints(workspace, member)).collect()
}

fn complaints(workspace: &Workspace, member: &Package) -> Vec<Problem> {
    let manifest = workspace.file(&member.manifest).map_or("", |file| &file.text);
    let mut problems = Vec::new();
    if member.description.trim().is_empty() {
        problems.push(Problem::of(&member.manifest, "`description` is empty"));
    }
    if !takes_lints(manifest) {
        problems.push(Problem::of(&member.manifest, "lacks `[lints]` with `workspace = true`"));
    }
    problems
}

fn takes_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    let in_section = lines.any(|line| line == "[lints]");
    in_section
        && lines.take_while(|line| !line.starts_with('[')).any(|line| line == "workspace = true")
}

#[cfg(test)]
mod tests {
    use super::super::packages::member;
    use super::super::problem::assert_problems;
    use super::*;

    #[track_caller]
    fn check_manifest(manifest: &str, package: Package, expected: &[&str]) {
        let workspace = Workspace::of(&[("crates/x/Cargo.toml", manifest)]).with(vec![package]);
        assert_problems(&check(&workspace), expected);
    }

    #[test]
    fn a_whole_manifest_passes() {
        check_manifest("[package]\n[lints]\nworkspace = true\n", member("x", &[]), &[]);
    }

    #[test]
    fn missing_lints_are_found() {
        let expected = ["crates/x/Cargo.toml: lacks `[lints]` with `workspace = true`"];
        check_manifest("[package]\n", member("x", &[]), &expected);
        check_manifest("[lints]\n[package]\nworkspace = true\n", member("x", &[]), &expected);
    }

    #[test]
    fn an_empty_description_is_found() {
        let package = Package { description: " ".to_owned(), ..member("x", &[]) };
        let expected = ["crates/x/Cargo.toml: `description` is empty"];
        check_manifest("[lints]\nworkspace = true\n", package, &expected);
    }
}
