//! Lists: nodes, guests, resources, tasks, permissions.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::call::Authenticated;
use crate::guest::{Guest, Kind};
use crate::tasks::Task;
use crate::world::World;

pub(crate) fn nodes(world: &World) -> Value {
    let rows = world.nodes.iter().map(|(name, online)| {
        let status = if *online { "online" } else { "offline" };
        json!({ "node": name, "status": status, "type": "node", "id": format!("node/{name}") })
    });
    rows.collect()
}

/// Guests that the token may not see are left out, so that a lost permission looks like a deletion.
pub(crate) fn guests(world: &World, node: &str, kind: Kind) -> Value {
    let here = world.guests.iter().filter(|(_, guest)| guest.node == node && guest.kind == kind);
    let seen = here.filter(|(_, guest)| guest.is_allowed("VM.Audit"));
    seen.map(|(vmid, guest)| row(*vmid, guest)).collect()
}

fn row(vmid: u32, guest: &Guest) -> Value {
    let status = if guest.running { "running" } else { "stopped" };
    let name = guest.config.get(if guest.kind == Kind::Lxc { "hostname" } else { "name" });
    let mut row = json!({ "vmid": vmid, "status": status, "name": name.map_or("", |name| name) });
    for (key, value) in [("tags", guest.config.get("tags")), ("lock", guest.lock.as_ref())] {
        if let Some(value) = value {
            row[key] = value.as_str().into();
        }
    }
    if guest.config.get("template").is_some_and(|template| template == "1") {
        row["template"] = 1.into();
    }
    row
}

/// The state of one guest, with that of the HA manager.
pub(crate) fn current(vmid: u32, guest: &Guest) -> Value {
    let mut row = row(vmid, guest);
    row["ha"] = json!({ "managed": u8::from(guest.is_ha) });
    if let Some(state) = &guest.managed {
        row["ha"]["state"] = state.as_str().into();
    }
    row
}

/// Cached for [`World::stale`], as the real one caches for ten seconds.
pub(crate) fn resources(world: &mut World) -> Value {
    let now = Instant::now();
    if let Some((since, cached)) = &world.resources
        && now.duration_since(*since) < world.stale
    {
        return cached.clone();
    }
    let seen = world.guests.iter().filter(|(_, guest)| guest.is_allowed("VM.Audit"));
    let is_online = |guest: &Guest| world.nodes.get(&guest.node) == Some(&true);
    let rows = seen.map(|(vmid, guest)| resource(*vmid, guest, is_online(guest)));
    let rows: Value = rows.collect();
    world.resources = Some((now, rows.clone()));
    rows
}

fn resource(vmid: u32, guest: &Guest, is_online: bool) -> Value {
    let mut row = row(vmid, guest);
    if !is_online {
        row["status"] = "unknown".into();
    }
    row["id"] = format!("{}/{vmid}", guest.kind.word()).into();
    row["node"] = guest.node.clone().into();
    row["type"] = guest.kind.word().into();
    row
}

/// Privileges of the token on one path.
pub(crate) fn permissions(world: &World, Authenticated { call, user }: Authenticated<'_>) -> Value {
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
    by_path.into()
}

