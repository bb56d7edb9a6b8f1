//! Writes: options directly, with the digest of the configuration as a precondition; starts and stops as tasks of
//! the target, with a journal around them.

use std::sync::Arc;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_core::{
    Begun, Failure, Outcome, Outcomes, Recovery, Retry, TaskEnd, Tasks, WaitsOn, Work,
};

use crate::api::Listed;
use crate::classify::Class;
use crate::command::{Located, Sent, Verb};
use crate::error::Error;
use crate::follow;
use crate::mark::{self, Marked};
use crate::model::Guest;
use crate::recover;
use crate::source::Guests;
use crate::step::{Expects, Power, Release, Set, Step};
use crate::upid::Upid;

#[derive(Debug)]
pub struct Writer {
    /// The guests that it writes to, whose tasks can be followed and found again.
    pub source: Guests,
}

type Out<'a> = &'a dyn Outcomes<Guest>;

impl Writer {
    /// With the digest as a precondition it is safe to send twice.
    async fn set(&self, at: usize, set: &Set, out: Out<'_>) -> Outcome<Guest> {
        out.note(at).await;
        match self.source.api.set(&set.write).await {
            Ok(task) => self.written(task).await,
            Err(error) => refused(&error),
        }
    }

    /// The outcome of a change of options that was accepted. If the target does it by a task, that is waited for.
    async fn written(&self, task: Option<Upid>) -> Outcome<Guest> {
        let Some(Upid { task, .. }) = task else { return Outcome::Applied { now: None } };
        match follow::follow(self.source.clone(), task).await {
            TaskEnd::Succeeded => Outcome::Applied { now: None },
            TaskEnd::Failed(why) => Outcome::Failed(Failure::new(why, Retry::Soon)),
            TaskEnd::Unknown(why) | TaskEnd::GivenUp(why) => Outcome::Unknown { why },
        }
    }

    async fn power(&self, at: usize, power: &Power, out: Out<'_>) -> Outcome<Guest> {
        if let Err(outcome) = self.check(power).await {
            return outcome;
        }
        if let Err(failure) = out.intent(at).await {
            return Outcome::Failed(failure);
        }
        let api = &self.source.api;
        match api.power(&power.place, power.verb(), power.parameters()).await {
            Ok(Upid { task, .. }) => match out.dispatched(at, &task).await {
                Ok(()) => Outcome::Waiting { task },
                // The intent is open: the next pass finds the task by it.
                Err(failure) => Outcome::Unknown { why: failure.error },
            },
            Err(error) if self.is_done(power, &error).await => Outcome::Applied { now: None },
            Err(error) => refused(&error),
        }
    }

    /// Whether a refusal says that the guest is in the wanted state already, and a read confirms it.
    pub(crate) async fn is_done(&self, power: &Power, refusal: &Error) -> bool {
        refusal.class() == Class::AlreadyDone(power.to) && self.shows(power).await.unwrap_or(false)
    }

    /// Whether the guest is in the wanted state.
    pub(crate) async fn shows(&self, power: &Power) -> Result<bool, Error> {
        let current = self.source.api.current(&power.place).await?;
        Ok(current.run == Some(power.to))
    }

    /// Checks right before the write that no task of the guest is running, that the guest is the one that was
    /// planned for, and that it is not in the wanted state already.
    async fn check(&self, power: &Power) -> Result<(), Outcome<Guest>> {
        let api = &self.source.api;
        let active = [("source", "active".to_owned())];
        let running = api.tasks(&power.place.node, power.place.vmid, &active).await;
        let running = running.map_err(|error| unsent(&error))?;
        for task in running {
            let on = match Upid::parse(&task) {
                Some(upid) if upid.is_console() => continue,
                // The journal has no open step of this guest.
                Some(upid) if upid.user == api.client.user() => WaitsOn::UnknownTask(task),
                _ => WaitsOn::Task(task),
            };
            return Err(Outcome::Pending { on });
        }
        let current = api.current(&power.place).await.map_err(|error| unsent(&error))?;
        self.check_identity(power, &current).await?;
        match current.run {
            Some(run) if run == power.to => Err(Outcome::Applied { now: None }),
            Some(_) => Ok(()),
            None => {
                let text = "whether it runs is not known any more";
                Err(Outcome::Failed(Failure::new(text, Retry::Soon)))
            }
        }
    }

