//! `homeostat run`: the daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::{DEFAULT_OWNER, Document, OwnerName};
use homeostat_engine::{LateLedger, Ledger};
use homeostat_kit::provider::Answer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::{Global, RunArgs};
use crate::commands::{left_trial, runtime};
use crate::confirmed::{self, ConfirmedDocuments, Entry};
use crate::context::{self, Context};
use crate::daemon::trial::tried_before;
use crate::daemon::{Daemon, End, Fallback, Newer, Options, Readers, Role, log};
use crate::pieces::Pieces;
use crate::provider;
use crate::referenced_files::ReferencedFiles;

/// Each namespace takes about ten descriptors, and the usual limit is 1024. Programs that are started get the limit
/// too: `nft` does not use `select`, for which it is low.
pub(super) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, fewer namespaces can be kept.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The exit code when the process of `--netns PID` has ended.
const PROCESS_ENDED: u8 = 3;

/// Keeps the machine as declared until it is stopped.
pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<ExitCode> {
    raise_open_files();
    let arguments = &args.documents.documents;
    let runtime = runtime()?;
    let (provider, answer) = runtime.block_on(provider::open(arguments, global))?;
    let no_document = || anyhow!("the provider has no document");
    let (document, why) = match answer {
        // A fleet's provider knows by itself what was rolled back.
        Answer::DesiredState(document) if provider.is_open_ended() => (Ok(document), None),
        Answer::DesiredState(document) => {
            let why = unconfirmed(&document, global)?;
            (Ok(document), why)
        }
        Answer::Unknown { why } => (Err(why), None),
        Answer::Nothing => (Err(no_document()), None),
    };
    let owner = document.as_ref().ok().map(|document| context::owner(global, &document.settings));
    let owner = owner.transpose()?.map(|(owner, _)| owner);
    let find = || confirmed(arguments, global, owner.as_deref());
    let (document, fallback, tried_before) = match (document, why) {
        (Ok(document), None) => (document, None, false),
        (Ok(document), Some(why)) => match find() {
            Some((confirmed, entry)) => (confirmed, Some(Fallback { entry, why }), false),
            // Nobody confirmed it, but a machine without any document would be worse.
            None => (document, None, true),
        },
        (Err(why), _) => match find() {
            Some((confirmed, entry)) => (confirmed, Some(Fallback { entry, why }), false),
            None => return Err(why),
        },
    };
    let newer = fallback.is_none().then(|| newer_confirmed(&document, arguments, global));
    let newer = newer.transpose()?.flatten();
    let context = Context::enter(global.clone(), &document.settings)?.writing();
    log::init(args.log, context.detail);
    let left_trial = left_trial::find(&context).unwrap_or_else(|error| {
        // A machine without its document would be worse.
        log::log_error(&error, "a trial that was left open cannot be rolled back");
        None
    });
    let (ledger, unwritable) = LateLedger::open(&context.caller.state_dir)?;
    if let Some(error) = unwritable {
        log::log_error(&error.into(), "started without a ledger that can be written");
    }
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    let mut pieces = Pieces::open(&context)?;
    let (document, fallback) = match pieces.join(Arc::clone(&document)) {
        Ok(joined) => (joined, fallback),
        // It was confirmed with the pieces of its time.
        Err(_) if fallback.is_some() || provider.fleet().is_some() => (document, fallback),
        Err(why) => match find() {
            Some((confirmed, entry)) => (confirmed, Some(Fallback { entry, why })),
            None => return Err(why),
        },
    };
    let newer = newer
        .filter(|_| fallback.is_none())
        .and_then(|newer| Some(Newer { document: pieces.join(newer.document).ok()?, ..newer }));
    let options = Options {
        pieces: Some(pieces),
        from: arguments.clone(),
        fallback,
        newer: newer.filter(|newer| context.check_same(&newer.document.settings).is_ok()),
        tried_before,
        role: Role::Keep,
        left_trial,
        on_stop: args.on_stop,
        listen: args.listen,
        readers: args.status_group.as_deref().map(Readers::find).transpose()?,
        ready: None,
    };
    let daemon = Daemon::new(context, provider, document, ledger, options).confined()?;
    Ok(match runtime.block_on(Box::pin(daemon.run()))? {
        End::Stopped => ExitCode::SUCCESS,
        End::ProcessEnded => ExitCode::from(PROCESS_ENDED),
    })
}

/// Why a good document is not taken: it is that of an unconfirmed trial.
fn unconfirmed(document: &Document, global: &Global) -> Result<Option<anyhow::Error>> {
    let (owner, _) = context::owner(global, &document.settings)?;
    let confirmed = ConfirmedDocuments::of(&context::state_dir(global), &owner);
    let is_unconfirmed = confirmed.is_unconfirmed(document, &ReferencedFiles::of(document));
    Ok(is_unconfirmed.then(tried_before))
}

/// The document that was tried and confirmed since the files last changed: a reboot does not take it back.
fn newer_confirmed(
    document: &Document,
    from: &[PathBuf],
    global: &Global,
) -> Result<Option<Newer>> {
    let (owner, _) = context::owner(global, &document.settings)?;
    let confirmed = ConfirmedDocuments::of(&context::state_dir(global), &owner);
    let Some(scope) = context::scope_name_of(global) else { return Ok(None) };
    let from: Vec<_> = from.iter().map(|path| confirmed::absolute(path)).collect();
    let files = ReferencedFiles::of(document);
    let Some(entry) = confirmed.newer_than(&from, &scope, document, &files) else {
        return Ok(None);
    };
    // One that is no longer valid is not taken: the files are.
    let newer = confirmed.load(&entry).ok();
    Ok(newer.map(|document| Newer { number: entry.number, document: Arc::new(document) }))
}

/// The confirmed document in place of one that cannot be taken: what was last in force for these arguments, or else what
/// another command has applied in the same scope. The owner of a document that cannot be read is that of the arguments, or
/// the default one.
fn confirmed(
    from: &[PathBuf],
    global: &Global,
    owner: Option<&str>,
) -> Option<(Arc<Document>, Entry)> {
    let (state_dir, scope) = (context::state_dir(global), context::scope_name_of(global)?);
    let from: Vec<_> = from.iter().map(|path| confirmed::absolute(path)).collect();
    let owner = owner.or(global.owner.as_ref().map(OwnerName::as_str));
    let mut owners = match owner {
        Some(_) => Vec::new(),
        None => ConfirmedDocuments::of_all(&state_dir),
    };
    owners.retain(|one| one.newest_from(&from, &scope).is_some());
    owners.push(ConfirmedDocuments::of(&state_dir, owner.unwrap_or(DEFAULT_OWNER)));
    let mut found = owners.iter().flat_map(|confirmed| {
        let entries = confirmed.in_place_of(&from, &scope).into_iter();
        // A document that cannot be read is skipped.
        entries.filter_map(|entry| Some((Arc::new(confirmed.load(&entry).ok()?), entry)))
    });
    found.next()
}
