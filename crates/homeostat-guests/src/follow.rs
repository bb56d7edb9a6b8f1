//! Waits for the end of a task: polls with growing pauses, up to a deadline.

use std::time::Duration;

use homeostat_core::TaskEnd;
use tokio::time::{Instant, sleep};

use crate::api::{HaState, Listed, Place, TaskState};
use crate::classify::{Class, Exit, exit};
use crate::command::locate;
use crate::error::Error;
use crate::model::{Run, Vmid};
use crate::source::Guests;
use crate::upid::Upid;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a new task may be unknown to the API.
const NEW_TASK: Duration = Duration::from_secs(10);

/// Waits for the end of a task, and of what it requested from the HA manager.
pub(crate) async fn follow(source: Guests, task: String) -> TaskEnd {
    let Ok(upid) = task.parse::<Upid>() else {
        return TaskEnd::Unknown(format!("`{task}` is no name of a task"));
    };
    let mut polls = Polls::new(source.patience.task);
    let status = loop {
        match state(&source, &upid).await {
            Ok(TaskState::Stopped(status)) => break status,
            Err(error) if error.class() == Class::NoSuchTask => {
                return TaskEnd::Unknown(format!("the target does not know task {upid}"));
            }
            // A failed query says nothing about the task.
            Ok(TaskState::Running) | Err(_) => {}
        }
        if !polls.pause().await {
            return TaskEnd::GivenUp(format!("task {upid} did not end in time"));
        }
    };
    match ended(&source, &upid, &status).await {
        // Quirk `ha-only-requests` (Proxmox VE 8): the task of a guest under HA ends as soon as the HA manager has
        // recorded the request.
        TaskEnd::Succeeded if upid.is_request() => follow_request(&source, &upid, polls).await,
        ended => ended,
    }
}

/// The state of a task. One that is unknown is queried again for a while, since it may be new.
async fn state(source: &Guests, upid: &Upid) -> Result<TaskState, Error> {
    let mut polls = Polls::new(NEW_TASK);
    loop {
        match source.client.task(upid).await {
            Err(error) if error.class() == Class::NoSuchTask && polls.pause().await => {}
            state => return state,
        }
    }
}

/// Interprets an exit status. "Already running" and the like count as success only if a read confirms it.
pub(crate) async fn ended(source: &Guests, upid: &Upid, status: &str) -> TaskEnd {
    match exit(status) {
        Exit::Ok => TaskEnd::Succeeded,
        Exit::Unknown => TaskEnd::Unknown(format!("the task ended with `{status}`")),
        Exit::AlreadyDone(run) if is_done(source, upid, run).await => TaskEnd::Succeeded,
        Exit::AlreadyDone(_) | Exit::Failed(_) => TaskEnd::Failed(status.to_owned()),
    }
}

/// Whether the task asked for this run state, and the guest has it.
async fn is_done(source: &Guests, upid: &Upid, run: Run) -> bool {
    let Some(vmid) = upid.guest().filter(|_| asks_for(upid) == Some(run)) else { return false };
    run_of(source, Vmid(vmid)).await == Some(run)
}

/// The run state of a guest, if it can be read.
pub(crate) async fn run_of(source: &Guests, vmid: Vmid) -> Option<Run> {
    StateQuery::new(source, vmid).current().await?.run
}

/// Waits until the HA manager has executed a request.
async fn follow_request(source: &Guests, upid: &Upid, mut polls: Polls) -> TaskEnd {
    let (Some(to), Some(vmid)) = (asks_for(upid), upid.guest()) else {
        return TaskEnd::Succeeded;
    };
    let mut query = StateQuery::new(source, Vmid(vmid));
    loop {
        let seen = query.current().await;
        if let Some(end) = seen.as_ref().and_then(|seen| request_end(to, seen)) {
            return end;
        }
        if !polls.pause().await {
            return request_timed_out(to, &seen.unwrap_or_default().ha);
        }
    }
}

/// How a request to the HA manager ended, by the state of the guest; none while it is in progress.
fn request_end(to: Run, seen: &Listed) -> Option<TaskEnd> {
    if seen.run == Some(to) {
        return Some(TaskEnd::Succeeded);
    }
    let text = match &seen.ha {
        HaState::Unmanaged => "the resource manager does not keep the guest any more",
        HaState::Managed(state) if state == "error" => {
            "the resource manager has an error with the guest"
        }
        HaState::Managed(_) | HaState::NotListed => return None,
    };
    Some(TaskEnd::Failed(text.to_owned()))
}

