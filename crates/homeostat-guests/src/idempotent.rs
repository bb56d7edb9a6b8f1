//! One command for one guest, done once for each name that a client gives it.
//!
//! A second try with the same name gets the outcome of the first; while that runs, it waits in the same
//! lane for the same end. If the answer to the first one was lost, its task is looked for as long as the target may
//! still begin it. Only then, and if the guest is not as asked for, the command is sent again. The journal has all of
//! that, so a restart in between changes nothing.

use std::fmt;

use homeostat_core::{Dispatch, Recovery, TaskEnd, Tasks};
use homeostat_engine::journal::{CommandKey, End, Intent, Known, Millis, Repeat, StepId, Subject};
use homeostat_engine::{LaneGuard, Operations};
use homeostat_registry::{Error, OwnerJournal};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::apply::Writer;
use crate::command::{Located, Sent, Verb};
use crate::model::Vmid;

/// How long the outcome of a named command is kept: longer than any client tries again.
const KEPT_FOR: u64 = 7 * 24 * 60 * 60 * 1000;

/// A command as a client sends it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Command {
    pub vmid: Vmid,
    pub verb: Verb,
    /// The client's own name for it.
    pub name: Option<String>,
}

/// The result of a command, for the client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Answer {
    pub key: String,
    pub verb: Verb,
    pub outcome: CommandOutcome,
    pub why: Option<String>,
    /// Whether it is the outcome of an earlier try.
    pub stored: bool,
}

/// How a command ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandOutcome {
    Succeeded,
    Failed,
    Unknown,
}

impl fmt::Display for CommandOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommandOutcome::Succeeded => "succeeded",
            CommandOutcome::Failed => "failed",
            CommandOutcome::Unknown => "unknown",
        })
    }
}

impl Answer {
    pub(crate) fn new(command: &Command, done: Done) -> Self {
        let (outcome, why) = match done.end {
            End::Succeeded { .. } => (CommandOutcome::Succeeded, None),
            End::Failed { why } => (CommandOutcome::Failed, Some(why)),
            End::Unknown { why } => (CommandOutcome::Unknown, Some(why)),
        };
        let key = command.vmid.to_string();
        Answer { key, verb: command.verb, outcome, why, stored: done.is_stored }
    }
}

/// How a command ended.
pub(crate) struct Done {
    end: End,
    is_stored: bool,
}

/// Carries out commands: the writer, and the lanes that it shares with the loops.
pub(crate) struct GuestCommands {
    pub(crate) writer: Writer,
    pub(crate) operations: Operations<Vmid>,
    pub(crate) journal: OwnerJournal,
}

impl GuestCommands {
    /// Does a command, or returns the outcome of an earlier try.
    pub(crate) async fn carry_out(&self, command: &Command) -> Result<Done, Error> {
        if let Some(done) = self.stored(command) {
            return Ok(done);
        }
        let mut located = Located::find(&self.writer.source, command.vmid).await?;
        loop {
            let lane = self.operations.enter(&command.vmid, located.node()).await;
            if let Some(done) = self.stored(command) {
                return Ok(done);
            }
            // While others had the lane, it may have moved.
            let there = Located::find(&self.writer.source, command.vmid).await?;
            if there.node() == located.node() {
                return self.carry_out_in(&lane, command, &there).await;
            }
            located = there;
        }
    }

    /// Sends the command, unless it is under way or done already.
    async fn carry_out_in(
        &self,
        lane: &LaneGuard<Vmid>,
        command: &Command,
        located: &Located,
    ) -> Result<Done, Error> {
        if let Some(done) = self.close_open(lane, command).await? {
            return Ok(done);
        }
        if let Some(done) = self.found_after_all(command, located).await? {
            return Ok(done);
        }
        let id = self.begin(command, located).await?;
        let end = match self.writer.send(located, command.verb).await {
            Ok(Sent::Task(task)) => {
                self.operations.journal().dispatched(id, &task).await?;
                self.writer.source.follow(&task).await
            }
            Ok(Sent::AlreadyDone) => TaskEnd::Succeeded,
            Err(error) if error.is_unknown() => {
                let settled = self.operations.settle(lane, &self.writer.source).await?;
                let end = end_of(settled.unwrap_or_else(|| TaskEnd::Unknown(error.to_string())));
                return Ok(Done { end, is_stored: false });
            }
            Err(error) => TaskEnd::Failed(error.to_string()),
        };
        self.conclude(id, end).await
    }

