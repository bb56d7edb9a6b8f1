//! Passes that somebody asked for, and their report.

use std::sync::Arc;

use anyhow::Result;
use futures_util::future::join_all;
use homeostat_engine::keep::handle::Told as LoopTold;
use homeostat_engine::{Audience, Control, Entry, Explain, Kind, Mode, Summary};
use serde_json::json;

use super::Answers;
use crate::daemon::orders::{Begun, Deed, begin};
use crate::machine::{Broken, Settling, Unapplied, told_of_waiting};
use crate::output::{Told, is_converged, json as report, text};
use crate::registry::FIRST;
use crate::wire::{Ask, FORMAT_VERSION, Leave};

impl Answers {
    /// Does what is to be done first, runs a pass of every loop, and tells what became of it.
    pub(super) async fn passes(&self, deed: Option<Deed>, ask: Ask) -> Result<Vec<u8>> {
        let is_lenient = ask.leave != Leave::default();
        let deed = deed.or(is_lenient.then_some(Deed::Arrange));
        let begun = match deed {
            Some(deed) => self.orders.give(deed, ask.leave).await?,
            None => begin(self.loops(None)?),
        };
        let told = self.settle(begun, ask.leave).await;
        if is_lenient {
            self.orders.give(Deed::Arrange, Leave::default()).await?;
        }
        draw(&told?, ask)
    }

    /// Runs passes as long as that brings something, with the patience that an `apply` has. What is
    /// inside namespaces of our own can be opened only when they are there.
    async fn settle(&self, begun: Vec<Begun>, leave: Leave) -> Result<Vec<Told>> {
        let mut told = ended(begun).await;
        let made = told.iter().filter(|one| one.place.source == FIRST.name);
        if made.map(|one| one.what.summary().total()).sum::<usize>() > 0 {
            told = after(told, ended(self.orders.give(Deed::Arrange, leave).await?).await);
        }
        let mut settling = Settling::default();
        while let Some(pause) = settling.next(&told) {
            tokio::time::sleep(pause).await;
            told = after(told, ended(begin(self.loops(None)?)).await);
        }
        told.extend(self.standing.borrow().waiting.iter().map(told_of_waiting));
        Ok(told)
    }
}

/// What all of these passes have to tell. A loop that ended meanwhile, as with its namespace, has
/// nothing to tell any more.
async fn ended(begun: Vec<Begun>) -> Vec<Told> {
    let passes = begun.into_iter().map(|Begun { control, pass }| async move {
        let told = pass.await.ok()?;
        Some(told_by(&*control, told))
    });
    join_all(passes).await.into_iter().flatten().collect()
}

/// What was told of every place before, and now.
fn after(mut before: Vec<Told>, now: Vec<Told>) -> Vec<Told> {
    let now = now.into_iter().map(|now| {
        match before.iter().position(|earlier| earlier.place == now.place) {
            Some(at) => now.after(before.swap_remove(at)),
            None => now,
        }
    });
    now.collect()
}

/// What a loop told, as reports are drawn.
pub(super) fn told_by(control: &dyn Control, told: LoopTold) -> Told {
    let place = control.place().clone();
    let what: Box<dyn Explain> = match told {
        Err(error) => Box::new(Broken::by(&error, &place)),
        Ok(told) => match control.status().mode {
            Mode::Heal => Box::new(Shared(told)),
            Mode::Observe => Box::new(Unapplied::of(Box::new(Shared(told)), &place)),
        },
    };
    Told { place, what }
}

struct Shared(Arc<dyn Explain + Send + Sync>);

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
