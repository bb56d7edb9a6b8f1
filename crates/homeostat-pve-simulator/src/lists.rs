//! What can be listed: nodes, guests, resources, tasks, permissions.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::{Guest, Kind};
use crate::tasks::Task;
use crate::world::World;

pub(crate) fn nodes(world: &World) -> Answer {
    let rows = world.nodes.iter().map(|(name, online)| {
        let status = if *online { "online" } else { "offline" };
        json!({ "node": name, "status": status, "type": "node", "id": format!("node/{name}") })
    });
    Answer::data(rows.collect::<Vec<_>>())
}

/// Guests that the token may not see are left out: a lost permission looks like a deletion.
pub(crate) fn guests(world: &World, (node, kind): (&str, Kind)) -> Answer {
    let here = world.guests.iter().filter(|(_, guest)| guest.node == node && guest.kind == kind);
    let seen = here.filter(|(_, guest)| guest.is_allowed("VM.Audit"));
    Answer::data(seen.map(|(vmid, guest)| row(*vmid, guest)).collect::<Vec<_>>())
}

/// Containers have their number as a number, as machines do.
fn row(vmid: u32, guest: &Guest) -> Value {
    let status = if guest.running { "running" } else { "stopped" };
    let name = guest.config.get(if guest.kind == Kind::Lxc { "hostname" } else { "name" });
    let mut row = Map::new();
    row.insert("vmid".to_owned(), vmid.into());
    row.insert("status".to_owned(), status.into());
    row.insert("name".to_owned(), name.cloned().unwrap_or_default().into());
    let optional = [("tags", guest.config.get("tags")), ("lock", guest.lock.as_ref())];
    for (key, value) in optional {
        row.extend(value.map(|value| (key.to_owned(), Value::from(value.as_str()))));
    }
    if guest.config.get("template").is_some_and(|template| template == "1") {
        row.insert("template".to_owned(), 1.into());
    }
    row.into()
}

/// The state of one guest, with what manages it.
pub(crate) fn current(vmid: u32, guest: &Guest) -> Answer {
    let mut row = row(vmid, guest);
    if let Some(row) = row.as_object_mut() {
        let mut told = json!({ "managed": u8::from(guest.is_ha) });
        if let (Some(state), Some(told)) = (&guest.managed, told.as_object_mut()) {
            told.insert("state".to_owned(), state.as_str().into());
        }
        row.insert("ha".to_owned(), told);
    }
    Answer::data(row)
}

/// Gathered now and then: what is told may be as old as ten seconds.
pub(crate) fn resources(world: &mut World) -> Answer {
    let now = Instant::now();
    if let Some((since, told)) = &world.resources
        && now.duration_since(*since) < world.stale
    {
        return Answer::data(told.clone());
    }
    let seen = world.guests.iter().filter(|(_, guest)| guest.is_allowed("VM.Audit"));
    let rows: Vec<_> = seen.map(|(vmid, guest)| resource(*vmid, guest)).collect();
    world.resources = Some((now, Value::from(rows.clone())));
    Answer::data(rows)
}

fn resource(vmid: u32, guest: &Guest) -> Value {
    let mut row = row(vmid, guest);
    if let Some(row) = row.as_object_mut() {
        row.insert("id".to_owned(), format!("{}/{vmid}", guest.kind.word()).into());
        row.insert("node".to_owned(), guest.node.clone().into());
        row.insert("type".to_owned(), guest.kind.word().into());
    }
    row
}

/// Privileges of the token on one path.
pub(crate) fn permissions(world: &World, (call, user): (&Call, &str)) -> Answer {
    const ALL: [&str; 4] = ["VM.Audit", "VM.Config.Options", "VM.PowerMgmt", "Sys.Audit"];
    let path = call.parameter("path").unwrap_or("/");
    let vmid = path.strip_prefix("/vms/").and_then(|vmid| vmid.parse::<u32>().ok());
    let guest = vmid.and_then(|vmid| world.guests.get(&vmid));
    let is_auditor = !world.unaudited.contains(user);
    let has = ALL.iter().filter(|one| guest.is_none_or(|guest| guest.is_allowed(one)));
    let has = has.filter(|one| is_auditor || **one != "Sys.Audit");
    let privileges: Map<_, _> = has.map(|one| ((*one).to_owned(), json!(1))).collect();
    let mut by_path = Map::new();
    if !privileges.is_empty() {
        by_path.insert(path.to_owned(), privileges.into());
    }
    Answer::data(by_path)
}

