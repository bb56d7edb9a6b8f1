//! How a program binds guests on Proxmox VE: `[proxmox]` and `[guests.N]`, and the commands for one guest.

use std::time::Duration;

use homeostat_core::{Failure, Limits, Ownership, Retry, StepKind, Undo};
use homeostat_document::Section;
use homeostat_registry::{
    BindResult, Binding, CommandDeps, Described, DocumentPlace, Error, MissingSections,
    Registration, Remote, SharedTarget, Turn, machine_id,
};
use serde_json::Value;

use crate::client::Client;
use crate::command::Verb;
use crate::idempotent::{Answer, Command};
use crate::mark::Claimant;
use crate::operations::GuestOperations;
use crate::section::{self, Proxmox, desired};
use crate::source::Guests;
use crate::token::Token;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("an option of a guest is set", Undo::FormerDesired),
    StepKind::new("a guest is started", Undo::PutOff),
    StepKind::losing("a guest is stopped", Undo::PutOff, "what the guest has in its memory"),
];

/// Guests, for a list of sources.
pub const REGISTRATION: Registration = Registration {
    steps: STEP_KINDS,
    resolve: |section, _, checker| section::resolve(section, checker),
    files: |_, section, named| {
        named.files.extend(section.get().map(|proxmox: &Proxmox| proxmox.token_file.clone()));
    },
    remote: Some(Remote {
        section: <Proxmox as Section>::NAME,
        identity: "a cluster of Proxmox VE",
        // A look at everything costs a request or two a guest, and a poll finds what cannot wait.
        resync: Duration::from_secs(30),
    }),
    shared: Some(SharedTarget {
        name: |document| document.host.get::<Proxmox>().map(Proxmox::cluster_name),
        answers_within: |document| {
            document.host.get::<Proxmox>().map_or(Duration::ZERO, |proxmox| proxmox.timeouts.answer)
        },
    }),
    command: Some(|deps, request| Box::pin(carry_out(deps, request))),
    describe,
    ..Registration::new(section::SECTIONS, bind)
};

/// Tasks at once in the whole cluster.
const TOTAL: usize = 64;

fn bind(binding: &Binding<'_>) -> BindResult {
    let operations: GuestOperations = binding.caller.memory.of();
    let proxmox = binding.section.and_then(|section| section.get::<Proxmox>());
    let (Some(section), Some(proxmox)) = (binding.section, proxmox) else {
        if DocumentPlace::of(binding) == DocumentPlace::Top {
            operations.leave_cluster();
        }
        return Ok(Vec::new());
    };
    let token = Token::read(&proxmox.token_file)
        .map_err(|error| Failure::from_error(&error, Retry::OnChange).with_help(error.help()))?;
    let client = Client::new(proxmox.endpoint.clone(), token, &proxmox.trust)
        .map_err(|error| Error::failed(&error))?;
    let mut source = Guests::new(&client, &binding.caller.owner, proxmox.timeouts);
    source.claimant = claimant(binding);
    let desired = desired(section).map_err(|error| Error::failed(&error))?;
    let guests = <section::Guests as Section>::NAME;
    let missing = binding.missing(|place| {
        if section.states(guests) {
            return MissingSections::default();
        }
        MissingSections::all(place.missing_table(&[guests]))
    });
    let limits = Limits { total: TOTAL, per_node: proxmox.node_limit.into() };
    let dispatch = operations.enter_cluster(&source, binding, limits)?;
    let mut bound = binding.bound(source, desired, Ownership::Checkpoint, missing);
    (bound.config.dispatch, bound.config.lanes) = (dispatch, TOTAL);
    Ok(vec![bound])
}

/// What marks say of the machine. Nothing, if it cannot be told from another one.
fn claimant(binding: &Binding<'_>) -> Option<Claimant> {
    let machine = machine_id().map(|id| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Claimant::new(&id, host.split('.').next().unwrap_or_default())
    });
    let shared = match binding.turn() {
        Turn::Alone => return machine,
        Turn::Leader(leader) => leader.shared,
        Turn::Standby(standby) => standby.shared,
    };
    let turns = Claimant::new(&shared, &shared);
    Some(match &machine {
        Some(machine) => turns.formerly(machine),
        None => turns,
    })
}

fn describe(request: &Value) -> Result<Described, Error> {
    let command: Command =
        serde_json::from_value(request.clone()).map_err(|error| Error::failed(&error))?;
    let action = match command.verb {
        Verb::Start => "guest-start",
        Verb::Stop => "guest-stop",
        Verb::Shutdown => "guest-shutdown",
    };
    Ok(Described { action, key: command.vmid.to_string() })
}

/// Carries out a [`Command`], and returns an [`Answer`].
pub async fn carry_out(deps: CommandDeps, request: Value) -> Result<Value, Error> {
    let command: Command =
        serde_json::from_value(request).map_err(|error| Error::failed(&error))?;
    let commands = deps.memory.of::<GuestOperations>().commands(&deps.lock)?;
    let answer = Answer::new(&command, commands.carry_out(&command).await?);
    serde_json::to_value(answer).map_err(|error| Error::failed(&error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use homeostat_core::Slot;
    use homeostat_testkit::undoing::{self, Example};

    use super::*;
    use crate::api::{ConfigWrite, Place};
    use crate::desired::DesiredState;
    use crate::model::{Guest, Kind, Run, Stop, Vmid};
    use crate::step::{Expects, Power, Release, Set, Step};

    fn kind_of(step: &Step) -> &'static str {
        match step {
            Step::Set(_) | Step::Release(_) => "an option of a guest is set",
            Step::Power(Power { to: Run::Running, .. }) => "a guest is started",
            Step::Power(Power { to: Run::Stopped, .. }) => "a guest is stopped",
        }
    }

    #[test]
    fn every_step_is_undone_as_the_list_of_its_kinds_says() {
        let (vmid, kind, slot) = (Vmid(100), Kind::Qemu, Slot::at(0));
        let place = Place { node: "one".to_owned(), kind, vmid };
        let options = BTreeMap::new();
        let before = Guest { kind, run: None, options, unread: None, is_marked: true };
        let write = ConfigWrite {
            place: place.clone(),
            options: vec![("cores".to_owned(), "2".to_owned())],
            digest: String::new(),
        };
        let power = |to| {
            let (place, before) = (place.clone(), before.clone());
            let (stop, expects) = (Stop::Immediate, Expects::Number);
            Step::Power(Power { slot, place, before, to, stop, expects })
        };
        let set = {
            let (before, write) = (before.clone(), write.clone());
            Step::Set(Set { slot, before, write, claims: false, adopts: None })
        };
        let release =
            Step::Release(Release { key: vmid, before: before.clone(), write: Some(write) });
        let steps = [set, release, power(Run::Running), power(Run::Stopped)];
        let examples = steps.map(|step| Example::new(kind_of(&step), step));
        undoing::check(STEP_KINDS, &DesiredState::new([]).unwrap(), examples).unwrap();
    }
}
