//! `homeostat journal`: the writes that must not be sent twice, and what became of them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{DEFAULT_OWNER, OwnerName};
use homeostat_engine::journal::{End, Fact, Record, StepId, Subject, follow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::cli::{Global, JournalArgs, RecordWord};
use crate::commands::block_on;
use crate::context::state_dir;
use crate::daemon::clock::Stamp;
use crate::failure::of_source;
use crate::journal::directory;
use crate::output::line::plain;
use crate::output::stream;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(200);

/// Prints the records, oldest first.
pub(super) fn run(args: &JournalArgs, global: &Global) -> Result<ExitCode> {
    let owner = global.owner.as_ref().map_or(DEFAULT_OWNER, OwnerName::as_str);
    let mut journal = follow(&directory(&state_dir(global), owner));
    let mut listing = Listing { args, begun: HashMap::new() };
    block_on(async {
        loop {
            let records = journal.more().map_err(|error| of_source(error.into()))?;
            let is_all = records.is_empty();
            if !listing.print(records)? || is_all && (!args.follow || is_hung_up()) {
                return Ok(ExitCode::SUCCESS);
            }
            if is_all {
                tokio::time::sleep(EVERY).await;
            }
        }
    })?
}

/// Whether nobody reads what we print, though there may be nothing to print for a long time.
fn is_hung_up() -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_ok()
        && watched.iter().any(|one| one.revents().contains(PollFlags::ERR))
}

struct Listing<'a> {
    args: &'a JournalArgs,
    /// What each step is about: only its first record says so.
    begun: HashMap<StepId, (Subject, String)>,
}

impl Listing<'_> {
    /// Prints what is asked for; false, once nobody reads.
    fn print(&mut self, records: Vec<Record>) -> Result<bool> {
        let mut stdout = io::stdout().lock();
        for record in records {
            if let Fact::Intent(intent) = &record.fact {
                let about = (intent.subject.clone(), intent.kind.clone());
                self.begun.insert(record.id, about);
            }
            let line = self.line(&record)?;
            if let Fact::Ended(_) = &record.fact {
                self.begun.remove(&record.id);
            }
            let Some(line) = line else { continue };
            if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
                stream::ignore_closed_pipe(Err(error))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn line(&self, record: &Record) -> Result<Option<String>> {
        let Some((subject, kind)) = self.begun.get(&record.id) else { return Ok(None) };
        let is = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|one| one == is);
        if !is(&self.args.key, &subject.key) || !is(&self.args.source, &subject.source) {
            return Ok(None);
        }
        if self.args.is.is_some_and(|wanted| wanted != word(&record.fact)) {
            return Ok(None);
        }
        if self.args.json {
            return json(record, (subject, kind)).map(Some);
        }
        let at = Stamp::of_millis(record.at.0);
        let Subject { source, scope, key } = subject;
        let what = format!("{at} {source} in {scope}: {key} {kind} {}", words(&record.fact));
        Ok(Some(format!("{} step={}", plain(&what), record.id)))
    }
}

/// A record with the subject of its step, so that each line stands by itself.
fn json(record: &Record, (subject, kind): (&Subject, &str)) -> Result<String> {
    let mut value = serde_json::to_value(record)?;
    if let Some(fields) = value.as_object_mut() {
        for (name, text) in [
            ("source", subject.source.as_str()),
            ("scope", &subject.scope),
            ("key", &subject.key),
            ("kind", kind),
        ] {
            fields.insert(name.to_owned(), Value::from(text));
        }
    }
    Ok(value.to_string())
}

fn word(fact: &Fact) -> RecordWord {
    match fact {
        Fact::Intent(_) => RecordWord::Intent,
        Fact::Dispatched { .. } => RecordWord::Dispatched,
        Fact::Ended(End::Succeeded { .. }) => RecordWord::Succeeded,
        Fact::Ended(End::Failed { .. }) => RecordWord::Failed,
        Fact::Ended(End::Unknown { .. }) => RecordWord::Unknown,
    }
}

fn words(fact: &Fact) -> String {
    match fact {
        Fact::Intent(intent) => match &intent.command {
            Some(command) => format!("intent command=\"{}\"", command.name),
            None => "intent".to_owned(),
        },
        Fact::Dispatched { task } => format!("dispatched task={task}"),
        Fact::Ended(End::Succeeded { .. }) => "succeeded".to_owned(),
        Fact::Ended(End::Failed { why }) => format!("failed: {why}"),
        Fact::Ended(End::Unknown { why }) => format!("unknown: {why}"),
    }
}
