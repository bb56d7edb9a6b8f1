//! `fleet wait`: follows a rollout until it ends.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use homeostat_fleet::Name;
use homeostat_fleet::records::Phase;
use homeostat_store::{Keys as Range, Revision, WatchEvent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::args::WaitArgs;
use super::connection::Fleet;
use super::snapshot::{RolloutRecords, Snapshot};
use super::{Call, rollout};
use crate::commands::plan::NOT_CONVERGED;
use crate::failure::helped;
use crate::output::stream;
use crate::wire::FORMAT_VERSION;

/// The rollout is read again after this time without a change: watches can lose events.
const LOOK: Duration = Duration::from_secs(10);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);
const TEMPLATE: &str = "{bar:30} {pos} of {len} good  {msg}  {elapsed}";

pub(super) async fn run(args: &WaitArgs, call: &Call<'_>) -> Result<ExitCode> {
    let fleet = call.connection.open()?;
    let snapshot = Snapshot::read(&fleet).await?;
    let (id, _) = snapshot.rollout(args.rollout.id.as_ref())?;
    let limit = args.timeout.map(homeostat_document::Period::get);
    follow(&fleet, id, limit, args.through_pauses, call).await
}

/// Shows how it goes on until it ends, is paused, or the time is over.
pub(super) async fn follow(
    fleet: &Fleet,
    id: &Name,
    limit: Option<Duration>,
    through_pauses: bool,
    call: &Call<'_>,
) -> Result<ExitCode> {
    let began = Instant::now();
    let display = Display::new(call);
    let mut last_line = String::new();
    let (records, is_over) = loop {
        let is_late = limit.is_some_and(|limit| began.elapsed() >= limit);
        let snapshot = match Snapshot::read(fleet).await {
            Ok(snapshot) => snapshot,
            Err(error) if is_late => return Err(error),
            Err(error) => {
                display.problem(&error);
                sleep(PAUSE).await;
                continue;
            }
        };
        let (mut rollouts, revision) = (snapshot.rollouts, snapshot.revision);
        let Some(records) = rollouts.remove(id) else {
            return Err(helped(
                format!("rollout {id} is gone"),
                "`homeostat fleet history` lists them",
            ));
        };
        let line = records.state.as_ref().map(|state| rollout::progress(&records, state));
        let line = line.unwrap_or_else(|| match &snapshot.leader {
            Some(_) => "not begun".to_owned(),
            None => "not begun: no coordinator leads".to_owned(),
        });
        if line != last_line {
            display.show(&records, &line);
            last_line = line;
        }
        let phase = records.state.as_ref().map(|state| state.phase);
        let is_over = phase.is_some_and(Phase::is_over);
        if is_over || is_late || phase == Some(Phase::Paused) && !through_pauses {
            break (records, is_over);
        }
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        changed(fleet, id, revision, left.unwrap_or(LOOK).min(LOOK)).await;
    };
    display.end();
    stream::print(call.global.color, |to| {
        if call.is_json {
            let rollout = rollout::as_json(id, &records);
            writeln!(
                to,
                "{}",
                json!({ "format_version": FORMAT_VERSION, "over": is_over, "rollout": rollout })
            )
        } else {
            rollout::draw(id, &records, to)
        }
    })?;
    let is_done = records.state.is_some_and(|state| state.phase == Phase::Done);
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(NOT_CONVERGED) })
}

/// Waits for a change of the rollout's state after a revision, or for some time.
async fn changed(fleet: &Fleet, id: &Name, after: Revision, longest: Duration) {
    let change = async {
        let range = Range::One(fleet.keys.state(id));
        let mut watch = fleet.store.watch(range, after).await.ok()?;
        while let Ok(WatchEvent::Progress { .. }) = watch.next().await {}
        Some(())
    };
    // A watch that cannot be opened must not make this a busy loop.
    if let Ok(None) = timeout(longest, change).await {
        sleep(PAUSE).await;
    }
}

/// A bar on a terminal, lines elsewhere, nothing for JSON.
struct Display<'a> {
    call: &'a Call<'a>,
    bar: Option<ProgressBar>,
}

impl<'a> Display<'a> {
    fn new(call: &'a Call<'a>) -> Self {
        let is_shown = !call.is_json && !call.global.quiet && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Display { call, bar }
    }

    fn show(&self, records: &RolloutRecords, line: &str) {
        let counts = records.state.as_ref().map(|state| state.counts).unwrap_or_default();
        match &self.bar {
            Some(bar) => {
                let nodes = records.statement.as_ref().map_or(0, |statement| statement.nodes);
                bar.set_length(nodes);
                bar.set_position(counts.good);
                bar.set_message(line.to_owned());
            }
            None if self.call.is_json || self.call.global.quiet => {}
            None => drop(writeln!(stream::stderr(self.call.global.color), "{line}")),
        }
    }

    fn problem(&self, error: &anyhow::Error) {
        let text = format!("the store failed, trying again: {error:#}");
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => drop(writeln!(stream::stderr(self.call.global.color), "{text}")),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
