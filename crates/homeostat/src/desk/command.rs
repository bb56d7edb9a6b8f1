//! One command for one guest, done once for each name that a client gives it.
//!
//! A second try with the same name gets the outcome of the first; while that runs, it waits in the same
//! lane for the same end. Where nobody knows how the first one ended, the second looks: what runs is joined,
//! what is done is done, and only else it is sent again. The journal remembers, so a restart in between
//! changes nothing.

use anyhow::Result;
use homeostat_engine::journal::{
    CommandKey, End, Intent, Known, Millis, OpenStep, Repeat, StepId, Subject,
};
use homeostat_engine::{Begun, Dispatch, Failure, Recovery, TaskEnd, Writer as _};
use homeostat_guests::{Key, Located, Sent, Verb, Vmid};
use serde_json::json;

use super::{Commands, clock, told};
use crate::failure::Helped;

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

impl Commands {
    /// Does a command, or tells what became of it before.
    pub(crate) async fn obey(&self, command: &Command) -> Result<Done> {
        if let Some(done) = self.stored(command) {
            return Ok(done);
        }
        let mut located = self.locate(command).await?;
        loop {
            let _lane = self.operations.enter(&command.key(), located.node()).await;
            if let Some(done) = self.stored(command) {
                return Ok(done);
            }
            // While others had the lane, it may have moved.
            let there = self.locate(command).await?;
            if there.node() == located.node() {
                return self.obey_in_turn(command, &there).await;
            }
            located = there;
        }
    }

    async fn locate(&self, command: &Command) -> Result<Located> {
        self.writer.locate(Vmid(command.vmid)).await.map_err(|failure| refused(&failure))
    }

    /// The lane is ours.
    async fn obey_in_turn(&self, command: &Command, located: &Located) -> Result<Done> {
        let at_work = self.close_open(command).await?;
        if let Some(done) = at_work.or_else(|| self.stored(command)) {
            return Ok(done);
        }
        let name = self.name(command);
        match name.and_then(|name| self.operations.journal().doubted(&name)) {
            Some(doubted) => self.try_again(command, located, doubted).await,
            None => self.carry_out(command, located).await,
        }
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

    /// An open step of a key whose lane is ours was left by a process that is no more, or by a wait that was
    /// given up. Tells if it is still at work.
    async fn close_open(&self, command: &Command) -> Result<Option<Done>> {
        let subject = self.operations.subject(&command.key());
        let Some(open) = self.operations.journal().open_step(&subject) else { return Ok(None) };
        if open.intent.repeat == Repeat::Harmless {
            let why = "nobody heard the answer".to_owned();
            return self.end(open.id, &End::Unknown { why }).await.map(|()| None);
        }
        let name = open.intent.command.as_ref().map(|command| command.name.clone());
        let is_same = name.is_some() && name == self.name(command);
        let (id, is_named) = (open.id, open.task.is_some());
        match self.look_up((id, is_named), open.begun()).await? {
            TaskEnd::GivenUp(why) if is_same => {
                Ok(Some(Done { end: End::Unknown { why }, is_stored: false }))
            }
            TaskEnd::GivenUp(why) => {
                Err(Helped::error(why, "it is still at work: ask again later"))
            }
            ended => self.end(id, &end_of(ended)).await.map(|()| None),
        }
    }

    /// Finds out what became of a step, and waits for it if it runs.
    async fn look_up(&self, (id, is_named): (StepId, bool), begun: Begun) -> Result<TaskEnd> {
        let found = self.writer.recover(begun).await.map_err(|failure| refused(&failure))?;
        let task = match found {
            Recovery::Ended(ended) => return Ok(ended),
            Recovery::Running { task, .. } => task,
        };
        if !is_named {
            self.note(id, &task).await?;
        }
        Ok(self.writer.follow(&task).await)
    }

    /// Nobody knows how the last try ended. A request that came late may be at work by this time; where
    /// nothing of ours is, the guest itself tells whether it is needed once more.
    async fn try_again(
        &self,
        command: &Command,
        located: &Located,
        doubted: OpenStep,
    ) -> Result<Done> {
        let found = self.writer.recover(doubted.begun()).await.map_err(|it| refused(&it))?;
        if let Recovery::Running { task, .. } = found {
            let id = self.begin(command, located).await?;
            self.note(id, &task).await?;
            return self.conclude(id, self.writer.follow(&task).await).await;
        }
        if self.writer.is_as_asked(located, command.verb).await.map_err(|it| refused(&it))? {
            let id = self.begin(command, located).await?;
            return self.conclude(id, TaskEnd::Succeeded).await;
        }
        self.carry_out(command, located).await
    }

    async fn carry_out(&self, command: &Command, located: &Located) -> Result<Done> {
        let id = self.begin(command, located).await?;
        let ended = match self.writer.send(located, command.verb).await {
            Ok(Sent::Task(task)) => {
                self.note(id, &task).await?;
                self.writer.follow(&task).await
            }
            Ok(Sent::AlreadyDone) => TaskEnd::Succeeded,
            Err(error) if error.is_unknown() => {
                let subject = self.operations.subject(&command.key());
                match self.operations.journal().open_step(&subject) {
                    Some(open) => self.look_up((id, false), open.begun()).await?,
                    None => TaskEnd::Unknown(error.to_string()),
                }
            }
            Err(error) => TaskEnd::Failed(error.to_string()),
        };
        self.conclude(id, ended).await
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
        self.operations.journal().begin(intent).await.map_err(|error| told(&error))
    }

    /// Writes down how a step ended. One that was only waited for too long is still at work: it stays open.
    async fn conclude(&self, id: StepId, ended: TaskEnd) -> Result<Done> {
        let is_over = !matches!(ended, TaskEnd::GivenUp(_));
        let end = end_of(ended);
        if is_over {
            self.end(id, &end).await?;
        }
        Ok(Done { end, is_stored: false })
    }

    async fn note(&self, id: StepId, task: &str) -> Result<()> {
        self.operations.journal().dispatched(id, task).await.map_err(|error| told(&error))
    }

    async fn end(&self, id: StepId, end: &End) -> Result<()> {
        self.operations.journal().end(id, end.clone()).await.map_err(|error| told(&error))
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
