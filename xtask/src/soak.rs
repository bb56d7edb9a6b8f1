//! `cargo xtask soak`: what takes longer than a test run should.

use anyhow::Result;

use crate::run::Program;
use crate::steps::{Step, run_all};

/// A multiple of the usual length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) u32);

impl Default for Length {
    fn default() -> Self {
        Length(1)
    }
}

/// With `filters` only the tests whose names contain one of them run, and no other step.
pub(crate) fn soak(length: Length, filters: &[String]) -> Result<()> {
    run_all(&steps(length, filters))
}

/// All soak steps: a new one is one more entry.
fn steps(Length(times): Length, filters: &[String]) -> Vec<Step> {
    // Tests whose number of cases is bounded raise the bound when the variable is set,
    // and some by its number.
    let tests = Program::cargo(&["test", "--workspace", "--profile", "soak", "--locked"])
        .env("HOMEOSTAT_SOAK", times.to_string())
        .arguments_after("--", filters);
    let mut steps = vec![Step::Setup, Step::Program("soak tests", tests)];
    if filters.is_empty() {
        steps.push(Step::Deny);
        // Compares the simulator with a client and an API description of others.
        let judges = Program::new("python3", &["xtask/pve/judge.py"]);
        steps.push(Step::Program("simulator judges", judges));
        steps.push(Step::SoakVm);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_run_as_fast_code_with_the_soak_variable() {
        let steps = steps(Length(3), &["ledger".to_owned()]);
        let Some(Step::Program(_, program)) = steps.last() else { panic!("{steps:?}") };
        let typed = "HOMEOSTAT_SOAK=3 cargo test --workspace --profile soak --locked -- ledger";
        assert_eq!(program.to_string(), typed);
    }

    #[test]
    fn the_simulator_is_judged_by_others_unless_tests_are_chosen() {
        let is_judged = |steps: &[Step]| {
            steps.iter().any(|step| matches!(step, Step::Program("simulator judges", _)))
        };
        assert!(is_judged(&steps(Length::default(), &[])));
        assert!(!is_judged(&steps(Length::default(), &["ledger".to_owned()])));
    }

    #[test]
    fn dependencies_are_checked_unless_tests_are_chosen() {
        assert!(steps(Length::default(), &[]).contains(&Step::Deny));
        assert!(!steps(Length::default(), &["ledger".to_owned()]).contains(&Step::Deny));
    }

    #[test]
    fn the_second_kernel_comes_last_and_only_without_a_filter() {
        assert_eq!(steps(Length::default(), &[]).last(), Some(&Step::SoakVm));
        assert!(!steps(Length(1), &["ledger".to_owned()]).contains(&Step::SoakVm));
    }
}
