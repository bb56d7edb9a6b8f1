//! `apply` beside the daemon: the daemon holds the lock, so it gets the document.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::{OnRelease, Strictness};

use super::apply::{Asked, confirm};
use super::control::print_report;
use super::left_trial::is_locked;
use super::plan::plan;
use super::trial::{self, Following};
use crate::client::Client;
use crate::confirmed::ConfirmedDocuments;
use crate::context::Context;
use crate::failure::{self, Relayed, helped};
use crate::output::summary;
use crate::wire::{Ask, Handed, Request, millis};

/// Where a daemon of the same owner holds the lock, it takes the document; else the error stands.
pub(super) fn instead(
    error: anyhow::Error,
    asked: &Asked<'_>,
    context: &Context,
    document: &Document,
) -> Result<ExitCode> {
    let client = if is_locked(&error) { Client::try_connect(&context.socket) } else { None };
    let Some(client) = client else { return Err(error) };
    drop(client);
    let caller = &context.caller;
    if caller.strictness == Strictness::Strict || caller.on_release == OnRelease::Restore {
        return Err(helped(
            "the daemon takes the document, and it has its own ways",
            "leave out --strict and --revert-on-release, or start the daemon with them",
        ));
    }
    to_daemon(asked, context, document, || Ok(()))
}

/// Hands the document to a daemon that `start` starts, or that runs already.
pub(super) fn to_daemon(
    asked: &Asked<'_>,
    context: &Context,
    document: &Document,
    start: impl FnOnce() -> Result<()>,
) -> Result<ExitCode> {
    let caller = &context.caller;
    let files = agreed(asked, context, document)?;
    let (request, confirm_within_ms) = request(asked, context, &files)?;
    start()?;
    let following = Following {
        socket: &context.socket,
        confirmed: ConfirmedDocuments::of(&context.caller.state_dir, &caller.owner),
        within_ms: confirm_within_ms.unwrap_or_default(),
        confirm: trial::confirm_command(&caller.state_dir, &caller.owner),
        color: context.color,
        json: asked.args.form.json,
    };
    let client = Client::connect(&context.socket)?.by_right(&context.right);
    let code = match client.ask(request) {
        Ok(answer) => print_report(&answer, asked.args.form, context.color)?,
        // The holder died: what it began ends all the same.
        Err(error) if !error.is::<Relayed>() && following.confirmed.open_trial().is_some() => {
            failure::warn(&error, context.color);
            return trial::follow(&following);
        }
        Err(error) => return Err(error),
    };
    if confirm_within_ms.is_some() { trial::follow(&following) } else { Ok(code) }
}

/// The request for files that are handed over, and the time of its trial.
pub(super) fn request(
    asked: &Asked<'_>,
    context: &Context,
    files: &[PathBuf],
) -> Result<(Request, Option<u64>)> {
    let handed = Handed {
        paths: files.iter().map(|path| absolute(path)).collect::<Result<_>>()?,
        top: context.top_scope()?.identity,
        protocol: context.caller.mark.0,
    };
    let ask = Ask { text: asked.args.form.drawing(context.detail), leave: context.leave };
    let (within, terms) = asked.args.trial().unzip();
    let (confirm_within_ms, terms) = (within.map(millis), terms.unwrap_or_default());
    Ok((Request::Apply { handed, ask, confirm_within_ms, terms }, confirm_within_ms))
}

/// The files to hand over, once what will be done is what was planned, or was confirmed.
fn agreed(asked: &Asked<'_>, context: &Context, document: &Document) -> Result<Vec<PathBuf>> {
    if let Some(saved) = &asked.saved {
        saved.check(&plan(context, document)?)?;
        return saved.files();
    }
    if !asked.args.yes {
        let reports = plan(context, document)?;
        if summary(&reports).total() > 0 {
            confirm(context, &reports, asked.args.form)?;
        }
    }
    Ok(asked.args.documents.documents.clone())
}

/// The daemon runs in another directory, and reads no input of ours.
fn absolute(path: &Path) -> Result<PathBuf> {
    if path == Path::new("-") {
        return Err(helped(
            "the daemon takes the document, and it cannot read this standard input",
            "write the document to a file",
        ));
    }
    std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))
}
