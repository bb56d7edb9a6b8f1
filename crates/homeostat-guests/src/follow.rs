//! Waits for the end of a task: polls with growing pauses, up to a deadline.

use std::time::Duration;

use homeostat_core::TaskEnd;
use tokio::time::{Instant, sleep};

use crate::api::{HaState, Listed, Place, TaskState};
use crate::classify::{Class, exit};
use crate::command::Located;
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
    let Some(upid) = Upid::parse(&task) else {
        return TaskEnd::Unknown(format!("`{task}` is no name of a task"));
    };
    let mut polls = Polls::new(source.timeouts.task);
    let status = loop {
        match state(&source, &upid).await {
            Ok(TaskState::Stopped(status)) => break status,
            Err(error) if error.class() == Class::NoSuchTask => {
                return TaskEnd::Unknown(format!("the target does not know task {task}"));
            }
            // A failed query says nothing about the task.
            Ok(TaskState::Running) | Err(_) => {}
        }
        if !polls.pause().await {
            return TaskEnd::GivenUp(format!("task {task} did not end in time"));
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
        match source.api.task(upid).await {
            Err(error) if error.class() == Class::NoSuchTask && polls.pause().await => {}
            state => return state,
        }
    }
}

/// Interprets an exit status. "Already running" and the like count as success only if the task asked for that, and a
/// read confirms it.
pub(crate) async fn ended(source: &Guests, upid: &Upid, status: &str) -> TaskEnd {
    match exit(status) {
        None => TaskEnd::Succeeded,
        Some(Class::UnknownOutcome) => TaskEnd::Unknown(format!("the task ended with `{status}`")),
        Some(Class::AlreadyDone(run))
            if let Some(vmid) = upid.guest
                && upid.asks_for() == Some(run)
                && run_of(source, vmid).await == Some(run) =>
        {
            TaskEnd::Succeeded
        }
        Some(_) => TaskEnd::Failed(status.to_owned()),
    }
}

/// The run state of a guest, if it can be read.
pub(crate) async fn run_of(source: &Guests, vmid: Vmid) -> Option<Run> {
    current(source, vmid, &mut None).await?.run
}

/// Waits until the HA manager has executed a request.
async fn follow_request(source: &Guests, upid: &Upid, mut polls: Polls) -> TaskEnd {
    let (Some(to), Some(vmid)) = (upid.asks_for(), upid.guest) else {
        return TaskEnd::Succeeded;
    };
    let mut place = None;
    loop {
        let seen = current(source, vmid, &mut place).await;
        if let Some(end) = seen.as_ref().and_then(|seen| request_end(to, seen)) {
            return end;
        }
        if !polls.pause().await {
            return request_timed_out(to, seen.as_ref().map(|seen| &seen.ha));
        }
    }
}

/// Reads the state of a guest on whatever node it is, since the HA manager migrates guests. `place` is where it was
/// seen last. None, if the state cannot be read.
async fn current(source: &Guests, vmid: Vmid, place: &mut Option<Place>) -> Option<Listed> {
    let known = match place.take() {
        Some(known) => known,
        None => Located::find(source, vmid).await.ok()?.place,
    };
    let current = source.api.current(&known).await.ok()?;
    *place = Some(known);
    Some(current)
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
/// manager's will, another client has asked for that since, and another request would interrupt nothing.
fn request_timed_out(to: Run, ha: Option<&HaState>) -> TaskEnd {
    let opposite = match to {
        Run::Running => "stopped",
        Run::Stopped => "started",
    };
    if ha == Some(&HaState::Managed(opposite.to_owned())) {
        return TaskEnd::Unknown(format!("the resource manager keeps the guest {opposite}"));
    }
    TaskEnd::GivenUp("the resource manager has not done it in time".to_owned())
}

/// Growing pauses up to a deadline.
struct Polls {
    deadline: Instant,
    next: Duration,
}

impl Polls {
    fn new(within: Duration) -> Self {
        Polls { deadline: Instant::now() + within, next: FIRST_PAUSE }
    }

    /// Pauses; false after the deadline.
    async fn pause(&mut self) -> bool {
        if Instant::now() > self.deadline {
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
    use crate::model::Kind;

    fn seen(run: Run, ha: &HaState) -> Listed {
        Listed {
            place: Place { node: "pve1".to_owned(), kind: Kind::Lxc, vmid: Vmid(101) },
            run: Some(run),
            tags: [].into(),
            name: String::new(),
            lock: None,
            ha: ha.clone(),
        }
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
                matches!(request_timed_out(to, Some(&managed(state))), TaskEnd::Unknown(_)),
                "{state}"
            );
        }
        for ha in [HaState::NotListed, managed(""), managed("started"), managed("recovery")] {
            let end = request_timed_out(Run::Running, Some(&ha));
            assert!(matches!(end, TaskEnd::GivenUp(_)), "{ha:?}");
        }
    }
}
