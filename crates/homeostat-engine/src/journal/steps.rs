//! Which steps are open, and how the others ended: what the lines of a journal add up to.
//!
//! What is only needed to make the file anew is kept as the lines that it was read from.

use std::collections::{BTreeMap, HashMap};

use super::flat::{Flat, Is, Text};
use super::known::{Illegal, Known, OpenStep};
use super::line::{Line, read};
use super::record::{CommandKey, Fact, Millis, Record, StepId, Subject};

/// Lines as they stand in the file.
type Lines = Box<[u8]>;

/// Room for the line that ends a step, so that most of them join its first one where that is.
const ROOM: usize = 96;

/// A step without an end.
struct Open {
    slot: usize,
    /// The client's name for its command, and what it said before.
    command: Option<(String, Option<Command>)>,
    intent: Vec<u8>,
    dispatched: Option<(String, Lines)>,
}

/// A source in a scope; there are few.
struct LedgerKey {
    source: String,
    scope: String,
    /// The slot of each key.
    keys: HashMap<Box<str>, usize>,
}

/// What is known of a subject.
#[derive(Default)]
struct Lately {
    open: Option<StepId>,
    /// The target's name for the last work on it. Each step carries it on.
    task: Option<Box<str>>,
    /// Its last step that ended, with all of its lines.
    last: Option<(StepId, Lines)>,
}

/// A command that a client named.
struct Command {
    id: StepId,
    expires: Millis,
    /// All of its lines, once it has ended.
    ended: Option<Lines>,
    /// Whether nobody knows how: then it may be begun again.
    is_unknown: bool,
}

/// The sum of all lines.
#[derive(Default)]
pub(super) struct Steps {
    newest: Option<StepId>,
    open: BTreeMap<StepId, Open>,
    places: Vec<LedgerKey>,
    slots: Vec<Lately>,
    commands: HashMap<String, Command>,
}

/// What a journal that is made anew has to hold, and what it leaves out.
pub(super) struct Needed {
    /// In the order of their ids, so that they can be read back.
    pub(super) lines: Vec<u8>,
    forgotten: Vec<(String, StepId)>,
}

impl Steps {
    /// Adds a record with its line, or says why it cannot be; then nothing is changed.
    pub(super) fn add(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        match record.is {
            Is::Intent => self.begin(record, line),
            Is::Dispatched => self.dispatch(record, line),
            Is::Succeeded | Is::Failed | Is::Unknown => self.end(record, line),
        }
    }

    fn begin(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        let (id, key) = (record.id, text(record.key.as_ref()));
        if self.newest.is_some_and(|newest| newest >= id) {
            return Err(Illegal::Order(id));
        }
        let place = self.place([&record.source, &record.scope].map(|field| text(field.as_ref())));
        let known = self.places.get(place).and_then(|place| place.keys.get(key).copied());
        if let Some(open) = known.and_then(|slot| self.slots.get(slot)?.open) {
            return Err(Illegal::StillOpen { id: open, key: key.to_owned() });
        }
        let command = self.name_command(record)?;
        self.newest = Some(id);
        let slot = known.unwrap_or_else(|| self.new_slot(place, key));
        if let Some(lately) = self.slots.get_mut(slot) {
            lately.open = Some(id);
            lately.task = record.after.as_ref().map(|task| (*task.0).into());
        }
        let mut intent = Vec::with_capacity(line.len() + ROOM);
        intent.extend_from_slice(line);
        self.open.insert(id, Open { slot, command, intent, dispatched: None });
        Ok(())
    }

    fn new_slot(&mut self, place: usize, key: &str) -> usize {
        self.slots.push(Lately::default());
        let slot = self.slots.len() - 1;
        if let Some(place) = self.places.get_mut(place) {
            place.keys.insert(key.into(), slot);
        }
        slot
    }

