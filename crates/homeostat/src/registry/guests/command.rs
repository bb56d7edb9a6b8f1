//! One command for one guest, done once for each name that a client gives it.
//!
//! A second try with the same name gets the outcome of the first; while that runs, it waits in the same
//! lane for the same end. Where the answer to the first one was lost, it is looked for as long as the target may still
//! begin its task. Only then, and if the guest is not as asked for, it is sent again. The journal remembers, so a
//! restart in between changes nothing.

use anyhow::Result;
use homeostat_engine::journal::{
    CommandKey, End, Intent, Known, Millis, OpenStep, Repeat, StepId, Subject,
};
use homeostat_engine::{Dispatch, Failure, LaneGuard, Recovery, TaskEnd, Tasks};
use homeostat_guests::{Key, Located, Sent, Verb, Vmid};
use serde_json::json;

use super::operations::GuestCommands;
use crate::failure::Helped;
use crate::journal::{clock, explain};

/// How long the outcome of a named command is kept: longer than any client tries again.
const KEPT_FOR: u64 = 7 * 24 * 60 * 60 * 1000;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) vmid: u32,
    pub(crate) verb: Verb,
    /// The client's own name for it.
    pub(crate) name: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) end: End,
    /// Whether it was done for an earlier try.
    pub(crate) is_stored: bool,
}

impl Command {
    fn key(&self) -> Key {
        Key(Vmid(self.vmid))
    }
}

impl GuestCommands {
    /// Does a command, or tells what became of it before.
    pub(crate) async fn carry_out(&self, command: &Command) -> Result<Done> {
        if let Some(done) = self.stored(command) {
            return Ok(done);
        }
        let mut located = self.locate(command).await?;
        loop {
            let lane = self.operations.enter(&command.key(), located.node()).await;
            if let Some(done) = self.stored(command) {
                return Ok(done);
            }
            // While others had the lane, it may have moved.
            let there = self.locate(command).await?;
            if there.node() == located.node() {
                return self.carry_out_in(&lane, command, &there).await;
            }
            located = there;
        }
    }

    fn tasks(&self) -> &dyn Tasks {
        self.writer.source()
    }

    async fn locate(&self, command: &Command) -> Result<Located> {
        self.writer.source().locate(Vmid(command.vmid)).await.map_err(|failure| refused(&failure))
    }

    /// Sends the command, unless it is under way or done already.
    async fn carry_out_in(
        &self,
        lane: &LaneGuard<Key>,
        command: &Command,
        located: &Located,
    ) -> Result<Done> {
        if let Some(done) = self.close_open(lane, command).await? {
            return Ok(done);
        }
        let name = self.name(command);
        let doubted = name.and_then(|name| self.operations.journal().doubted(&name));
        if let Some(done) = self.found_after_all(command, located, doubted).await? {
            return Ok(done);
        }
        let id = self.begin(command, located).await?;
        let end = match self.writer.send(located, command.verb).await {
            Ok(Sent::Task(task)) => {
                self.note(id, &task).await?;
                self.tasks().follow(&task).await
            }
            Ok(Sent::AlreadyDone) => TaskEnd::Succeeded,
            Err(error) if error.is_unknown() => {
                let settled = self.operations.settle(lane, self.tasks()).await;
                let settled = settled.map_err(|failure| refused(&failure))?;
                let end = end_of(settled.unwrap_or_else(|| TaskEnd::Unknown(error.to_string())));
                return Ok(Done { end, is_stored: false });
            }
            Err(error) => TaskEnd::Failed(error.to_string()),
        };
        self.conclude(id, end).await
    }

    /// A name says the same command: for another verb, guest or cluster it is another name.
    fn name(&self, command: &Command) -> Option<String> {
        let Subject { scope, key, .. } = self.operations.subject(&command.key());
        command.name.as_ref().map(|name| format!("{} {key} in {scope}: {name}", command.verb))
    }

