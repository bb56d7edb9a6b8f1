//! Which steps are open, and how the others ended: what the lines of a journal add up to.

use std::collections::{BTreeMap, HashMap};

use super::record::{End, Fact, Intent, Millis, Record, StepId, Subject};

/// A step that was begun and has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStep {
    /// Which.
    pub id: StepId,
    /// Since when.
    pub since: Millis,
    /// What was to be sent.
    pub intent: Intent,
    /// The target's name for the work, if it is known to have accepted it.
    pub task: Option<String>,
}

/// What is known of a command that a client named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It runs: whoever asks again waits for the same end.
    Running(StepId),
    /// It ended so.
    Ended(End),
}

/// Why a line cannot follow those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Illegal {
    /// An id is used twice, or runs backwards.
    #[error("step {0} is begun after a later one")]
    Order(StepId),
    /// A key has an open step.
    #[error("step {id} of `{key}` has no end yet")]
    StillOpen {
        /// The open step.
        id: StepId,
        /// The key.
        key: String,
    },
    /// A client's name for a command is taken.
    #[error("the command `{0}` was already begun")]
    Command(String),
    /// A step that was never begun, or has ended.
    #[error("step {0} is not open")]
    NotOpen(StepId),
    /// A step has a task already.
    #[error("step {id} was already dispatched, as task {task}")]
    Dispatched {
        /// The step.
        id: StepId,
        /// Its task.
        task: String,
    },
}

/// The last thing that is known of a key, kept so that it can be told.
#[derive(Clone)]
struct Last {
    intent: Record,
    end: Record,
}

/// A command that a client named.
#[derive(Clone)]
struct Command {
    id: StepId,
    expires: Millis,
    /// Its lines, once it has ended.
    ended: Option<(Record, Record)>,
}

/// The sum of all lines.
#[derive(Clone, Default)]
pub(super) struct Steps {
    newest: Option<StepId>,
    open: BTreeMap<StepId, (Record, Option<Record>)>,
    /// The open step of each subject: there is at most one.
    busy: HashMap<Subject, StepId>,
    last: HashMap<Subject, Last>,
    commands: HashMap<String, Command>,
}

impl Steps {
    /// Adds a line, or says why it cannot be; then nothing is changed.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), Illegal> {
        match &record.fact {
            Fact::Intent(intent) => self.begin(record, intent),
            Fact::Dispatched { .. } => self.dispatch(record),
            Fact::Ended(_) => self.end(record),
        }
    }

    fn begin(&mut self, record: &Record, intent: &Intent) -> Result<(), Illegal> {
        if self.newest.is_some_and(|newest| newest >= record.id) {
            return Err(Illegal::Order(record.id));
        }
        if let Some(id) = self.busy.get(&intent.subject) {
            return Err(Illegal::StillOpen { id: *id, key: intent.subject.key.clone() });
        }
        if let Some(command) = &intent.command {
            let taken = self.commands.get(&command.name);
            if taken.is_some_and(|taken| taken.ended.is_none() || taken.expires > record.at) {
                return Err(Illegal::Command(command.name.clone()));
            }
            let named = Command { id: record.id, expires: command.expires, ended: None };
            self.commands.insert(command.name.clone(), named);
        }
        self.newest = Some(record.id);
        self.busy.insert(intent.subject.clone(), record.id);
        self.open.insert(record.id, (record.clone(), None));
        Ok(())
    }

    fn dispatch(&mut self, record: &Record) -> Result<(), Illegal> {
        let (_, dispatched) = self.open.get_mut(&record.id).ok_or(Illegal::NotOpen(record.id))?;
        if let Some(Record { fact: Fact::Dispatched { task }, .. }) = dispatched {
            return Err(Illegal::Dispatched { id: record.id, task: task.clone() });
        }
        *dispatched = Some(record.clone());
        Ok(())
    }

    fn end(&mut self, record: &Record) -> Result<(), Illegal> {
        let (begun, _) = self.open.remove(&record.id).ok_or(Illegal::NotOpen(record.id))?;
        let Fact::Intent(intent) = &begun.fact else { return Ok(()) };
        self.busy.remove(&intent.subject);
        let named = intent.command.as_ref().and_then(|named| self.commands.get_mut(&named.name));
        if let Some(command) = named {
            command.ended = Some((begun.clone(), record.clone()));
        }
        let subject = intent.subject.clone();
        self.last.insert(subject, Last { intent: begun, end: record.clone() });
        Ok(())
    }

    /// The open step of a key.
    pub(super) fn open_step(&self, subject: &Subject) -> Option<OpenStep> {
        open_step(self.open.get(self.busy.get(subject)?)?)
    }

    /// All open steps, the oldest first.
    pub(super) fn open_steps(&self) -> Vec<OpenStep> {
        self.open.values().filter_map(open_step).collect()
    }

    /// What is known of a command, unless its time is over.
    pub(super) fn known(&self, command: &str, now: Millis) -> Option<Known> {
        let command = self.commands.get(command)?;
        match &command.ended {
            None => Some(Known::Running(command.id)),
            Some((_, Record { fact: Fact::Ended(end), .. })) if command.expires > now => {
                Some(Known::Ended(end.clone()))
            }
            Some(_) => None,
        }
    }

    /// The lines that add up to what is still needed: open steps, unexpired commands, and the last
    /// end of each key; in the order of their ids, so that they can be read back.
    pub(super) fn needed(&self, now: Millis) -> Vec<Record> {
        let mut kept: BTreeMap<StepId, Vec<Record>> = BTreeMap::new();
        for (id, (begun, dispatched)) in &self.open {
            kept.insert(
                *id,
                [Some(begun), dispatched.as_ref()].into_iter().flatten().cloned().collect(),
            );
        }
        for Last { intent, end } in self.last.values() {
            kept.insert(intent.id, vec![intent.clone(), end.clone()]);
        }
        for command in self.commands.values().filter(|command| command.expires > now) {
            if let Some((intent, end)) = &command.ended {
                kept.insert(command.id, vec![intent.clone(), end.clone()]);
            }
        }
        kept.into_values().flatten().collect()
    }

    /// Forgets commands whose time is over.
    pub(super) fn expire(&mut self, now: Millis) {
        self.commands.retain(|_, command| command.ended.is_none() || command.expires > now);
    }
}

fn open_step((begun, dispatched): &(Record, Option<Record>)) -> Option<OpenStep> {
    let Fact::Intent(intent) = &begun.fact else { return None };
    let task = match dispatched {
        Some(Record { fact: Fact::Dispatched { task }, .. }) => Some(task.clone()),
        _ => None,
    };
    Some(OpenStep { id: begun.id, since: begun.at, intent: intent.clone(), task })
}
