//! Targets that several machines share, and which of the machines acts on them.
//!
//! A program that takes part in elections says here how they stand; a source asks when it is bound
//! ([`Binding::turn`](crate::Binding::turn)). Without a word of a program, the machine acts alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_document::Document;
use homeostat_engine::Journal;
use homeostat_engine::journal::{JournalError, Millis};
use tokio::sync::watch;
use tokio::time::Instant;

/// What is special about a source whose target several machines can reach and write to.
pub struct SharedTarget {
    /// The target that a document names, by a name that is the same on all machines that share it.
    pub name: fn(&Document) -> Option<String>,
    /// The longest time that an answer of the target is waited for.
    pub answers_within: fn(&Document) -> Duration,
}

/// Who acts on a target that a document names.
#[derive(Clone, Debug, Default)]
pub enum Turn {
    /// This machine; it knows of no others.
    #[default]
    Alone,
    /// This machine, which was elected.
    Leader(Leader),
    /// Another machine, or none yet. This one reads, and writes nothing.
    Standby(Standby),
}

/// The right to act in one term.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Who shares the target, and which it is: the same text on all machines that take turns.
    pub shared: String,
    pub since: Millis,
    /// The journal that all of them have; it is fenced by the term.
    pub journal: Arc<Journal>,
    /// Until when nothing may be sent that must not be sent twice.
    pub clear_at: Option<Instant>,
    /// Its sender is dropped when the term is over.
    pub over: watch::Receiver<()>,
}

impl Leader {
    /// Waits for the end of the term.
    pub async fn until_over(mut self) {
        while self.over.changed().await.is_ok() {}
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// As that of [`Leader`].
    pub shared: String,
    pub since: Millis,
    /// The name of the machine that acts.
    pub leader: Option<String>,
    /// Why this machine cannot be elected now.
    pub trouble: Option<String>,
}

impl Standby {
    /// Why nothing can be sent from here.
    #[must_use]
    pub fn refusal(&self) -> JournalError {
        let (why, help) = match &self.leader {
            Some(leader) => (format!("{leader} does"), format!("ask the daemon on {leader}")),
            None => (
                "no machine is elected now".to_owned(),
                "ask again in a moment; `homeostat status` says who leads".to_owned(),
            ),
        };
        JournalError::NotHeld { why, help }
    }
}

/// How the elections of all sources stand. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<Mutex<BTreeMap<&'static str, Turn>>>);

impl Turns {
    fn turns(&self) -> MutexGuard<'_, BTreeMap<&'static str, Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who acts on the target of a source.
    #[must_use]
    pub fn of(&self, source: &str) -> Turn {
        self.turns().get(source).cloned().unwrap_or_default()
    }

    pub fn set(&self, source: &'static str, turn: Turn) {
        self.turns().insert(source, turn);
    }

    /// No other machine takes part any more.
    pub fn remove(&self, source: &str) {
        self.turns().remove(source);
    }

    /// Whether another machine acts on the target of a source, or none yet.
    #[must_use]
    pub fn is_standby(&self, source: &str) -> bool {
        matches!(self.turns().get(source), Some(Turn::Standby(_)))
    }
}
