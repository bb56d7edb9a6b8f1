//! Writes results: one table as aligned text and as Markdown, and all figures as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::budget::Verdict;
use crate::results::{Absent, Results, Row};
use crate::run::Memory;
use crate::unit::{Unit, three_digits};

const COLUMNS: [&str; 10] =
    ["group", "contestant", "median", "min", "max", "x first", "at work", "held", "peak", "budget"];

/// The table as aligned text, below a line about the machine.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    lines.extend(results.rows.iter().map(cells));
    format!("{}\n\n{}{}", title(results), aligned(&lines), absent(results))
}

/// Lines of cells as text, with columns of equal width.
#[must_use]
pub fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut page = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        page.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        page.push('\n');
    }
    page
}

/// The table as Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let row =
        |cells: [String; 10]| format!("| {} |\n", cells.map(|c| c.replace('|', "\\|")).join(" | "));
    let mut page = format!("# Benchmarks\n\n{}\n\n", title(results));
    page.push_str(&row(COLUMNS.map(str::to_owned)));
    page.push_str(&row(COLUMNS.map(|_| "---".to_owned())));
    page.extend(results.rows.iter().map(|line| row(cells(line))));
    page.push_str(&absent(results));
    page
}

/// Writes `results.md` and `results.json` below `directory` and returns their names.
pub fn write(results: &Results, directory: &Path) -> Result<String> {
    let files = [
        (directory.join("results.md"), markdown(results)),
        (directory.join("results.json"), serde_json::to_string_pretty(results)? + "\n"),
    ];
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for (path, content) in &files {
        fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files.map(|(path, _)| path.display().to_string()).join(", "))
}

/// A line for each contestant that was left out.
fn absent(results: &Results) -> String {
    let line = |Absent { group, contestant, why }: &Absent| {
        format!("\nLeft out: {group}/{contestant}: {why}\n")
    };
    results.absent.iter().map(line).collect()
}

fn title(results: &Results) -> String {
    let machine = &results.machine;
    format!(
        "{}, {} cores, Linux {}; up to {} rounds, {} sizes",
        machine.processor,
        machine.cores,
        machine.kernel,
        results.rounds,
        results.scale.name()
    )
}

fn cells(row: &Row) -> [String; 10] {
    let show = |value| row.unit.show(value);
    let (held, peak) = row.memory.map_or_else(Default::default, memory_cells);
    let verdict = |Verdict { budget, verdict }: &Verdict| format!("{budget}: {verdict}");
    [
        row.group.to_owned(),
        row.contestant.to_owned(),
        show(row.spread.median),
        show(row.spread.min),
        show(row.spread.max),
        three_digits(row.ratio),
        row.at_work.map(|seconds| Unit::Seconds.show(seconds)).unwrap_or_default(),
        held,
        peak,
        row.verdicts.iter().map(verdict).collect::<Vec<_>>().join("; "),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "bytes stay far below 2^52")]
fn memory_cells(memory: Memory) -> (String, String) {
    let show = |bytes: usize| Unit::Bytes.show(bytes as f64);
    let mut held = show(memory.weight.held);
    if let Some(each) = memory.bytes_each() {
        // Writing to a string cannot fail.
        let _ = write!(held, " ({} B each)", three_digits(each));
    }
    (held, show(memory.weight.peak))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::budget::MISSED;
    use crate::machine::Machine;
    use crate::memory::Weight;
    use crate::results::Spread;
    use crate::run::Scale;

    fn results() -> Results {
        let machine = Machine { processor: "Fast".to_owned(), cores: 2, kernel: "6.18".to_owned() };
        let floor = Row {
            group: "routes",
            contestant: "floor",
            unit: Unit::Seconds,
            spread: Spread { median: 0.25, min: 0.2, max: 0.3 },
            ratio: 1.0,
            at_work: Some(0.125),
            memory: None,
            verdicts: Vec::new(),
        };
        let ours = Row {
            contestant: "ours",
            spread: Spread { median: 0.5, min: 0.5, max: 0.5 },
            ratio: 2.0,
            at_work: None,
            memory: Some(Memory { weight: Weight { held: 2048, peak: 4096 }, objects: 100 }),
            verdicts: vec![Verdict { budget: "<= 1.50 x floor".to_owned(), verdict: MISSED }],
            ..floor.clone()
        };
        let why = "not installed".to_owned();
        let absent = vec![Absent { group: "routes", contestant: "other", why }];
        Results { machine, rounds: 3, scale: Scale::Full, rows: vec![floor, ours], absent }
    }

    #[test]
    fn the_text_is_aligned() {
        let expected = "\
Fast, 2 cores, Linux 6.18; up to 3 rounds, full sizes

group   contestant  median  min     max     x first  at work  held                    peak      budget
routes  floor       250 ms  200 ms  300 ms  1.00     125 ms
routes  ours        500 ms  500 ms  500 ms  2.00              2.00 KiB (20.5 B each)  4.00 KiB  <= 1.50 x floor: MISSED

Left out: routes/other: not installed
";
        assert_eq!(text(&results()), expected);
    }

    #[test]
    fn the_markdown_is_one_table() {
        let page = markdown(&results());
        let row = "| routes | ours | 500 ms | 500 ms | 500 ms | 2.00 |  | 2.00 KiB (20.5 B each) | 4.00 KiB | <= 1.50 x floor: MISSED |";
        assert!(page.lines().any(|line| line == row), "{page}");
        assert_eq!(page.lines().filter(|line| line.starts_with('|')).count(), 4, "{page}");
    }

    #[test]
    fn the_json_has_the_figures_unrounded() {
        let json = serde_json::to_value(results()).unwrap();
        assert_eq!(json.pointer("/rows/1/median"), Some(&json!(0.5)));
        assert_eq!(json.pointer("/rows/1/memory/objects"), Some(&json!(100)));
        assert_eq!(json.pointer("/rows/1/budgets/0/verdict"), Some(&json!("MISSED")));
        assert_eq!(json.pointer("/rows/0/memory"), Some(&Value::Null));
        assert_eq!(json.pointer("/rows/0/at_work_seconds"), Some(&json!(0.125)));
        assert_eq!(json.pointer("/machine/cores"), Some(&json!(2)));
        assert_eq!(json.pointer("/left_out/0/why"), Some(&json!("not installed")));
    }
}
