//! Runs named steps one after the other and stops at the first that fails.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::run::Program;
use crate::{clock, console};

/// The budget of all tests together on two cores; slower tests belong to `cargo xtask soak`.
const TEST_BUDGET: Duration = Duration::from_mins(8);

/// One step of a task.
pub(crate) struct Step {
    /// For headings and failures.
    name: &'static str,
    /// Runs this step and nothing else.
    pub(crate) command: String,
    run: Box<dyn Fn() -> Result<()>>,
}

impl Step {
    pub(crate) fn program(name: &'static str, program: Program) -> Self {
        Self { name, command: program.to_string(), run: Box::new(move || program.run()) }
    }

    /// What `cargo xtask` does with these words.
    pub(crate) fn task(words: &'static str, run: impl Fn() -> Result<()> + 'static) -> Self {
        let name = words.split(' ').next().unwrap_or(words);
        Self { name, command: format!("cargo xtask {words}"), run: Box::new(run) }
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
    let (Step { name, command, run }, start) = (step, clock::now());
    log(&format!("== {name}: {command}"));
    let ended = run();
    let took = start.elapsed();
    log(&format!("== {name} took {:.1} s", took.as_secs_f64()));
    if let Some(warning) = slowness(name, took) {
        log(&warning);
    }
    ended.map_err(|error| {
        log(&format!("{error:#}"));
        anyhow!("step `{name}` failed; run it alone with: {command}")
    })
}

/// The warning about a step that exceeded its budget.
fn slowness(step: &str, took: Duration) -> Option<String> {
    (step == "test" && took > TEST_BUDGET).then(|| {
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
        let slow = TEST_BUDGET + Duration::from_millis(1);
        assert_eq!(slowness("test", TEST_BUDGET), None);
        assert_eq!(slowness("clippy", slow), None);
        let warning = slowness("test", slow).unwrap();
        assert!(warning.starts_with("warning: the tests took more than 480 s"), "{warning}");
    }

    #[test]
    fn the_first_failing_step_is_named_with_the_way_to_run_it_alone() {
        let steps = [
            Step::program("good", Program::new("true", &[])),
            Step::program("bad", Program::new("false", &["--now"])),
            Step::program("never reached", Program::new("no-such-program", &[])),
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
        let step = Step::program("good", Program::new("true", &["x"]));
        let mut lines = Vec::new();
        run_logged(&[step], &mut |line| lines.push(line.to_owned())).unwrap();
        let starts = ["== good: true x", "== good took ", "== 1 steps passed in "];
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
        assert_eq!(lines.len(), starts.len());
    }
}
