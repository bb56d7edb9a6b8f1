//! Runs the chosen benchmark groups, prints one table and writes the same as Markdown and JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use homeostat_bench::args::{self, DesiredState, Request};
use homeostat_bench::contest::{self, Group};
use homeostat_bench::results::Results;
use homeostat_bench::{against, groups, machine, output};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match args::parse(&words) {
        Ok(Request::Help) => print(args::HELP),
        Ok(Request::List) => print(&list()),
        Ok(Request::Run(desired)) => run(&desired),
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

fn run(desired: &DesiredState) -> Result<()> {
    let chosen: Vec<&Group> =
        groups::ALL.iter().copied().filter(|group| group.is_named_by(&desired.filters)).collect();
    if chosen.is_empty() {
        bail!("no group matches; `--list` names them all");
    }
    if let Some(before) = &desired.against {
        let names: Vec<&str> = chosen.iter().map(|group| group.name).collect();
        let own = std::env::current_exe()?;
        let scale = desired.scale.option();
        return print(&against::compare(before, &own, desired.rounds, &names, scale, log)?);
    }
    let mut results = Results {
        machine: machine::read(),
        round_count: desired.rounds,
        scale: desired.scale,
        rows: Vec::new(),
        absent: Vec::new(),
    };
    let mut failed = Vec::new();
    for group in chosen {
        log(&format!("running {} (up to {} rounds)", group.name, desired.rounds));
        match contest::run_group(group, desired.rounds, desired.scale) {
            Ok(group) => {
                results.rows.extend(group.rows);
                results.absent.extend(group.absent);
            }
            // The other groups took minutes, so their results are still shown.
            Err(error) => failed.push(format!("group `{}`: {error:#}", group.name)),
        }
    }
    let written = output::write(&results, &desired.out)?;
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
