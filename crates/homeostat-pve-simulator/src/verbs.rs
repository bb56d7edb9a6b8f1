//! Start, stop, shutdown, reboot, configure: each starts a task and answers with its UPID.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::answer::Answer;
use crate::call::{Authenticated, Call};
use crate::config;
use crate::guest::{Guest, Kind, OnShutdown};
use crate::tasks::{Effect, End, Script};
use crate::world::World;

/// Starts the task of a verb: `start`, `stop`, `shutdown` or `reboot`.
pub(crate) fn begin(
    world: &mut World,
    vmid: u32,
    verb: &str,
    Authenticated { call, user }: Authenticated<'_>,
) -> Result<Value, Answer> {
    let guest = world.guests.get(&vmid).cloned().ok_or_else(|| Answer::died("no guest"))?;
    if !guest.is_allowed("VM.PowerMgmt") {
        return Err(Answer::forbidden(vmid, "VM.PowerMgmt"));
    }
    if let Some(text) = refused(&guest, vmid, verb) {
        world.needless.push(call.clone());
        return Err(Answer::died(text));
    }
    let effect = match verb {
        "start" | "reboot" => Effect::Start,
        _ => Effect::Stop,
    };
    if guest.is_ha && verb != "reboot" {
        let kind = if effect == Effect::Start { "hastart" } else { "hastop" };
        let upid = world.begin(kind, vmid, user, Effect::Nothing, Script::default());
        let at = tokio::time::Instant::now() + world.ha_delay;
        if let Some(guest) = world.guests.get_mut(&vmid) {
            let state = if effect == Effect::Start { "request_start" } else { "request_stop" };
            guest.managed = Some(state.to_owned());
        }
        world.requested.push((at, vmid, effect));
        return Ok(upid.into());
    }
    let kind = format!("{}{verb}", guest.kind.task_prefix());
    let script = script(world, vmid, &guest, verb, call);
    Ok(world.begin(&kind, vmid, user, effect, script).into())
}

/// Changes the configuration of a virtual machine by a task. The answer is its UPID; or, if the task ends within
/// `background_delay`, null or its error. The simulator does not wait: such a task ends at once.
pub(crate) fn configure(
    world: &mut World,
    vmid: u32,
    Authenticated { call, user }: Authenticated<'_>,
) -> Result<Value, Answer> {
    let guest = world.guests.get(&vmid).cloned().ok_or_else(|| Answer::died("no guest"))?;
    // Wrong parameters are refused before there is a task.
    config::change(&mut guest.clone(), vmid, call)?;
    let mut script = script(world, vmid, &guest, "config", call);
    let delay = call.parameter("background_delay").and_then(|seconds| seconds.parse().ok());
    let is_awaited = delay.is_some_and(|seconds| script.takes <= Duration::from_secs(seconds));
    if is_awaited {
        script.takes = Duration::ZERO;
    }
    let upid = world.begin("qmconfig", vmid, user, Effect::Configure(call.clone()), script);
    if !is_awaited {
        return Ok(upid.into());
    }
    world.settle();
    match world.tasks.last().map(|task| &task.script.end) {
        Some(End::Ok | End::Warnings(_)) | None => Ok(Value::Null),
        Some(end) => {
            Err(Answer::died(format!("failed to update VM {vmid}: {}", end.exit_status())))
        }
    }
}

/// Containers refuse a verb that changes nothing; virtual machines start a task that does nothing, or fails.
fn refused(guest: &Guest, vmid: u32, verb: &str) -> Option<String> {
    match (verb, guest.running, guest.kind) {
        ("start", true, Kind::Lxc) => Some(already_running(guest, vmid)),
        ("stop" | "shutdown", false, Kind::Lxc) | ("reboot", false, _) => {
            Some(format!("{} {vmid} not running", guest.kind.called()))
        }
        _ => None,
    }
}

fn already_running(guest: &Guest, vmid: u32) -> String {
    format!("{} {vmid} already running", guest.kind.called())
}

