//! `cargo xtask soak`: what takes longer than a test run should.

use anyhow::Result;

use crate::run::Program;
use crate::steps::{Step, run_all};

/// Runs every soak step; `filters` choose tests by name, and leave out the virtual machine.
pub(crate) fn soak(filters: &[String]) -> Result<()> {
    run_all(&steps(filters))
}

/// All soak steps: a new one is one more entry.
fn steps(filters: &[String]) -> Vec<Step> {
    // Tests whose number of cases is bounded raise the bound when the variable is set.
    let tests = Program::cargo(&["test", "--workspace", "--profile", "soak", "--locked"])
        .env("HOMEOSTAT_SOAK", "1")
        .arguments_after("--", filters);
    let mut steps = vec![Step::Setup, Step::Program("soak tests", tests)];
    if filters.is_empty() {
        steps.push(Step::SoakVm);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_run_as_fast_code_with_the_soak_variable() {
        let steps = steps(&["ledger".to_owned()]);
        let Some(Step::Program(_, program)) = steps.last() else { panic!("{steps:?}") };
        let typed = "HOMEOSTAT_SOAK=1 cargo test --workspace --profile soak --locked -- ledger";
        assert_eq!(program.to_string(), typed);
    }

    #[test]
    fn the_second_kernel_comes_last_and_only_without_a_filter() {
        assert_eq!(steps(&[]).last(), Some(&Step::SoakVm));
        assert!(!steps(&["ledger".to_owned()]).contains(&Step::SoakVm));
    }
}
