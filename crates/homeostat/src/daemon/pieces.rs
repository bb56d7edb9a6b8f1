//! `put` and `drop`: a piece is tried against the document in force, kept on the disk, and then taken.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::Document;
use homeostat_engine::Kind;
use homeostat_registry::declared_name;
use serde_json::json;
use tracing::Level;

use super::command::Touched;
use super::{Daemon, Recipients, Role, log};
use crate::context::Context;
use crate::failure::{self, helped, of_source};
use crate::machine::matching::matched;
use crate::person::Person;
use crate::pieces::{self, NewPiece, Piece, PieceName, Pieces};
use crate::referenced_files::ReferencedFiles;

/// Takes a piece in place of the one of this name.
pub(super) async fn put(daemon: &mut Daemon, name: PieceName, new: NewPiece) -> Result<Touched> {
    let by = new.by.to_string();
    let piece = pieces_of(daemon)?.made_of(new);
    match change(daemon, &name, Some(piece)).await {
        Ok(touched) => {
            tracing::info!(piece = %name, %by, "piece put");
            let fields = json!({ "piece": name.to_string(), "by": by });
            daemon.recent.record(Level::INFO, "piece-put", fields);
            Ok(touched)
        }
        Err(error) => {
            let (why, help) = (failure::text(&error), failure::help(&error));
            let fields = json!({ "piece": name.to_string(), "by": by, "error": why, "help": help });
            daemon.recent.record(Level::WARN, "piece-refused", fields);
            Err(error)
        }
    }
}

/// Takes a piece away. One that is not there is gone already: who asks again, asks in vain and is content.
pub(super) async fn drop_piece(
    daemon: &mut Daemon,
    name: PieceName,
    by: &Person,
) -> Result<Touched> {
    if pieces_of(daemon)?.get(&name).is_none() {
        return Ok(Touched::Scopes(Arc::default()));
    }
    let touched = change(daemon, &name, None).await?;
    tracing::info!(piece = %name, %by, "piece dropped");
    let fields = json!({ "piece": name.to_string(), "by": by.to_string() });
    daemon.recent.record(Level::INFO, "piece-dropped", fields);
    Ok(touched)
}

fn pieces_of(daemon: &mut Daemon) -> Result<&mut Pieces> {
    if daemon.provider.fleet().is_some() {
        return Err(helped(
            "this machine belongs to a fleet, which signs all that its nodes keep",
            "sign what the piece declares: `homeostat fleet sign`",
        ));
    }
    daemon.pieces.as_mut().ok_or_else(|| {
        helped("this process only holds a trial, and takes no pieces", "start `homeostat run DOC`")
    })
}

async fn change(daemon: &mut Daemon, name: &PieceName, piece: Option<Piece>) -> Result<Touched> {
    if daemon.options.role != Role::Keep || daemon.trials.open.is_some() {
        return Err(helped(
            "a trial is open: what it returns to must not change meanwhile",
            "try again once it has ended; `homeostat confirm` or `homeostat rollback` ends it",
        ));
    }
    let is_drop = piece.is_none();
    let pieces = pieces_of(daemon)?;
    pieces.check_free(name)?;
    let former = pieces.set(name, piece);
    let changed = take(daemon, name, is_drop).await;
    if changed.is_err() {
        let pieces = pieces_of(daemon)?;
        pieces.set(name, former);
        if let Err(error) = pieces.store(name) {
            log::log_error(&error, "a piece that was refused is left on the disk");
        }
    }
    daemon.publish();
    changed
}

/// Takes the document with the pieces as they are set.
async fn take(daemon: &mut Daemon, name: &PieceName, is_drop: bool) -> Result<Touched> {
    let before = Arc::clone(&daemon.document);
    // Files that are being written come with the next document: none is bound by them before.
    daemon.bound.check_unchanged(&before)?;
    let after = daemon.with_pieces(Arc::clone(&before))?;
    pieces::check(&after)?;
    daemon.check_order(&after).await?;
    // On the disk first: what an orchestrator was told is there also after a power loss.
    pieces_of(daemon)?.store(name)?;
    let touched = touched(&daemon.context, &before, &after)?;
    let is_unguarded = is_drop && !holds_anything(daemon, &touched);
    if is_unguarded {
        // Only what the piece declared can go: nothing else was waiting to be deleted.
        daemon.context.unguarded = Some(Arc::clone(&touched));
    }
    let taken = daemon.take(Arc::clone(&after), Recipients::ChangedForClient).await;
    daemon.context.unguarded = None;
    taken?;
    let own = daemon.own.clone().map(|own| daemon.with_pieces(own)).transpose();
    // Where the piece does not fit the daemon's own files, these are refused when they are read again.
    if let Ok(Some(own)) = own {
        daemon.own = Some(own);
    }
    let known = daemon.own.as_ref().unwrap_or(&daemon.document);
    daemon.referenced = ReferencedFiles::of(known);
    if daemon.own.is_none() && daemon.fallback.is_none() {
        daemon.unconfirmed = daemon.origin().ok();
    }
    Ok(Touched::Scopes(touched))
}

/// Whether a guard holds something in these scopes.
fn holds_anything(daemon: &Daemon, scopes: &BTreeSet<String>) -> bool {
    let loops = daemon.loops();
    let mut here = loops.iter().filter(|one| scopes.contains(&one.ledger_key().scope));
    here.any(|one| one.status().open.count(Kind::Held) > 0)
}

/// The scopes of which two documents say different things.
fn touched(
    context: &Context,
    before: &Document,
    after: &Document,
) -> Result<Arc<BTreeSet<String>>> {
    let top = context.top_scope()?.name;
    let [before, after] = [matched(before)?.document, matched(after)?.document];
    let mut touched = BTreeSet::new();
    if before.settings != after.settings || before.host != after.host {
        touched.insert(top.clone());
    }
    for (one, other) in [(&before, &after), (&after, &before)] {
        let others: HashMap<_, _> =
            other.namespaces.iter().map(|(name, scope)| (&name.value, scope)).collect();
        for (name, scope) in &one.namespaces {
            if others.get(&name.value).is_some_and(|other| *other == scope) {
                continue;
            }
            touched.insert(declared_name(one, &name.value).map_err(of_source)?);
            // Who creates namespaces works there.
            touched.insert(top.clone());
        }
    }
    Ok(Arc::new(touched))
}
