//! Finds the task of a start or stop whose end is not in the journal.

use homeostat_core::{Begun, Failure, Recovery, TaskEnd};

use crate::api::{TaskFilter, TaskState};
use crate::classify::Class;
use crate::follow;
use crate::model::{Key, Run};
use crate::source::Guests;
use crate::upid::Upid;

/// By how many seconds the clocks of two machines may differ.
const SKEW: u64 = 60;

/// Queries the task by its UPID, if that is known; else searches for it in the list of tasks. A guest that has the run
/// state that was asked for needs nothing more, whoever changed it. A task that is not found may still begin.
pub(crate) async fn recover(source: Guests, begun: Begun) -> Result<Recovery, Failure> {
    let known = begun.task.as_ref().and_then(|task| task.parse().ok());
    let upid = match known {
        Some(upid) => Some(upid),
        None => find(&source, &begun).await?,
    };
    if let Some(upid) = upid {
        match source.client.task(&upid).await {
            Ok(TaskState::Running) => return Ok(running(&upid)),
            // The HA manager may not have executed the request yet.
            Ok(TaskState::Stopped(_)) if upid.is_request() => return Ok(running(&upid)),
            Ok(TaskState::Stopped(status)) => {
                return Ok(Recovery::Ended(follow::ended(&source, &upid, &status).await));
            }
            Err(error) if error.class() == Class::NoSuchTask => {}
            Err(error) => return Err(error.failure()),
        }
    }
    if has_run_state(&source, &begun).await {
        return Ok(Recovery::Ended(TaskEnd::Succeeded));
    }
    let why = match begun.task {
        Some(task) => format!("the target does not know task {task} any more"),
        None => "the target has no task of it: it never arrived, or was done at once".to_owned(),
    };
    Ok(Recovery::NotFound { why })
}

/// Whether the guest has the run state that was asked for.
async fn has_run_state(source: &Guests, begun: &Begun) -> bool {
    let to = match begun.dispatch.kind.as_str() {
        "start" => Run::Running,
        "stop" | "shutdown" => Run::Stopped,
        _ => return false,
    };
    let Ok(Key(vmid)) = begun.key.parse() else { return false };
    follow::run_of(source, vmid).await == Some(to)
}

fn running(upid: &Upid) -> Recovery {
    Recovery::Running { task: upid.to_string(), node: upid.node().to_owned() }
}

/// The newest task of our user and of the right kind. Tasks up to the last one that we know are excluded by name,
/// since the clocks of two machines differ.
async fn find(source: &Guests, begun: &Begun) -> Result<Option<Upid>, Failure> {
    let Ok(Key(vmid)) = begun.key.parse() else { return Ok(None) };
    let Some(node) = node_of(&begun.dispatch.parameters) else { return Ok(None) };
    let since = (begun.since / 1000).saturating_sub(SKEW);
    let user = source.client.user();
    let filter = TaskFilter { vmid, source: "all", since, user: Some(&user) };
    let tasks = source.client.tasks(&node, &filter).await.map_err(|error| error.failure())?;
    let kinds = kinds(&begun.dispatch.kind);
    let mut newer = tasks.into_iter().take_while(|task| begun.after != Some(task.to_string()));
    Ok(newer.find(|task| kinds.contains(&task.kind())))
}

/// The node in the path of the request.
fn node_of(parameters: &str) -> Option<String> {
    let mut parts = parameters.split('/');
    parts.find(|part| *part == "nodes")?;
    parts.next().map(str::to_owned)
}

/// The kinds of tasks that a verb can start.
fn kinds(verb: &str) -> &'static [&'static str] {
    match verb {
        "start" => &["vzstart", "qmstart", "hastart"],
        "stop" => &["vzstop", "qmstop", "hastop"],
        "shutdown" => &["vzshutdown", "qmshutdown", "hastop"],
        _ => &[],
    }
}
