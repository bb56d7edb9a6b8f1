//! `fleet coordinate`: waits to lead, and leads rollouts.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_coordinator::{Coordinator, Notice};
use homeostat_fleet::Name;
use homeostat_fleet::judge::NAMESPACE;
use homeostat_fleet::records::{SignedStatement, Statement};
use homeostat_store::BootTime;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::args::CoordinateArgs;
use super::connection::Connection;
use super::{Call, now};
use crate::daemon::log;

pub(super) async fn run(args: &CoordinateArgs, call: &Call<'_>) -> Result<ExitCode> {
    log::init(args.log, call.global.detail());
    let fleet = call.connection.open()?;
    let name = match &args.name {
        Some(name) => name.to_string(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let connection =
        call.connection.clone().with_signers(args.allowed_signers.clone(), args.signatures);
    let mut coordinator =
        Coordinator::new(fleet.store, Arc::new(BootTime), now, fleet.name.clone(), name.clone())
            .with_leases(args.lease.get(), args.node_lease.get())
            .with_notices(tell);
    // A list that cannot be read shows now, and not with the first rollout.
    if connection.allowed_signers()?.is_some() {
        let expected = fleet.name.clone();
        coordinator =
            coordinator.with_verification(move |signed| verify(signed, &expected, &connection));
    } else {
        warn!(
            "signatures are not verified here: give --allowed-signers, or whoever can write to the store can replace rollouts"
        );
    }
    info!(fleet = %fleet.name, name, "standing by");
    coordinator.run(stop).await;
    info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The signers are read each time, so that a new list counts at once. Times of keys are judged by nodes: a rollout that runs
/// goes on when a key expires.
fn verify(signed: &SignedStatement, fleet: &Name, connection: &Connection) -> Result<(), String> {
    let signers = connection.allowed_signers().map_err(|error| format!("{error:#}"))?;
    let Some((signers, needed)) = signers else { return Ok(()) };
    let message = signed.statement.as_bytes();
    let verified = signers.verify(message, NAMESPACE, &signed.signatures, needed, None);
    verified.map_err(|error| format!("it is not signed as it must be: {error}"))?;
    let statement = Statement::parse(&signed.statement).map_err(|error| error.to_string())?;
    if statement.fleet != *fleet {
        return Err(format!("it is for the fleet `{}`", statement.fleet));
    }
    Ok(())
}

fn tell(notice: Notice) {
    match notice {
        Notice::Leads { term } => info!(term, "leading"),
        Notice::Lost(why) => warn!(%why, "leading no longer"),
        Notice::Acted { rollout, step } => info!(%rollout, step = ?step, "acted"),
        Notice::Unreadable { key, why } => warn!(key, why, "a record cannot be understood"),
        Notice::Failed(error) => warn!(%error, "the store failed"),
        other => info!(?other, "notice"),
    }
}