    async fn check_identity(&self, power: &Power, current: &Listed) -> Result<(), Outcome<Guest>> {
        // If the plan was made without the configuration, the tags of the current state are compared.
        let (tags, digest) = if power.before.unread.is_some() {
            (current.tags.clone(), None)
        } else {
            let read = self.source.api.options(&power.place).await;
            let read = read.map_err(|error| unsent(&error))?;
            (read.tags(), Some(read.digest))
        };
        let marked =
            mark::read(&self.source.owner, self.source.claimant.as_ref(), power.place.vmid, &tags);
        let is_same = match (&power.expects, marked) {
            (Expects::Number, _) => true,
            (Expects::Mark(expected), Marked::Ours(found)) => *expected == found,
            (Expects::Digest(expected), Marked::Not) => Some(expected) == digest.as_ref(),
            (Expects::Name(expected), Marked::Not) => *expected == current.name,
            _ => false,
        };
        let text = "it is not the guest that was planned for any more";
        is_same.then_some(()).ok_or_else(|| Outcome::Failed(Failure::new(text, Retry::Now)))
    }

    /// Removes our mark, and reads back whether it is gone. Succeeds also if the guest is gone, or if we may not
    /// write to it any more.
    async fn release(&self, at: usize, release: &Release, out: Out<'_>) -> Outcome<Guest> {
        let Some(write) = &release.write else { return Outcome::Applied { now: None } };
        out.note(at).await;
        let api = &self.source.api;
        match api.set(write).await {
            Ok(task) => match self.written(task).await {
                Outcome::Applied { .. } => {}
                other => return other,
            },
            Err(error) if matches!(error.class(), Class::Forbidden | Class::NotFound) => {
                return Outcome::Applied { now: None };
            }
            Err(error) => return refused(&error),
        }
        let read = match api.options(&write.place).await {
            Ok(read) => read,
            Err(error) => return Outcome::Unknown { why: error.to_string() },
        };
        let source = &self.source;
        match mark::read(&source.owner, source.claimant.as_ref(), write.place.vmid, &read.tags()) {
            Marked::Ours(mark) => {
                let text = format!("the write was accepted, but the tag {mark} is still there");
                Outcome::Failed(Failure::new(text, Retry::Soon))
            }
            Marked::Not | Marked::Other(_) => Outcome::Applied { now: None },
        }
    }

    /// Whether the guest is in the state that the command asks for.
    pub async fn is_as_asked(&self, located: &Located, verb: Verb) -> Result<bool, Failure> {
        let shown = self.shows(&located.power(verb)).await;
        shown.map_err(|error| error.failure())
    }

    /// Sends a command. The caller holds the lane of the guest, and has recorded the intent.
    pub async fn send(&self, located: &Located, verb: Verb) -> Result<Sent, Error> {
        let power = located.power(verb);
        let api = &self.source.api;
        match api.power(&located.place, power.verb(), power.parameters()).await {
            Ok(upid) => Ok(Sent::Task(upid.task)),
            Err(error) if self.is_done(&power, &error).await => Ok(Sent::AlreadyDone),
            Err(error) => Err(error),
        }
    }
}

/// The outcome if a read before the write failed: the write was not sent.
fn unsent(error: &Error) -> Outcome<Guest> {
    Outcome::Failed(error.failure())
}

/// The outcome if the write was refused, or its answer was lost.
fn refused(error: &Error) -> Outcome<Guest> {
    if error.is_unknown() {
        return Outcome::Unknown { why: error.to_string() };
    }
    Outcome::Failed(error.failure())
}

impl homeostat_core::Writer<Guests> for Writer {
    async fn apply(&self, work: Work<'_, Guests>, out: Out<'_>) {
        for (at, step) in work.iter() {
            let outcome = match step {
                Step::Set(set) => self.set(at, set, out).await,
                Step::Power(power) => self.power(at, power, out).await,
                Step::Release(release) => self.release(at, release, out).await,
            };
            let is_good = outcome.is_good();
            out.put(at..at + 1, outcome);
            if !is_good {
                return;
            }
        }
    }

    fn tasks(&self) -> Option<Arc<dyn Tasks>> {
        Some(Arc::new(self.source.clone()))
    }
}

impl Tasks for Guests {
    fn follow(&self, task: &str) -> Later<'static, TaskEnd> {
        Box::pin(follow::follow(self.clone(), task.to_owned()))
    }

    fn recover(&self, begun: Begun) -> Later<'static, Result<Recovery, Failure>> {
        Box::pin(recover::recover(self.clone(), begun))
    }

    fn doubt_lasts(&self) -> Duration {
        self.timeouts.late_task
    }
}
