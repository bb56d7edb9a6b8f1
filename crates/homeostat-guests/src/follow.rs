//! Waits for the end of a task, with growing pauses and a deadline.

use std::time::Duration;

use homeostat_core::TaskEnd;
use tokio::time::{Instant, sleep};

use crate::api::{Keeper, Listed, Place, TaskState};
use crate::classify::{Class, Exit, exit};
use crate::command::locate;
use crate::error::Error;
use crate::model::{Run, Vmid};
use crate::source::Guests;
use crate::upid::Upid;

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A fresh task may not be known for a moment.
const FRESH: Duration = Duration::from_secs(10);

/// Follows a task to its end, as long as anybody waits.
pub(crate) async fn to_the_end(source: Guests, task: String) -> TaskEnd {
    let Ok(upid) = task.parse::<Upid>() else {
        return TaskEnd::Unknown(format!("`{task}` is no name of a task"));
    };
    let mut waits = Waits::new(source.patience.task);
    let status = loop {
        match state(&source, &upid).await {
            Ok(TaskState::Stopped(status)) => break status,
            Err(error) if error.class() == Class::NoSuchTask => {
                return TaskEnd::Unknown(format!("the target does not know task {upid}"));
            }
            // It runs on, whether we can ask or not.
            Ok(TaskState::Running) | Err(_) => {}
        }
        if !waits.pause().await {
            return TaskEnd::GivenUp(format!("task {upid} did not end in time"));
        }
    };
    match ended(&source, &upid, &status).await {
        // Quirk `ha-only-requests` (Proxmox VE 8): the task of a guest that the cluster's resource manager
        // keeps ends as soon as the request is noted.
        TaskEnd::Succeeded if upid.is_request() => requested(&source, &upid, waits).await,
        ended => ended,
    }
}

/// What a task does. One that is not known is asked about again, until it cannot be a fresh one any more.
pub(crate) async fn state(source: &Guests, upid: &Upid) -> Result<TaskState, Error> {
    let mut waits = Waits::new(FRESH);
    loop {
        match source.client.task(upid).await {
            Err(error) if error.class() == Class::NoSuchTask && waits.pause().await => {}
            told => return told,
        }
    }
}

/// What an exit status says. That it was done already is believed only if another look shows it.
pub(crate) async fn ended(source: &Guests, upid: &Upid, status: &str) -> TaskEnd {
    match exit(status) {
        Exit::Ok => TaskEnd::Succeeded,
        Exit::Unknown => TaskEnd::Unknown(format!("the task ended with `{status}`")),
        Exit::AlreadyDone(run) if is_done(source, upid, run).await => TaskEnd::Succeeded,
        Exit::AlreadyDone(_) | Exit::Failed(_) => TaskEnd::Failed(status.to_owned()),
    }
}

/// Whether a task was to make its guest run, or not, and another look shows it so.
async fn is_done(source: &Guests, upid: &Upid, run: Run) -> bool {
    let Some(vmid) = upid.guest().filter(|_| asks_for(upid) == Some(run)) else { return false };
    Look::at(source, Vmid(vmid)).current().await.is_some_and(|current| current.run == Some(run))
}

/// Waits until the resource manager has done what was requested.
async fn requested(source: &Guests, upid: &Upid, mut waits: Waits) -> TaskEnd {
    let (Some(to), Some(vmid)) = (asks_for(upid), upid.guest()) else {
        return TaskEnd::Succeeded;
    };
    let mut look = Look::at(source, Vmid(vmid));
    loop {
        let seen = look.current().await;
        if let Some(end) = seen.as_ref().and_then(|seen| settled(to, seen)) {
            return end;
        }
        if !waits.pause().await {
            return left(to, &seen.unwrap_or_default().keeper);
        }
    }
}