/// The end of a request that the HA manager has not executed in time. If the guest is in the opposite state by the
/// manager's will, somebody has asked for that since, and another request would interrupt nothing.
fn request_timed_out(to: Run, ha: &HaState) -> TaskEnd {
    let opposite = match to {
        Run::Running => "stopped",
        Run::Stopped => "started",
    };
    if *ha == HaState::Managed(opposite.to_owned()) {
        return TaskEnd::Unknown(format!("the resource manager keeps the guest {opposite}"));
    }
    TaskEnd::GivenUp("the resource manager has not done it in time".to_owned())
}

/// The run state that a task is to bring about.
fn asks_for(upid: &Upid) -> Option<Run> {
    match upid.kind() {
        "vzstart" | "qmstart" | "hastart" => Some(Run::Running),
        "vzstop" | "qmstop" | "hastop" | "vzshutdown" | "qmshutdown" => Some(Run::Stopped),
        _ => None,
    }
}

/// Reads the state of a guest on whatever node it is: the HA manager migrates guests.
struct StateQuery<'a> {
    source: &'a Guests,
    vmid: Vmid,
    /// Where it was seen last.
    place: Option<Place>,
}

impl<'a> StateQuery<'a> {
    fn new(source: &'a Guests, vmid: Vmid) -> Self {
        StateQuery { source, vmid, place: None }
    }

    /// None, if the state cannot be read.
    async fn current(&mut self) -> Option<Listed> {
        let client = &self.source.client;
        let place = match self.place.take() {
            Some(place) => place,
            None => locate(client, self.vmid).await.ok()?.place,
        };
        let current = client.current(&place).await.ok()?;
        self.place = Some(place);
        Some(current)
    }
}

/// Growing pauses up to a deadline.
struct Polls {
    since: Instant,
    deadline: Duration,
    next: Duration,
}

impl Polls {
    fn new(deadline: Duration) -> Self {
        Polls { since: Instant::now(), deadline, next: FIRST_PAUSE }
    }

    fn is_longer_than(&self, time: Duration) -> bool {
        self.since.elapsed() > time
    }

    /// Pauses; false after the deadline.
    async fn pause(&mut self) -> bool {
        if self.is_longer_than(self.deadline) {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 3 / 2).min(LONGEST_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run: Run, ha: &HaState) -> Listed {
        Listed { run: Some(run), ha: ha.clone(), ..Listed::default() }
    }

    fn managed(state: &str) -> HaState {
        HaState::Managed(state.to_owned())
    }

    #[test]
    fn a_request_is_done_when_the_guest_has_the_state_whatever_the_manager_shows() {
        for ha in [HaState::Unmanaged, managed("error"), managed("started")] {
            let end = request_end(Run::Running, &seen(Run::Running, &ha));
            assert_eq!(end, Some(TaskEnd::Succeeded), "{ha:?}");
        }
    }

    #[test]
    fn a_request_fails_if_the_guest_is_unmanaged_or_in_error() {
        for ha in [HaState::Unmanaged, managed("error")] {
            let end = request_end(Run::Running, &seen(Run::Stopped, &ha));
            assert!(matches!(end, Some(TaskEnd::Failed(_))), "{ha:?}: {end:?}");
        }
        let at_work = ["", "stopped", "request_start", "started", "migrate", "fence"].map(managed);
        for ha in at_work.into_iter().chain([HaState::NotListed]) {
            let end = request_end(Run::Running, &seen(Run::Stopped, &ha));
            assert_eq!(end, None, "{ha:?}");
        }
    }

    #[test]
    fn a_request_that_was_revoked_is_not_waited_for_again() {
        for (to, state) in [(Run::Running, "stopped"), (Run::Stopped, "started")] {
            assert!(
                matches!(request_timed_out(to, &managed(state)), TaskEnd::Unknown(_)),
                "{state}"
            );
        }
        for ha in [HaState::NotListed, managed(""), managed("started"), managed("recovery")] {
            let end = request_timed_out(Run::Running, &ha);
            assert!(matches!(end, TaskEnd::GivenUp(_)), "{ha:?}");
        }
    }
}
