//! `cargo xtask test`: every check that a change must pass.

use anyhow::Result;

use crate::run::Program;
use crate::steps::{Step, run_all};
use crate::vm::{self, Order};
use crate::{package, setup, tidy};

/// Which checks and tests to run.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Choice {
    /// Run only the tests whose name contains one of these words (other steps are unchanged)
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// Leave out clippy, doc and vm
    #[arg(long)]
    pub(crate) fast: bool,
}

/// The seed of random tests here, so that a failure is due to the change and can be repeated. `cargo xtask soak` and
/// plain `cargo test` use new seeds.
const SEED: &str = "76";

/// Runs the chosen checks.
pub(crate) fn test(choice: &Choice) -> Result<()> {
    run_all(&steps(choice))
}

fn steps(choice: &Choice) -> Vec<Step> {
    let fmt = Program::cargo(&["fmt", "--all", "--check"]);
    let test = Program::cargo(&["test", "--workspace", "--locked"]).env("PROPTEST_RNG_SEED", SEED);
    let mut steps = vec![
        Step::task("setup", setup::setup),
        Step::program("fmt", fmt),
        Step::program("fmt included", fmt_included()),
    ];
    if !choice.fast {
        steps.extend([
            Step::program("clippy", clippy()),
            Step::program("clippy vm", clippy_vm()),
            Step::program("clippy minimal", clippy_minimal()),
            Step::program("doc", doc()),
            Step::program("doc minimal", doc_minimal()),
        ]);
    }
    steps.push(Step::program("test", test.arguments_after("--", &choice.filters)));
    if !choice.fast && choice.filters.is_empty() {
        steps.push(Step::task("vm --short", || vm::vm(&Order::short())));
    }
    steps.extend([
        Step::task("package", || package::package(false)),
        Step::task("tidy", tidy::tidy),
    ]);
    steps
}

/// `cargo fmt` follows modules. It does not reach what is included in documentation, and what a test compiles by itself.
fn fmt_included() -> Program {
    let files = ["(", "-path", "*/examples/lamps/*.rs", "-o", "-path", "*/tests/ui/*.rs", ")"];
    let check = ["-exec", "rustfmt", "--check", "--edition", "2024", "{}", "+"];
    Program::new("find", &[&["crates"], &files[..], &check].concat())
}

fn clippy() -> Program {
    Program::cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"])
}

/// `--all-targets` leaves out the tests with `test = false`, which `cargo xtask vm` runs; the pattern includes them.
fn clippy_vm() -> Program {
    Program::cargo(&["clippy", "--workspace", "--test", "*", "--locked", "--", "-Dwarnings"])
}

/// What is built without the features that other members of the workspace switch on. The document's crates are left out:
/// they would do so, too.
fn clippy_minimal() -> Program {
    let options = ["clippy", "--lib", "--no-default-features", "--locked"];
    let packages = minimal_packages();
    let options = options.into_iter().chain(packages.iter().map(String::as_str));
    Program::cargo(&options.chain(["--", "-Dwarnings"]).collect::<Vec<_>>())
}

fn minimal_packages() -> Vec<String> {
    let packages = [
        "core",
        "engine",
        "kit",
        "testkit",
        "netns",
        "netlink",
        "rtnl",
        "qdisc",
        "nft",
        "namespaces",
        "modules",
        "ethtool",
        "knobs",
        "guests",
        "files",
        "render",
        "services",
        "systemd",
    ];
    packages.iter().map(|name| format!("--package=homeostat-{name}")).collect()
}

fn doc() -> Program {
    Program::cargo(&["doc", "--workspace", "--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-Dwarnings")
}

/// Links must not lead to what a feature adds.
fn doc_minimal() -> Program {
    let options = ["doc", "--no-deps", "--lib", "--no-default-features", "--locked"];
    let packages = minimal_packages();
    let options = options.into_iter().chain(packages.iter().map(String::as_str));
    Program::cargo(&options.collect::<Vec<_>>()).env("RUSTDOCFLAGS", "-Dwarnings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(fast: bool, filters: &[&str]) -> Vec<String> {
        let filters = filters.iter().map(ToString::to_string).collect();
        steps(&Choice { filters, fast }).into_iter().map(|step| step.command).collect()
    }

    #[test]
    fn a_full_run_has_all_steps_in_order() {
        let expected = [
            "cargo xtask setup",
            "cargo fmt --all --check",
            "find crates '(' -path '*/examples/lamps/*.rs' -o -path '*/tests/ui/*.rs' ')' -exec rustfmt \
             --check --edition 2024 '{}' +",
            "cargo clippy --workspace --all-targets --locked -- -Dwarnings",
            "cargo clippy --workspace --test '*' --locked -- -Dwarnings",
            "cargo clippy --lib --no-default-features --locked --package=homeostat-core \
             --package=homeostat-engine --package=homeostat-kit --package=homeostat-testkit \
             --package=homeostat-netns --package=homeostat-netlink --package=homeostat-rtnl \
             --package=homeostat-qdisc --package=homeostat-nft --package=homeostat-namespaces \
             --package=homeostat-modules --package=homeostat-ethtool --package=homeostat-knobs \
             --package=homeostat-guests --package=homeostat-files --package=homeostat-render \
             --package=homeostat-services --package=homeostat-systemd -- -Dwarnings",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --lib --no-default-features --locked \
             --package=homeostat-core --package=homeostat-engine --package=homeostat-kit \
             --package=homeostat-testkit --package=homeostat-netns --package=homeostat-netlink \
             --package=homeostat-rtnl --package=homeostat-qdisc --package=homeostat-nft \
             --package=homeostat-namespaces --package=homeostat-modules --package=homeostat-ethtool \
             --package=homeostat-knobs --package=homeostat-guests --package=homeostat-files \
             --package=homeostat-render --package=homeostat-services --package=homeostat-systemd",
            "PROPTEST_RNG_SEED=76 cargo test --workspace --locked",
            "cargo xtask vm --short",
            "cargo xtask package",
            "cargo xtask tidy",
        ];
        assert_eq!(commands(false, &[]), expected);
    }

    #[test]
    fn a_fast_run_leaves_out_clippy_doc_and_vm_and_a_filter_reaches_the_tests_only() {
        let expected = [
            "cargo xtask setup",
            "cargo fmt --all --check",
            "find crates '(' -path '*/examples/lamps/*.rs' -o -path '*/tests/ui/*.rs' ')' -exec rustfmt \
             --check --edition 2024 '{}' +",
            "PROPTEST_RNG_SEED=76 cargo test --workspace --locked -- pacing",
            "cargo xtask package",
            "cargo xtask tidy",
        ];
        assert_eq!(commands(true, &["pacing"]), expected);
    }
}
