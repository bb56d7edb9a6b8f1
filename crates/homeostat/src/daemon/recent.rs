//! The ring of recent events, each as a line of JSON, and the way to follow them without a gap.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::{Event, EventKind, LedgerKey};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tracing::Level;

use super::clock::Stamp;
use crate::wire::FORMAT_VERSION;

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
    /// Nothing for what happened outside of any loop.
    event: Option<Arc<Event>>,
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
    /// Keeps an event of a loop.
    pub(super) fn take(&self, level: Level, event: &Event, at: Stamp) {
        let Event { pass, source, scope, kind, .. } = event;
        // The name of the event, which is part of its kind, comes first.
        let of_loop = json!({ "event": null, "pass": pass, "source": source, "scope": &**scope });
        let kind = serde_json::to_value(kind).unwrap_or_default();
        self.keep(&line(level, at, [of_loop, kind]), Some(event.clone()));
    }

    /// Keeps what happened to the daemon itself, outside of any loop.
    pub(super) fn record(&self, level: Level, event: &str, fields: Value) {
        self.keep(&line(level, Stamp::now(), [json!({ "event": event }), fields]), None);
    }

    fn keep(&self, text: &str, event: Option<Event>) {
        let mut ring = self.ring();
        let id = ring.back().map_or(1, |line| line.id + 1);
        let line = Line { id, text: text.into(), event: event.map(Arc::new) };
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(line.clone());
        // There may be no subscriber. Sent under the lock, so that a new subscriber misses nothing.
        let _ = self.next.send(line);
    }

    /// The line of the last step that was applied to a key.
    pub(super) fn last_applied(&self, ledger_key: &LedgerKey, key: &str) -> Option<Arc<str>> {
        let is_it = |event: &Event| {
            (event.source, &*event.scope) == (&*ledger_key.source, &*ledger_key.scope)
                && matches!(&event.kind, EventKind::StepApplied { key: applied, .. } if applied == key)
        };
        let ring = self.ring();
        let line = ring.iter().rev().find(|line| line.event.as_deref().is_some_and(is_it));
        line.map(|line| Arc::clone(&line.text))
    }

    /// The last events about a key, the newest first.
    pub(super) fn about(&self, ledger_key: &LedgerKey, key: &str, most: usize) -> Vec<Arc<str>> {
        let is_it = |event: &Event| {
            (event.source, &*event.scope) == (&*ledger_key.source, &*ledger_key.scope)
                && key_of(&event.kind) == Some(key)
        };
        let ring = self.ring();
        let about = ring.iter().rev();
        let about = about.filter(|line| line.event.as_deref().is_some_and(is_it));
        about.take(most).map(|line| Arc::clone(&line.text)).collect()
    }

    /// What happened lately, oldest first, and everything from then on.
    pub(super) fn follow(&self) -> (Vec<Line>, broadcast::Receiver<Line>) {
        let ring = self.ring();
        (ring.iter().cloned().collect(), self.next.subscribe())
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one key that an event is about.
fn key_of(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::StepApplied { key, .. }
        | EventKind::StepFailed { key, .. }
        | EventKind::Conflict { key, .. }
        | EventKind::Pending { key, .. }
        | EventKind::Contention { key, .. }
        | EventKind::NotConverging { key } => Some(key),
        _ => None,
    }
}

/// The fields of an event, in order.
fn line(level: Level, at: Stamp, fields: [Value; 2]) -> String {
    let level = level.as_str().to_ascii_lowercase();
    let mut line = Map::from_iter([
        ("time".to_owned(), at.to_string().into()),
        ("level".to_owned(), level.into()),
        ("format_version".to_owned(), FORMAT_VERSION.into()),
    ]);
    for fields in fields {
        line.extend(fields.as_object().cloned().unwrap_or_default());
    }
    Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homeostat_engine::{Action, Cause, Failure, PassId, Retry};

    use super::*;

    #[test]
    fn an_event_is_one_object_with_its_fields_in_the_documented_order() {
        let check = |kind: EventKind, expected: &str| {
            let recent = Recent::default();
            let event = Event::new(PassId(7), "rtnl", "host".into(), kind);
            recent.take(Level::INFO, &event, Stamp::of_millis(0));
            let (line, head) =
                (recent.follow().0.remove(0), r#"{"time":"1970-01-01T00:00:00.000Z","#);
            let rest = line.text.strip_prefix(head).unwrap();
            let rest =
                rest.strip_prefix(r#""level":"info","format_version":"1.0","event":"#).unwrap();
            assert_eq!(rest, expected);
        };
        let key = "route 10.0.0.0/8".to_owned();
        let (action, cause, by) = (Action::Create, Cause::Drift, Some("bird".into()));
        check(
            EventKind::StepApplied { action, key: key.clone(), cause, by },
            r#""step-applied","pass":7,"source":"rtnl","scope":"host","action":"create","key":"route 10.0.0.0/8","cause":"drift","by":"bird"}"#,
        );
        let failure = Failure::new("no", Retry::Soon);
        check(
            EventKind::StepFailed { action: None, key: key.clone(), failure },
            r#""step-failed","pass":7,"source":"rtnl","scope":"host","action":null,"key":"route 10.0.0.0/8","error":"no","help":null}"#,
        );
        let pause = Duration::from_millis(2);
        check(
            EventKind::Contention { key, culprit: "bird".to_owned(), pause },
            r#""contention","pass":7,"source":"rtnl","scope":"host","key":"route 10.0.0.0/8","culprit":"bird","pause_us":2000}"#,
        );
        check(
            EventKind::Paused { during: None },
            r#""paused","pass":7,"source":"rtnl","scope":"host","for_us":null}"#,
        );
        check(EventKind::Lost, r#""lost","pass":7,"source":"rtnl","scope":"host"}"#);
    }

    #[test]
    fn the_ring_is_bounded_and_who_follows_misses_nothing() {
        let recent = Recent::default();
        (0..KEPT).for_each(|number| recent.keep(&number.to_string(), None));
        let (before, mut after) = recent.follow();
        recent.keep("last", None);
        assert_eq!(before.last().map(|line| line.id), Some(1000));
        assert_eq!(after.try_recv().unwrap().id, 1001);
        let all = recent.follow().0;
        assert_eq!((all.len(), all[0].id, &*all[KEPT - 1].text), (KEPT, 2, "last"));
    }
}
