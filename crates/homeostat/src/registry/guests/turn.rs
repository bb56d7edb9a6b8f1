//! Waits for another process that writes in the scope: it may be doing the very same command.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use homeostat_engine::Error;
use homeostat_engine::journal::{Fact, Following, JournalError, Record, StepId, follow};

use crate::commands::block_on;
use crate::context::Context;
use crate::failure::of_source;
use crate::journal::directory;
use crate::output::line::plain;
use crate::output::stream;
use crate::output::text::Detail;

/// How often is looked whether it is gone.
const EVERY: Duration = Duration::from_millis(100);
/// How long a process is waited for that has nothing in flight: it may be about to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long is waited while the journal has a step without an end and nothing is added to it: longer than any
/// task is waited for. The holder of the lock may have another journal, and this one may be a dead process's.
const LONGEST: Duration = Duration::from_mins(20);

/// A wait for one's turn.
pub(super) struct Turn<'a> {
    context: &'a Context,
    journal: Following,
    flight: Flight,
    /// The holder of the lock that was named already.
    named: Option<String>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let journal = follow(&directory(&context.caller.state_dir, &context.caller.owner));
        Turn { context, journal, flight: Flight::default(), named: None }
    }

    /// Waits a moment after a try that failed because another process has the lock, or the journal, which it may
    /// keep a moment longer. Any other error is returned, and so is one that has lasted too long.
    pub(super) fn wait(&mut self, error: anyhow::Error) -> Result<()> {
        let holder = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(Error::Locked { holder }) => Some(holder.clone()),
            _ => None,
        });
        let is_busy = |cause: &(dyn std::error::Error + 'static)| {
            matches!(cause.downcast_ref(), Some(JournalError::Busy { .. }))
        };
        if holder.is_none() && !error.chain().any(is_busy) {
            return Err(error);
        }
        self.flight.take(&self.journal.more().map_err(|error| of_source(error.into()))?);
        if self.flight.is_hopeless() {
            return Err(error);
        }
        let has_changed = holder.is_some() && holder != self.named;
        if has_changed && self.context.detail != Detail::Quiet {
            let mut stderr = stream::stderr(self.context.color);
            let name = plain(holder.as_deref().unwrap_or_default());
            writeln!(stderr, "Waiting for {name}, which writes here")?;
            self.named = holder;
        }
        block_on(async { tokio::time::sleep(EVERY).await })
    }
}

/// What is in flight, by the journal.
#[derive(Default)]
struct Flight {
    /// Steps without an end.
    open: BTreeSet<StepId>,
    /// For how long nothing has been added.
    still: Duration,
}

impl Flight {
    /// Takes in what was added since the last look.
    fn take(&mut self, records: &[Record]) {
        self.still = if records.is_empty() { self.still + EVERY } else { Duration::ZERO };
        for record in records {
            match record.fact {
                Fact::Intent(_) => _ = self.open.insert(record.id),
                Fact::Dispatched { .. } => {}
                Fact::Ended(_) => _ = self.open.remove(&record.id),
            }
        }
    }

    fn is_hopeless(&self) -> bool {
        self.still > if self.open.is_empty() { PATIENCE } else { LONGEST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> Record {
        serde_json::from_str(line).unwrap()
    }

    /// How long is waited after these records.
    fn waits(records: &[Record]) -> Duration {
        let mut flight = Flight::default();
        flight.take(records);
        for _ in 0..100_000 {
            flight.take(&[]);
            if flight.is_hopeless() {
                break;
            }
        }
        flight.still.saturating_sub(EVERY)
    }

    #[test]
    fn what_is_in_flight_is_waited_for_but_not_without_end() {
        let begun = r#"{"id":"1-1","at":1,"is":"intent","source":"guests","scope":"host",
            "key":"guest 101","kind":"start","parameters":"p"}"#;
        let ended = r#"{"id":"1-1","at":2,"is":"failed","why":"no"}"#;
        assert_eq!(waits(&[]), PATIENCE);
        assert_eq!(waits(&[record(begun)]), LONGEST);
        assert_eq!(waits(&[record(begun), record(ended)]), PATIENCE);
    }
}
