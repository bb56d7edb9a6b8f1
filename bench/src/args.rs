//! Reads the command line.

use std::path::PathBuf;

use crate::run::Scale;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Print [`HELP`].
    Help,
    /// Name all groups and contestants.
    List,
    Run(DesiredState),
}

/// Which groups to run, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// Groups whose `group/contestant` names contain one of these; empty means all.
    pub filters: Vec<String>,
    pub rounds: usize,
    pub scale: Scale,
    /// The directory for the results.
    pub out: PathBuf,
    /// The benchmark program of another build, to compare this one with.
    pub against: Option<PathBuf>,
}

pub const HELP: &str = "\
Runs benchmarks side by side and prints one table.

Usage: cargo xtask bench [OPTIONS] [FILTER...]

  FILTER         run only the groups whose `group/contestant` names contain one of these words
  --rounds N     rounds per contestant (default 5); the table shows their median, min and max;
                 a group that takes long ends after 3
  --quick        small sizes, budgets not judged
  --full         slow contestants at full size too, which are left out otherwise
  --list         name the groups and contestants, run nothing
  --out DIR      write results.md and results.json there (default bench-results)
  --against P    run each group alternately with the benchmark program P of another build, at least
                 3 rounds each, and print one table: medians, cost ratio (above 1: this build costs
                 more), spread, and WORSE for more than 5 % with ranges that lie apart";

/// Parses the arguments. The error says what is wrong with them.
pub fn parse(words: &[String]) -> Result<Request, String> {
    let mut desired = DesiredState {
        filters: Vec::new(),
        rounds: 5,
        scale: Scale::Full,
        out: "bench-results".into(),
        against: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "--list" => return Ok(Request::List),
            "--quick" => desired.scale = Scale::Quick,
            "--full" => desired.scale = Scale::Whole,
            "--rounds" => desired.rounds = rounds(value()?)?,
            "--out" => desired.out = value()?.into(),
            "--against" => desired.against = Some(value()?.into()),
            option if option.starts_with('-') => {
                return Err(format!("there is no option `{option}`"));
            }
            filter => desired.filters.push(filter.to_owned()),
        }
    }
    Ok(Request::Run(desired))
}

fn rounds(word: &str) -> Result<usize, String> {
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`--rounds` wants a number above 0, not `{word}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Request, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn options_and_filters_mix() {
        let expected = DesiredState {
            filters: vec!["diff".to_owned(), "ledger".to_owned()],
            rounds: 3,
            scale: Scale::Quick,
            out: "/tmp/x".into(),
            against: Some("/tmp/old".into()),
        };
        let line = "diff --rounds 3 --quick --out /tmp/x --against /tmp/old ledger";
        assert_eq!(parse_line(line), Ok(Request::Run(expected)));
    }

    #[test]
    fn without_words_everything_runs_in_full() {
        let expected = DesiredState {
            filters: Vec::new(),
            rounds: 5,
            scale: Scale::Full,
            out: "bench-results".into(),
            against: None,
        };
        assert_eq!(parse_line(""), Ok(Request::Run(expected)));
    }

    #[test]
    fn slow_contestants_are_asked_for() {
        let Ok(Request::Run(desired)) = parse_line("--full") else { panic!("no run") };
        assert_eq!(desired.scale, Scale::Whole);
    }

    #[test]
    fn help_and_list_run_nothing() {
        assert_eq!(parse_line("diff --help"), Ok(Request::Help));
        assert_eq!(parse_line("--list"), Ok(Request::List));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |line: &str, mistake: &str| {
            assert_eq!(parse_line(line), Err(mistake.to_owned()), "{line}");
        };
        check("--round 3", "there is no option `--round`");
        check("--rounds", "`--rounds` needs a value");
        check("--rounds 0", "`--rounds` wants a number above 0, not `0`");
        check("--rounds many", "`--rounds` wants a number above 0, not `many`");
    }
}
