//! Guests on Proxmox VE: `[proxmox]` and `[guests.N]`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use homeostat_document::{
    Document, Guest, GuestKind, GuestRun, GuestStop, NodeLimit, Period, Proxmox, Scope as Section,
    Settings, SourceSettings,
};
use homeostat_engine::{Bound, Config, Limits, Ownership, Section as Stated};
use homeostat_guests::{
    Client, Endpoint, Fingerprint, Guests, Kind, Patience, Run, Stop, Token, Trust, Wanted, Wish,
    WishError,
};

use crate::failure::{Helped, Misfits};
use crate::registry::{Bind, Binding, Lists, Registered, Remote};

/// Guests in the registry.
pub(crate) const REGISTERED: Registered =
    Registered { name: NAME, settings, check, bind, wait, remote: Some(REMOTE) };

/// A look at everything costs a request or two a guest, and a poll tells of what cannot wait.
const REMOTE: Remote = Remote {
    section: "proxmox",
    identity: "a cluster of Proxmox VE",
    resync: Duration::from_secs(30),
};

const NAME: &str = <Guests as homeostat_engine::Source>::NAME;
/// What nearly everybody ends with.
const NODE_LIMIT: u16 = 2;
/// The least time to wait for anything there, or between two questions.
const LEAST: Duration = Duration::from_millis(100);
/// Tasks at once in the whole cluster.
const TOTAL: usize = 64;

fn settings(all: &Settings) -> &SourceSettings {
    &all.guests
}

fn check(section: &Section, _lists: Lists, misfits: &mut Misfits<'_>) {
    if let Some(proxmox) = &section.proxmox {
        if let Err(error) = proxmox.endpoint.parse::<Endpoint>() {
            misfits.push(proxmox.endpoint.span, &error.to_string(), None);
        }
        if let Some(Err(error)) = proxmox.fingerprint.as_ref().map(|pin| pin.parse::<Fingerprint>())
        {
            let span = proxmox.fingerprint.as_ref().map_or(proxmox.span, |pin| pin.span);
            let help = "`pvenode cert info` prints it, or the web interface under Certificates";
            misfits.push(span, &error.to_string(), Some(help));
        }
        for time in [&proxmox.timeout, &proxmox.task_timeout, &proxmox.poll].into_iter().flatten() {
            if time.value.get() < LEAST {
                misfits.push(time.span, "less than 100ms is too short for a cluster", None);
            }
        }
    }
    for guest in section.guests.iter().flatten() {
        check_options(guest, misfits);
    }
}

/// Each option by itself, so that each mistake has its place.
fn check_options(guest: &Guest, misfits: &mut Misfits<'_>) {
    for option in &guest.options {
        let one = [(option.name.value.clone(), option.value.clone())];
        let wanted = Wanted { options: one.into(), ..wanted(guest) };
        if let Err(error) = Wish::builder().guest(guest.vmid.get(), wanted) {
            misfits.push(option.name.span, &error.to_string(), error.help());
        }
    }
}

/// A cluster is spoken with from the host only.
fn wait(_document: &Document, _section: &Section) -> Vec<String> {
    Vec::new()
}

fn bind(binding: &Binding<'_>) -> Bind {
    let Some(section) = binding.section else { return Ok(None) };
    let Some(proxmox) = &section.proxmox else {
        if std::ptr::eq(section, &raw const binding.document.host) {
            binding.context.desk.leave();
        }
        return Ok(None);
    };
    let source = source(binding, proxmox)?;
    let stated = if section.guests.is_some() { Stated::Stated } else { Stated::Missing };
    let per_node =
        proxmox.node_limit.as_ref().map_or(NODE_LIMIT, |limit| NodeLimit::get(limit.value));
    let limits = Limits { total: TOTAL, per_node: per_node.into() };
    let fence = binding.context.desk.fence(&source, (&binding.scope.name, limits))?;
    let config = Config { fence, lanes: TOTAL, ..binding.config(settings, stated) };
    let (wish, place) = (Arc::new(wish(section)?), binding.place(NAME));
    let (ownership, nothing) = (Ownership::Checkpoint, Some(Arc::new(Wish::default())));
    Ok(Some(Box::new(Bound { source, wish, ownership, config, place, nothing })))
}

fn source(binding: &Binding<'_>, proxmox: &Proxmox) -> Result<Guests> {
    let token = Token::read(&proxmox.token_file).map_err(|error| {
        let help = error.help();
        Helped::error(format!("{:#}", anyhow::Error::from(error)), help)
    })?;
    let pin = proxmox.fingerprint.as_ref().map(|pin| pin.parse()).transpose()?;
    let trust = pin.map_or(Trust::System, Trust::Pinned);
    let client = Client::new(proxmox.endpoint.parse()?, token, &trust)?;
    let usual = Patience::default();
    let answer = proxmox.timeout.as_ref().map_or(usual.answer, |time| Period::get(time.value));
    let task = proxmox.task_timeout.as_ref().map_or(usual.task, |time| Period::get(time.value));
    let poll = proxmox.poll.as_ref().map_or(usual.poll, |time| Period::get(time.value));
    Ok(Guests::new(&client, &binding.context.owner, Patience { answer, task, poll }))
}

fn wish(section: &Section) -> Result<Wish, WishError> {
    let guests = section.guests.iter().flatten();
    let mut builder = Wish::builder();
    for guest in guests {
        builder = builder.guest(guest.vmid.get(), wanted(guest))?;
    }
    Ok(builder.build())
}

fn wanted(guest: &Guest) -> Wanted {
    let kind = match guest.kind.value {
        GuestKind::Lxc => Kind::Lxc,
        GuestKind::Qemu => Kind::Qemu,
    };
    let run = guest.run.as_ref().map(|run| match run.value {
        GuestRun::Running => Run::Running,
        GuestRun::Stopped => Run::Stopped,
    });
    let options: BTreeMap<_, _> = guest
        .options
        .iter()
        .map(|option| (option.name.value.clone(), option.value.clone()))
        .collect();
    let node = guest.node.as_ref().map(|node| node.value.clone());
    Wanted { kind, node, run, stop: stop(guest), options, adopt: guest.adopt }
}

fn stop(guest: &Guest) -> Stop {
    let usual = Duration::from_mins(1);
    let timeout = guest.stop_timeout.as_ref().map_or(usual, |time| Period::get(time.value));
    match guest.stop.as_ref().map(|stop| stop.value) {
        None | Some(GuestStop::Graceful) => Stop::Graceful(timeout),
        Some(GuestStop::Shutdown) => Stop::Shutdown(timeout),
        Some(GuestStop::Immediate) => Stop::Immediate,
    }
}
