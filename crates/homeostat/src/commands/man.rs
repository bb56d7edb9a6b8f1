//! `homeostat man`: the manual page, made from the words of the command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::output::stream;

/// Prints the page in roff.
pub(crate) fn run() -> Result<ExitCode> {
    let page = clap_mangen::Man::new(Cli::command());
    stream::ignore_closed_pipe(page.render(&mut std::io::stdout()))?;
    Ok(ExitCode::SUCCESS)
}
