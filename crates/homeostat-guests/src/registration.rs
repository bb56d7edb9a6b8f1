//! How a program binds guests on Proxmox VE: `[proxmox]` and `[guests.N]`, and the commands for one guest.

use std::time::Duration;

use homeostat_core::{Failure, Limits, Ownership, Retry, StepKind, Undo};
use homeostat_document::Section;
use homeostat_registry::{
    BindResult, Binding, CommandDeps, DocumentPlace, Error, MissingSections, Registration, Remote,
    SharedTarget, Turn, machine_id,
};
use serde_json::Value;

use crate::client::Client;
use crate::idempotent::{Answer, Command};
use crate::mark::Claimant;
use crate::operations::GuestOperations;
use crate::section::{self, Proxmox, desired};
use crate::source::Guests;
use crate::token::Token;

/// What steps do, and how each kind is undone.
const STEP_KINDS: &[StepKind] = &[
    StepKind::new("an option of a guest is set", Undo::FormerDesired),
    StepKind::losing(
        "a guest is started or stopped",
        Undo::PutOff,
        "what the guest has in its memory",
    ),
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

/// Carries out a [`Command`], and returns an [`Answer`].
pub async fn carry_out(deps: CommandDeps, request: Value) -> Result<Value, Error> {
    let command: Command =
        serde_json::from_value(request).map_err(|error| Error::failed(&error))?;
    let commands = deps.memory.of::<GuestOperations>().commands(&deps.lock)?;
    let answer = Answer::new(&command, commands.carry_out(&command).await?);
    serde_json::to_value(answer).map_err(|error| Error::failed(&error))
}
