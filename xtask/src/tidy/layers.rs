//! Dependencies between the crates point one way.
//!
//! A `homeostat-*` crate that is not named here is a source, and gets a source's rules.

use super::packages::Package;
use super::problem::Problem;
use super::workspace::Workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Core,
    /// Engine, kit, kernel access: what sources are built on or run by.
    Base,
    Source,
    Document,
    /// May use everything.
    Binary,
    /// From outside of the workspace.
    Foreign,
}

/// What core may not depend on: anything with I/O, waiting or logging.
const NOT_IN_CORE: &[&str] =
    &["async-std", "libc", "log", "mio", "nix", "rusqlite", "rustix", "smol", "tokio", "tracing"];

const BASE: &[&str] = &[
    "homeostat-engine",
    "homeostat-kit",
    "homeostat-netlink",
    "homeostat-netns",
    "homeostat-pve-simulator",
    "homeostat-testkit",
];
const BINARIES: &[&str] = &["homeostat", "homeostat-bench", "xtask"];

/// Checks the dependencies of each member, except for those of tests.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in workspace.members() {
        for dependency in &member.dependencies {
            let text = complaint(&member.name, dependency);
            problems.extend(text.map(|text| placed(workspace, member, dependency, text)));
        }
    }
    problems
}

/// The problem at the manifest's line that names the dependency.
fn placed(workspace: &Workspace, member: &Package, dependency: &str, text: String) -> Problem {
    let manifest = workspace.file(&member.manifest).map_or("", |file| &file.text);
    match manifest.lines().position(|line| line.starts_with(dependency)) {
        Some(index) => Problem::at(&member.manifest, index, text),
        None => Problem::of(&member.manifest, text),
    }
}

fn complaint(member: &str, dependency: &str) -> Option<String> {
    let refused = match (layer(member), layer(dependency)) {
        (Layer::Core, Layer::Foreign) => NOT_IN_CORE.contains(&dependency),
        // A source depends on the document for its section, behind a feature.
        (Layer::Binary, _) | (_, Layer::Foreign) | (Layer::Source, Layer::Document) => false,
        (Layer::Core, _) | (_, Layer::Source | Layer::Document | Layer::Binary) => true,
        (_, Layer::Core | Layer::Base) => false,
    };
    refused.then(|| format!("`{member}` may not depend on `{dependency}`: {}", rule(member)))
}

fn rule(member: &str) -> &'static str {
    match layer(member) {
        Layer::Core => "core has no I/O, clock, async runtime or logging, and stands alone",
        Layer::Source => "a source knows no other source and no binary",
        _ => "only the binary knows the sources, and only sources and the binary know the document",
    }
}

fn layer(name: &str) -> Layer {
    match name {
        "homeostat-core" => Layer::Core,
        "homeostat-document" => Layer::Document,
        _ if BASE.contains(&name) => Layer::Base,
        _ if BINARIES.contains(&name) => Layer::Binary,
        _ if name.starts_with("homeostat-") => Layer::Source,
        _ => Layer::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::super::packages::member;
    use super::super::problem::assert_problems;
    use super::*;

    #[track_caller]
    fn check_member(name: &str, dependencies: &[&str], expected: &[&str]) {
        let workspace = Workspace::of(&[]).with(vec![member(name, dependencies)]);
        assert_problems(&check(&workspace), expected);
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        check_member("homeostat-core", &["thiserror"], &[]);
        check_member("homeostat-engine", &["homeostat-core", "tokio", "rusqlite"], &[]);
        check_member("homeostat-knobs", &["homeostat-engine", "homeostat-kit", "rustix"], &[]);
        check_member("homeostat-knobs", &["homeostat-document"], &[]);
        check_member("homeostat-document", &["homeostat-core", "toml"], &[]);
        check_member("homeostat", &["homeostat-document", "homeostat-knobs", "tokio"], &[]);
        check_member("homeostat-bench", &["homeostat-core", "homeostat-knobs"], &[]);
    }

    #[test]
    fn core_stands_alone() {
        let rule = "core has no I/O, clock, async runtime or logging, and stands alone";
        for dependency in ["tokio", "tracing", "homeostat-netns", "homeostat-knobs"] {
            let expected = format!(
                "crates/homeostat-core/Cargo.toml: `homeostat-core` may not depend on `{dependency}`: {rule}"
            );
            check_member("homeostat-core", &[dependency], &[&expected]);
        }
    }

    #[test]
    fn a_source_knows_no_other_source() {
        let rule = "a source knows no other source and no binary";
        for dependency in ["homeostat-rtnl", "homeostat"] {
            let expected = format!(
                "crates/homeostat-knobs/Cargo.toml: `homeostat-knobs` may not depend on `{dependency}`: {rule}"
            );
            check_member("homeostat-knobs", &[dependency], &[&expected]);
        }
    }

    #[test]
    fn only_the_binary_knows_sources_and_document() {
        let rule =
            "only the binary knows the sources, and only sources and the binary know the document";
        for (name, dependency) in [
            ("homeostat-engine", "homeostat-knobs"),
            ("homeostat-testkit", "homeostat-document"),
            ("homeostat-document", "homeostat-knobs"),
        ] {
            let expected = format!(
                "crates/{name}/Cargo.toml: `{name}` may not depend on `{dependency}`: {rule}"
            );
            check_member(name, &[dependency], &[&expected]);
        }
    }

    #[test]
    fn the_line_of_the_dependency_is_named() {
        let manifest = "[dependencies]\ntokio.workspace = true\n";
        let workspace = Workspace::of(&[("crates/homeostat-core/Cargo.toml", manifest)])
            .with(vec![member("homeostat-core", &["tokio"])]);
        let found = check(&workspace);
        let place = "crates/homeostat-core/Cargo.toml:2: ";
        assert!(found.iter().all(|problem| problem.to_string().starts_with(place)), "{found:?}");
        assert_eq!(found.len(), 1);
    }
}
