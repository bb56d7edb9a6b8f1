//! `homeostat check`: parse and resolve only.

use std::process::ExitCode;

use anyhow::Result;
use homeostat_registry::Lists;

use crate::cli::{Documents, Global};
use crate::context::owner;
use crate::failure;
use crate::provider::load;
use crate::registry;

/// Success is quiet; what is possible and probably not meant is a warning.
pub(crate) fn run(args: &Documents, global: &Global) -> Result<ExitCode> {
    let document = load(&args.documents)?;
    owner(global, &document.settings)?;
    registry::resolve(&document, Lists::Read)?;
    for warning in registry::warnings(&document) {
        failure::warn(&anyhow::Error::msg(warning), global.color);
    }
    Ok(ExitCode::SUCCESS)
}
