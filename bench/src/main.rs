//! Runs the chosen benchmark groups, prints one table and writes the same as Markdown and JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use homeostat_bench::args::{self, Request, Wish};
use homeostat_bench::contest::{self, Group};
use homeostat_bench::results::Results;
use homeostat_bench::{groups, machine, output};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match args::parse(&words) {
        Ok(Request::Help) => print(args::HELP),
        Ok(Request::List) => print(&list()),
        Ok(Request::Run(wish)) => run(&wish),
        Err(mistake) => {
            log(&format!("error: {mistake}\n\n{}", args::HELP));
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(wish: &Wish) -> Result<()> {
    let chosen: Vec<&Group> =
        groups::ALL.iter().copied().filter(|group| group.is_named_by(&wish.filters)).collect();
    if chosen.is_empty() {
        bail!("no group matches; `--list` names them all");
    }
    let mut results = Results {
        machine: machine::read(),
        round_count: wish.rounds,
        scale: wish.scale,
        rows: Vec::new(),
        absent: Vec::new(),
    };
    let mut failed = Vec::new();
    for group in chosen {
        log(&format!("running {} (up to {} rounds)", group.name, wish.rounds));
        match contest::run_group(group, wish.rounds, wish.scale) {
            Ok(group) => {
                results.rows.extend(group.rows);
                results.absent.extend(group.absent);
            }
            // The other groups took minutes, so their results are still shown.
            Err(error) => failed.push(format!("group `{}`: {error:#}", group.name)),
        }
    }
    let written = output::write(&results, &wish.out)?;
    print(&output::text(&results))?;
    log(&format!("written: {written}"));
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn list() -> String {
    let names = |group: &&Group| -> Vec<String> {
        group.contestants.iter().map(|one| format!("{}/{}", group.name, one.name)).collect()
    };
    groups::ALL.iter().flat_map(names).collect::<Vec<_>>().join("\n")
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("cannot write to standard output")
}

/// Writes to stderr; a closed one is ignored.
fn log(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
