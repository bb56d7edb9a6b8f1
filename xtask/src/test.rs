//! `cargo xtask test`: every check that a change must pass.

use anyhow::Result;

use crate::run::Program;
use crate::steps::{Step, run_all};

/// Which checks and tests to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) extent: Extent,
    /// Parts of test names; empty means all tests.
    pub(crate) filters: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    /// Without clippy, doc and the second kernel.
    Fast,
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
    let mut steps = vec![Step::Setup, Step::Program("fmt", fmt)];
    if choice.extent == Extent::Full {
        steps.extend([
            Step::Program("clippy", clippy()),
            Step::Program("clippy vm", clippy_vm()),
            Step::Program("doc", doc()),
        ]);
    }
    steps.push(Step::Program("test", test.arguments_after("--", &choice.filters)));
    if choice.extent == Extent::Full && choice.filters.is_empty() {
        steps.push(Step::ShortVm);
    }
    steps.push(Step::Tidy);
    steps
}

fn clippy() -> Program {
    Program::cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"])
}

/// `--all-targets` leaves out the tests with `test = false`, which `cargo xtask vm` runs; the pattern includes them.
fn clippy_vm() -> Program {
    Program::cargo(&["clippy", "--workspace", "--test", "*", "--locked", "--", "-Dwarnings"])
}

fn doc() -> Program {
    Program::cargo(&["doc", "--workspace", "--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-Dwarnings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(extent: Extent, filters: &[&str]) -> Vec<String> {
        let filters = filters.iter().map(ToString::to_string).collect();
        let shown = |step: &Step| match step {
            Step::Program(_, program) => program.to_string(),
            other => format!("{other:?}"),
        };
        steps(&Choice { extent, filters }).iter().map(shown).collect()
    }

    #[test]
    fn a_full_run_has_all_steps_in_order() {
        let expected = [
            "Setup",
            "cargo fmt --all --check",
            "cargo clippy --workspace --all-targets --locked -- -Dwarnings",
            "cargo clippy --workspace --test '*' --locked -- -Dwarnings",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked",
            "PROPTEST_RNG_SEED=76 cargo test --workspace --locked",
            "ShortVm",
            "Tidy",
        ];
        assert_eq!(commands(Extent::Full, &[]), expected);
    }

    #[test]
    fn a_fast_run_leaves_out_clippy_doc_and_vm_and_a_filter_reaches_the_tests_only() {
        let expected = [
            "Setup",
            "cargo fmt --all --check",
            "PROPTEST_RNG_SEED=76 cargo test --workspace --locked -- pacing",
            "Tidy",
        ];
        assert_eq!(commands(Extent::Fast, &["pacing"]), expected);
    }
}
