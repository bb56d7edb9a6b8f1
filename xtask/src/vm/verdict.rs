//! Judges the output of the virtual machine. Pure.
//!
//! Every program must start, exit with success and print a result, and the machine must report that it is done.

use std::collections::BTreeMap;

use crate::run::Ended;

/// Starts each line of `init.sh`; other lines are of tests.
const OWN: &str = "homeostat-vm: ";

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    programs: BTreeMap<String, Run>,
    running: Option<String>,
    passed: u64,
    failed: u64,
    is_done: bool,
}

#[derive(Debug, Default)]
struct Run {
    has_started: bool,
    status: Option<String>,
    has_result: bool,
}

/// What to show of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    /// Of a test.
    Output(&'a str),
    Heading(String),
    Nothing,
}

impl Verdict {
    pub(crate) fn on<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let programs = names.map(|name| (name.to_owned(), Run::default())).collect();
        Self { programs, ..Self::default() }
    }

    /// Takes one line and returns what to show of it.
    pub(crate) fn take<'a>(&mut self, line: &'a str) -> Shown<'a> {
        if let Some(own) = line.strip_prefix(OWN) {
            return self.take_own(own);
        }
        self.take_test(line);
        Shown::Output(line)
    }

    fn take_own(&mut self, line: &str) -> Shown<'static> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["kernel", release] => Shown::Heading(format!("     Booted Linux {release}")),
            ["start", name] => {
                self.running = Some(name.to_owned());
                self.program(name).has_started = true;
                Shown::Heading(format!("     Running {name}"))
            }
            ["end", name, status] => {
                self.running = None;
                self.program(name).status = Some(status.to_owned());
                Shown::Nothing
            }
            ["done"] => {
                self.is_done = true;
                Shown::Nothing
            }
            _ => Shown::Heading(format!("{OWN}{line}")),
        }
    }

    fn take_test(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.passed += count(result, " passed");
        self.failed += count(result, " failed");
        if let Some(name) = self.running.clone() {
            self.program(&name).has_result = true;
        }
    }

    fn program(&mut self, name: &str) -> &mut Run {
        self.programs.entry(name.to_owned()).or_default()
    }

    /// One line for each failure.
    pub(crate) fn problems(&self, ended: &Ended) -> Vec<String> {
        let mut problems: Vec<String> = self
            .programs
            .iter()
            .filter_map(|(name, run)| Some(format!("{name} {}", complaint(run)?)))
            .collect();
        problems.extend(self.end(ended));
        if problems.is_empty() && self.passed == 0 {
            problems.push("no test ran: no name contains one of the words".to_owned());
        }
        problems
    }

    fn end(&self, ended: &Ended) -> Option<String> {
        match ended {
            Ended::Silent(time) => {
                Some(format!("the virtual machine said nothing for {} s: it hangs", time.as_secs()))
            }
            Ended::Itself { status, success: false } => {
                Some(format!("the virtual machine ended with {status}"))
            }
            Ended::Itself { .. } if self.is_done => None,
            Ended::Itself { .. } | Ended::Cut => {
                Some("the virtual machine died before it was done".to_owned())
            }
        }
    }

    pub(crate) fn summary(&self) -> String {
        let Self { programs, passed, failed, .. } = self;
        format!("{} programs: {passed} tests passed, {failed} failed", programs.len())
    }
}

fn complaint(run: &Run) -> Option<String> {
    match (&run.status, run.has_started) {
        (None, false) => Some("never ran".to_owned()),
        (None, true) => Some("did not come to its end".to_owned()),
        (Some(status), _) if status != "0" => Some(format!("failed with exit status {status}")),
        (Some(_), _) => (!run.has_result).then(|| "printed no result".to_owned()),
    }
}

/// The number before `word` in `ok. 56 passed; 1 failed; ...`.
fn count(result: &str, word: &str) -> u64 {
    let before = result.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[&str] = &[
        "homeostat-vm: kernel 6.1",
        "homeostat-vm: start a/x",
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
        "homeostat-vm: end a/x 0",
        "homeostat-vm: start b/y",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        "homeostat-vm: end b/y 0",
        "homeostat-vm: done",
    ];

    fn verdict_of(lines: &[&str]) -> Verdict {
        let mut verdict = Verdict::on(["a/x", "b/y"].into_iter());
        for line in lines {
            verdict.take(line);
        }
        verdict
    }

    fn well() -> Ended {
        Ended::Itself { status: "exit status: 0".to_owned(), success: true }
    }

    /// The problems of a good run in which one line is replaced.
    fn check(line: &str, instead: &str, expected: &[&str]) {
        let lines: Vec<&str> = GOOD.iter().map(|&l| if l == line { instead } else { l }).collect();
        assert_ne!(lines, GOOD, "{line}");
        assert_eq!(verdict_of(&lines).problems(&well()), expected, "{instead}");
    }

    #[test]
    fn a_run_in_which_all_went_well_has_no_problem_and_counts_the_tests() {
        let verdict = verdict_of(GOOD);
        assert_eq!(verdict.problems(&well()), Vec::<String>::new());
        assert_eq!(verdict.summary(), "2 programs: 15 tests passed, 0 failed");
    }

    #[test]
    fn a_failed_program_is_named_with_its_status() {
        check(
            "homeostat-vm: end a/x 0",
            "homeostat-vm: end a/x 101",
            &["a/x failed with exit status 101"],
        );
    }

    #[test]
    fn a_program_without_a_result_has_failed() {
        check(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "",
            &["b/y printed no result"],
        );
    }

    #[test]
    fn a_machine_that_dies_has_failed_and_so_has_what_did_not_run() {
        let expected = [
            "a/x did not come to its end",
            "b/y never ran",
            "the virtual machine died before it was done",
        ];
        assert_eq!(verdict_of(&GOOD[..3]).problems(&well()), expected);
        check("homeostat-vm: done", "", &["the virtual machine died before it was done"]);
    }

    #[test]
    fn a_machine_that_hangs_or_cannot_start_has_failed() {
        let silent = Ended::Silent(std::time::Duration::from_mins(5));
        let expected = ["the virtual machine said nothing for 300 s: it hangs"];
        assert_eq!(verdict_of(GOOD).problems(&silent), expected);
        let refused = Ended::Itself { status: "exit status: 1".to_owned(), success: false };
        let expected = ["the virtual machine ended with exit status: 1"];
        assert_eq!(verdict_of(GOOD).problems(&refused), expected);
    }

    #[test]
    fn a_run_without_any_test_has_failed() {
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        let lines = GOOD.iter().map(|&l| if l.starts_with("test result") { none } else { l });
        let lines: Vec<&str> = lines.collect();
        let expected = ["no test ran: no name contains one of the words"];
        assert_eq!(verdict_of(&lines).problems(&well()), expected);
    }

    #[test]
    fn what_tests_write_is_shown_and_the_machines_own_lines_become_headings() {
        let mut verdict = Verdict::default();
        assert_eq!(verdict.take("test a ... ok"), Shown::Output("test a ... ok"));
        let heading = Shown::Heading("     Running a/x".to_owned());
        assert_eq!(verdict.take("homeostat-vm: start a/x"), heading);
        assert_eq!(verdict.take("homeostat-vm: end a/x 0"), Shown::Nothing);
    }
}
