//! Finds the task of a start or stop whose end is not in the journal.

use homeostat_core::{Begun, Failure, Recovery, TaskEnd};

use crate::api::TaskState;
use crate::classify::Class;
use crate::follow;
use crate::source::Guests;
use crate::upid::{Upid, asks_for};

/// By how many seconds the clocks of two machines may differ.
const SKEW: u64 = 60;

/// Queries the task by its UPID, if that is known; else searches for it in the list of tasks. A guest that has the run
/// state that was asked for needs nothing more, no matter who changed it. A task that is not found may still begin.
pub(crate) async fn recover(source: Guests, begun: Begun) -> Result<Recovery, Failure> {
    let known = begun.task.as_deref().and_then(Upid::parse);
    let upid = match known {
        Some(upid) => Some(upid),
        None => find(&source, &begun).await?,
    };
    if let Some(upid) = upid {
        let Upid { task, node, .. } = upid.clone();
        match source.api.task(&upid).await {
            Ok(TaskState::Running) => return Ok(Recovery::Running { task, node }),
            // The HA manager may not have executed the request yet.
            Ok(TaskState::Stopped(_)) if upid.is_request() => {
                return Ok(Recovery::Running { task, node });
            }
            Ok(TaskState::Stopped(status)) => {
                return Ok(Recovery::Ended(follow::ended(&source, &upid, &status).await));
            }
            Err(error) if error.class() == Class::NoSuchTask => {}
            Err(error) => return Err(error.failure()),
        }
    }
    let asked = asks_for(&begun.dispatch.kind);
    if let (Some(_), Ok(vmid)) = (asked, begun.key.parse())
        && follow::run_of(&source, vmid).await == asked
    {
        return Ok(Recovery::Ended(TaskEnd::Succeeded));
    }
    let why = match begun.task {
        Some(task) => format!("the target does not know task {task} any more"),
        None => "the target has no task of it: it never arrived, or was done at once".to_owned(),
    };
    Ok(Recovery::NotFound { why })
}

/// The newest task of our user and of the right kind. Tasks up to the last one that we know are excluded by name,
/// since the clocks of two machines differ. A task whose name makes no sense cannot be followed; as long as it runs,
/// nothing is sent to the guest.
async fn find(source: &Guests, begun: &Begun) -> Result<Option<Upid>, Failure> {
    // The path of the request names the node.
    let mut path = begun.dispatch.parameters.split('/').skip_while(|part| *part != "nodes");
    let (Ok(vmid), Some(node)) = (begun.key.parse(), path.nth(1)) else { return Ok(None) };
    let since = (begun.since / 1000).saturating_sub(SKEW);
    let filter = [
        ("source", "all".to_owned()),
        ("since", since.to_string()),
        ("userfilter", source.api.client.user()),
    ];
    let tasks = source.api.tasks(node, vmid, &filter).await.map_err(|error| error.failure())?;
    let newer = tasks.iter().take_while(|task| begun.after.as_ref() != Some(*task));
    let mut newer = newer.filter_map(|task| Upid::parse(task));
    Ok(newer.find(|task| task.is_of(&begun.dispatch.kind)))
}
