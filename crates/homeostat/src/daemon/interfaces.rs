//! Everything that shows the daemon to others: the log, systemd, HTTP, the recent events and the metrics.

use std::sync::Arc;

use anyhow::Result;
use homeostat_engine::{Event, Events};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::answers::Answers;
use super::clock::Stamp;
use super::http::{self, About, Listen, PageSource, Site};
use super::live::Live;
use super::log::log_event;
use super::metrics::Meters;
use super::systemd::Systemd;

/// Starts all of them, each as a task of its own.
pub(super) async fn open(
    events: &Events,
    listen: Option<Listen>,
    answers: Answers,
    about: About,
) -> Result<()> {
    let (snapshot, recent, live) =
        (answers.snapshot.clone(), answers.recent.clone(), Live::default());
    let about = Arc::new(about);
    let page = PageSource { snapshot: snapshot.clone(), answers, live: live.clone(), about };
    let site = Site { snapshot: snapshot.clone(), recent, meters: Meters::default(), page };
    tokio::spawn(gather(site.clone(), events.subscribe()));
    if let Some(listen) = listen {
        http::serve(listen, site).await?;
        tokio::spawn(live.send_headlines(snapshot.clone(), events.subscribe()));
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
                site.page.live.take(&event, at);
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
