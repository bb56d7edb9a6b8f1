//! Authenticates a request, checks its parameters and dispatches it.

use serde_json::json;

use crate::answer::Answer;
use crate::call::{Authenticated, Call};
use crate::guest::Kind;
use crate::world::World;
use crate::{config, lists, parameters, tasks, verbs};

pub(crate) fn answer(world: &mut World, call: &Call) -> Answer {
    world.settle();
    let user = match user(world, call) {
        Ok(user) => user,
        Err(refused) => return refused,
    };
    let parts = call.parts();
    if let Err(refused) = parameters::check(call, &parts) {
        return refused;
    }
    let request = Authenticated { call, user: &user };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let answer = match parts.as_slice() {
        ["version"] => Answer::data(json!({ "version": "9.0.3", "release": "9.0", "repoid": "0" })),
        ["access", "permissions"] => lists::permissions(world, request),
        ["cluster", "resources"] => lists::resources(world),
        ["nodes"] => lists::nodes(world),
        ["nodes", node, rest @ ..] => on_node(world, node, rest, request),
        _ => Answer::error(501, "not implemented"),
    };
    world.settle();
    answer
}

fn user(world: &World, call: &Call) -> Result<String, Answer> {
    let refused = || Answer::error(401, "authentication failure");
    let token = call.authorization.as_deref().and_then(|text| text.strip_prefix("PVEAPIToken="));
    let (user, secret) = token.and_then(|token| token.split_once('=')).ok_or_else(refused)?;
    match world.tokens.get(user) {
        Some(known) if known == secret => Ok(user.to_owned()),
        Some(_) => Err(Answer::error(401, "invalid token value!")),
        None => Err(refused()),
    }
}

fn on_node(world: &mut World, node: &str, rest: &[&str], request: Authenticated<'_>) -> Answer {
    if !world.nodes.contains_key(node) {
        return Answer::died(format!("hostname lookup '{node}' failed"));
    }
    if !world.online().contains(node) {
        return Answer::error(595, "No route to host");
    }
    match rest {
        ["tasks"] => lists::tasks(world, node, request),
        ["tasks", upid, rest @ ..] => task(world, node, upid, rest, request),
        ["lxc"] => lists::guests(world, node, Kind::Lxc),
        ["qemu"] => lists::guests(world, node, Kind::Qemu),
        [kind, vmid, rest @ ..] => {
            let kind = if *kind == "lxc" { Kind::Lxc } else { Kind::Qemu };
            match vmid.parse() {
                Ok(vmid) => on_guest(world, node, kind, vmid, rest, request),
                Err(_) => Answer::parameter("vmid", "type check ('integer') failed"),
            }
        }
        _ => Answer::error(501, "not implemented"),
    }
}

fn task(
    world: &mut World,
    node: &str,
    upid: &str,
    rest: &[&str],
    Authenticated { call, user }: Authenticated<'_>,
) -> Answer {
    let unknown = || Answer::parameter("upid", "no such task");
    if tasks::node_of(upid) != Some(node) {
        return unknown();
    }
    let is_auditor = !world.unaudited.contains(user);
    let Some(task) = world.task(upid) else { return unknown() };
    if task.hidden > 0 {
        task.hidden -= 1;
        return Answer::error(400, "no such task");
    }
    if !is_auditor && !task.is_of(user) {
        let privilege = if call.method == "DELETE" { "Sys.Modify" } else { "Sys.Audit" };
        let text = format!("Permission check failed (/nodes/{node}, {privilege})");
        return Answer::error(403, text);
    }
    match rest {
        ["status"] => Answer::data(task.status()),
        ["log"] => Answer::data(json!([{ "n": 1, "t": "no content" }])),
        _ => {
            task.script.end = crate::End::Killed;
            (task.is_over, task.due) = (true, tokio::time::Instant::now());
            Answer::data(json!(null))
        }
    }
}

fn on_guest(
    world: &mut World,
    node: &str,
    kind: Kind,
    vmid: u32,
    rest: &[&str],
    request: Authenticated<'_>,
) -> Answer {
    let call = request.call;
    let file = format!("nodes/{node}/{}/{vmid}.conf", kind.word().replace("qemu", "qemu-server"));
    let absent = Answer::died(format!("Configuration file '{file}' does not exist"));
    let guest =
        world.guests.get_mut(&vmid).filter(|guest| guest.node == node && guest.kind == kind);
    let Some(guest) = guest else { return absent };
    if call.method == "GET" && !guest.is_allowed("VM.Audit") {
        return Answer::forbidden(vmid, "VM.Audit");
    }
    match (call.method.as_str(), rest) {
        ("GET", ["status", "current"]) => lists::current(vmid, guest),
        ("GET", ["config"]) => config::read(guest, call),
        ("GET", ["pending"]) => config::pending(guest),
        ("PUT", ["config"]) => config::change(guest, call)
            .map_or_else(|refused| named(refused, vmid), |()| Answer::data(json!(null))),
        ("POST", ["config"]) => named(verbs::configure(world, vmid, request), vmid),
        ("POST", ["status", verb]) => verbs::begin(world, vmid, verb, request),
        _ => Answer::error(501, "not implemented"),
    }
}

/// The answer for a missing privilege names the guest.
fn named(refused: Answer, vmid: u32) -> Answer {
    match refused.status {
        403 => Answer::forbidden(vmid, "VM.Config.Options"),
        _ => refused,
    }
}
