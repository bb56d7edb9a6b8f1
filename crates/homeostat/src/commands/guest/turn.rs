//! Waits for another process that writes in the scope: it may be doing the very same command.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use homeostat_engine::Error;
use homeostat_engine::journal::{Fact, Following, JournalError, StepId, follow};

use crate::commands::block_on;
use crate::context::Context;
use crate::desk::directory;
use crate::output::line::plain;
use crate::output::stream;
use crate::output::text::Detail;

/// How often is looked whether it is gone.
const EVERY: Duration = Duration::from_millis(100);
/// How long is waited for somebody who has nothing in flight: they may be about to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A wait for one's turn.
pub(super) struct Turn<'a> {
    context: &'a Context,
    journal: Following,
    /// Steps without an end.
    open: BTreeSet<StepId>,
    /// For how long nothing has been in flight.
    idle: Duration,
    /// Who was named already.
    told: Option<String>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let journal = follow(&directory(&context.state_dir, &context.owner));
        Turn { context, journal, open: BTreeSet::new(), idle: Duration::ZERO, told: None }
    }

    /// Waits a moment after a try that failed so. An error that does not pass by itself is handed back, and so
    /// is one that has lasted while nothing was in flight.
    pub(super) fn wait(&mut self, error: anyhow::Error) -> Result<()> {
        let Some(taken) = Taken::of(&error) else { return Err(error) };
        self.look()?;
        if self.idle > PATIENCE {
            return Err(error);
        }
        if let Taken::Scope(holder) = taken {
            self.tell(holder)?;
        }
        block_on(async { tokio::time::sleep(EVERY).await })
    }

    /// Looks whether anything is in flight.
    fn look(&mut self) -> Result<()> {
        for record in self.journal.more().map_err(|error| crate::desk::told(&error))? {
            match record.fact {
                Fact::Intent(_) => _ = self.open.insert(record.id),
                Fact::Dispatched { .. } => {}
                Fact::Ended(_) => _ = self.open.remove(&record.id),
            }
        }
        self.idle = if self.open.is_empty() { self.idle + EVERY } else { Duration::ZERO };
        Ok(())
    }

    fn tell(&mut self, holder: String) -> Result<()> {
        if self.context.detail != Detail::Quiet && self.told.as_ref() != Some(&holder) {
            let mut stderr = stream::stderr(self.context.color);
            writeln!(stderr, "Waiting for {}, which writes here", plain(&holder))?;
            self.told = Some(holder);
        }
        Ok(())
    }
}

/// What another process has.
enum Taken {
    /// The lock; its holder.
    Scope(String),
    /// The journal, for a moment longer than the lock, or shorter.
    Journal,
}

impl Taken {
    fn of(error: &anyhow::Error) -> Option<Self> {
        error.chain().find_map(|cause| match (cause.downcast_ref(), cause.downcast_ref()) {
            (Some(Error::Locked { holder }), _) => Some(Taken::Scope(holder.clone())),
            (_, Some(JournalError::Busy { .. })) => Some(Taken::Journal),
            _ => None,
        })
    }
}