    /// A name says the same command: for another verb, guest or cluster it is another name.
    fn name(&self, command: &Command) -> Option<String> {
        let Subject { scope, key, .. } = self.operations.subject(&command.vmid);
        command.name.as_ref().map(|name| format!("{} {key} in {scope}: {name}", command.verb))
    }

    /// How a named command ended, if it did and that is known.
    fn stored(&self, command: &Command) -> Option<Done> {
        match self.operations.journal().known(&self.name(command)?)? {
            Known::Ended(End::Unknown { .. }) | Known::Running(_) => None,
            Known::Ended(end) => Some(Done { end, is_stored: true }),
        }
    }

    /// An open step of a key whose lane we hold was left by a process that has ended, or by a wait that was given
    /// up: asks the target for its result. Returns its end if it was this very command, and refuses the command
    /// while the target still works on another.
    async fn close_open(
        &self,
        lane: &LaneGuard<Vmid>,
        command: &Command,
    ) -> Result<Option<Done>, Error> {
        let open = self.operations.journal().open_step(&self.operations.subject(lane.key()));
        let name = open.and_then(|open| open.intent.command).map(|command| command.name);
        let is_same = name.is_some() && name == self.name(command);
        match self.operations.settle(lane, &self.writer.source).await? {
            Some(TaskEnd::GivenUp(why)) if is_same => {
                Ok(Some(Done { end: End::Unknown { why }, is_stored: false }))
            }
            Some(TaskEnd::GivenUp(why)) => {
                Err(Error::helped(why, "it is still at work: ask again later"))
            }
            _ => Ok(self.stored(command)),
        }
    }

    /// If the outcome of the last try of a named command is unknown: waits for a task that runs after all, and leaves a
    /// guest alone that is as asked for.
    async fn found_after_all(
        &self,
        command: &Command,
        located: &Located,
    ) -> Result<Option<Done>, Error> {
        let name = self.name(command);
        let last = name.and_then(|name| self.operations.journal().doubted(&name));
        let Some(last) = last else { return Ok(None) };
        let found = self.writer.source.recover(last.begun()).await?;
        if let Recovery::Running { task, .. } = found {
            let id = self.begin(command, located).await?;
            self.operations.journal().dispatched(id, &task).await?;
            let end = self.writer.source.follow(&task).await;
            return self.conclude(id, end).await.map(Some);
        }
        if self.writer.is_as_asked(located, command.verb).await? {
            let id = self.begin(command, located).await?;
            return self.conclude(id, TaskEnd::Succeeded).await.map(Some);
        }
        Ok(None)
    }

    async fn begin(&self, command: &Command, located: &Located) -> Result<StepId, Error> {
        let expires = Millis((self.journal.clock())().0.saturating_add(KEPT_FOR));
        let Dispatch { kind, parameters, precondition } = located.power(command.verb).dispatch();
        let intent = Intent {
            subject: self.operations.subject(&command.vmid),
            kind,
            parameters,
            precondition,
            node: located.node().to_owned(),
            repeat: Repeat::Hurts,
            command: self.name(command).map(|name| CommandKey { name, expires }),
        };
        Ok(self.operations.journal().begin(intent).await?)
    }

    /// Writes down how a step ended. One that was only waited for too long is still at work: it stays open.
    async fn conclude(&self, id: StepId, ended: TaskEnd) -> Result<Done, Error> {
        let is_over = !matches!(ended, TaskEnd::GivenUp(_));
        let end = end_of(ended);
        if is_over {
            self.operations.journal().end(id, end.clone()).await?;
        }
        Ok(Done { end, is_stored: false })
    }
}

fn end_of(ended: TaskEnd) -> End {
    match ended {
        TaskEnd::Succeeded => End::Succeeded { answer: json!(null) },
        TaskEnd::Failed(why) => End::Failed { why },
        TaskEnd::Unknown(why) | TaskEnd::GivenUp(why) => End::Unknown { why },
    }
}