/// Tasks of a node, the newest first: finished, running or all. A token without `Sys.Audit` sees only its own.
pub(crate) fn tasks(
    world: &World,
    node: &str,
    Authenticated { call, user }: Authenticated<'_>,
) -> Value {
    let is_auditor = !world.unaudited.contains(user);
    let source = call.parameter("source").unwrap_or("archive");
    let wanted = |value: Option<&str>, is: &str| value.is_none_or(|value| value == is);
    let since = call.parameter("since").and_then(|since| since.parse::<u64>().ok()).unwrap_or(0);
    let limit = call.parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(50);
    // The filter by user ignores the token, and case.
    let is_user =
        |task: &Task, part: &str| task.owner().0.to_lowercase().contains(&part.to_lowercase());
    let rows = world.tasks.iter().rev().filter(|task| {
        let is_in_source = match source {
            "active" => task.is_running(),
            "archive" => !task.is_running(),
            _ => true,
        };
        is_in_source
            && task.upid.node == node
            && (is_auditor || task.is_of(user))
            && task.upid.start >= since
            && wanted(call.parameter("vmid"), &task.upid.vmid.to_string())
            && wanted(call.parameter("typefilter"), &task.upid.kind)
            && call.parameter("userfilter").is_none_or(|part| is_user(task, part))
    });
    rows.take(limit).map(Task::row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::call::Call;
    use crate::route;

    /// Two tokens, each of which has started a guest; `a@pve!x` lacks `Sys.Audit`.
    fn world() -> World {
        let mut world = World::default()
            .with(101, Guest::new(Kind::Lxc, "pve1"))
            .with(102, Guest::new(Kind::Lxc, "pve1"));
        for token in ["a@pve!x", "b@pve!y"] {
            world.tokens.insert(token.to_owned(), "secret".to_owned());
        }
        world.unaudited.insert("a@pve!x".to_owned());
        ask(&mut world, "a@pve!x", "POST", "/nodes/pve1/lxc/101/status/start", &[]);
        ask(&mut world, "b@pve!y", "POST", "/nodes/pve1/lxc/102/status/start", &[]);
        world
    }

    fn ask(
        world: &mut World,
        token: &str,
        method: &str,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Answer {
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
        let answer = ask(&mut world(), token, "GET", "/nodes/pve1/tasks", filter);
        let rows = answer.body["data"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_token_without_audit_sees_only_its_own_tasks() {
        assert_eq!(seen("b@pve!y", &[]), ["102", "101"]);
        assert_eq!(seen("a@pve!x", &[]), ["101"]);
    }

    #[test]
    fn the_status_of_anothers_task_is_for_auditors_only() {
        let mut world = world();
        let upids: Vec<_> = world.tasks.iter().map(|task| task.upid.to_string()).collect();
        let mut status = |token: &str, upid: &str| {
            let path = format!("/nodes/pve1/tasks/{upid}/status");
            ask(&mut world, token, "GET", &path, &[]).status
        };
        let statuses = upids.iter().map(|upid| (status("a@pve!x", upid), status("b@pve!y", upid)));
        assert_eq!(statuses.collect::<Vec<_>>(), [(200, 200), (403, 200)]);
    }

    #[test]
    fn the_user_of_a_task_is_shown_apart_from_its_token_and_filtered_without_it() {
        assert_eq!(seen("b@pve!y", &[("userfilter", "A@pve")]), ["101"]);
        assert_eq!(seen("b@pve!y", &[("userfilter", "a@pve!x")]), Vec::<String>::new());
        let mut world = world();
        let answer = ask(&mut world, "a@pve!x", "GET", "/nodes/pve1/tasks", &[]);
        let row = &answer.body["data"][0];
        assert_eq!((&row["user"], &row["tokenid"]), (&json!("a@pve"), &json!("x")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_ha_manager_shows_its_state_of_a_guest() {
        let guest = Guest { is_ha: true, ..Guest::new(Kind::Lxc, "pve1") };
        let mut world = World::default().with(101, guest);
        world.tokens.insert("a@pve!x".to_owned(), "secret".to_owned());
        world.ha_delay = std::time::Duration::from_secs(10);
        let state = |world: &mut World| {
            let path = "/nodes/pve1/lxc/101/status/current";
            ask(world, "a@pve!x", "GET", path, &[]).body["data"]["ha"].clone()
        };
        assert_eq!(state(&mut world), json!({ "managed": 1 }));
        ask(&mut world, "a@pve!x", "POST", "/nodes/pve1/lxc/101/status/start", &[]);
        assert_eq!(state(&mut world)["state"], "request_start");
        tokio::time::advance(world.ha_delay).await;
        assert_eq!(state(&mut world)["state"], "started");
        assert!(world.guests[&101].running);
    }

    #[test]
    fn a_privilege_that_is_missing_is_not_listed() {
        let mut world = world();
        let mut has = |token: &str| {
            let path = [("path", "/nodes/pve1")];
            ask(&mut world, token, "GET", "/access/permissions", &path).body["data"]["/nodes/pve1"]
                ["Sys.Audit"]
                == json!(1)
        };
        assert_eq!((has("a@pve!x"), has("b@pve!y")), (false, true));
    }
}
