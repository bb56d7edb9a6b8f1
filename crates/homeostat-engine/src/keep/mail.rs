//! Commands on their way to a loop.

use std::collections::VecDeque;
use std::time::Duration;

use homeostat_core::Source;
use tokio::sync::mpsc;

use super::handle::Command;

/// How long a running pass may go on after the loop was told to stop.
const GRACE: Duration = Duration::from_millis(500);

/// Commands in their order, but for the one to stop, which comes first.
pub(super) struct Mail<S: Source> {
    inbox: mpsc::UnboundedReceiver<Command<S>>,
    /// What came while a pass ran.
    waiting: VecDeque<Command<S>>,
}

impl<S: Source> Mail<S> {
    pub(super) fn new(inbox: mpsc::UnboundedReceiver<Command<S>>) -> Self {
        Mail { inbox, waiting: VecDeque::new() }
    }

    /// The next command; nothing when nobody holds a handle any more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Command<S>> {
        match self.ready() {
            Some(command) => Some(command),
            None => self.inbox.recv().await,
        }
    }

    /// The next command that is there already.
    pub(super) fn ready(&mut self) -> Option<Command<S>> {
        while let Ok(command) = self.inbox.try_recv() {
            self.waiting.push_back(command);
        }
        let stop = self.waiting.iter().position(is_stop);
        self.waiting.remove(stop.unwrap_or(0))
    }

    /// Ends some time after the loop was told to stop, or was left by everybody. Takes in what comes
    /// until then.
    pub(super) async fn stopped(&mut self) {
        let mut is_stopping = self.waiting.iter().any(is_stop);
        while !is_stopping {
            let command = self.inbox.recv().await;
            is_stopping = command.as_ref().is_none_or(is_stop);
            self.waiting.extend(command);
        }
        tokio::time::sleep(GRACE).await;
    }
}

fn is_stop<S: Source>(command: &Command<S>) -> bool {
    matches!(command, Command::Stop(..))
}
