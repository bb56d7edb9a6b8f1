//! What the page learns while it is open: heals as they happen, and the headline when it changes. Every frame is made
//! once, however many pages are open, and none is made while no page is.

use std::time::Duration;

use homeostat_engine::Event;
use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::clock::Stamp;
use super::drift::{DriftLog, Healed};
use super::headline::Headline;
use super::loops_snapshot::LoopsSnapshot;

/// How many frames a slow page may fall behind.
const BEHIND: usize = 1024;

/// How long changes are collected before the headline is made again.
const CALM: Duration = Duration::from_millis(200);

/// The frames of server-sent events for all open pages.
#[derive(Clone, Debug)]
pub(super) struct Live {
    frames: broadcast::Sender<Bytes>,
    pub(super) drift: DriftLog,
}

impl Default for Live {
    fn default() -> Self {
        Live { frames: broadcast::channel(BEHIND).0, drift: DriftLog::default() }
    }
}

impl Live {
    /// Learns from an event.
    pub(super) fn take(&self, event: &Event, at: Stamp) {
        let healed = self.drift.take(event, at);
        if self.frames.receiver_count() > 0 {
            for row in &healed {
                // The last page may just have been closed.
                let _ = self.frames.send(drift_frame(row));
            }
        }
    }

    /// What a page that knows of all heals up to `after` has missed, oldest first, and everything from then on.
    pub(super) fn follow(
        &self,
        snapshot: &watch::Receiver<LoopsSnapshot>,
        after: u64,
    ) -> (Vec<Bytes>, broadcast::Receiver<Bytes>) {
        // Subscribed first: a heal that comes in between is sent twice, and known by its number.
        let next = self.frames.subscribe();
        let (rows, _) = self.drift.rows();
        let missed = rows.iter().rev().filter(|row| row.id > after).map(drift_frame);
        let headline = headline_frame(&snapshot.borrow().headline());
        (std::iter::once(headline).chain(missed).collect(), next)
    }

    /// Sends the headline whenever it changes.
    pub(super) async fn send_headlines(
        self,
        mut snapshot: watch::Receiver<LoopsSnapshot>,
        mut events: broadcast::Receiver<Event>,
    ) {
        let mut last = Bytes::new();
        loop {
            tokio::select! {
                changed = snapshot.changed() => if changed.is_err() { return },
                event = events.recv() => if let Err(RecvError::Closed) = event { return },
            }
            if self.frames.receiver_count() == 0 {
                continue;
            }
            tokio::time::sleep(CALM).await;
            // What came meanwhile is in what is read now.
            events = events.resubscribe();
            let headline = headline_frame(&snapshot.borrow_and_update().headline());
            if headline != last {
                last.clone_from(&headline);
                // The last page may just have been closed.
                let _ = self.frames.send(headline);
            }
        }
    }
}

fn headline_frame(headline: &Headline) -> Bytes {
    let text = serde_json::to_string(headline).unwrap_or_default();
    format!("event: headline\ndata: {text}\n\n").into()
}

fn drift_frame(healed: &Healed) -> Bytes {
    let row = json!({
        "id": healed.id,
        "row": healed.row,
        "time": healed.at.to_string(),
        "clock": healed.at.clock(),
        "what": healed.action.word(),
        "source": healed.source,
        "scope": &*healed.scope,
        "key": &*healed.key,
        "by": healed.by.as_deref(),
        "took": healed.took.map(in_words),
        "times": healed.times,
    });
    format!("id: {}\nevent: drift\ndata: {row}\n\n", healed.id).into()
}

/// A short time, in the unit that fits.
pub(super) fn in_words(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..1000.0 => format!("{micros:.0} \u{b5}s"),
        ..10_000.0 => format!("{:.1} ms", micros / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}
