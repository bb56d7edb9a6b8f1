//! Everything that shows the daemon to others: the log, systemd, HTTP, the recent events and the metrics.

use anyhow::Result;
use homeostat_engine::{Event, Events};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::clock::Stamp;
use super::http::{self, Listen, Site};
use super::log::log_event;
use super::loops_snapshot::LoopsSnapshot;
use super::metrics::Meters;
use super::recent::Recent;
use super::systemd::Systemd;

/// Starts all of them, each as a task of its own.
pub(super) async fn open(
    events: &Events,
    listen: Option<Listen>,
    snapshot: watch::Receiver<LoopsSnapshot>,
    recent: Recent,
) -> Result<()> {
    let site = Site { snapshot: snapshot.clone(), recent, meters: Meters::default() };
    tokio::spawn(gather(site.clone(), events.subscribe()));
    if let Some(listen) = listen {
        http::serve(listen, site).await?;
    }
    tokio::spawn(Systemd::from_environment().follow(snapshot, events.subscribe()));
    Ok(())
}

/// Logs, keeps and counts events.
async fn gather(site: Site, mut events: Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(event) => {
                let at = Stamp::now();
                if let Some(level) = log_event(&event) {
                    site.recent.take(level, &event, at);
                }
                site.meters.take(&event, at);
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
