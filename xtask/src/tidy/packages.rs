//! The packages of the workspace and its dependencies, by `cargo metadata`.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::Program;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The registry; none for members.
    pub(crate) source: Option<String>,
    /// The path of its manifest, for members from the root of the workspace.
    pub(crate) manifest: String,
    /// Without dependencies of tests, with build dependencies.
    pub(crate) dependencies: Vec<String>,
}

pub(crate) fn read() -> Result<Vec<Package>> {
    let about = Program::cargo(&["-vV"]).read()?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("cargo does not tell its host")?;
    // Without the platform, cargo would download crates that only other systems need.
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
    parse(&Program::cargo(&arguments).read()?)
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text).context("cargo metadata is not JSON")?;
    let root = string(&metadata, "workspace_root").context("cargo metadata names no root")?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.context("cargo metadata names no packages")?;
    packages.iter().map(|package| read_package(package, &root)).collect()
}

fn read_package(package: &Value, root: &str) -> Result<Package> {
    let manifest = string(package, "manifest_path").unwrap_or_default();
    let inside = manifest.strip_prefix(root).map(|path| path.trim_start_matches('/').to_owned());
    let dependencies = package.get("dependencies").and_then(Value::as_array);
    Ok(Package {
        name: string(package, "name").context("cargo metadata has a package without a name")?,
        description: string(package, "description").unwrap_or_default(),
        source: string(package, "source"),
        manifest: inside.unwrap_or(manifest),
        dependencies: dependencies.into_iter().flatten().filter_map(shipped).collect(),
    })
}

fn shipped(dependency: &Value) -> Option<String> {
    let for_tests = string(dependency, "kind").is_some_and(|kind| kind == "dev");
    if for_tests { None } else { string(dependency, "name") }
}

fn string(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// A member `crates/NAME` with these dependencies.
#[cfg(test)]
pub(crate) fn member(name: &str, dependencies: &[&str]) -> Package {
    Package {
        name: name.to_owned(),
        description: "something".to_owned(),
        manifest: format!("crates/{name}/Cargo.toml"),
        dependencies: dependencies.iter().map(ToString::to_string).collect(),
        ..Package::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_is_read() {
        let text = r#"{"workspace_root": "/r", "packages": [{
            "name": "x", "description": "d", "source": null,
            "manifest_path": "/r/crates/x/Cargo.toml",
            "dependencies": [
                {"name": "a", "kind": null}, {"name": "b", "kind": "dev"}, {"name": "c", "kind": "build"}
            ]}]}"#;
        let expected = Package { description: "d".to_owned(), ..member("x", &["a", "c"]) };
        assert_eq!(parse(text).unwrap(), [expected]);
    }

    #[test]
    fn other_text_is_refused() {
        assert!(parse("{}").is_err());
        assert!(parse("nothing").is_err());
    }
}
