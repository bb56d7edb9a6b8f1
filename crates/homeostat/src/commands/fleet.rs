//! `homeostat fleet`: signs rollouts, starts them, follows them, and leads them.
//!
//! Operators write to the store and read from it; only [`coordinate`] leads. What a rollout is, who gets it when, and what
//! nodes accept is decided in `homeostat-fleet`.

pub(crate) mod args;
mod bundle;
mod connection;
mod coordinate;
mod demo;
mod documents;
mod enroll;
mod inventory;
mod plan;
pub(super) mod programs;
mod prune;
mod retire;
mod rollout;
mod sign;
mod snapshot;
mod start;
mod status;
mod wait;

use std::process::ExitCode;

use anyhow::Result;
use homeostat_fleet::Time;
use homeostat_fleet::records::Verb;

use crate::cli::Global;
use crate::commands::block_on;
use crate::daemon::clock::Stamp;
use args::{FleetArgs, FleetCommand};
use connection::Connection;

/// How a command was called.
struct Call<'a> {
    connection: Connection,
    global: &'a Global,
    is_json: bool,
}

pub(crate) fn run(args: &FleetArgs, global: &Global) -> Result<ExitCode> {
    if let FleetCommand::Demo = &args.command {
        return demo::run(global);
    }
    let connection = Connection::find(&args.connection)?;
    let call = Call { connection, global, is_json: args.json };
    match &args.command {
        FleetCommand::Demo => Ok(ExitCode::SUCCESS),
        FleetCommand::Coordinate(args) => block_on(coordinate::run(args, &call))?,
        FleetCommand::Status(args) => block_on(status::run(args, &call))?,
        FleetCommand::Plan(args) => block_on(plan::run(args, &call))?,
        FleetCommand::Start(args) => block_on(start::run(args, &call))?,
        FleetCommand::Pause(args) => block_on(rollout::request(args, Verb::Pause, &call))?,
        FleetCommand::Resume(args) => block_on(rollout::request(args, Verb::Run, &call))?,
        FleetCommand::Abort(args) => block_on(rollout::request(args, Verb::Abort, &call))?,
        FleetCommand::Wait(args) => block_on(wait::run(args, &call))?,
        FleetCommand::History => block_on(rollout::history(&call))?,
        FleetCommand::Sign(args) => block_on(sign::run(args, &call))?,
        FleetCommand::Inventory(args) => block_on(inventory::run(args, &call))?,
        FleetCommand::Enroll(args) => block_on(enroll::run(args, &call))?,
        FleetCommand::Retire(args) => block_on(retire::run(args, &call))?,
        FleetCommand::Prune(args) => block_on(prune::run(args, &call))?,
    }
}

/// The time of day, as records have it.
fn now() -> Time {
    Time::of_millis(Stamp::now().as_millis())
}

/// The end of a text that speaks of some nodes: at most ten are named.
fn named<'a>(nodes: impl IntoIterator<Item = &'a homeostat_fleet::Name>) -> String {
    const NAMED: usize = 10;
    let all: Vec<&str> = nodes.into_iter().map(homeostat_fleet::Name::as_str).collect();
    let shown = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
