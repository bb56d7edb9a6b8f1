//! Finds out what became of a start or a stop whose end nobody wrote down.

use homeostat_core::{Begun, Failure, Recovery, TaskEnd};

use crate::api::{Sought, TaskState};
use crate::classify::Class;
use crate::follow;
use crate::model::Key;
use crate::source::Guests;
use crate::upid::Upid;

/// The clocks of two machines differ.
const SKEW: u64 = 60;

/// Asks by the task's name, if it is known, else by the list of tasks.
pub(crate) async fn ask(source: Guests, begun: Begun) -> Result<Recovery, Failure> {
    let known = begun.task.as_ref().and_then(|task| task.parse().ok());
    let upid = match known {
        Some(upid) => Some(upid),
        None => find(&source, &begun).await?,
    };
    let Some(upid) = upid else {
        let why = "the target has no task of it: it never arrived, or was done at once";
        return Ok(Recovery::Ended(TaskEnd::Unknown(why.to_owned())));
    };
    match follow::state(&source, &upid).await {
        Ok(TaskState::Running) => Ok(running(&upid)),
        // What was requested of the resource manager may still be to come.
        Ok(TaskState::Stopped(_)) if upid.is_request() => Ok(running(&upid)),
        Ok(TaskState::Stopped(status)) => {
            Ok(Recovery::Ended(follow::ended(&source, &upid, &status).await))
        }
        Err(error) if error.class() == Class::NoSuchTask => {
            let why = format!("the target does not know task {upid} any more");
            Ok(Recovery::Ended(TaskEnd::Unknown(why)))
        }
        Err(error) => Err(error.failure()),
    }
}

fn running(upid: &Upid) -> Recovery {
    Recovery::Running { task: upid.to_string(), node: upid.node().to_owned() }
}

/// The newest task of our own user that does what was begun, if it came after the last one that we know: the
/// clocks of two machines differ, so that one may seem to be in time.
async fn find(source: &Guests, begun: &Begun) -> Result<Option<Upid>, Failure> {
    let Ok(Key(vmid)) = begun.key.parse() else { return Ok(None) };
    let Some(node) = node_of(&begun.dispatch.parameters) else { return Ok(None) };
    let since = (begun.since / 1000).saturating_sub(SKEW);
    let user = source.client.user();
    let sought = Sought { vmid, source: "all", since, user: Some(&user) };
    let tasks = source.client.tasks(&node, &sought).await.map_err(|error| error.failure())?;
    let kinds = kinds(&begun.dispatch.kind);
    let mut newer = tasks.into_iter().take_while(|task| begun.after != Some(task.to_string()));
    Ok(newer.find(|task| kinds.contains(&task.kind())))
}

/// The node in the path that was to be asked.
fn node_of(parameters: &str) -> Option<String> {
    let mut parts = parameters.split('/');
    parts.find(|part| *part == "nodes")?;
    parts.next().map(str::to_owned)
}

/// What the tasks of a verb are called.
fn kinds(verb: &str) -> &'static [&'static str] {
    match verb {
        "start" => &["vzstart", "qmstart", "hastart"],
        "stop" => &["vzstop", "qmstop", "hastop"],
        "shutdown" => &["vzshutdown", "qmshutdown", "hastop"],
        _ => &[],
    }
}
