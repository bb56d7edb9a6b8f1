//! `homeostat plan` and `homeostat verify`: look, compare, tell. Neither has a way to write.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::SqlitePages;

use crate::cli::{Global, PlanArgs, VerifyArgs};
use crate::commands::{block_on, saved};
use crate::context::Context;
use crate::machine::Machine;
use crate::output::text::{Closing, Detail, Drawing};
use crate::output::{Form, Told, is_converged, json, stream, text};
use crate::provider::load;

/// What a program exits with when things are not as declared, and that is no error.
pub(super) const NOT_CONVERGED: u8 = 2;

/// Shows what would change.
pub(crate) fn run(args: &PlanArgs, global: Global) -> Result<ExitCode> {
    let (context, document, told) = look(&args.documents.documents, global)?;
    if let Some(path) = &args.out {
        saved::save(path, &document, &told)?;
    }
    print(&context, &told, (args.form.form(), Closing::Plan))?;
    let is_told = args.detailed_exitcode && !is_converged(&told);
    Ok(if is_told { ExitCode::from(NOT_CONVERGED) } else { ExitCode::SUCCESS })
}

/// Tells whether the machine is as declared.
pub(crate) fn verify(args: &VerifyArgs, global: Global) -> Result<ExitCode> {
    let (context, _, told) = look(&args.documents.documents, global)?;
    let converged = is_converged(&told);
    if args.form.json || !converged || context.detail == Detail::Verbose {
        print(&context, &told, (args.form.form(), Closing::Verdict))?;
    }
    Ok(if converged { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn look(documents: &[PathBuf], global: Global) -> Result<(Context, Document, Vec<Told>)> {
    let document = load(documents)?;
    let context = Context::enter(global, &document.settings)?;
    let pages = SqlitePages::open(&context.state_dir)?;
    let machine = Machine::bind(&context, &document, &pages)?;
    let told = block_on(machine.plan(&pages))??;
    Ok((context, document, told))
}

fn print(context: &Context, told: &[Told], (form, closing): (Form, Closing)) -> Result<()> {
    let mut stdout = stream::stdout(context.color);
    let printed = match form {
        Form::Json => json::plan(told, &mut stdout),
        Form::Text(length) => {
            let drawing = Drawing { detail: context.detail, length };
            text::plan(told, drawing, closing, &mut stdout)
        }
    };
    stream::ignore_closed_pipe(printed).context("cannot write to standard output")
}
