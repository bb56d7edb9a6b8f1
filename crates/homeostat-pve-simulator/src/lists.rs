//! What can be listed: nodes, guests, resources, tasks, permissions.

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::{Guest, Kind};
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
        row.insert("ha".to_owned(), json!({ "managed": u8::from(guest.is_ha) }));
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
pub(crate) fn permissions(world: &World, call: &Call) -> Answer {
    const ALL: [&str; 4] = ["VM.Audit", "VM.Config.Options", "VM.PowerMgmt", "Sys.Audit"];
    let path = call.parameter("path").unwrap_or("/");
    let vmid = path.strip_prefix("/vms/").and_then(|vmid| vmid.parse::<u32>().ok());
    let guest = vmid.and_then(|vmid| world.guests.get(&vmid));
    let has = ALL.iter().filter(|one| guest.is_none_or(|guest| guest.is_allowed(one)));
    let privileges: Map<_, _> = has.map(|one| ((*one).to_owned(), json!(1))).collect();
    let mut by_path = Map::new();
    if !privileges.is_empty() {
        by_path.insert(path.to_owned(), privileges.into());
    }
    Answer::data(by_path)
}

/// Tasks of a node, the newest first: ended ones, running ones, or all.
pub(crate) fn tasks(world: &World, node: &str, call: &Call) -> Answer {
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
            && task.name.start >= since
            && wanted(call.parameter("vmid"), &task.name.vmid.to_string())
            && wanted(call.parameter("typefilter"), &task.name.kind)
            && call.parameter("userfilter").is_none_or(|user| task.name.user.contains(user))
    });
    Answer::data(rows.take(limit).map(crate::tasks::Task::row).collect::<Vec<_>>())
}
