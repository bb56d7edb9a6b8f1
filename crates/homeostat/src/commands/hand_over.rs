//! `apply` beside the daemon: the daemon holds the lock, so it gets the document.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::{Cascades, Error, MassDelete, OnRelease, SqlitePages, Strictness};

use super::apply::{Asked, confirm};
use super::control::{ask, print_report};
use crate::cli::ApplyArgs;
use crate::client::Client;
use crate::commands::block_on;
use crate::context::Context;
use crate::failure::Helped;
use crate::machine::Machine;
use crate::output::{Told, summary};
use crate::wire::{Ask, Handed, Leave, Request};

/// Where a daemon of the same owner holds the lock, it takes the document; else the error stands.
pub(super) fn instead(
    error: anyhow::Error,
    asked: &Asked<'_>,
    (context, document): (&Context, &Document),
) -> Result<ExitCode> {
    let args = asked.args;
    let is_locked = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref::<Error>(), Some(Error::Locked { .. })));
    let client = if is_locked { Client::try_connect(&context.socket) } else { None };
    let Some(client) = client else { return Err(error) };
    refuse_own_ways(context)?;
    let files = agreed(asked, (context, document))?;
    let handed = Handed {
        paths: paths(&files)?,
        top: context.top_scope()?.identity,
        protocol: context.caller.mark.0,
    };
    let form = args.form.form();
    let ask = Ask { leave: leave(context), ..ask(form, context.detail) };
    let answer = client.ask(Request::Apply { handed, ask })?;
    print_report(&answer, form, context.color)
}

/// What the daemon's passes do is decided where it is started.
fn refuse_own_ways(context: &Context) -> Result<()> {
    let is_own = context.caller.strictness == Strictness::Strict
        || context.caller.on_release == OnRelease::Restore;
    if is_own {
        return Err(Helped::error(
            "the daemon takes the document, and it has its own ways",
            "leave out --strict and --revert-on-release, or start the daemon with them",
        ));
    }
    Ok(())
}

fn leave(context: &Context) -> Leave {
    Leave {
        mass_delete: context.caller.guards.mass_delete == MassDelete::Allow,
        cascades: context.caller.guards.cascades == Cascades::Allow,
    }
}

/// The files to hand over, once what will be done is what was planned, or somebody said yes to it.
fn agreed(asked: &Asked<'_>, (context, document): (&Context, &Document)) -> Result<Vec<PathBuf>> {
    if let Some(saved) = &asked.saved {
        saved.check(&plan(context, document)?)?;
        return saved.files();
    }
    if !asked.args.yes {
        agree(asked.args, (context, document))?;
    }
    Ok(asked.args.documents.documents.clone())
}

fn agree(args: &ApplyArgs, (context, document): (&Context, &Document)) -> Result<()> {
    let told = plan(context, document)?;
    if summary(&told).total() == 0 {
        return Ok(());
    }
    confirm(context, &told, args.form.form())
}

fn plan(context: &Context, document: &Document) -> Result<Vec<Told>> {
    let pages = SqlitePages::open(&context.state_dir)?;
    let machine = Machine::bind(context, document, &pages)?;
    block_on(machine.plan(&pages))?
}

/// The daemon runs in another directory, and reads no input of ours.
fn paths(documents: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute = |path: &PathBuf| {
        if path == Path::new("-") {
            return Err(Helped::error(
                "the daemon takes the document, and it cannot read this standard input",
                "write the document to a file",
            ));
        }
        std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))
    };
    documents.iter().map(absolute).collect()
}
