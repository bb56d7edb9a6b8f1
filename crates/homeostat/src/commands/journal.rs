//! `homeostat journal`: the writes that must not be sent twice, and what became of them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
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
    let mut journal = follow(&directory(&state_dir(global), global.owner_name()));
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

/// Whether the reader of our output is gone, though there may be nothing to print for a long time.
fn is_hung_up() -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut watched, Some(&Timespec::default())).is_ok()
        && watched.iter().any(|one| one.revents().contains(PollFlags::ERR))
}

struct Listing<'a> {
    args: &'a JournalArgs,
    /// What each step is about: only its first record says so.
    begun: HashMap<StepId, (Subject, String)>,
}

impl Listing<'_> {
    /// Prints what is asked for; false, once the reader is gone.
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
        let (word, words) = describe(&record.fact);
        if self.args.is.is_some_and(|wanted| wanted != word) {
            return Ok(None);
        }
        if self.args.json {
            return json(record, subject, kind).map(Some);
        }
        let at = Stamp::of_millis(record.at.0);
        let Subject { source, scope, key } = subject;
        let what = format!("{at} {source} in {scope}: {key} {kind} {words}");
        Ok(Some(format!("{} step={}", plain(&what), record.id)))
    }
}

/// A record with the subject of its step, so that each line stands by itself.
fn json(record: &Record, subject: &Subject, kind: &str) -> Result<String> {
    let mut line = serde_json::to_value(record)?;
    if let (Some(line), Value::Object(subject)) =
        (line.as_object_mut(), serde_json::to_value(subject)?)
    {
        line.extend(subject);
        line.insert("kind".to_owned(), kind.into());
    }
    Ok(line.to_string())
}

/// The word for a fact, and all words.
fn describe(fact: &Fact) -> (RecordWord, String) {
    match fact {
        Fact::Intent(intent) => {
            let command = intent.command.as_ref();
            let command = command.map(|command| format!(" command=\"{}\"", command.name));
            (RecordWord::Intent, format!("intent{}", command.unwrap_or_default()))
        }
        Fact::Dispatched { task } => (RecordWord::Dispatched, format!("dispatched task={task}")),
        Fact::Ended(End::Succeeded { .. }) => (RecordWord::Succeeded, "succeeded".to_owned()),
        Fact::Ended(End::Failed { why }) => (RecordWord::Failed, format!("failed: {why}")),
        Fact::Ended(End::Unknown { why }) => (RecordWord::Unknown, format!("unknown: {why}")),
    }
}
