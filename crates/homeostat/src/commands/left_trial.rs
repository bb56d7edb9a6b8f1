//! A trial whose holder ended: the next process that takes the lock rolls it back.

use std::cell::RefCell;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::{Control, Entry as ReportEntry, Error, Kind, Ledger, OnRelease, UndoList};

use crate::commands::block_on;
use crate::confirmed::{ConfirmedDocuments, RecordedTrial};
use crate::context::Context;
use crate::failure;
use crate::machine::Machine;
use crate::output::{SourceReport, stream};
use crate::pieces::Pieces;
use crate::undo_file::{self, Undone, WentAlong};
use crate::wire::{NotRestored, RolledBack, TrialEnd};

/// A trial in the top scope that is not ended, with the document that it returns to. Its holder may still run: who does
/// not have the lock knows nothing about that.
///
/// A boot ends a trial in the kernel, but not what the trial wrote to the disk. So that is rolled back, too.
pub(super) fn find(context: &Context) -> Result<Option<(RecordedTrial, Arc<Document>)>> {
    let confirmed = ConfirmedDocuments::of(&context.caller.state_dir, &context.caller.owner);
    let Some(left) = confirmed.open_trial() else { return Ok(None) };
    let is_here = left.origin.scope == context.top_scope()?.name;
    if !left.record.is_of_this_boot() {
        confirmed.forget_undo_list()?;
        if !is_here {
            // A namespace is gone with the boot, and nothing on the disk belongs to one.
            let (why, to) = (left.record.why_left().to_owned(), left.record.before);
            confirmed.end_trial(&RolledBack { why, to, ..RolledBack::default() })?;
        }
    }
    if !is_here {
        return Ok(None);
    }
    let before = confirmed.before(&left.record).with_context(|| {
        format!("cannot read what trial {} returns to, whose holder ended", left.record.id)
    })?;
    // Those that do not fit the document before came after it.
    let before = Arc::new(before);
    let before = Pieces::open(context)
        .and_then(|mut pieces| pieces.join(Arc::clone(&before)))
        .unwrap_or(before);
    Ok(Some((left, before)))
}

/// What stands in the way of who wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No trial is open, or no longer.
    Nothing,
    /// One is open, and another process has the lock: its holder, or one that is just ending.
    Locked,
}

/// Brings back what was before a trial whose holder ended, and says so. While the holder lives, it has the lock.
pub(crate) fn roll_back(context: &Context, ledger: &Arc<dyn Ledger>) -> Result<Left> {
    let (left, before) = match find(context) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Left::Nothing),
        Err(error) => {
            // Nobody could mend it if nothing could be applied.
            failure::warn(&error, context.color);
            return Ok(Left::Nothing);
        }
    };
    let lock = match context.lock_to_mark(&context.top_scope()?, &**ledger) {
        Ok(lock) => Arc::new(lock),
        Err(error) if is_locked(&error) => return Ok(Left::Locked),
        Err(error) => return Err(error),
    };
    // Another process may have done it just before.
    let confirmed = ConfirmedDocuments::of(&context.caller.state_dir, &context.caller.owner);
    if confirmed.open_trial().is_none_or(|open| open != left) {
        return Ok(Left::Nothing);
    }
    let mut undoing = context.clone();
    let along = Arc::new(WentAlong::default());
    undoing.caller.guards = left.record.leave().apply(undoing.caller.guards);
    undoing.caller.undo = Some(Arc::clone(&along) as Arc<dyn UndoList>);
    undoing.caller.on_release = OnRelease::Restore;
    undoing.caller.recorded = undo_file::recorded(&confirmed.undo_file());
    let machine = Machine::bind(&undoing, &before, &**ledger)?;
    let drivers = machine.unlock_under(Some(lock), ledger)?;
    let (taken, lost) = (undo_file::read(&confirmed.undo_file()), RefCell::new(Undone::default()));
    let went_along = RefCell::new(Vec::new());
    let reports = block_on(drivers.converge_and(&async |loops: &[Arc<dyn Control>]| {
        let not = undo_file::restore(&taken, loops).await;
        let rest = along.restore(loops).await;
        went_along.borrow_mut().extend(rest);
        let mut undone = lost.borrow_mut();
        undone.lost.extend(not.lost);
        undone.left.extend(not.left);
        undone.again = not.again;
    }))??;
    let Undone { lost: mut not, again, left: kept } = lost.into_inner();
    not.extend(not_restored(&reports));
    let end = RolledBack {
        why: left.record.why_left().to_owned(),
        to: left.record.before,
        not_count: not.len(),
        not,
        made_again: again,
        left: kept,
        went_along: went_along.into_inner(),
        checks: Vec::new(),
    };
    confirmed.end_trial(&end)?;
    let mut stderr = stream::stderr(context.color);
    let end = TrialEnd::RolledBack(end);
    // The rollback is done, even if this message cannot be written.
    let _ = writeln!(stderr, "Trial {} was left open. {end}", left.record.id);
    Ok(Left::Nothing)
}

/// Whether another process has the lock.
pub(super) fn is_locked(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(Error::Locked { .. })))
}

fn not_restored(reports: &[SourceReport]) -> Vec<NotRestored> {
    let mut not = Vec::new();
    for SourceReport { ledger_key, report, .. } in reports {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_open()) {
            report.explain(kind, &mut |entry| {
                if let ReportEntry::Change(..) = entry {
                    return;
                }
                not.push(NotRestored {
                    source: ledger_key.source.clone(),
                    scope: ledger_key.scope.clone(),
                    key: entry.key().to_owned(),
                    kind: kind.list().to_owned(),
                    reason: Some(entry.reason()),
                });
            });
        }
    }
    not
}
