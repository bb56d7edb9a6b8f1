//! Runs named steps one after the other and stops at the first that fails.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::run::Program;
use crate::{clock, console, deny, setup, tidy, vm};

/// The budget of all tests together on two cores; slower tests belong to `cargo xtask soak`.
const TEST_BUDGET: Duration = Duration::from_mins(8);

/// One step of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Setup,
    /// With the name for headings and failures.
    Program(&'static str, Program),
    /// A few tests on a second kernel, if one is available.
    ShortVm,
    /// All kernel tests on a second kernel.
    SoakVm,
    Deny,
    Tidy,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Step::Setup => "setup",
            Step::Program(name, _) => name,
            Step::ShortVm | Step::SoakVm => "vm",
            Step::Deny => "deny",
            Step::Tidy => "tidy",
        }
    }

    /// The command that runs this step and nothing else.
    fn alone(&self) -> String {
        match self {
            Step::Program(_, program) => program.to_string(),
            Step::ShortVm => "cargo xtask vm --short".to_owned(),
            Step::Setup | Step::SoakVm | Step::Deny | Step::Tidy => {
                format!("cargo xtask {}", self.name())
            }
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Step::Setup => setup::setup(),
            Step::Program(_, program) => program.run(),
            Step::ShortVm => vm::vm_if_possible(&vm::Order::short()),
            Step::SoakVm => vm::vm(&vm::Order::soak()),
            Step::Deny => deny::deny(),
            Step::Tidy => tidy::tidy(),
        }
    }
}

/// Runs all steps; the error names the step that failed and how to run it alone.
pub(crate) fn run_all(steps: &[Step]) -> Result<()> {
    run_logged(steps, &mut console::note)
}

fn run_logged(steps: &[Step], log: &mut dyn FnMut(&str)) -> Result<()> {
    let start = clock::now();
    for step in steps {
        run_one(step, log)?;
    }
    log(&format!("== {} steps passed in {:.1} s", steps.len(), start.elapsed().as_secs_f64()));
    Ok(())
}

fn run_one(step: &Step, log: &mut dyn FnMut(&str)) -> Result<()> {
    let start = clock::now();
    log(&format!("== {}: {}", step.name(), step.alone()));
    let ended = step.run();
    let took = start.elapsed();
    log(&format!("== {} took {:.1} s", step.name(), took.as_secs_f64()));
    if let Some(warning) = slowness(step, took) {
        log(&warning);
    }
    ended.map_err(|error| {
        log(&format!("{error:#}"));
        anyhow!("step `{}` failed; run it alone with: {}", step.name(), step.alone())
    })
}

/// The warning about a step that exceeded its budget.
fn slowness(step: &Step, took: Duration) -> Option<String> {
    (step.name() == "test" && took > TEST_BUDGET).then(|| {
        let budget = TEST_BUDGET.as_secs();
        format!(
            "warning: the tests took more than {budget} s: move slow ones to `cargo xtask soak`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_take_too_long_are_warned_of_and_other_steps_are_not() {
        let step = |name| Step::Program(name, Program::new("true", &[]));
        let slow = TEST_BUDGET + Duration::from_millis(1);
        assert_eq!(slowness(&step("test"), TEST_BUDGET), None);
        assert_eq!(slowness(&step("clippy"), slow), None);
        let warning = slowness(&step("test"), slow).unwrap();
        assert!(warning.starts_with("warning: the tests took more than 480 s"), "{warning}");
    }

    #[test]
    fn the_first_failing_step_is_named_with_the_way_to_run_it_alone() {
        let steps = [
            Step::Program("good", Program::new("true", &[])),
            Step::Program("bad", Program::new("false", &["--now"])),
            Step::Program("never reached", Program::new("no-such-program", &[])),
        ];
        let mut lines = Vec::new();
        let error = run_logged(&steps, &mut |line| lines.push(line.to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "step `bad` failed; run it alone with: false --now");
        assert_eq!(
            lines.last().map(String::as_str),
            Some("`false --now` ended with exit status: 1")
        );
    }

    #[test]
    fn each_step_has_a_heading_and_its_time() {
        let step = Step::Program("good", Program::new("true", &["x"]));
        let mut lines = Vec::new();
        run_logged(&[step], &mut |line| lines.push(line.to_owned())).unwrap();
        let starts = ["== good: true x", "== good took ", "== 1 steps passed in "];
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
        assert_eq!(lines.len(), starts.len());
    }
}