    /// The number of a place.
    fn place(&mut self, [source, scope]: [&str; 2]) -> usize {
        let is_it = |place: &LedgerKey| place.source == source && place.scope == scope;
        self.places.iter().position(is_it).unwrap_or_else(|| {
            let [source, scope] = [source, scope].map(str::to_owned);
            self.places.push(LedgerKey { source, scope, keys: HashMap::new() });
            self.places.len() - 1
        })
    }

    /// A name is begun again once its time is over, or if nobody knows how it ended.
    fn name_command(
        &mut self,
        record: &Flat<'_>,
    ) -> Result<Option<(String, Option<Command>)>, Illegal> {
        let Some(CommandKey { name, expires }) = record.command.as_deref() else {
            return Ok(None);
        };
        let is_taken = |command: &Command| {
            command.ended.is_none() || command.expires > record.at && !command.is_unknown
        };
        if self.commands.get(name).is_some_and(is_taken) {
            return Err(Illegal::Command(name.clone()));
        }
        let named = Command { id: record.id, expires: *expires, ended: None, is_unknown: false };
        let before = self.commands.insert(name.clone(), named);
        Ok(Some((name.clone(), before)))
    }

    fn dispatch(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        let id = record.id;
        let open = self.open.get_mut(&id).ok_or(Illegal::NotOpen(id))?;
        if let Some((task, _)) = &open.dispatched {
            return Err(Illegal::Dispatched { id, task: task.clone() });
        }
        let task = text(record.task.as_ref());
        open.dispatched = Some((task.to_owned(), line.into()));
        if let Some(lately) = self.slots.get_mut(open.slot) {
            lately.task = Some(task.into());
        }
        Ok(())
    }

    fn end(&mut self, record: &Flat<'_>, line: &[u8]) -> Result<(), Illegal> {
        let (id, is_unknown) = (record.id, record.is == Is::Unknown);
        let Open { slot, command, mut intent, dispatched } =
            self.open.remove(&id).ok_or(Illegal::NotOpen(id))?;
        intent.extend_from_slice(dispatched.as_ref().map_or(&[], |(_, line)| line));
        intent.extend_from_slice(line);
        let lines = intent.into_boxed_slice();
        if let Some(command) = command.and_then(|(name, _)| self.commands.get_mut(&name)) {
            (command.ended, command.is_unknown) = (Some(lines.clone()), is_unknown);
        }
        if let Some(lately) = self.slots.get_mut(slot) {
            (lately.open, lately.last) = (None, Some((id, lines)));
        }
        Ok(())
    }

    /// Takes a step back whose first line could not be written: nobody has sent it.
    pub(super) fn retract(&mut self, id: StepId) {
        let Some(Open { slot, command, .. }) = self.open.remove(&id) else { return };
        if let Some(lately) = self.slots.get_mut(slot) {
            lately.open = None;
        }
        if let Some((name, before)) = command {
            self.commands.remove(&name);
            self.commands.extend(before.map(|before| (name, before)));
        }
    }

    fn lately_of(&self, Subject { source, scope, key }: &Subject) -> Option<&Lately> {
        let is_it = |place: &&LedgerKey| place.source == *source && place.scope == *scope;
        let slot = self.places.iter().find(is_it)?.keys.get(key.as_str())?;
        self.slots.get(*slot)
    }

    /// The open step of a key.
    pub(super) fn open_step(&self, subject: &Subject) -> Option<OpenStep> {
        let id = self.lately_of(subject)?.open?;
        open_step(self.open.get(&id)?)
    }

    /// The target's name for the last work on a key.
    pub(super) fn last_task(&self, subject: &Subject) -> Option<&str> {
        self.lately_of(subject)?.task.as_deref()
    }

    /// All open steps, the oldest first.
    pub(super) fn open_steps(&self) -> Vec<OpenStep> {
        self.open.values().filter_map(open_step).collect()
    }