/// How a request ended, as far as its guest shows.
fn settled(to: Run, seen: &Listed) -> Option<TaskEnd> {
    if seen.run == Some(to) {
        return Some(TaskEnd::Succeeded);
    }
    let words = match &seen.keeper {
        Keeper::Nobody => "the resource manager does not keep the guest any more",
        Keeper::Manager(state) if state == "error" => {
            "the resource manager has an error with the guest"
        }
        Keeper::Manager(_) | Keeper::Untold => return None,
    };
    Some(TaskEnd::Failed(words.to_owned()))
}

/// What a request is that the resource manager has not done in time. If it has come to rest in the opposite
/// state, somebody asked for that since: nothing is at work that another request would disturb.
fn left(to: Run, keeper: &Keeper) -> TaskEnd {
    let opposite = match to {
        Run::Running => "stopped",
        Run::Stopped => "started",
    };
    if *keeper == Keeper::Manager(opposite.to_owned()) {
        return TaskEnd::Unknown(format!("the resource manager keeps the guest {opposite}"));
    }
    TaskEnd::GivenUp("the resource manager has not done it in time".to_owned())
}

/// What a task is to make of its guest.
fn asks_for(upid: &Upid) -> Option<Run> {
    match upid.kind() {
        "vzstart" | "qmstart" | "hastart" => Some(Run::Running),
        "vzstop" | "qmstop" | "hastop" | "vzshutdown" | "qmshutdown" => Some(Run::Stopped),
        _ => None,
    }
}

/// Looks at a guest, wherever it is: the resource manager moves guests.
struct Look<'a> {
    source: &'a Guests,
    vmid: Vmid,
    /// Where it was seen last.
    place: Option<Place>,
}

impl<'a> Look<'a> {
    fn at(source: &'a Guests, vmid: Vmid) -> Self {
        Look { source, vmid, place: None }
    }

    /// Its state, if it can be seen.
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

/// Pauses that grow, until a deadline.
struct Waits {
    since: Instant,
    deadline: Duration,
    next: Duration,
}

impl Waits {
    fn new(deadline: Duration) -> Self {
        Waits { since: Instant::now(), deadline, next: PAUSES.0 }
    }

    fn is_longer_than(&self, time: Duration) -> bool {
        self.since.elapsed() > time
    }

    /// Pauses; false, once the time is over.
    async fn pause(&mut self) -> bool {
        if self.is_longer_than(self.deadline) {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 3 / 2).min(PAUSES.1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run: Run, keeper: &Keeper) -> Listed {
        Listed { run: Some(run), keeper: keeper.clone(), ..Listed::default() }
    }

    fn manager(state: &str) -> Keeper {
        Keeper::Manager(state.to_owned())
    }

    #[test]
    fn a_request_is_done_when_the_guest_shows_it_whoever_keeps_it() {
        for keeper in [Keeper::Nobody, manager("error"), manager("started")] {
            let end = settled(Run::Running, &seen(Run::Running, &keeper));
            assert_eq!(end, Some(TaskEnd::Succeeded), "{keeper:?}");
        }
    }

    #[test]
    fn a_request_to_nobody_or_to_one_with_an_error_has_failed() {
        for keeper in [Keeper::Nobody, manager("error")] {
            let end = settled(Run::Running, &seen(Run::Stopped, &keeper));
            assert!(matches!(end, Some(TaskEnd::Failed(_))), "{keeper:?}: {end:?}");
        }
        let at_work = ["", "stopped", "request_start", "started", "migrate", "fence"].map(manager);
        for keeper in at_work.into_iter().chain([Keeper::Untold]) {
            let end = settled(Run::Running, &seen(Run::Stopped, &keeper));
            assert_eq!(end, None, "{keeper:?}");
        }
    }

    #[test]
    fn a_request_that_somebody_revoked_is_not_waited_for_again() {
        for (to, state) in [(Run::Running, "stopped"), (Run::Stopped, "started")] {
            assert!(matches!(left(to, &manager(state)), TaskEnd::Unknown(_)), "{state}");
        }
        for keeper in [Keeper::Untold, manager(""), manager("started"), manager("recovery")] {
            let end = left(Run::Running, &keeper);
            assert!(matches!(end, TaskEnd::GivenUp(_)), "{keeper:?}");
        }
    }
}
