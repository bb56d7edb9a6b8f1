//! Runs the chosen benchmark groups, prints one table and writes the same as Markdown and JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser as _;

use homeostat_bench::args::Args;
use homeostat_bench::results::Results;
use homeostat_bench::{Group, against, contest, groups, machine, output};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let (rounds, scale) = (args.rounds.get(), args.scale());
    let mut groups = groups::all();
    if args.list {
        let names: Vec<String> = groups.iter().flat_map(Group::names).collect();
        return print(&names.join("\n"));
    }
    groups.retain(|group| group.is_named_by(&args.filters));
    ensure!(!groups.is_empty(), "no group matches; `--list` names them all");
    if let Some(before) = &args.against {
        let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
        let own = std::env::current_exe()?;
        return print(&against::compare(before, &own, rounds, &names, scale.option(), log)?);
    }
    let machine = machine::read();
    let mut results = Results { machine, rounds, scale, rows: Vec::new(), absent: Vec::new() };
    let mut failed = Vec::new();
    for group in groups {
        log(&format!("running {} (up to {rounds} rounds)", group.name));
        match contest::run_group(&group, rounds, scale) {
            Ok(group) => {
                results.rows.extend(group.rows);
                results.absent.extend(group.absent);
            }
            // The other groups took minutes, so their results are still shown.
            Err(error) => failed.push(format!("group `{}`: {error:#}", group.name)),
        }
    }
    let written = output::write(&results, &args.out)?;
    print(&output::text(&results))?;
    log(&format!("written: {written}"));
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("cannot write to standard output")
}

/// Writes to stderr; a closed one is ignored.
fn log(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
