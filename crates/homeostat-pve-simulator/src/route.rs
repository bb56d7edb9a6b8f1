//! Authenticates a request, checks its parameters and dispatches it.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::{Authenticated, Call};
use crate::guest::Kind;
use crate::world::World;
use crate::{config, lists, parameters, verbs};

pub(crate) fn answer(world: &mut World, call: &Call) -> Answer {
    world.settle();
    let answer = dispatch(world, call).map_or_else(|refused| refused, Answer::data);
    world.settle();
    answer
}

/// The data of the answer, or the whole answer if the request is refused.
fn dispatch(world: &mut World, call: &Call) -> Result<Value, Answer> {
    let request = Authenticated { call, user: user(world, call)? };
    let parts = call.parts();
    parameters::check(call, &parts)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["version"] => Ok(json!({ "version": "9.0.3", "release": "9.0", "repoid": "0" })),
        ["access", "permissions"] => Ok(lists::permissions(world, request)),
        ["cluster", "resources"] => Ok(lists::resources(world)),
        ["nodes"] => Ok(lists::nodes(world)),
        ["nodes", node, rest @ ..] => on_node(world, node, rest, request),
        _ => Err(Answer::error(501, "not implemented")),
    }
}

fn user<'a>(world: &World, call: &'a Call) -> Result<&'a str, Answer> {
    let refused = || Answer::error(401, "authentication failure");
    let token = call.authorization.as_deref().and_then(|text| text.strip_prefix("PVEAPIToken="));
    let (user, secret) = token.and_then(|token| token.split_once('=')).ok_or_else(refused)?;
    match world.tokens.get(user) {
        Some(known) if known == secret => Ok(user),
        Some(_) => Err(Answer::error(401, "invalid token value!")),
        None => Err(refused()),
    }
}

fn on_node(
    world: &mut World,
    node: &str,
    rest: &[&str],
    request: Authenticated<'_>,
) -> Result<Value, Answer> {
    match world.nodes.get(node) {
        Some(true) => {}
        Some(false) => return Err(Answer::error(595, "No route to host")),
        None => return Err(Answer::died(format!("hostname lookup '{node}' failed"))),
    }
    match rest {
        ["tasks"] => Ok(lists::tasks(world, node, request)),
        ["tasks", upid, rest @ ..] => task(world, node, upid, rest, request),
        ["lxc"] => Ok(lists::guests(world, node, Kind::Lxc)),
        ["qemu"] => Ok(lists::guests(world, node, Kind::Qemu)),
        [kind, vmid, rest @ ..] => {
            let kind = if *kind == "lxc" { Kind::Lxc } else { Kind::Qemu };
            let wrong = |_| Answer::parameter("vmid", "type check ('integer') failed");
            on_guest(world, node, kind, vmid.parse().map_err(wrong)?, rest, request)
        }
        _ => Err(Answer::error(501, "not implemented")),
    }
}

fn task(
    world: &mut World,
    node: &str,
    upid: &str,
    rest: &[&str],
    Authenticated { call, user }: Authenticated<'_>,
) -> Result<Value, Answer> {
    let is_auditor = !world.unaudited.contains(user);
    let task = world.task(upid).filter(|task| task.upid.node == node);
    let task = task.ok_or_else(|| Answer::parameter("upid", "no such task"))?;
    if task.hidden > 0 {
        task.hidden -= 1;
        return Err(Answer::error(400, "no such task"));
    }
    if !is_auditor && !task.is_of(user) {
        let privilege = if call.method == "DELETE" { "Sys.Modify" } else { "Sys.Audit" };
        let text = format!("Permission check failed (/nodes/{node}, {privilege})");
        return Err(Answer::error(403, text));
    }
    Ok(match rest {
        ["status"] => task.status(),
        ["log"] => json!([{ "n": 1, "t": "no content" }]),
        _ => {
            task.script.end = crate::End::Killed;
            (task.is_over, task.due) = (true, tokio::time::Instant::now());
            Value::Null
        }
    })
}

fn on_guest(
    world: &mut World,
    node: &str,
    kind: Kind,
    vmid: u32,
    rest: &[&str],
    request: Authenticated<'_>,
) -> Result<Value, Answer> {
    let (call, by_tasks) = (request.call, world.configures_by_tasks);
    let guest =
        world.guests.get_mut(&vmid).filter(|guest| guest.node == node && guest.kind == kind);
    let guest = guest.ok_or_else(|| {
        let directory = kind.word().replace("qemu", "qemu-server");
        let file = format!("nodes/{node}/{directory}/{vmid}.conf");
        Answer::died(format!("Configuration file '{file}' does not exist"))
    })?;
    match (call.method.as_str(), rest) {
        ("GET", _) if !guest.is_allowed("VM.Audit") => Err(Answer::forbidden(vmid, "VM.Audit")),
        ("GET", ["status", "current"]) => Ok(lists::current(vmid, guest)),
        ("GET", ["config"]) => Ok(config::read(guest, call)),
        ("GET", ["pending"]) => Ok(config::pending(guest)),
        ("PUT", ["config"]) if !by_tasks => config::change(guest, vmid, call).map(|()| Value::Null),
        ("PUT" | "POST", ["config"]) => verbs::configure(world, vmid, request),
        ("POST", ["status", verb]) => verbs::begin(world, vmid, verb, request),
        _ => Err(Answer::error(501, "not implemented")),
    }
}
