//! One file a command; this one picks.

mod apply;
mod check;
mod demo;
mod man;
mod plan;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use homeostat_document::Document;

use crate::cli::{Cli, Command};
use crate::failure::Helped;
use crate::output::stream;

/// Commands of the design that come with later parts.
const LATER: [&str; 14] = [
    "run", "status", "events", "journal", "pause", "resume", "resync", "reload", "adopt",
    "release", "forget", "confirm", "rollback", "guest",
];

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let global = cli.global;
    match cli.command {
        Command::Check(args) => check::run(&args, &global),
        Command::Plan(args) => plan::run(&args, global),
        Command::Verify(args) => plan::verify(&args, global),
        Command::Apply(args) => apply::run(&args, global),
        Command::Show(args) => show::run(&args, global),
        Command::Demo => demo::run(global),
        Command::Schema => print_schema(),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "homeostat",
                &mut std::io::stdout(),
            );
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => man::run(),
        Command::Other(words) => Err(unknown(&words)),
    }
}

fn print_schema() -> Result<ExitCode> {
    use std::io::Write as _;
    let schema = serde_json::to_string_pretty(&homeostat_document::schema())?;
    stream::ignore_closed_pipe(writeln!(std::io::stdout(), "{schema}"))?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(words: &[std::ffi::OsString]) -> anyhow::Error {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if LATER.contains(&word.as_str()) {
        return not_built(&format!("`homeostat {word}`"));
    }
    Helped::error(format!("there is no command `{word}`"), "`homeostat --help` lists the commands")
}

/// The answer to what the design has and this version has not.
pub(crate) fn not_built(what: &str) -> anyhow::Error {
    Helped::error(
        format!("{what} is not built in yet"),
        "`check`, `plan`, `apply`, `verify` and `show` work in this version",
    )
}

/// Reads the documents; every mistake in them is shown at once.
fn load(paths: &[PathBuf]) -> Result<Document> {
    Ok(homeostat_document::load(paths)?)
}

/// Drives a pass. Everything runs on this one thread, so that file access follows its namespace.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}
