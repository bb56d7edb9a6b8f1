//! `homeostat check`: parse and resolve only.

use std::process::ExitCode;

use anyhow::Result;
use homeostat_registry::Lists;

use crate::cli::Documents;
use crate::provider::load;
use crate::registry;

/// Success is quiet.
pub(crate) fn run(args: &Documents) -> Result<ExitCode> {
    let document = load(&args.documents)?;
    registry::resolve(&document, Lists::Read)?;
    Ok(ExitCode::SUCCESS)
}