    /// How a named command ended, if it did, and somebody knows.
    fn stored(&self, command: &Command) -> Option<Done> {
        match self.operations.journal().known(&self.name(command)?)? {
            Known::Ended(End::Unknown { .. }) | Known::Running(_) => None,
            Known::Ended(end) => Some(Done { end, is_stored: true }),
        }
    }

    /// An open step of a key whose lane is ours was left by a process that is no more, or by a wait that was given
    /// up: it is found out what became of it. Tells what is still at work, or was this very command.
    async fn close_open(&self, lane: &LaneGuard<Key>, command: &Command) -> Result<Option<Done>> {
        let open = self.operations.journal().open_step(&self.operations.subject(lane.key()));
        let name = open.and_then(|open| open.intent.command).map(|command| command.name);
        let is_same = name.is_some() && name == self.name(command);
        let settled = self.operations.settle(lane, self.tasks()).await;
        match settled.map_err(|failure| refused(&failure))? {
            Some(TaskEnd::GivenUp(why)) if is_same => {
                Ok(Some(Done { end: End::Unknown { why }, is_stored: false }))
            }
            Some(TaskEnd::GivenUp(why)) => {
                Err(Helped::error(why, "it is still at work: ask again later"))
            }
            _ => Ok(self.stored(command)),
        }
    }

    /// The last try of a named command ended so that nobody knows how, after its doubt was over. What runs all the same
    /// is joined, and a guest that is as asked for is left alone.
    async fn found_after_all(
        &self,
        command: &Command,
        located: &Located,
        doubted: Option<OpenStep>,
    ) -> Result<Option<Done>> {
        let Some(doubted) = doubted else { return Ok(None) };
        let found = self.tasks().recover(doubted.begun()).await.map_err(|it| refused(&it))?;
        if let Recovery::Running { task, .. } = found {
            let id = self.begin(command, located).await?;
            self.note(id, &task).await?;
            let end = self.tasks().follow(&task).await;
            return self.conclude(id, end).await.map(Some);
        }
        if self.writer.is_as_asked(located, command.verb).await.map_err(|it| refused(&it))? {
            let id = self.begin(command, located).await?;
            return self.conclude(id, TaskEnd::Succeeded).await.map(Some);
        }
        Ok(None)
    }

    async fn begin(&self, command: &Command, located: &Located) -> Result<StepId> {
        let Dispatch { kind, parameters, precondition } = located.dispatch(command.verb);
        let intent = Intent {
            subject: self.operations.subject(&command.key()),
            kind,
            parameters,
            precondition,
            node: located.node().to_owned(),
            repeat: Repeat::Hurts,
            command: self.name(command).map(|name| CommandKey { name, expires: expiry() }),
        };
        self.operations.journal().begin(intent).await.map_err(|error| explain(&error))
    }

    /// Writes down how a step ended. One that was only waited for too long is still at work: it stays open.
    async fn conclude(&self, id: StepId, ended: TaskEnd) -> Result<Done> {
        let is_over = !matches!(ended, TaskEnd::GivenUp(_));
        let end = end_of(ended);
        if is_over {
            let ended = self.operations.journal().end(id, end.clone()).await;
            ended.map_err(|error| explain(&error))?;
        }
        Ok(Done { end, is_stored: false })
    }

    async fn note(&self, id: StepId, task: &str) -> Result<()> {
        self.operations.journal().dispatched(id, task).await.map_err(|error| explain(&error))
    }
}

fn now() -> Millis {
    clock()()
}

fn expiry() -> Millis {
    Millis(now().0.saturating_add(KEPT_FOR))
}

fn end_of(ended: TaskEnd) -> End {
    match ended {
        TaskEnd::Succeeded => End::Succeeded { answer: json!(null) },
        TaskEnd::Failed(why) => End::Failed { why },
        TaskEnd::Unknown(why) | TaskEnd::GivenUp(why) => End::Unknown { why },
    }
}

fn refused(failure: &Failure) -> anyhow::Error {
    match &failure.help {
        Some(help) => Helped::error(failure.error.clone(), help.clone()),
        None => anyhow::anyhow!("{}", failure.error),
    }
}
