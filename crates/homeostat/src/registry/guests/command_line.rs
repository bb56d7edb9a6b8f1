//! `homeostat guest start|stop|shutdown ID`: one command for one guest, through the daemon if one runs.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use homeostat_document::Document;
use homeostat_engine::SqlitePages;
use homeostat_engine::journal::End;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::command::{Command, Done};
use super::turn::Turn;
use crate::cli::Global;
use crate::client::{Client, socket_path};
use crate::commands::block_on;
use crate::context::Context;
use crate::failure::Helped;
use crate::output::line::plain;
use crate::output::stream;
use crate::provider::load;
use crate::registry::Binding;
use crate::scope::Scope;
use crate::wire::{FORMAT_VERSION, Request};

#[derive(Args, Debug)]
pub(crate) struct GuestArgs {
    /// What to do
    #[arg(value_enum)]
    pub(crate) verb: GuestVerb,
    /// The number of the guest
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(100..=999_999_999))]
    pub(crate) vmid: u32,
    /// A name for this command: a second try with it returns the outcome of the first, for a week
    ///
    /// A try while the first one runs waits for its outcome. If the outcome of the first one is unknown, the second
    /// one waits for a task that still runs, leaves a guest alone that has the requested run state, and sends the
    /// command again only otherwise.
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,
    /// Document that names the cluster, if no daemon runs; a daemon uses its own document
    #[arg(long = "document", value_name = "DOC")]
    pub(crate) documents: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GuestVerb {
    /// Start it
    Start,
    /// Stop it at once
    Stop,
    /// Ask it to shut down
    Shutdown,
}

/// Starts or stops a guest, and waits for the end of it.
pub(crate) fn run(args: &GuestArgs, global: Global) -> Result<ExitCode> {
    let answer = match Client::try_connect(&socket_path(&global)) {
        Some(client) => client.ask(request(args))?,
        None => without_daemon(args, global)?,
    };
    let said = if args.json { format!("{answer}\n") } else { line(&answer) };
    stream::ignore_closed_pipe(std::io::stdout().write_all(said.as_bytes()))?;
    let is_done = word(&answer, "outcome") == "succeeded";
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The answer to a command, as both sides of the socket know it.
pub(crate) fn answer(command: &Command, done: &Done) -> Value {
    let (outcome, why) = match &done.end {
        End::Succeeded { .. } => ("succeeded", None),
        End::Failed { why } => ("failed", Some(why)),
        End::Unknown { why } => ("unknown", Some(why)),
    };
    json!({
        "format_version": FORMAT_VERSION, "key": format!("guest {}", command.vmid),
        "verb": command.verb.to_string(), "outcome": outcome, "why": why, "stored": done.is_stored,
    })
}

fn request(args: &GuestArgs) -> Request {
    let GuestArgs { vmid, verb, idempotency_key, .. } = args;
    Request::Guest { vmid: *vmid, command: *verb, name: idempotency_key.clone() }
}

/// Without a daemon, the document says where the cluster is. Who names the command may ask for it while
/// another process is at it, and waits for that one.
fn without_daemon(args: &GuestArgs, global: Global) -> Result<Value> {
    if args.documents.is_empty() {
        return Err(Helped::error(
            "no daemon runs, and no document says where the cluster is",
            "add `--document DOC`, or start the daemon with `homeostat run DOC`",
        ));
    }
    let document = load(&args.documents)?;
    let context = Context::enter(global, &document.settings)?;
    let context = context.writing();
    let mut turn = args.idempotency_key.as_ref().map(|_| Turn::new(&context));
    loop {
        match (directly(args, &context, &document), &mut turn) {
            (Err(error), Some(turn)) => turn.wait(error)?,
            (done, _) => return done,
        }
        // Who was waited for may have made room for a daemon.
        if let Some(client) = Client::try_connect(&context.socket) {
            return client.ask(request(args));
        }
    }
}

fn directly(args: &GuestArgs, context: &Context, document: &Document) -> Result<Value> {
    let scope = &Scope::top(context)?;
    let lock = scope.lock(context)?;
    let pages = &SqlitePages::open(&context.state_dir)?;
    let section = Some(&document.host);
    (super::REGISTERED.bind)(&Binding { context, document, scope, section, pages })?;
    let Some(commands) = super::operations(context).commands(&lock)? else {
        let help = "the document needs `[proxmox]`";
        return Err(Helped::error("there is no cluster to speak with", help));
    };
    let command = command(args.verb, args.vmid, args.idempotency_key.clone());
    let done = block_on(commands.carry_out(&command))??;
    Ok(answer(&command, &done))
}

/// A command in its own words.
pub(crate) fn command(verb: GuestVerb, vmid: u32, name: Option<String>) -> Command {
    let verb = match verb {
        GuestVerb::Start => homeostat_guests::Verb::Start,
        GuestVerb::Stop => homeostat_guests::Verb::Stop,
        GuestVerb::Shutdown => homeostat_guests::Verb::Shutdown,
    };
    Command { vmid, verb, name }
}

fn word(answer: &Value, name: &str) -> String {
    plain(answer.get(name).and_then(Value::as_str).unwrap_or_default())
}

fn line(answer: &Value) -> String {
    let (key, verb, outcome) = (word(answer, "key"), word(answer, "verb"), word(answer, "outcome"));
    let why = Some(word(answer, "why")).filter(|why| !why.is_empty());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let is_stored = answer.get("stored").and_then(Value::as_bool) == Some(true);
    let stored = if is_stored { " (the outcome of an earlier try)" } else { "" };
    format!("{verb} {key}: {outcome}{why}{stored}\n")
}
