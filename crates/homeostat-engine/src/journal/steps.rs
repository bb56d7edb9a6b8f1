//! Which steps are open, and how the others ended: what the lines of a journal add up to.
//!
//! What is only needed to make the file anew is kept as the lines that it was read from.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::flat::{Flat, Is, Text};
use super::line::{Line, read};
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

/// Lines as they stand in the file.
type Lines = Arc<[u8]>;

/// A subject in one word: lengths first, so that no two subjects have the same one.
type Name = Arc<str>;

/// A step without an end.
struct Open {
    name: Name,
    /// The client's name for its command.
    command: Option<String>,
    intent: Box<[u8]>,
    dispatched: Option<(String, Box<[u8]>)>,
}

/// What is known of a subject.
#[derive(Default)]
struct Lately {
    open: Option<StepId>,
    /// Its last step that ended: intent and end.
    last: Option<(StepId, Lines)>,
}

/// A command that a client named.
struct Command {
    id: StepId,
    expires: Millis,
    /// Intent and end, once it has one.
    ended: Option<Lines>,
}

/// The sum of all lines.
#[derive(Default)]
pub(super) struct Steps {
    newest: Option<StepId>,
    open: BTreeMap<StepId, Open>,
    subjects: HashMap<Name, Lately>,
    commands: HashMap<String, Command>,
    /// Where names are put together.
    scratch: String,
}

/// What a journal that is made anew has to hold, and what it leaves out.
pub(super) struct Needed {
    /// In the order of their ids, so that they can be read back.
    pub(super) lines: Vec<Lines>,
    forgotten: Vec<(String, StepId)>,
}

impl Needed {
    /// How long the lines are.
    pub(super) fn length(&self) -> u64 {
        self.lines.iter().map(|lines| lines.len() as u64).sum()
    }
}

impl Steps {
    /// Adds a record with its line, or says why it cannot be; then nothing is changed.
    pub(super) fn add(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        match record.is {
            Is::Intent => self.begin(record, line),
            Is::Dispatched => self.dispatch(record, line),
            Is::Succeeded | Is::Failed | Is::Unknown => self.end(record.id, line),
        }
    }

    fn begin(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        let id = record.id;
        if self.newest.is_some_and(|newest| newest >= id) {
            return Err(Illegal::Order(id));
        }
        put_name(&mut self.scratch, subject_of(record));
        let known = self.subjects.get_key_value(self.scratch.as_str());
        if let Some(open) = known.and_then(|(_, lately)| lately.open) {
            return Err(Illegal::StillOpen { id: open, key: subject_of(record)[2].to_owned() });
        }
        let name =
            known.map_or_else(|| Name::from(self.scratch.as_str()), |(name, _)| name.clone());
        self.name_command(record)?;
        self.newest = Some(id);
        match self.subjects.get_mut(&name) {
            Some(lately) => lately.open = Some(id),
            None => _ = self.subjects.insert(name.clone(), Lately { open: Some(id), last: None }),
        }
        let command = record.command.as_ref().map(|command| command.name.clone());
        self.open.insert(id, Open { name, command, intent: line.into(), dispatched: None });
        Ok(())
    }

    fn name_command(&mut self, record: &Flat<'_>) -> Result<(), Illegal> {
        let Some(command) = &record.command else { return Ok(()) };
        let taken = self.commands.get(&command.name);
        if taken.is_some_and(|taken| taken.ended.is_none() || taken.expires > record.at) {
            return Err(Illegal::Command(command.name.clone()));
        }
        let named = Command { id: record.id, expires: command.expires, ended: None };
        self.commands.insert(command.name.clone(), named);
        Ok(())
    }

    fn dispatch(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        let id = record.id;
        let open = self.open.get_mut(&id).ok_or(Illegal::NotOpen(id))?;
        if let Some((task, _)) = &open.dispatched {
            return Err(Illegal::Dispatched { id, task: task.clone() });
        }
        open.dispatched = Some((text(record.task.as_ref()).to_owned(), line.into()));
        Ok(())
    }

