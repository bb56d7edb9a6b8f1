//! The command line.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Parser;

use crate::run::Scale;

/// Runs benchmarks side by side and prints one table.
#[derive(Debug, PartialEq, Eq, Parser)]
#[command(bin_name = "cargo xtask bench")]
pub struct Args {
    /// Run only the groups whose `group/contestant` names contain one of these words
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Rounds per contestant; the table shows their median, min and max; a group that takes long ends after 3
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZero<usize>,
    /// Small sizes, budgets not judged
    #[arg(long, overrides_with = "full")]
    quick: bool,
    /// Slow contestants at full size too, which are left out otherwise
    #[arg(long, overrides_with = "quick")]
    full: bool,
    /// Name the groups and contestants, run nothing
    #[arg(long)]
    pub list: bool,
    /// Write results.md and results.json there
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub out: PathBuf,
    /// Run each group alternately with the benchmark program P of another build, at least 3 rounds each, and print
    /// one table: medians, cost ratio (above 1: this build costs more), spread, and WORSE for more than 5 % with
    /// ranges that lie apart
    #[arg(long, value_name = "P")]
    pub against: Option<PathBuf>,
}

impl Args {
    #[must_use]
    pub fn scale(&self) -> Scale {
        match (self.quick, self.full) {
            (true, _) => Scale::Quick,
            (false, true) => Scale::Whole,
            (false, false) => Scale::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Args, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_filters_mix() {
        let line = "diff --rounds 3 --quick --out /tmp/x --against /tmp/old ledger";
        let args = parse_line(line).unwrap();
        assert_eq!((args.filters.join(" "), args.rounds.get()), ("diff ledger".to_owned(), 3));
        assert_eq!((args.scale(), args.list), (Scale::Quick, false));
        assert_eq!(args.out, PathBuf::from("/tmp/x"));
        assert_eq!(args.against, Some("/tmp/old".into()));
    }

    #[test]
    fn without_words_everything_runs_in_full() {
        let args = parse_line("").unwrap();
        assert_eq!((args.filters.len(), args.rounds.get()), (0, 5));
        assert_eq!((args.scale(), args.list), (Scale::Full, false));
        assert_eq!((args.out, args.against), ("bench-results".into(), None));
    }

    #[test]
    fn slow_contestants_are_asked_for() {
        assert_eq!(parse_line("--full").unwrap().scale(), Scale::Whole);
    }

    #[test]
    fn help_and_list_run_nothing() {
        assert!(parse_line("diff --help").unwrap_err().contains("Usage: cargo xtask bench"));
        assert!(parse_line("--list").unwrap().list);
    }

    #[test]
    fn mistakes_are_named() {
        let check = |line: &str, mistake: &str| {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(mistake), "{line}: {error}");
        };
        check("--round 3", "unexpected argument '--round' found");
        check("--rounds", "a value is required for '--rounds <N>'");
        check("--rounds 0", "invalid value '0' for '--rounds <N>'");
        check("--rounds many", "invalid value 'many' for '--rounds <N>'");
    }
}
