//! `fleet coordinate`: waits to lead, and leads rollouts.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_coordinator::{Coordinator, Notice};
use homeostat_store::BootTime;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::args::CoordinateArgs;
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
    info!(fleet = %fleet.name, name, "standing by");
    Coordinator::new(fleet.store, Arc::new(BootTime), now, fleet.name, name)
        .with_leases(args.lease.get(), args.node_lease.get())
        .with_notices(tell)
        .run(stop)
        .await;
    info!("stopped");
    Ok(ExitCode::SUCCESS)
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
