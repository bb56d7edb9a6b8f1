//! Builds and selects the test programs that run in the virtual machine.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::Program;

/// The packages with kernel tests, in the order in which they run.
const PACKAGES: &[&str] = &[
    "homeostat-netns",
    "homeostat-netlink",
    "homeostat-namespaces",
    "homeostat-modules",
    "homeostat-knobs",
    "homeostat-rtnl",
    "homeostat-ethtool",
    "homeostat-qdisc",
    "homeostat-nft",
    "homeostat",
];

/// Test programs of these packages that are left out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "homeostat-ethtool/laws",
        "starts `ethtool` hundreds of times, which is slow in an emulated machine",
    ),
    ("homeostat-netlink/uapi", "compares with the C headers of the machine that builds"),
    ("homeostat/e2e", "needs a Debian with systemd, and files of the repository"),
    ("homeostat/fleet", "needs etcd and ssh-keygen"),
    ("homeostat/readme", "needs files of the repository"),
];

/// The test programs of a short run.
pub(crate) const SHORT: &[&str] = &[
    "homeostat-netns/kernel",
    "homeostat-knobs/controllers",
    "homeostat-rtnl/bridges",
    "homeostat-nft/flowtables",
    "homeostat/hosts",
];

/// A program that cargo has built from a package's `tests` directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// `PACKAGE/TARGET`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds the tests and returns the programs whose names contain one of the words; without words, all of them.
pub(crate) fn build(words: &[&str], profile: Option<&str>) -> Result<Vec<TestProgram>> {
    choose(&built(&command(targets(words).as_deref(), profile).read()?)?, words)
}

/// The test programs that are built: those that are named whole, `PACKAGE/TARGET`, if all are.
fn targets(words: &[&str]) -> Option<Vec<String>> {
    let target = |word: &&str| {
        let (package, target) = word.split_once('/')?;
        (PACKAGES.contains(&package) && !target.is_empty()).then(|| target.to_owned())
    };
    let targets: Option<Vec<String>> = words.iter().map(target).collect();
    targets.filter(|targets| !targets.is_empty())
}

/// Builds the whole workspace, as the other tasks do: for a part of it cargo would select other features and build
/// everything again. The pattern includes test programs with `test = false`, which plain `cargo test` leaves out.
fn command(targets: Option<&[String]>, profile: Option<&str>) -> Program {
    let mut arguments = vec!["test", "--workspace", "--locked", "--no-run"];
    let all = ["*".to_owned()];
    for target in targets.unwrap_or(&all) {
        arguments.extend(["--test", target]);
    }
    let format = "--message-format=json-render-diagnostics";
    let profile: Vec<String> = profile.map(str::to_owned).into_iter().collect();
    Program::cargo(&[&arguments[..], &[format]].concat()).arguments_after("--profile", &profile)
}

/// The test programs of all packages, from the messages of cargo.
fn built(messages: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo wrote no JSON")?;
        programs.extend(test_program(&message));
    }
    Ok(programs)
}

fn test_program(message: &Value) -> Option<TestProgram> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = text("/target/kind/0") == Some("test");
    let package = text("/manifest_path")?.strip_suffix("/Cargo.toml")?.rsplit('/').next()?;
    let (target, path) = (text("/target/name")?, text("/executable")?);
    is_test.then(|| TestProgram { name: format!("{package}/{target}"), path: path.into() })
}

/// Each word must be part of a name.
fn choose(built: &[TestProgram], words: &[&str]) -> Result<Vec<TestProgram>> {
    let is_left_out = |name: &str| LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
    let of = |package: &&str| {
        let start = format!("{package}/");
        let here = move |name: &str| name.starts_with(&start) && !is_left_out(name);
        built.iter().filter(move |program| here(&program.name)).cloned()
    };
    let mut programs: Vec<TestProgram> = PACKAGES.iter().flat_map(of).collect();
    for word in words {
        if !programs.iter().any(|program| program.name.contains(word)) {
            let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
            bail!("no test program is named `{word}`\nhelp: there are {}", names.join(", "));
        }
    }
    programs
        .retain(|program| words.is_empty() || words.iter().any(|word| program.name.contains(word)));
    Ok(programs)
}

/// One line for each test program that is left out.
pub(crate) fn left_out() -> impl Iterator<Item = String> {
    LEFT_OUT.iter().map(|(name, why)| format!("left out: {name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package: &str, target: &str, kind: &str) -> String {
        let executable = format!("/target/debug/deps/{target}-0123");
        let manifest = format!("/tree/crates/{package}/Cargo.toml");
        let target = serde_json::json!({ "kind": [kind], "name": target });
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": manifest,
            "target": target,
            "executable": executable,
        });
        message.to_string()
    }

    fn all() -> Vec<TestProgram> {
        let messages = [
            message("homeostat-rtnl", "passes", "test"),
            message("homeostat-rtnl", "bridges", "test"),
            message("homeostat-netlink", "uapi", "test"),
            message("homeostat-netlink", "kernel", "test"),
            message("homeostat-netlink", "homeostat_netlink", "lib"),
            message("homeostat-netns", "kernel", "test"),
            message("homeostat-knobs", "controllers", "test"),
            message("homeostat-nft", "flowtables", "test"),
            message("homeostat", "hosts", "test"),
            message("homeostat", "e2e", "test"),
            message("homeostat-core", "diff", "test"),
            serde_json::json!({ "reason": "build-finished", "success": true }).to_string(),
        ];
        built(&messages.join("\n")).unwrap()
    }

    fn names(words: &[&str]) -> Vec<String> {
        choose(&all(), words).unwrap().into_iter().map(|program| program.name).collect()
    }

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let found = all();
        assert_eq!(found.len(), 10, "{found:?}");
        let path = PathBuf::from("/target/debug/deps/passes-0123");
        assert_eq!(found[0], TestProgram { name: "homeostat-rtnl/passes".to_owned(), path });
    }

    #[test]
    fn all_are_those_of_the_packages_with_kernel_tests_in_their_order() {
        let expected = [
            "homeostat-netns/kernel",
            "homeostat-netlink/kernel",
            "homeostat-knobs/controllers",
            "homeostat-rtnl/passes",
            "homeostat-rtnl/bridges",
            "homeostat-nft/flowtables",
            "homeostat/hosts",
        ];
        assert_eq!(names(&[]), expected);
    }

    #[test]
    fn words_choose_by_package_and_by_target() {
        assert_eq!(names(&["/kernel"]), ["homeostat-netns/kernel", "homeostat-netlink/kernel"]);
        assert_eq!(names(&["rtnl"]), ["homeostat-rtnl/passes", "homeostat-rtnl/bridges"]);
        assert_eq!(names(SHORT), SHORT);
    }

    #[test]
    fn a_word_that_names_nothing_is_an_error() {
        let error = choose(&all(), &["uapi"]).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no test program is named `uapi`\nhelp: there are "), "{text}");
    }

    #[test]
    fn the_tests_are_built_as_the_other_tasks_build_them() {
        let typed = |profile| command(None, profile).to_string();
        let test = "cargo test --workspace --locked --no-run --test '*' \
                    --message-format=json-render-diagnostics";
        assert_eq!(typed(None), test);
        assert_eq!(typed(Some("soak")), format!("{test} --profile soak"));
        assert_eq!(
            targets(SHORT).unwrap(),
            ["kernel", "controllers", "bridges", "flowtables", "hosts"]
        );
        for words in [&["rtnl"][..], &["homeostat-rtnl/kinds", "nft"], &["homeostat-rtnl/"], &[]] {
            assert_eq!(targets(words), None, "{words:?}");
        }
    }
}
