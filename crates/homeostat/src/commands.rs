//! One file a command; this one picks.

mod apply;
mod check;
mod control;
mod demo;
mod doctor;
mod events;
pub(crate) mod fleet;
mod hand_over;
mod history;
mod hold;
mod holder;
mod journal;
pub(crate) mod left_trial;
mod man;
mod order;
mod pieces;
pub(crate) mod plan;
mod run;
pub(crate) mod saved;
mod show;
mod status;
mod trial;
mod uninstall;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};

use crate::cli::{Cli, Command};
use crate::failure::helped;
use crate::orders;
use crate::output::stream;
use crate::registry;
use crate::wire::Request;

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let mut global = cli.global;
    if let Some(path) = &global.order {
        global.right = orders::read(path)?;
    }
    match cli.command {
        Command::Check(args) => check::run(&args, &global),
        Command::Plan(args) => plan::run(&args, global),
        Command::Verify(args) => plan::verify(&args, global),
        Command::Apply(args) => apply::run(&args, global),
        Command::Run(args) => run::run(&args, &global),
        Command::Status(args) => status::run(&args, &global),
        Command::Events(args) => events::run(&args, &global),
        Command::Pause(args) => control::pause(args, &global),
        Command::Resume(args) => control::resume(args, &global),
        Command::Resync(form) => control::run_passes(form, &global, Request::Resync),
        Command::Reload(form) => control::run_passes(form, &global, Request::Reload),
        Command::Confirm(args) => trial::confirm(&args, &global),
        Command::Rollback(args) => trial::roll_back(&args, global),
        Command::Put(args) => pieces::put(args, &global),
        Command::Drop(args) => pieces::drop_piece(&args, &global),
        Command::Hold(args) => hold::hold(&args, &global),
        Command::Unhold(args) => hold::unhold(&args, &global),
        Command::Order(args) => order::run(&args, global),
        Command::Adopt(args) => control::adopt(args, &global),
        Command::Release(args) => control::release(args, &global),
        Command::Forget(args) => control::forget(args, &global),
        Command::Source(command) => command.run(global),
        Command::HoldTrial(args) => holder::run(&args, global),
        Command::EndLeftTrial(args) => holder::end_left_trial(&args, global),
        Command::History(args) => history::run(&args, &global),
        Command::Journal(args) => journal::run(&args, &global),
        Command::Show(args) => show::run(&args, global),
        Command::Uninstall(args) => uninstall::run(&args, global),
        Command::Doctor(args) => doctor::run(&args, &global),
        Command::Demo(args) => demo::run(&args, global),
        Command::Fleet(args) => fleet::run(&args, &global),
        Command::Schema => print_schema(),
        Command::Completions { shell } => print_completions(shell),
        Command::Man(args) => man::run(&args),
        Command::Other(words) => Err(unknown(&words)),
    }
}

fn print_schema() -> Result<ExitCode> {
    let schema = serde_json::to_string_pretty(&registry::READER.schema())?;
    stream::ignore_closed_pipe(writeln!(std::io::stdout(), "{schema}"))?;
    Ok(ExitCode::SUCCESS)
}

fn print_completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    // Gathered first: the generator panics when its reader stops early.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "homeostat", &mut script);
    stream::ignore_closed_pipe(std::io::stdout().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(words: &[OsString]) -> anyhow::Error {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let help = match similar(&word) {
        Some(command) => format!("did you mean `{command}`?"),
        None => "`homeostat --help` lists the commands".to_owned(),
    };
    helped(format!("there is no command `{word}`"), help)
}

/// The command that was probably meant.
fn similar(word: &str) -> Option<String> {
    // Our own set of words takes any command, for the sake of those that come later.
    let known = clap::Command::new("homeostat").subcommands(Cli::command().get_subcommands());
    let error = known.try_get_matches_from(["homeostat", word]).err()?;
    match error.get(ContextKind::SuggestedSubcommand)? {
        ContextValue::Strings(commands) => commands.last().cloned(),
        _ => None,
    }
}

/// Drives a pass. Everything runs on this one thread, so that file access follows its namespace.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(runtime()?.block_on(future))
}

/// Starts no thread.
fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
