//! Waits for the end of a task, with growing pauses and a deadline.

use std::time::Duration;

use homeostat_core::TaskEnd;
use tokio::time::{Instant, sleep};

use crate::api::{Place, TaskState};
use crate::classify::{Class, Exit, exit};
use crate::model::{Kind, Run, Vmid};
use crate::source::Guests;
use crate::upid::Upid;

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A fresh task may not be known for a moment.
const FRESH: Duration = Duration::from_secs(10);

/// Follows a task to its end.
pub(crate) async fn to_the_end(source: Guests, task: String) -> TaskEnd {
    let Ok(upid) = task.parse::<Upid>() else {
        return TaskEnd::Unknown(format!("`{task}` is no name of a task"));
    };
    let mut waits = Waits::new(source.patience.task);
    let ended = loop {
        match source.client.task(&upid).await {
            Ok(TaskState::Stopped(status)) => break ended(&status),
            Err(error) if error.class() == Class::NoSuchTask && waits.is_longer_than(FRESH) => {
                return TaskEnd::Unknown(format!("the target does not know task {upid}"));
            }
            // It runs on, whether we can ask or not.
            Ok(TaskState::Running) | Err(_) => {}
        }
        if !waits.pause().await {
            return TaskEnd::Unknown(format!("task {upid} did not end in time"));
        }
    };
    match ended {
        // Quirk `ha-only-requests` (Proxmox VE 8): the task of a guest that the cluster's resource manager
        // keeps ends as soon as the request is noted.
        TaskEnd::Succeeded if upid.is_request() => requested(&source, &upid, waits).await,
        ended => ended,
    }
}

/// What an exit status says.
pub(crate) fn ended(status: &str) -> TaskEnd {
    match exit(status) {
        Exit::Ok | Exit::AlreadyDone => TaskEnd::Succeeded,
        Exit::Unknown => TaskEnd::Unknown(format!("the task ended with `{status}`")),
        Exit::Failed(_) => TaskEnd::Failed(status.to_owned()),
    }
}

/// Waits until the resource manager has done what was requested.
async fn requested(source: &Guests, upid: &Upid, mut waits: Waits) -> TaskEnd {
    let to = if upid.kind() == "hastart" { Run::Running } else { Run::Stopped };
    let Some(vmid) = upid.guest().map(Vmid) else { return TaskEnd::Succeeded };
    loop {
        for kind in [Kind::Lxc, Kind::Qemu] {
            let place = Place { node: upid.node().to_owned(), kind, vmid };
            let current = source.client.current(&place).await;
            if current.is_ok_and(|current| current.run == Some(to)) {
                return TaskEnd::Succeeded;
            }
        }
        if !waits.pause().await {
            return TaskEnd::Unknown("the resource manager has not done it in time".to_owned());
        }
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
