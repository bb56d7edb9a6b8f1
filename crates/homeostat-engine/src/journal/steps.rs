//! Which steps are open and how the others ended: what the records of a journal add up to. Pure.
//!
//! The same rules hold for a record that is appended and for one that is read back.

use std::collections::{BTreeMap, HashMap, VecDeque};

use homeostat_core::{Begun, Dispatch};

use super::record::{CommandKey, End, Entry, Fact, Intent, Millis, StepId, Subject};

/// About so many bytes of steps are kept for readers though nothing needs them: neither open, nor the last of their
/// key, nor of a command that may be asked for again. Half of them go when there are more.
const HISTORY: usize = 1 << 19;

/// A step that was begun and has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct OpenStep {
    pub id: StepId,
    pub since: Millis,
    /// What was to be sent.
    pub intent: Intent,
    /// The target's name for the work, if it is known to have accepted it.
    pub task: Option<String>,
    /// Its name for the last work on the key before this step: what is looked for came after it.
    pub after: Option<String>,
}

impl OpenStep {
    /// What the target can be asked about it.
    #[must_use]
    pub fn begun(&self) -> Begun {
        let OpenStep { since, intent, task, after, .. } = self.clone();
        let Intent { subject, kind, parameters, precondition, .. } = intent;
        let dispatch = Dispatch { kind, parameters, precondition };
        Begun { key: subject.key, dispatch, task, after, since: since.0 }
    }
}

/// What is known of a command that a client named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It runs: a client that asks again waits for the same end.
    Running(StepId),
    /// It ended so.
    Ended(End),
}

/// Why a record cannot follow those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Illegal {
    /// An id is used twice, or runs backwards.
    #[error("step {0} is begun after a later one")]
    PassInput(StepId),
    /// A key has an open step.
    #[error("step {id} of `{key}` has no end yet")]
    StillOpen {
        /// The open step.
        id: StepId,
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
    Dispatched { id: StepId, task: String },
}

/// The sum of all records.
#[derive(Default)]
pub(super) struct Steps {
    newest: Option<StepId>,
    open: BTreeMap<StepId, Open>,
    keys: HashMap<Subject, KeyHistory>,
    commands: HashMap<String, Command>,
    /// Ended steps of keys that have a later one, in the order in which these ended.
    superseded: VecDeque<Ended>,
    superseded_bytes: usize,
    /// How many bytes of them stayed at the last pruning, because a command may still be asked for again.
    unprunable: usize,
}

struct Open {
    step: OpenStep,
    /// What its command said before, if it was not known how that ended.
    former: Option<Command>,
    records: StoredRecords,
}

#[derive(Default)]
struct KeyHistory {
    open: Option<StepId>,
    /// The target's name for the last work on the key. Each step carries it on.
    task: Option<String>,
    last: Option<Ended>,
}

/// A step that has ended.
struct Ended {
    id: StepId,
    command: Option<String>,
    records: StoredRecords,
}

/// The records of one step in the store.
#[derive(Default)]
struct StoredRecords {
    numbers: Vec<i64>,
    bytes: usize,
}

impl StoredRecords {
    fn push(&mut self, entry: &Entry) {
        self.numbers.push(entry.number);
        self.bytes += size_of(&entry.record.fact);
    }
}

/// About how many bytes a record takes.
fn size_of(fact: &Fact) -> usize {
    let text = match fact {
        Fact::Intent(Intent { subject, kind, parameters, precondition, node, command, .. }) => {
            let Subject { source, scope, key } = subject;
            let precondition = precondition.as_ref().map_or(0, String::len);
            let command = command.as_ref().map_or(0, |command| command.name.len());
            let texts = [source, scope, key, kind, parameters, node];
            texts.map(String::len).iter().sum::<usize>() + precondition + command
        }
        Fact::Dispatched { task } => task.len(),
        Fact::Ended(End::Succeeded { .. }) => 0,
        Fact::Ended(End::Failed { why } | End::Unknown { why }) => why.len(),
    };
    text + 100
}

/// A command that a client named.
struct Command {
    id: StepId,
    expires: Millis,
    ended: Option<(OpenStep, End)>,
}

