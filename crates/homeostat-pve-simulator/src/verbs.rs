//! Start, stop, shutdown, reboot: each begins a task and answers with its name.

use std::time::Duration;

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::{Guest, Manners};
use crate::tasks::{Effect, End, Script};
use crate::upid::Upid;
use crate::world::World;

/// Which guest, and by whom.
pub(crate) struct Order<'a> {
    pub(crate) vmid: u32,
    pub(crate) verb: &'a str,
    pub(crate) user: &'a str,
}

/// Begins the task of a verb, or dies.
pub(crate) fn begin(world: &mut World, order: &Order<'_>, call: &Call) -> Answer {
    let Order { vmid, verb, user } = order;
    let Some(guest) = world.guests.get(vmid).cloned() else { return Answer::died("no guest") };
    if !guest.is_allowed("VM.PowerMgmt") {
        return Answer::forbidden(*vmid, "VM.PowerMgmt");
    }
    if let Some(words) = refused(&guest, *vmid, verb) {
        return Answer::died(words);
    }
    let effect = match *verb {
        "start" | "reboot" => Effect::Start,
        _ => Effect::Stop,
    };
    if guest.is_ha && *verb != "reboot" {
        let kind = if effect == Effect::Start { "hastart" } else { "hastop" };
        let name = world.name(kind.to_owned(), (*vmid, &guest.node), user);
        let upid = world.begin(name, Effect::Nothing, Script::default());
        let at = tokio::time::Instant::now() + world.ha_delay;
        world.requested.push((at, *vmid, effect));
        return Answer::data(upid);
    }
    let kind = format!("{}{verb}", guest.kind.task_prefix());
    let name: Upid = world.name(kind, (*vmid, &guest.node), user);
    let script = script(world, (*vmid, &guest), (verb, call));
    Answer::data(world.begin(name, effect, script))
}

/// Containers refuse what is already so; machines begin a task that has nothing to do, but for a start.
fn refused(guest: &Guest, vmid: u32, verb: &str) -> Option<String> {
    let called = guest.kind.called();
    match (verb, guest.running, guest.kind) {
        ("start", true, _) => Some(format!("{called} {vmid} already running")),
        ("stop" | "shutdown" | "reboot", false, crate::Kind::Lxc) => {
            Some(format!("{called} {vmid} not running"))
        }
        _ => None,
    }
}

fn script(world: &mut World, (vmid, guest): (u32, &Guest), (verb, call): (&str, &Call)) -> Script {
    if let Some(script) =
        world.scripts.get_mut(&vmid).and_then(std::collections::VecDeque::pop_front)
    {
        return script;
    }
    if let Some(lock) = &guest.lock {
        let words = format!("{} is locked ({lock})", guest.kind.called());
        return Script { takes: Duration::ZERO, end: End::Error(words) };
    }
    if verb == "shutdown" && guest.manners == Manners::Deaf && guest.running {
        let timeout = call.parameter("timeout").and_then(|timeout| timeout.parse().ok());
        let takes = Duration::from_secs(timeout.unwrap_or(60));
        let is_forced = call.parameter("forceStop") == Some("1");
        let words = "VM quit/powerdown failed - got timeout".to_owned();
        let end = if is_forced { End::Ok } else { End::Error(words) };
        return Script { takes, end };
    }
    Script::default()
}
