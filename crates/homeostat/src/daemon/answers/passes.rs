//! Passes that somebody asked for, and their report.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use homeostat_engine::Patience;
use serde_json::json;

use super::{Answers, answer};
use crate::converge::{Converging, converge};
use crate::daemon::command::{DaemonCommand, StartedPass, start_passes};
use crate::machine::told_of_waiting;
use crate::output::{SourceReport, is_converged, json as report, text};
use crate::registry;
use crate::wire::{Ask, FORMAT_VERSION, Leave};

impl Answers {
    /// Does what is to be done first, runs a pass of every loop, and returns their report.
    pub(super) async fn passes(&self, command: Option<DaemonCommand>, ask: Ask) -> Result<Vec<u8>> {
        let is_lenient = ask.leave != Leave::default();
        let command = command.or(is_lenient.then_some(DaemonCommand::Arrange));
        let started = match command {
            Some(command) => self.commands.send(command, ask.leave).await?,
            None => start_passes(self.loops(None)?),
        };
        let reports = self.settle(started, ask.leave).await;
        if is_lenient {
            self.commands.send(DaemonCommand::Arrange, Leave::default()).await?;
        }
        draw(&reports?, ask)
    }

    /// Runs passes as long as that brings something, with the patience that an `apply` has. What is
    /// inside namespaces of our own can be opened only when they are there.
    async fn settle(&self, started: Vec<StartedPass>, leave: Leave) -> Result<Vec<SourceReport>> {
        let mut all = ended(started, Vec::new()).await;
        let creates_scopes = |one: &&Converging| {
            registry::find(&one.control.ledger_key().source).is_some_and(|it| it.scopes.is_some())
        };
        let made = all.iter().filter(creates_scopes);
        if made.map(Converging::written).sum::<usize>() > 0 {
            all = ended(self.commands.send(DaemonCommand::Arrange, leave).await?, all).await;
        }
        // Tasks go on after the answer: the loops follow them.
        let patience = Patience { tasks: Duration::ZERO, ..Patience::default() };
        converge(&mut all, patience, async |one| one.pass().await, |_| {}).await;
        let mut reports: Vec<SourceReport> =
            all.into_iter().filter_map(Converging::report).collect();
        reports.extend(self.snapshot.borrow().waiting.iter().map(told_of_waiting));
        Ok(reports)
    }
}

/// Waits for these passes. A loop that ended meanwhile, as with its namespace, has nothing to tell any more;
/// one that went on has the reports of its earlier passes, too.
async fn ended(started: Vec<StartedPass>, mut earlier: Vec<Converging>) -> Vec<Converging> {
    let passes = started
        .into_iter()
        .map(|StartedPass { control, pass }| async move { Some((control, pass.await.ok()?)) });
    let ended = join_all(passes).await.into_iter().flatten().map(|(control, answer)| {
        let known = earlier.iter().position(|one| one.control.ledger_key() == control.ledger_key());
        let mut one = known.map_or_else(|| Converging::new(control), |at| earlier.swap_remove(at));
        one.record(answer);
        one
    });
    ended.collect()
}

/// A report as it was asked for: drawn for people, or whole for programs.
pub(super) fn draw(reports: &[SourceReport], ask: Ask) -> Result<Vec<u8>> {
    let mut drawn = Vec::new();
    let Some(drawing) = ask.text else {
        report::report(reports, &mut drawn)?;
        return Ok(drawn);
    };
    text::report(reports, drawing, &mut drawn)?;
    answer(&json!({
        "format_version": FORMAT_VERSION,
        "converged": is_converged(reports),
        "text": String::from_utf8_lossy(&drawn),
    }))
}
