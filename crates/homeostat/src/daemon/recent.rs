//! The ring of recent events, each as a line of JSON, and the way to follow them without a gap.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::Event;
use serde_json::{Map, Value};
use tokio::sync::broadcast;
use tracing::Level;

use super::clock::Stamp;
use super::{json, log};

/// How many events are kept.
const KEPT: usize = 1000;

/// How many lines a slow reader may fall behind.
const BEHIND: usize = 1024;

/// One event as a line of JSON.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Counts from one, without holes.
    pub(super) id: u64,
    pub(super) text: Arc<str>,
}

/// The recent events, for any number of readers.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    ring: Arc<Mutex<VecDeque<Line>>>,
    next: broadcast::Sender<Line>,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { ring: Arc::default(), next: broadcast::channel(BEHIND).0 }
    }
}

impl Recent {
    /// Keeps an event that is worth a line. A pass that found nothing is not.
    pub(super) fn take(&self, event: &Event, at: Stamp) {
        let Some(level) = log::level(event) else { return };
        self.keep_event(level, at, json::event(event));
    }

    /// Keeps what happened to the daemon itself, outside of any loop.
    pub(super) fn record(&self, level: Level, event: &str, fields: Map<String, Value>) {
        let mut object = Map::new();
        object.insert("format_version".to_owned(), json::FORMAT_VERSION.into());
        object.insert("event".to_owned(), event.into());
        object.extend(fields);
        self.keep_event(level, Stamp::now(), object);
    }

    fn keep_event(&self, level: Level, at: Stamp, event: Map<String, Value>) {
        let mut object = Map::new();
        object.insert("time".to_owned(), at.to_string().into());
        object.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        object.extend(event);
        self.keep(&Value::Object(object).to_string());
    }

    fn keep(&self, text: &str) {
        let mut ring = self.ring();
        let id = ring.back().map_or(1, |line| line.id + 1);
        let line = Line { id, text: text.into() };
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(line.clone());
        // Nobody needs to follow. Sent under the lock, so that who subscribes misses nothing.
        let _ = self.next.send(line);
    }

    /// What happened lately, oldest first.
    pub(super) fn all(&self) -> Vec<Line> {
        self.ring().iter().cloned().collect()
    }

    /// What happened lately, and everything from then on.
    pub(super) fn follow(&self) -> (Vec<Line>, broadcast::Receiver<Line>) {
        let ring = self.ring();
        (ring.iter().cloned().collect(), self.next.subscribe())
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_who_follows_misses_nothing() {
        let recent = Recent::default();
        (0..KEPT).for_each(|number| recent.keep(&number.to_string()));
        let (before, mut after) = recent.follow();
        recent.keep("last");
        assert_eq!(before.last().map(|line| line.id), Some(1000));
        assert_eq!(after.try_recv().unwrap().id, 1001);
        let all = recent.all();
        assert_eq!((all.len(), all[0].id, &*all[KEPT - 1].text), (KEPT, 2, "last"));
    }
}
