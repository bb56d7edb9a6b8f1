//! `homeostat guest start|stop|shutdown ID`: one command for one guest, through the daemon if one runs.

mod turn;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser,
};
use homeostat_document::Document;
use homeostat_engine::{Ledger, SqliteLedger, SqlitePages};
use homeostat_guests::{Answer, Command, CommandOutcome, REGISTRATION, Verb, Vmid};
use homeostat_registry::{Binding, CommandDeps};
use serde_json::Value;

use self::turn::Turn;
use crate::cli::Global;
use crate::client::{Client, read, socket_path};
use crate::commands::{block_on, left_trial};
use crate::context::Context;
use crate::failure::{helped, of_source};
use crate::orders::{OrderGate, OrderedAction, Right};
use crate::output::line::plain;
use crate::output::stream;
use crate::provider::{fleet, load};
use crate::wire::{FORMAT_VERSION, Request, SourceAnswer};

#[derive(Args, Debug)]
pub(crate) struct GuestArgs {
    /// What to do
    #[arg(value_parser = verbs())]
    verb: Verb,
    /// The number of the guest
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(100..=999_999_999))]
    vmid: u32,
    /// A name for this command: a second try with it returns the outcome of the first, for a week
    ///
    /// A try while the first one runs waits for its outcome. If the outcome of the first one is unknown, the second
    /// one waits for a task that still runs, leaves a guest alone that has the requested run state, and sends the
    /// command again only otherwise.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    idempotency_key: Option<String>,
    /// Document that names the cluster, if no daemon runs; a daemon uses its own document
    #[arg(long = "document", value_name = "DOC")]
    documents: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn verbs() -> impl TypedValueParser<Value = Verb> {
    let word = |name, help| PossibleValue::new(name).help(help);
    let words = [
        word("start", "Start it"),
        word("stop", "Stop it at once"),
        word("shutdown", "Ask it to shut down"),
    ];
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

/// Starts or stops a guest, and waits for the end of it.
pub(super) fn run(args: &GuestArgs, global: Global) -> Result<ExitCode> {
    let GuestArgs { vmid, verb, idempotency_key, .. } = args;
    let command = Command { vmid: Vmid(*vmid), verb: *verb, name: idempotency_key.clone() };
    let command = serde_json::to_value(command)?;
    let answer = match Client::try_connect(&socket_path(&global)) {
        Some(client) => client.by_right(&global.right).ask(request(&command))?,
        None => without_daemon(args, &command, global)?,
    };
    let Answer { key, verb, outcome, why, stored } = read(answer.clone())?;
    let line = if args.json {
        answer.to_string()
    } else {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let stored = if stored { " (the outcome of an earlier try)" } else { "" };
        plain(&format!("{verb} {key}: {outcome}{why}{stored}"))
    };
    stream::ignore_closed_pipe(writeln!(std::io::stdout(), "{line}"))?;
    Ok(if outcome == CommandOutcome::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn request(command: &Value) -> Request {
    Request::Source { source: REGISTRATION.name().to_owned(), request: command.clone() }
}

/// Without a daemon, the document says where the cluster is. A command with a name may be asked for while another
/// process carries it out, and waits for that one.
fn without_daemon(args: &GuestArgs, command: &Value, global: Global) -> Result<Value> {
    if args.documents.is_empty() {
        return Err(helped(
            "no daemon runs, and no document says where the cluster is",
            "add `--document DOC`, or start the daemon with `homeostat run DOC`",
        ));
    }
    let document = load(&args.documents)?;
    if fleet::is_in(&document) {
        return Err(helped(
            "the machines of the fleet elect the one that acts on the cluster, and no daemon takes part here",
            "start the daemon, or run the command on the machine that leads",
        ));
    }
    let context = Context::enter(global, &document.settings)?;
    if let (Right::Describe, Some(ordered)) =
        (&context.right, OrderedAction::of_source(&REGISTRATION, command)?)
    {
        let gate = OrderGate::where_no_daemon_runs(&context.caller, &document.settings);
        block_on(gate.check(&context.right, ordered))??;
    }
    let context = context.writing();
    let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(&context.caller.state_dir)?);
    left_trial::roll_back(&context, &ledger)?;
    let mut turn = args.idempotency_key.as_ref().map(|_| Turn::new(&context));
    loop {
        match (directly(command, &context, &document), &mut turn) {
            (Err(error), Some(turn)) => turn.wait(error)?,
            (done, _) => return done,
        }
        // A daemon may have started meanwhile.
        if let Some(client) = Client::try_connect(&context.socket) {
            return client.by_right(&context.right).ask(request(command));
        }
    }
}

fn directly(command: &Value, context: &Context, document: &Document) -> Result<Value> {
    let scope = &context.top_scope()?;
    let lock = Arc::new(context.lock(scope)?);
    let pages = &SqlitePages::open(&context.caller.state_dir)?;
    let (caller, gate) = (&context.caller, &context.gates.of(&scope.identity));
    let (source, section) = (&REGISTRATION, Some(&document.host));
    let binding = Binding { source, caller, document, scope, section, pages, gate };
    (source.bind)(&binding).map_err(of_source)?;
    let deps = CommandDeps { memory: caller.memory.clone(), lock };
    let answer = block_on(async {
        if let Some(ordered) = OrderedAction::of_source(source, command)? {
            OrderGate::where_no_daemon_runs(caller, &document.settings)
                .check(&context.right, ordered)
                .await?;
        }
        let answer = homeostat_guests::carry_out(deps, command.clone()).await;
        answer.map_err(of_source)
    })??;
    Ok(serde_json::to_value(SourceAnswer { format_version: FORMAT_VERSION, answer })?)
}
