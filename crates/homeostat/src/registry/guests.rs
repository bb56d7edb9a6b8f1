//! Guests on Proxmox VE: `[proxmox]` and `[guests.N]`.

pub(crate) mod command;
mod command_line;
mod operations;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::Section;
use homeostat_engine::{Bound, Config, Limits, MissingSections, Ownership};
use homeostat_guests::section::{self, Proxmox, desired};
use homeostat_guests::{Client, DesiredState, Guests, Token};
use rustix::thread::CapabilitySet;

pub(crate) use self::command_line::{GuestArgs, GuestVerb, answer, command, run};
pub(crate) use self::operations::GuestCommands;
use self::operations::GuestOperations;
use crate::context::Context;
use crate::failure::Helped;
use crate::registry::{Bind, Binding, Registered, Remote, Shown, Start};

/// Guests in the registry.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    sections: section::SECTIONS,
    resolve: |_, section, _, checker| section::resolve(section, checker),
    bind,
    // A cluster is spoken with from the host only.
    wait: |_, _| Vec::new(),
    namespaces: |_| Vec::new(),
    files: |_, section, named| {
        named.files.extend(section.get().map(|proxmox: &Proxmox| proxmox.token_file.clone()));
    },
    capabilities: |_| CapabilitySet::empty(),
    show: |_| Ok(Shown::default()),
    start: Start::Usual,
    remote: Some(REMOTE),
};

/// A look at everything costs a request or two a guest, and a poll tells of what cannot wait.
const REMOTE: Remote = Remote {
    section: "proxmox",
    identity: "a cluster of Proxmox VE",
    resync: Duration::from_secs(30),
};

const NAME: &str = <Guests as homeostat_engine::Source>::NAME;
/// Tasks at once in the whole cluster.
const TOTAL: usize = 64;

/// What this process has under way with guests.
pub(crate) fn operations(context: &Context) -> GuestOperations {
    context.memory.of()
}

fn bind(binding: &Binding<'_>) -> Bind {
    let Some(section) = binding.section else { return Ok(None) };
    let Some(proxmox) = section.get::<Proxmox>() else {
        if std::ptr::eq(section, &raw const binding.document.host) {
            operations(binding.context).leave_cluster();
        }
        return Ok(None);
    };
    let source = source(binding, proxmox)?;
    let guests = <section::Guests as Section>::NAME;
    let missing = binding.missing(|home| {
        let is_missing = !section.states(guests);
        if is_missing {
            MissingSections::all(home.table(&[guests]))
        } else {
            MissingSections::default()
        }
    });
    let limits = Limits { total: TOTAL, per_node: proxmox.node_limit.into() };
    let journal = binding.context.journal.as_deref();
    let dispatch = operations(binding.context).dispatch_guard(
        &source,
        &binding.scope.name,
        limits,
        journal,
    )?;
    let config = Config { dispatch, lanes: TOTAL, ..binding.config(NAME, missing) };
    let (desired, place) = (Arc::new(desired(section)?), binding.place(NAME));
    let (ownership, nothing) = (Ownership::Checkpoint, Some(Arc::new(DesiredState::default())));
    Ok(Some(Box::new(Bound { source, desired, ownership, config, place, nothing })))
}

fn source(binding: &Binding<'_>, proxmox: &Proxmox) -> Result<Guests> {
    let token = Token::read(&proxmox.token_file).map_err(|error| {
        let help = error.help();
        Helped::error(format!("{:#}", anyhow::Error::from(error)), help)
    })?;
    let client = Client::new(proxmox.endpoint.clone(), token, &proxmox.trust)?;
    Ok(Guests::new(&client, &binding.context.owner, proxmox.timeouts))
}