/// Tasks of a node, the newest first: ended ones, running ones, or all. Whoever is no auditor of the node sees
/// its own only.
pub(crate) fn tasks(world: &World, node: &str, (call, user): (&Call, &str)) -> Answer {
    let is_auditor = !world.unaudited.contains(user);
    let source = call.parameter("source").unwrap_or("archive");
    let wanted = |value: Option<&str>, is: &str| value.is_none_or(|value| value == is);
    let since = call.parameter("since").and_then(|since| since.parse::<u64>().ok()).unwrap_or(0);
    let limit = call.parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(50);
    let rows = world.tasks.iter().rev().filter(|task| {
        let is_in_source = match source {
            "active" => task.is_running(),
            "archive" => !task.is_running(),
            _ => true,
        };
        is_in_source
            && task.name.node == node
            && (is_auditor || task.is_of(user))
            && task.name.start >= since
            && wanted(call.parameter("vmid"), &task.name.vmid.to_string())
            && wanted(call.parameter("typefilter"), &task.name.kind)
            && call.parameter("userfilter").is_none_or(|part| is_user(task, part))
    });
    Answer::data(rows.take(limit).map(Task::row).collect::<Vec<_>>())
}

/// The filter knows the user, without its token, in letters of any size.
fn is_user(task: &Task, part: &str) -> bool {
    task.owner().0.to_lowercase().contains(&part.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route;

    /// Two tokens, of which `a@pve!x` is no auditor; each has started a guest.
    fn world() -> World {
        let mut world = World::default()
            .with(101, Guest::new(Kind::Lxc, "pve1"))
            .with(102, Guest::new(Kind::Lxc, "pve1"));
        for token in ["a@pve!x", "b@pve!y"] {
            world.tokens.insert(token.to_owned(), "secret".to_owned());
        }
        world.unaudited.insert("a@pve!x".to_owned());
        ask(&mut world, "a@pve!x", ("POST", "/nodes/pve1/lxc/101/status/start", &[]));
        ask(&mut world, "b@pve!y", ("POST", "/nodes/pve1/lxc/102/status/start", &[]));
        world
    }

    type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn ask(world: &mut World, token: &str, (method, path, parameters): Asked<'_>) -> Answer {
        let pairs =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let call = Call {
            method: method.to_owned(),
            path: path.to_owned(),
            parameters: pairs.collect(),
            authorization: Some(format!("PVEAPIToken={token}=secret")),
        };
        route::answer(world, &call)
    }

    /// The guests of the tasks that a token sees.
    fn seen(token: &str, filter: &[(&str, &str)]) -> Vec<String> {
        let answer = ask(&mut world(), token, ("GET", "/nodes/pve1/tasks", filter));
        let rows = answer.body["data"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn whoever_is_no_auditor_sees_its_own_tasks_only() {
        assert_eq!(seen("b@pve!y", &[]), ["102", "101"]);
        assert_eq!(seen("a@pve!x", &[]), ["101"]);
    }

    #[test]
    fn a_task_of_somebody_else_tells_an_auditor_how_it_goes_and_nobody_else() {
        let mut world = world();
        let upids: Vec<_> = world.tasks.iter().map(Task::upid).collect();
        let mut status = |token: &str, upid: &str| {
            let path = format!("/nodes/pve1/tasks/{upid}/status");
            ask(&mut world, token, ("GET", &path, &[])).status
        };
        let told = upids.iter().map(|upid| (status("a@pve!x", upid), status("b@pve!y", upid)));
        assert_eq!(told.collect::<Vec<_>>(), [(200, 200), (403, 200)]);
    }

    #[test]
    fn the_user_of_a_task_is_told_apart_from_its_token_and_filtered_without_it() {
        assert_eq!(seen("b@pve!y", &[("userfilter", "A@pve")]), ["101"]);
        assert_eq!(seen("b@pve!y", &[("userfilter", "a@pve!x")]), Vec::<String>::new());
        let mut world = world();
        let answer = ask(&mut world, "a@pve!x", ("GET", "/nodes/pve1/tasks", &[]));
        let row = &answer.body["data"][0];
        assert_eq!((&row["user"], &row["tokenid"]), (&json!("a@pve"), &json!("x")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_resource_manager_says_what_it_does_with_a_guest() {
        let guest = Guest { is_ha: true, ..Guest::new(Kind::Lxc, "pve1") };
        let mut world = World::default().with(101, guest);
        world.tokens.insert("a@pve!x".to_owned(), "secret".to_owned());
        world.ha_delay = std::time::Duration::from_secs(10);
        let state = |world: &mut World| {
            let asked = ("GET", "/nodes/pve1/lxc/101/status/current", &[][..]);
            ask(world, "a@pve!x", asked).body["data"]["ha"].clone()
        };
        assert_eq!(state(&mut world), json!({ "managed": 1 }));
        ask(&mut world, "a@pve!x", ("POST", "/nodes/pve1/lxc/101/status/start", &[]));
        assert_eq!(state(&mut world)["state"], "request_start");
        tokio::time::advance(world.ha_delay).await;
        assert_eq!(state(&mut world)["state"], "started");
        assert!(world.guests[&101].running);
    }

    #[test]
    fn a_privilege_that_is_missing_is_not_listed() {
        let mut world = world();
        let mut has = |token: &str| {
            let asked = ("GET", "/access/permissions", &[("path", "/nodes/pve1")][..]);
            ask(&mut world, token, asked).body["data"]["/nodes/pve1"]["Sys.Audit"] == json!(1)
        };
        assert_eq!((has("a@pve!x"), has("b@pve!y")), (false, true));
    }
}
