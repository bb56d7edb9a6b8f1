//! Compares this build with another one: runs each group of both programs in turn, and prints one table.
//!
//! The other program may be older: it is asked only for `--list`, and for `results.json` by `--out`. Groups and
//! contestants are matched by name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_json::Value;

use crate::output::aligned;
use crate::program;
use crate::results::Spread;
use crate::unit::{Unit, three_digits};

/// Fewer rounds than this have no median worth reading.
pub const LEAST_ROUNDS: usize = 3;

/// By `group/contestant`: the unit, and one median for each round.
type Medians = BTreeMap<String, (Unit, Vec<f64>)>;

/// Runs the chosen groups `rounds` times in the program `before` and in `after`, alternately, with the option
/// `scale`. Returns the table; `log` receives the progress and the rounds that failed.
pub fn compare(
    before: &Path,
    after: &Path,
    rounds: usize,
    chosen: &[&str],
    scale: Option<&str>,
    mut log: impl FnMut(&str),
) -> Result<String> {
    let known = program::read(before, ["--list"])?;
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    for group in chosen {
        let filter = format!("{group}/");
        if !known.lines().any(|line| line.starts_with(&filter)) {
            log(&format!("left out: {group}: {} does not have it", before.display()));
            continue;
        }
        let (mut old, mut new) = (Medians::new(), Medians::new());
        for round in 1..=rounds.max(LEAST_ROUNDS) {
            log(&format!("running {group}, round {round}"));
            for (program, medians) in [(before, &mut old), (after, &mut new)] {
                if let Err(error) = run_once(program, &filter, scale, medians) {
                    log(&format!("{group}: {error:#}"));
                }
            }
        }
        lines.extend(new.iter().filter_map(|(name, (unit, after))| {
            let (_, before) = old.get(name)?;
            line(name, *unit, Spread::of(before.clone())?, Spread::of(after.clone())?)
        }));
    }
    Ok(aligned(&lines))
}

fn run_once(
    program: &Path,
    filter: &str,
    scale: Option<&str>,
    medians: &mut Medians,
) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().to_str().context("the temporary directory is not UTF-8")?;
    program::read(program, [filter, "--rounds", "1", "--out", out].into_iter().chain(scale))?;
    let text = std::fs::read_to_string(directory.path().join("results.json"))?;
    let results: Value = serde_json::from_str(&text).context("results.json is not JSON")?;
    for row in results["rows"].as_array().context("results.json has no rows")? {
        let field = |name: &str| row[name].as_str().context("a row without names");
        let unit = Unit::deserialize(&row["unit"]).context("a row of an unknown unit")?;
        let median = row["median"].as_f64().context("a row without a median")?;
        let name = format!("{}/{}", field("group")?, field("contestant")?);
        medians.entry(name).or_insert((unit, Vec::new())).1.push(median);
    }
    Ok(())
}

const COLUMNS: [&str; 6] = ["line", "before", "after", "cost ratio", "spread", ""];

/// A cost ratio above this is named, if also the ranges of both builds lie apart.
const WORSE: f64 = 1.05;

fn line(name: &str, unit: Unit, before: Spread, after: Spread) -> Option<[String; 6]> {
    let ratio = unit.cost_ratio(after.median, before.median);
    let (low, high) =
        (unit.cost_ratio(after.min, before.max), unit.cost_ratio(after.max, before.min));
    let is_apart = low.min(high) > 1.0;
    let width = |spread: Spread| (spread.max - spread.min) / spread.median;
    let spread = width(before).max(width(after)) * 100.0;
    ratio.is_finite().then(|| {
        [
            name.to_owned(),
            unit.show(before.median),
            unit.show(after.median),
            three_digits(ratio),
            format!("{spread:.0} %"),
            if ratio > WORSE && is_apart { "WORSE" } else { "" }.to_owned(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that answers as a benchmark would, with medians that it takes from a list, one a run.
    fn fake(directory: &Path, name: &str, unit: &str, medians: &[f64]) -> std::path::PathBuf {
        let (path, list) = (directory.join(name), directory.join(format!("{name}.medians")));
        let lines: Vec<String> = medians.iter().map(ToString::to_string).collect();
        std::fs::write(&list, lines.join("\n") + "\n").unwrap();
        let row = format!(
            r#"{{"rows":[{{"group":"diff","contestant":"ours","unit":"{unit}","median":'$median'}}]}}"#
        );
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --list ] && echo diff/ours && exit\n\
             echo {name} >> {order}\nmedian=$(head -n1 {list}); sed -i 1d {list}\n\
             echo '{row}' > $5/results.json\n",
            order = directory.join("order").display(),
            list = list.display(),
        );
        let text = directory.join(format!("{name}.sh"));
        std::fs::write(&text, script).unwrap();
        // A file that this process had open for writing may be busy: a child of another test can still have it.
        let [from, to] = [&text, &path].map(|path| path.to_str().unwrap());
        program::run_quietly("install", &["-m", "755", from, to]).unwrap();
        path
    }

    #[track_caller]
    fn check(unit: &str, before: [f64; 3], after: [f64; 3], expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        let before = fake(directory.path(), "before", unit, &before);
        let after = fake(directory.path(), "after", unit, &after);
        let mut log = Vec::new();
        let table =
            compare(&before, &after, 1, &["diff", "new"], None, |line| log.push(line.to_owned()));
        let table = table.unwrap();
        assert_eq!(table.lines().nth(1), Some(expected), "{table}");
        let order = std::fs::read_to_string(directory.path().join("order")).unwrap();
        assert_eq!(order, "before\nafter\n".repeat(3), "{log:?}");
        assert!(log.last().is_some_and(|line| line.starts_with("left out: new: ")), "{log:?}");
    }

    #[test]
    fn two_builds_run_in_turn_and_their_medians_are_compared() {
        check(
            "s",
            [0.1, 0.2, 0.3],
            [0.3, 0.1, 0.2],
            "diff/ours  200 ms  200 ms  1.00        100 %",
        );
    }

    #[test]
    fn a_line_is_worse_only_if_its_ranges_lie_apart() {
        check(
            "s",
            [1.0, 1.0, 1.1],
            [1.2, 1.2, 1.3],
            "diff/ours  1.00 s  1.20 s  1.20        10 %    WORSE",
        );
        check("s", [1.0, 1.0, 1.3], [1.2, 1.2, 1.3], "diff/ours  1.00 s  1.20 s  1.20        30 %");
        check(
            "1/s",
            [9.0, 8.0, 8.0],
            [4.0, 4.0, 4.0],
            "diff/ours  8.00 /s  4.00 /s  2.00        12 %    WORSE",
        );
        check(
            "1/s",
            [4.0, 4.0, 4.0],
            [9.0, 8.0, 8.0],
            "diff/ours  4.00 /s  8.00 /s  0.50        12 %",
        );
    }
}
