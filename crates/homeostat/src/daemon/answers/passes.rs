//! Passes that somebody asked for, and their report.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use homeostat_engine::PassAnswer;
use homeostat_engine::{
    Audience, Control, Entries, Entry, Explain, Kind, Mode, Patience, SharedReport, Summary,
};
use serde_json::json;

use super::Answers;
use crate::converge::{Converging, converge};
use crate::daemon::command::{DaemonCommand, StartedPass, start_passes};
use crate::machine::{ObserveOnlyPlan, told_of_waiting};
use crate::output::{Told, is_converged, json as report, text};
use crate::registry::FIRST;
use crate::wire::{Ask, FORMAT_VERSION, Leave};

impl Answers {
    /// Does what is to be done first, runs a pass of every loop, and tells what became of it.
    pub(super) async fn passes(&self, command: Option<DaemonCommand>, ask: Ask) -> Result<Vec<u8>> {
        let is_lenient = ask.leave != Leave::default();
        let command = command.or(is_lenient.then_some(DaemonCommand::Arrange));
        let started = match command {
            Some(command) => self.commands.send(command, ask.leave).await?,
            None => start_passes(self.loops(None)?),
        };
        let told = self.settle(started, ask.leave).await;
        if is_lenient {
            self.commands.send(DaemonCommand::Arrange, Leave::default()).await?;
        }
        draw(&told?, ask)
    }

    /// Runs passes as long as that brings something, with the patience that an `apply` has. What is
    /// inside namespaces of our own can be opened only when they are there.
    async fn settle(&self, started: Vec<StartedPass>, leave: Leave) -> Result<Vec<Told>> {
        let mut all = ended(started, Vec::new()).await;
        let made = all.iter().filter(|one| one.control.place().source == FIRST.name);
        if made.map(Converging::written).sum::<usize>() > 0 {
            all = ended(self.commands.send(DaemonCommand::Arrange, leave).await?, all).await;
        }
        // Tasks go on after the answer: the loops follow them.
        let patience = Patience { tasks: Duration::ZERO, ..Patience::default() };
        converge(&mut all, patience, async |one| one.pass().await, |_| {}).await;
        let mut told: Vec<Told> = all.into_iter().filter_map(Converging::report).collect();
        told.extend(self.standing.borrow().waiting.iter().map(told_of_waiting));
        Ok(told)
    }
}

/// Waits for these passes. A loop that ended meanwhile, as with its namespace, has nothing to tell any more;
/// one that went on has the reports of its earlier passes, too.
async fn ended(started: Vec<StartedPass>, earlier: Vec<Converging>) -> Vec<Converging> {
    let passes = started
        .into_iter()
        .map(|StartedPass { control, pass }| async move { Some((control, pass.await.ok()?)) });
    let mut earlier = earlier;
    let ended = join_all(passes).await.into_iter().flatten().map(|(control, told)| {
        let known = earlier.iter().position(|one| one.control.place() == control.place());
        let mut one = match known {
            Some(at) => earlier.swap_remove(at),
            None => Converging::new(control),
        };
        one.record(told);
        one
    });
    ended.collect()
}

/// What a loop told, as reports are drawn.
pub(super) fn told_by(control: &dyn Control, told: PassAnswer) -> Told {
    let place = control.place().clone();
    let what: Box<dyn Explain> = match told {
        Err(error) => Box::new(Entries::of_broken_pass(&error, &place.source)),
        Ok(told) => match control.status().mode {
            Mode::Heal => Box::new(Shared(told)),
            Mode::Observe => Box::new(ObserveOnlyPlan::of(Box::new(Shared(told)), &place)),
        },
    };
    Told { place, what }
}

struct Shared(SharedReport);

impl Explain for Shared {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        self.0.explain(kind, tell);
    }

    fn sample(&self, kind: Kind, audience: &mut dyn Audience) {
        self.0.sample(kind, audience);
    }

    fn summary(&self) -> Summary {
        self.0.summary()
    }

    fn is_converged(&self) -> bool {
        self.0.is_converged()
    }
}

/// A report as it was asked for: drawn for people, or whole for programs.
pub(super) fn draw(told: &[Told], ask: Ask) -> Result<Vec<u8>> {
    let mut drawn = Vec::new();
    let Some(drawing) = ask.text else {
        report::report(told, &mut drawn)?;
        return Ok(drawn);
    };
    text::report(told, drawing, &mut drawn)?;
    Ok(serde_json::to_vec(&json!({
        "format_version": FORMAT_VERSION,
        "converged": is_converged(told),
        "text": String::from_utf8_lossy(&drawn),
    }))?)
}
