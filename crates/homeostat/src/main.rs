//! The command line: reads a document, binds it to the machine's sources, plans, applies, verifies.
//!
//! Start at [`commands::run`]; [`registry`] is the only list of sources.

mod checks;
mod cli;
mod client;
mod commands;
mod confirmed;
mod context;
mod converge;
mod daemon;
mod failure;
mod journal;
mod machine;
mod manual;
mod mark;
mod operator;
mod orders;
mod output;
mod person;
mod pieces;
mod provider;
mod referenced_files;
mod registry;
mod sys;
mod undo_file;
mod watch;
mod way_out;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::refuse(&error),
    };
    let color = cli.global.color;
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => failure::report(&error, color),
    }
}