    /// What is known of a command, unless its time is over.
    pub(super) fn known(&self, command: &str, now: Millis) -> Option<Known> {
        let command = self.commands.get(command)?;
        let Some(lines) = &command.ended else { return Some(Known::Running(command.id)) };
        let end = lines.split_inclusive(|byte| *byte == b'\n').next_back();
        match end.and_then(record_of)?.fact {
            Fact::Ended(end) if command.expires > now => Some(Known::Ended(end)),
            _ => None,
        }
    }

    /// The step of a command that ended so that nobody knows how, unless its time is over.
    pub(super) fn doubted(&self, command: &str, now: Millis) -> Option<OpenStep> {
        let command = self.commands.get(command)?;
        let lines =
            command.ended.as_ref().filter(|_| command.is_unknown && command.expires > now)?;
        let mut lines = lines.split_inclusive(|byte| *byte == b'\n');
        let intent = lines.next()?;
        let task = lines.next().and_then(record_of).and_then(|record| match record.fact {
            Fact::Dispatched { task } => Some(task),
            Fact::Intent(_) | Fact::Ended(_) => None,
        });
        as_open(intent, task)
    }

    /// How many commands are known.
    pub(super) fn names(&self) -> usize {
        self.commands.len()
    }

    /// The lines that add up to what is still needed: open steps, unexpired commands, and the last
    /// end of each key.
    pub(super) fn needed(&self, now: Millis) -> Needed {
        let ended = self.lately().map(|(id, lines)| (*id, &**lines));
        let mut kept: Vec<(StepId, &[u8])> = ended.collect();
        for (id, Open { intent, dispatched, .. }) in &self.open {
            kept.push((*id, intent));
            kept.extend(dispatched.as_ref().map(|(_, line)| (*id, &**line)));
        }
        kept.sort_by_key(|(id, _)| *id);
        let is_kept = |id| kept.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let (mut named, mut forgotten) = (Vec::new(), Vec::new());
        for (name, Command { id, expires, ended, .. }) in &self.commands {
            match ended {
                Some(lines) if !is_kept(id) && *expires > now => named.push((*id, &**lines)),
                Some(_) if !is_kept(id) => forgotten.push((name.clone(), *id)),
                _ => {}
            }
        }
        kept.extend(named);
        // An intent stays before what was said of it later.
        kept.sort_by_key(|(id, _)| *id);
        let lines = kept.into_iter().map(|(_, lines)| lines).collect::<Vec<_>>().concat();
        Needed { lines, forgotten }
    }

    /// About how long the lines are that are still needed.
    pub(super) fn needed_length(&self, now: Millis) -> u64 {
        let named = self.commands.values().filter(|command| command.expires > now);
        let named = named.filter_map(|command| command.ended.as_ref());
        let lines = self.lately().map(|(_, lines)| lines).chain(named).map(|lines| lines.len());
        let open = self.open.values().map(|open| open.intent.len());
        lines.chain(open).map(|length| length as u64).sum()
    }

    /// The last end of each key.
    fn lately(&self) -> impl Iterator<Item = &(StepId, Lines)> {
        self.slots.iter().filter_map(|lately| lately.last.as_ref())
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

fn record_of(line: &[u8]) -> Option<Record> {
    match read(line)? {
        Line::Record(flat) => Record::try_from(flat).ok(),
        Line::Opening(_) => None,
    }
}

fn open_step(open: &Open) -> Option<OpenStep> {
    as_open(&open.intent, open.dispatched.as_ref().map(|(task, _)| task.clone()))
}

fn as_open(intent: &[u8], task: Option<String>) -> Option<OpenStep> {
    let Line::Record(flat) = read(intent)? else { return None };
    let after = flat.after.as_ref().map(|task| task.0.clone().into_owned());
    let Record { id, at, fact: Fact::Intent(intent) } = Record::try_from(flat).ok()? else {
        return None;
    };
    Some(OpenStep { id, since: at, intent, task, after })
}