impl Steps {
    /// Adds a record, or says why it cannot be; then nothing is changed.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), Illegal> {
        match &entry.record.fact {
            Fact::Intent(intent) => self.begin(entry, intent),
            Fact::Dispatched { task } => self.dispatch(entry, task),
            Fact::Ended(end) => self.end(entry, end),
        }
    }

    fn begin(&mut self, entry: &Entry, intent: &Intent) -> Result<(), Illegal> {
        let (id, since) = (entry.record.id, entry.record.at);
        if self.newest.is_some_and(|newest| newest >= id) {
            return Err(Illegal::PassInput(id));
        }
        if let Some(open) = self.keys.get(&intent.subject).and_then(|key| key.open) {
            return Err(Illegal::StillOpen { id: open, key: intent.subject.key.clone() });
        }
        let former = match &intent.command {
            Some(command) => self.begin_command(command, id, since)?,
            None => None,
        };
        self.newest = Some(id);
        let after = entry.previous_task.clone();
        let key = self.keys.entry(intent.subject.clone()).or_default();
        (key.open, key.task) = (Some(id), after.clone());
        let step = OpenStep { id, since, intent: intent.clone(), task: None, after };
        let mut records = StoredRecords::default();
        records.push(entry);
        self.open.insert(id, Open { step, former, records });
        Ok(())
    }

    /// A name is begun again once its time is over, or if it is not known how it ended. Judged by the time in the record,
    /// so that it is judged the same when it is read back, whatever the clock does. Returns what the name said before.
    fn begin_command(
        &mut self,
        CommandKey { name, expires }: &CommandKey,
        id: StepId,
        at: Millis,
    ) -> Result<Option<Command>, Illegal> {
        let is_taken = |command: &Command| match command.ended {
            None => true,
            Some((_, End::Unknown { .. })) => false,
            Some(_) => command.expires > at,
        };
        if self.commands.get(name).is_some_and(is_taken) {
            return Err(Illegal::Command(name.clone()));
        }
        Ok(self.commands.insert(name.clone(), Command { id, expires: *expires, ended: None }))
    }

    fn dispatch(&mut self, entry: &Entry, task: &str) -> Result<(), Illegal> {
        let id = entry.record.id;
        let open = self.open.get_mut(&id).ok_or(Illegal::NotOpen(id))?;
        if let Some(task) = &open.step.task {
            return Err(Illegal::Dispatched { id, task: task.clone() });
        }
        open.step.task = Some(task.to_owned());
        open.records.push(entry);
        if let Some(key) = self.keys.get_mut(&open.step.intent.subject) {
            key.task = Some(task.to_owned());
        }
        Ok(())
    }

    fn end(&mut self, entry: &Entry, end: &End) -> Result<(), Illegal> {
        let id = entry.record.id;
        let Open { step, mut records, .. } = self.open.remove(&id).ok_or(Illegal::NotOpen(id))?;
        records.push(entry);
        let command = step.intent.command.as_ref().map(|command| command.name.clone());
        if let Some(key) = self.keys.get_mut(&step.intent.subject) {
            key.open = None;
            if let Some(last) = key.last.replace(Ended { id, command, records }) {
                self.superseded_bytes += last.records.bytes;
                self.superseded.push_back(last);
            }
        }
        let named = step.intent.command.as_ref();
        if let Some(command) = named.and_then(|named| self.commands.get_mut(&named.name)) {
            command.ended = Some((step, end.clone()));
        }
        Ok(())
    }

    /// Takes a step back whose intent could not be written: it was not sent.
    pub(super) fn retract(&mut self, id: StepId) {
        let Some(Open { step, former, .. }) = self.open.remove(&id) else { return };
        if let Some(key) = self.keys.get_mut(&step.intent.subject) {
            key.open = None;
        }
        if let Some(CommandKey { name, .. }) = step.intent.command {
            self.commands.remove(&name);
            self.commands.extend(former.map(|former| (name, former)));
        }
    }

    /// Forgets old steps that nothing needs, and returns the numbers of their records, which must be deleted no later
    /// than the next record is written: a name that is begun again is judged by what the store holds.
    pub(super) fn prune(&mut self, now: Millis) -> Vec<i64> {
        let (mut pruned, mut kept) = (Vec::new(), VecDeque::new());
        if self.superseded_bytes < HISTORY + 2 * self.unprunable {
            return pruned;
        }
        self.unprunable = 0;
        while self.superseded_bytes > HISTORY / 2 + self.unprunable {
            let Some(step) = self.superseded.pop_front() else { break };
            let name = step.command.as_deref().unwrap_or_default();
            // A later try of a command has taken over its name.
            let command = self.commands.get(name).filter(|command| command.id == step.id);
            match command.map(|command| command.expires > now) {
                Some(true) => {
                    self.unprunable += step.records.bytes;
                    kept.push_back(step);
                    continue;
                }
                Some(false) => _ = self.commands.remove(name),
                None => {}
            }
            self.superseded_bytes -= step.records.bytes;
            pruned.extend(step.records.numbers);
        }
        kept.append(&mut self.superseded);
        self.superseded = kept;
        pruned
    }

    pub(super) fn newest(&self) -> Option<StepId> {
        self.newest
    }

    /// The open step of a key.
    pub(super) fn open_step(&self, subject: &Subject) -> Option<OpenStep> {
        let id = self.keys.get(subject)?.open?;
        self.open.get(&id).map(|open| open.step.clone())
    }

    /// The target's name for the last work on a key.
    pub(super) fn last_task(&self, subject: &Subject) -> Option<String> {
        self.keys.get(subject)?.task.clone()
    }

    /// All open steps, the oldest first.
    pub(super) fn open_steps(&self) -> Vec<OpenStep> {
        self.open.values().map(|open| open.step.clone()).collect()
    }

    /// What is known of a command, unless its time is over.
    pub(super) fn known(&self, command: &str, now: Millis) -> Option<Known> {
        let Command { id, expires, ended } = self.commands.get(command)?;
        match ended {
            None => Some(Known::Running(*id)),
            Some((_, end)) => (*expires > now).then(|| Known::Ended(end.clone())),
        }
    }

    /// The step of a command whose end is not known, unless its time is over.
    pub(super) fn doubted(&self, command: &str, now: Millis) -> Option<OpenStep> {
        let command = self.commands.get(command).filter(|command| command.expires > now)?;
        match &command.ended {
            Some((step, End::Unknown { .. })) => Some(step.clone()),
            _ => None,
        }
    }

    /// How many commands are known.
    pub(super) fn names(&self) -> usize {
        self.commands.len()
    }
}