/// The course of the task: by the script of the test, else by the state of the guest.
fn script(world: &mut World, vmid: u32, guest: &Guest, verb: &str, call: &Call) -> Script {
    if let Some(script) = world.scripts.get_mut(&vmid).and_then(VecDeque::pop_front) {
        return script;
    }
    let failing = |text| Script { takes: Duration::ZERO, end: End::Error(text) };
    if let Some(lock) = &guest.lock {
        return failing(format!("{} is locked ({lock})", guest.kind.called()));
    }
    if verb == "start" && guest.running {
        return failing(already_running(guest, vmid));
    }
    if verb == "shutdown" && guest.on_shutdown == OnShutdown::Ignores && guest.running {
        let timeout = call.parameter("timeout").and_then(|timeout| timeout.parse().ok());
        let takes = Duration::from_secs(timeout.unwrap_or(60));
        let is_forced = call.parameter("forceStop") == Some("1");
        let text = "VM quit/powerdown failed - got timeout".to_owned();
        let end = if is_forced { End::Ok } else { End::Error(text) };
        return Script { takes, end };
    }
    Script::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::USER;

    fn world() -> World {
        World::default().with(201, Guest::new(Kind::Qemu, "pve1"))
    }

    /// Posts a change of the configuration of guest 201.
    fn post(world: &mut World, parameters: &[(&str, &str)]) -> Answer {
        let pairs =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (method, path) = ("POST".to_owned(), "/nodes/pve1/qemu/201/config".to_owned());
        let call = Call { method, path, parameters: pairs.collect(), authorization: None };
        let answer = configure(world, 201, Authenticated { call: &call, user: USER });
        world.settle();
        answer.map_or_else(|refused| refused, Answer::data)
    }

    fn memory(world: &World) -> Option<&str> {
        world.guests.get(&201)?.config.get("memory").map(String::as_str)
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_posted_change_is_a_task_and_takes_effect_at_its_end() {
        let mut world = world();
        world.script(201, Script { takes: LONG, end: End::Ok });
        let answer = post(&mut world, &[("memory", "1024")]);
        let upid = answer.body["data"].as_str().unwrap_or_default();
        assert!(upid.starts_with("UPID:pve1:") && upid.contains(":qmconfig:201:"), "{answer:?}");
        assert_eq!(memory(&world), Some("512"));
        tokio::time::advance(LONG).await;
        world.settle();
        assert_eq!(memory(&world), Some("1024"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_posted_change_that_ends_within_the_delay_is_answered_with_null() {
        let mut world = world();
        let wanted = [("memory", "1024"), ("background_delay", "5")];
        assert_eq!(post(&mut world, &wanted), Answer::data(json!(null)));
        assert_eq!(memory(&world), Some("1024"));
        world.script(201, Script { takes: LONG, end: End::Ok });
        assert!(post(&mut world, &wanted).body["data"].is_string(), "it takes longer");
        world.script(201, Script { takes: Duration::ZERO, end: End::Error("no".to_owned()) });
        let answer = post(&mut world, &wanted);
        assert_eq!(answer, Answer::died("failed to update VM 201: no"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_posted_change_checks_the_digest_before_its_task_and_in_it() {
        let mut world = world();
        let digest = world.guests.get(&201).map(config::digest).unwrap_or_default();
        let first = [("memory", "1024"), ("digest", &*digest)];
        world.script(201, Script { takes: LONG, end: End::Ok });
        assert_eq!(post(&mut world, &first).status, 200);
        post(&mut world, &[("memory", "2048")]);
        assert_eq!(post(&mut world, &first).status, 500, "refused without a task");
        tokio::time::advance(LONG).await;
        world.settle();
        assert_eq!(memory(&world), Some("2048"));
        let ends: Vec<_> = world.tasks.iter().map(|task| task.script.end.exit_status()).collect();
        assert_eq!(ends.len(), 2, "{ends:?}");
        assert!(ends.iter().any(|end| end.contains("detected modified configuration")), "{ends:?}");
    }

    /// Starts guest 201, which the HA manager controls or not.
    fn start(world: &mut World, is_ha: bool) {
        world.ha_delay = LONG;
        world.guests.values_mut().for_each(|guest| guest.is_ha = is_ha);
        let (method, path) = ("POST".to_owned(), "/nodes/pve1/qemu/201/status/start".to_owned());
        let parameters = std::collections::BTreeMap::new();
        let call = Call { method, path, parameters, authorization: None };
        begin(world, 201, "start", Authenticated { call: &call, user: USER }).unwrap();
        world.settle();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_progress_ends_with_hurry_and_not_before() {
        for is_ha in [false, true] {
            let mut world = world();
            world.script(201, Script { takes: LONG, end: End::Ok });
            start(&mut world, is_ha);
            let is_running = |world: &World| world.guests.get(&201).map(|guest| guest.running);
            assert_eq!(is_running(&world), Some(false), "{is_ha}");
            world.hurry();
            assert_eq!(is_running(&world), Some(true), "{is_ha}");
        }
    }
}
