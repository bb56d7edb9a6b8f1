//! `cargo xtask soak`: what takes longer than a test run should.

use std::num::NonZero;

use anyhow::Result;

use crate::run::Program;
use crate::steps::{Step, run_all};
use crate::vm::{self, Order};
use crate::{deb, deny, package, setup};

/// Runs the tests `times` as long. With `filters` only the tests whose names contain one of them run, and no other
/// step.
pub(crate) fn soak(times: NonZero<u32>, filters: &[String]) -> Result<()> {
    run_all(&steps(times, filters))
}

/// All soak steps: a new one is one more entry.
fn steps(times: NonZero<u32>, filters: &[String]) -> Vec<Step> {
    // Tests whose number of cases is bounded raise the bound when the variable is set,
    // and some by its number.
    let tests = Program::cargo(&["test", "--workspace", "--profile", "soak", "--locked"])
        .env("HOMEOSTAT_SOAK", times.to_string())
        .arguments_after("--", filters);
    let mut steps = vec![Step::task("setup", setup::setup), Step::program("soak tests", tests)];
    if filters.is_empty() {
        // Compares the simulator with a client and an API description of others.
        let judges = Program::new("python3", &["xtask/pve/judge.py"]);
        steps.extend([
            Step::task("deny", deny::deny),
            Step::task("package --verify", || package::package(true)),
            Step::task("deb --twice", || deb::deb(true)),
            Step::program("simulator judges", judges),
            Step::task("vm", || vm::vm(&Order::soak())),
            Step::task("vm --trials", || vm::vm(&Order::soak_trials())),
        ]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(times: u32, filters: &[&str]) -> Vec<String> {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let steps = steps(NonZero::new(times).unwrap(), &filters);
        steps.into_iter().map(|step| step.command).collect()
    }

    #[test]
    fn all_steps_run_and_the_second_kernel_comes_last() {
        let expected = [
            "cargo xtask setup",
            "HOMEOSTAT_SOAK=1 cargo test --workspace --profile soak --locked",
            "cargo xtask deny",
            "cargo xtask package --verify",
            "cargo xtask deb --twice",
            "python3 xtask/pve/judge.py",
            "cargo xtask vm",
            "cargo xtask vm --trials",
        ];
        assert_eq!(commands(1, &[]), expected);
    }

    #[test]
    fn a_filter_runs_the_chosen_tests_and_nothing_else() {
        let expected = [
            "cargo xtask setup",
            "HOMEOSTAT_SOAK=3 cargo test --workspace --profile soak --locked -- ledger",
        ];
        assert_eq!(commands(3, &["ledger"]), expected);
    }
}
