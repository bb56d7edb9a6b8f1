//! Dependencies between the crates point one way; every member takes the workspace's lints and describes itself.
//!
//! A `homeostat-*` crate that is not named here is a source, and gets a source's rules.

use super::workspace::{Package, Problem, Workspace};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Core,
    /// Engine, kit, kernel access: what sources are built on or run by.
    Base,
    Source,
    Document,
    /// Files from templates, for sources and other programs.
    Render,
    /// Many machines: pure, and for the binary alone.
    Fleet,
    /// Carries out what a fleet decides.
    Coordinator,
    /// How sources describe themselves to the binary, with their sections.
    Registry,
    /// May use everything.
    Binary,
    /// From outside of the workspace.
    Foreign,
}

/// What core and the decisions of a fleet may not depend on: anything with I/O, waiting or logging.
const NOT_IN_CORE: &[&str] =
    &["async-std", "libc", "log", "mio", "nix", "rusqlite", "rustix", "smol", "tokio", "tracing"];

fn layer(name: &str) -> Layer {
    match name {
        "homeostat-core" => Layer::Core,
        "homeostat-document" => Layer::Document,
        "homeostat-render" => Layer::Render,
        "homeostat-fleet" => Layer::Fleet,
        "homeostat-registry" => Layer::Registry,
        "homeostat-engine"
        | "homeostat-etcd"
        | "homeostat-kit"
        | "homeostat-netlink"
        | "homeostat-netns"
        | "homeostat-packaging"
        | "homeostat-pve-simulator"
        | "homeostat-store"
        | "homeostat-systemd"
        | "homeostat-testkit" => Layer::Base,
        "homeostat-coordinator" => Layer::Coordinator,
        "homeostat" | "homeostat-bench" | "xtask" => Layer::Binary,
        _ if name.starts_with("homeostat-") => Layer::Source,
        _ => Layer::Foreign,
    }
}

/// Checks the manifest and the dependencies of each member, except for those of tests.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in &workspace.members {
        let Package { name, manifest, dependencies, .. } = member;
        let text = workspace.file(manifest).map_or("", |file| &file.text);
        if member.description.trim().is_empty() {
            problems.push(Problem::of(manifest, "`description` is empty"));
        }
        if !takes_lints(text) {
            problems.push(Problem::of(manifest, "lacks `[lints]` with `workspace = true`"));
        }
        for dependency in dependencies.iter().filter(|dependency| is_refused(name, dependency)) {
            let why = format!("`{name}` may not depend on `{dependency}`: {}", rule(name));
            let line = text.lines().position(|line| line.starts_with(dependency.as_str()));
            problems.push(Problem { line, ..Problem::of(manifest, why) });
        }
    }
    problems
}

fn takes_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true")
}

fn is_refused(member: &str, dependency: &str) -> bool {
    match (layer(member), layer(dependency)) {
        (Layer::Core | Layer::Fleet, Layer::Foreign) => NOT_IN_CORE.contains(&dependency),
        // A source depends on document and registry for its section, behind a feature.
        (Layer::Source, Layer::Document | Layer::Registry | Layer::Render)
        | (Layer::Registry | Layer::Render | Layer::Fleet, Layer::Document)
        | (Layer::Coordinator, Layer::Fleet)
        | (Layer::Binary, _)
        | (_, Layer::Foreign) => false,
        (Layer::Core, _)
        | (Layer::Fleet, Layer::Base)
        | (
            _,
            Layer::Source
            | Layer::Document
            | Layer::Registry
            | Layer::Render
            | Layer::Fleet
            | Layer::Coordinator
            | Layer::Binary,
        ) => true,
        (_, Layer::Core | Layer::Base) => false,
    }
}

fn rule(member: &str) -> &'static str {
    match layer(member) {
        Layer::Core => "core has no I/O, clock, async runtime or logging, and stands alone",
        Layer::Fleet => "what a fleet decides is pure: no I/O, clock, async runtime or logging",
        Layer::Source => "a source knows no other source and no binary",
        _ => {
            "only the binary knows the sources, and only what reads or renders for it knows the document"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{assert_problems, member};
    use super::*;

    fn whole(path: &str, member: Package) -> Workspace {
        Workspace::of(&[(path, "[lints]\nworkspace = true\n")]).with(vec![member])
    }

    #[track_caller]
    fn check_member(name: &str, dependencies: &[&str], expected: &[&str]) {
        let workspace = whole(&format!("crates/{name}/Cargo.toml"), member(name, dependencies));
        assert_problems(&check(&workspace), expected);
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        check_member("homeostat-core", &["thiserror"], &[]);
        check_member("homeostat-engine", &["homeostat-core", "tokio", "rusqlite"], &[]);
        check_member("homeostat-knobs", &["homeostat-engine", "homeostat-kit", "rustix"], &[]);
        check_member("homeostat-knobs", &["homeostat-document", "homeostat-registry"], &[]);
        check_member("homeostat-registry", &["homeostat-document", "homeostat-engine"], &[]);
        check_member("homeostat-document", &["homeostat-core", "toml"], &[]);
        check_member("homeostat-render", &["homeostat-document", "homeostat-kit"], &[]);
        check_member("homeostat-knobs", &["homeostat-render"], &[]);
        check_member("homeostat-fleet", &["homeostat-core", "homeostat-document", "ring"], &[]);
        check_member("homeostat", &["homeostat-fleet"], &[]);
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
    fn what_a_fleet_decides_is_pure() {
        let rule = "what a fleet decides is pure: no I/O, clock, async runtime or logging";
        for dependency in ["tokio", "homeostat-kit", "homeostat-knobs", "homeostat-registry"] {
            let expected = format!(
                "crates/homeostat-fleet/Cargo.toml: `homeostat-fleet` may not depend on `{dependency}`: {rule}"
            );
            check_member("homeostat-fleet", &[dependency], &[&expected]);
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
        let rule = "only the binary knows the sources, and only what reads or renders for it knows the document";
        for (name, dependency) in [
            ("homeostat-engine", "homeostat-knobs"),
            ("homeostat-testkit", "homeostat-document"),
            ("homeostat-document", "homeostat-knobs"),
            ("homeostat-engine", "homeostat-registry"),
            ("homeostat-registry", "homeostat-knobs"),
            ("homeostat-render", "homeostat-knobs"),
            ("homeostat-render", "homeostat-registry"),
            ("homeostat-kit", "homeostat-render"),
        ] {
            let expected = format!(
                "crates/{name}/Cargo.toml: `{name}` may not depend on `{dependency}`: {rule}"
            );
            check_member(name, &[dependency], &[&expected]);
        }
    }

    #[test]
    fn the_line_of_the_dependency_is_named() {
        let manifest = "[dependencies]\ntokio.workspace = true\n[lints]\nworkspace = true\n";
        let workspace = Workspace::of(&[("crates/homeostat-core/Cargo.toml", manifest)])
            .with(vec![member("homeostat-core", &["tokio"])]);
        let found = check(&workspace);
        let place = "crates/homeostat-core/Cargo.toml:2: ";
        assert!(found.iter().all(|problem| problem.to_string().starts_with(place)), "{found:?}");
        assert_eq!(found.len(), 1);
    }

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
