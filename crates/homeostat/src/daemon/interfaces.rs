//! The interfaces that show the daemon to others: systemd and HTTP.

use std::sync::Arc;

use anyhow::Result;
use homeostat_engine::{Control, Event, Events};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::clock::Stamp;
use super::http::{Listen, Server, Site};
use super::metrics::Meters;
use super::recent::Recent;
use super::standing::Standing;
use super::systemd::Systemd;
use super::view::{Loops, View};

/// What systemd and HTTP show.
pub(super) struct Interfaces {
    loops: watch::Sender<Loops>,
    systemd: Systemd,
}

impl Interfaces {
    /// Opens it; whatever runs on is driven beside the daemon.
    pub(super) async fn open(
        events: &Events,
        listen: Option<Listen>,
        standing: watch::Receiver<Standing>,
        recent: Recent,
    ) -> Result<Self> {
        let (loops, view) = View::new();
        let site = Site { view: view.clone(), standing, recent, meters: Meters::default() };
        tokio::spawn(gather(site.clone(), events.subscribe()));
        if let Some(listen) = listen {
            serve(listen, site).await?;
        }
        tokio::spawn(Systemd::from_environment().follow(view, events.subscribe()));
        Ok(Interfaces { loops, systemd: Systemd::from_environment() })
    }

    /// These loops run now.
    pub(super) fn show(&self, loops: Vec<Arc<dyn Control>>) {
        self.loops.send_replace(Some(loops));
    }

    /// The document is read again.
    pub(super) fn reloading(&self) {
        self.systemd.reloading();
    }

    /// It was taken over, or refused.
    pub(super) fn reloaded(&self) {
        self.systemd.reloaded();
    }

    /// The daemon ends.
    pub(super) fn stopping(&self) {
        self.systemd.stopping();
    }
}

async fn serve(listen: Listen, site: Site) -> Result<()> {
    let server = Server::bind(listen, site).await?;
    tracing::info!(address = %server.address()?, "listening on HTTP");
    tokio::spawn(server.serve());
    Ok(())
}

/// Keeps what is shown of events.
async fn gather(site: Site, mut events: Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(event) => {
                let at = Stamp::now();
                site.recent.take(&event, at);
                site.meters.take(&event, at);
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