    fn end(&mut self, id: StepId, line: &[u8]) -> Result<(), Illegal> {
        let open = self.open.remove(&id).ok_or(Illegal::NotOpen(id))?;
        let lines = Lines::from([&*open.intent, line].concat());
        let named = open.command.and_then(|name| self.commands.get_mut(&name));
        if let Some(command) = named {
            command.ended = Some(lines.clone());
        }
        if let Some(lately) = self.subjects.get_mut(&open.name) {
            *lately = Lately { open: None, last: Some((id, lines)) };
        }
        Ok(())
    }

    /// The open step of a key.
    pub(super) fn open_step(&self, Subject { source, scope, key }: &Subject) -> Option<OpenStep> {
        let mut name = String::new();
        put_name(&mut name, [source, scope, key]);
        let id = self.subjects.get(name.as_str())?.open?;
        open_step(self.open.get(&id)?)
    }

    /// All open steps, the oldest first.
    pub(super) fn open_steps(&self) -> Vec<OpenStep> {
        self.open.values().filter_map(open_step).collect()
    }

    /// What is known of a command, unless its time is over.
    pub(super) fn known(&self, command: &str, now: Millis) -> Option<Known> {
        let command = self.commands.get(command)?;
        let Some(lines) = &command.ended else { return Some(Known::Running(command.id)) };
        let end = lines.split_inclusive(|byte| *byte == b'\n').nth(1);
        match end.and_then(record_of)?.fact {
            Fact::Ended(end) if command.expires > now => Some(Known::Ended(end)),
            _ => None,
        }
    }

    /// How many commands are known.
    pub(super) fn names(&self) -> usize {
        self.commands.len()
    }

    /// The lines that add up to what is still needed: open steps, unexpired commands, and the last
    /// end of each key.
    pub(super) fn needed(&self, now: Millis) -> Needed {
        let mut kept: BTreeMap<StepId, Lines> = BTreeMap::new();
        for (id, Open { intent, dispatched, .. }) in &self.open {
            let dispatched = dispatched.as_ref().map_or(&[][..], |(_, line)| line);
            kept.insert(*id, Lines::from([intent, dispatched].concat()));
        }
        kept.extend(self.subjects.values().filter_map(|lately| lately.last.clone()));
        let mut forgotten = Vec::new();
        for (name, Command { id, expires, ended }) in &self.commands {
            match ended {
                Some(lines) if *expires > now => _ = kept.insert(*id, lines.clone()),
                Some(_) if !kept.contains_key(id) => forgotten.push((name.clone(), *id)),
                _ => {}
            }
        }
        Needed { lines: kept.into_values().collect(), forgotten }
    }

    /// Forgets what the file, made anew, has left out. Not before: a name that is begun again is judged by
    /// what the file holds, when it is written and when it is read, whatever the clock has done between.
    pub(super) fn forget(&mut self, needed: Needed) {
        for (name, id) in needed.forgotten {
            if self.commands.get(&name).is_some_and(|command| command.id == id) {
                self.commands.remove(&name);
            }
        }
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> &'a str {
    text.map_or("", |text| &text.0)
}

fn subject_of<'a>(record: &'a Flat<'_>) -> [&'a str; 3] {
    [&record.source, &record.scope, &record.key].map(|field| text(field.as_ref()))
}

fn put_name(name: &mut String, [source, scope, key]: [&str; 3]) {
    name.clear();
    // Text takes whatever is written to it.
    let _ = write!(name, "{} {} {source}{scope}{key}", source.len(), scope.len());
}

fn record_of(line: &[u8]) -> Option<Record> {
    match read(line)? {
        Line::Record(flat) => Record::try_from(flat).ok(),
        Line::Opening(_) => None,
    }
}

fn open_step(open: &Open) -> Option<OpenStep> {
    let Record { id, at, fact: Fact::Intent(intent) } = record_of(&open.intent)? else {
        return None;
    };
    let task = open.dispatched.as_ref().map(|(task, _)| task.clone());
    Some(OpenStep { id, since: at, intent, task })
}
