//! `homeostat plan` and `homeostat verify`: look, compare, report. Neither has a way to write.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::SqlitePages;

use crate::cli::{FormArgs, Global, PlanArgs, VerifyArgs};
use crate::commands::{block_on, saved};
use crate::context::Context;
use crate::machine::Machine;
use crate::operator;
use crate::output::text::{Closing, Detail};
use crate::output::{SourceReport, is_converged, json, pager, stream, text};
use crate::pieces;
use crate::provider::load;
use crate::registry;

/// What a program exits with when things are not as declared, and that is no error.
pub(super) const NOT_CONVERGED: u8 = 2;

/// Shows what would change.
pub(crate) fn run(args: &PlanArgs, global: Global) -> Result<ExitCode> {
    let (context, document, reports) = look(&args.documents.documents, global)?;
    if let Some(path) = &args.out {
        saved::save(path, &document, &reports)?;
    }
    let mut warnings = registry::warnings(&document);
    warnings.extend(operator::warnings(&context, &reports));
    print(&context, &reports, args.form, Closing::Plan, &warnings)?;
    let is_failure = args.detailed_exitcode && !is_converged(&reports);
    Ok(if is_failure { ExitCode::from(NOT_CONVERGED) } else { ExitCode::SUCCESS })
}

/// Reports whether the machine is as declared.
pub(crate) fn verify(args: &VerifyArgs, global: Global) -> Result<ExitCode> {
    let (context, _, reports) = look(&args.documents.documents, global)?;
    let converged = is_converged(&reports);
    if args.form.json || !converged || context.detail == Detail::Verbose {
        print(&context, &reports, args.form, Closing::Verdict, &[])?;
    }
    Ok(if converged { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

fn look(
    documents: &[PathBuf],
    global: Global,
) -> Result<(Context, Arc<Document>, Vec<SourceReport>)> {
    let document = load(documents)?;
    let context = Context::enter(global, &document.settings)?;
    let document = pieces::join(&context, document)?;
    let reports = plan(&context, &document)?;
    Ok((context, document, reports))
}

/// Plans by looking only: nothing is opened for writing.
pub(crate) fn plan(context: &Context, document: &Document) -> Result<Vec<SourceReport>> {
    let pages = SqlitePages::open(&context.caller.state_dir)?;
    let machine = Machine::bind(context, document, &pages)?;
    block_on(machine.plan(&pages))?
}

fn print(
    context: &Context,
    reports: &[SourceReport],
    form: FormArgs,
    closing: Closing,
    warnings: &[String],
) -> Result<()> {
    let printed = match form.drawing(context.detail) {
        None => stream::print(context.color, |to| json::plan_with_warnings(reports, warnings, to)),
        Some(drawing) => pager::print(context.color, |to| {
            text::plan(reports, drawing, closing, to)?;
            warnings.iter().try_for_each(|warning| writeln!(to, "warning: {warning}"))
        }),
    };
    printed.context("cannot write to standard output")
}
