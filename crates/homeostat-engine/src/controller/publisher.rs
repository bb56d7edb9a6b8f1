//! What others see of a loop: its status, and events. Nothing that must be right depends on either being read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::pacing::{Reason, Time};
use homeostat_core::{
    Cause, Entry, Explain, Finding, Fingerprint, Focus, Key, Kind, Phase, Sampler, Summary,
};
use tokio::sync::watch;

use super::event::{Event, EventKind, Events, PassId};
use super::scheduler::PassRequest;
use super::status::Status;

/// How many steps of one pass become events of their own.
const MOST_STEPS: usize = 1000;

/// How many failures, conflicts and waits of one pass become events of their own.
const MOST_FAILURES: usize = 100;

/// How many keys of one wakeup are named: a million may be lost at once.
const MOST_WOKEN: usize = 100;

/// A failure, a conflict or a wait that lasts becomes an event again after this time.
const REPEAT_AFTER: Duration = Duration::from_hours(1);

/// Publishes the status and the events of one loop.
pub(super) struct Publisher {
    source: &'static str,
    scope: Arc<str>,
    pass: PassId,
    events: Events,
    /// Events that are sent with the next one.
    queued: Vec<Event>,
    pub(super) status: watch::Sender<Status>,
    reported: ReportedFailures,
}

impl Publisher {
    pub(super) fn new(
        source: &'static str,
        scope: Arc<str>,
        events: Events,
        status: watch::Sender<Status>,
    ) -> Self {
        let (pass, reported) = (PassId::default(), ReportedFailures::default());
        Publisher { source, scope, pass, events, queued: Vec::new(), status, reported }
    }

    /// Whether events have a subscriber.
    pub(super) fn has_listeners(&self) -> bool {
        self.events.has_listeners()
    }

    pub(super) fn emit(&mut self, kind: EventKind) {
        self.queue(kind);
        for event in self.queued.drain(..) {
            self.events.publish(event);
        }
    }

    /// Something asked for a pass over some keys, or over everything.
    pub(super) fn woken<K: ToString>(
        &mut self,
        reason: Reason,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
        by: Option<Arc<str>>,
    ) {
        if self.has_listeners() {
            let mut keys = keys.into_iter();
            let named = keys.by_ref().take(MOST_WOKEN).map(|key| key.to_string()).collect();
            let (reasons, more) = (reason.into(), keys.len());
            self.emit(EventKind::Woken { reasons, keys: named, more, by });
        }
    }

    /// Publishes what happened within the source.
    pub(super) fn emit_phases(&mut self, phases: Vec<Phase>) {
        for phase in phases {
            self.emit(phase.into());
        }
    }

    /// Sends an event together with the next one. Each that is sent alone wakes all who listen, thousands of times a
    /// minute for the resyncs of a thousand loops.
    fn queue(&mut self, kind: EventKind) {
        if self.has_listeners() {
            let (pass, source, scope) = (self.pass, self.source, Arc::clone(&self.scope));
            self.queued.push(Event { pass, source, scope, kind });
        }
    }

    /// What differs is known. That nothing does is sent with the end of the pass.
    pub(super) fn planned(&mut self, summary: Summary, is_empty: bool) {
        let kind = EventKind::Planned { summary };
        if is_empty { self.queue(kind) } else { self.emit(kind) }
    }

    pub(super) fn pass_started<K>(&mut self, request: &PassRequest<K>, now: Time) {
        self.pass = PassId(self.pass.0 + 1);
        let (pass, keys) = (self.pass, request.key_count());
        self.status.send_modify(|status| {
            (status.pass, status.last_attempt) = (pass, Some(now));
            match keys {
                None => status.counts.full += 1,
                Some(_) => status.counts.focused += 1,
            }
        });
        let kind = EventKind::Started { reasons: request.reasons, keys, waited: request.waited };
        // The start of a resync is sent together with what it finds.
        if request.reasons == Reason::Resync.into() { self.queue(kind) } else { self.emit(kind) }
    }

    /// Emits the outcomes of the steps of a pass. Those beyond the limits are only counted. `culprit` says who changed a
    /// key.
    pub(super) fn emit_steps<K: Key>(
        &mut self,
        report: &dyn Explain,
        now: Time,
        culprit: impl Fn(&K) -> Option<Arc<str>>,
    ) {
        if !self.has_listeners() {
            return;
        }
        if self.reported.expires.is_none_or(|expires| expires <= now) {
            let expires = Some(now.after(REPEAT_AFTER));
            self.reported = ReportedFailures { last: HashMap::new(), expires };
        }
        let culprit = |key: &str| key.parse().ok().and_then(|key| culprit(&key));
        let mut events =
            StepEvents { publisher: self, culprit, steps: 0, failures: 0, left_out: 0 };
        report.sample(Kind::Applied, &mut events);
        for kind in [Kind::Failed, Kind::Conflict, Kind::Pending] {
            report.explain(kind, &mut |entry| events.take(entry));
        }
        let left_out = events.left_out;
        if left_out > 0 {
            self.emit(EventKind::More { steps: left_out });
        }
    }

    /// A pass over `focus` has ended, and only `open` is not as declared: other failures are over.
    pub(super) fn forget_cured<K: Key, V>(&mut self, focus: &Focus<K>, open: &BTreeMap<K, V>) {
        let last = &mut self.reported.last;
        match focus {
            _ if last.is_empty() => {}
            Focus::All => {
                let still: HashSet<u64> = open.keys().map(Fingerprint::of_text).collect();
                last.retain(|key, _| still.contains(key));
            }
            Focus::Keys(keys) => {
                for key in keys.iter().filter(|key| !open.contains_key(key)) {
                    last.remove(&Fingerprint::of_text(key));
                }
            }
        }
    }
}

/// The steps of one pass on their way to be events.
struct StepEvents<'a, C> {
    publisher: &'a mut Publisher,
    /// Says who changed a key.
    culprit: C,
    steps: usize,
    failures: usize,
    left_out: usize,
}

impl<C: Fn(&str) -> Option<Arc<str>>> Sampler for StepEvents<'_, C> {
    fn wants(&mut self, _: Cause) -> bool {
        let has_room = self.steps < MOST_STEPS;
        self.left_out += usize::from(!has_room);
        has_room
    }

    fn take(&mut self, entry: Entry) {
        let event = event_of(entry).filter(|event| self.publisher.reported.is_new(event));
        let Some(mut event) = event else { return };
        self.steps += 1;
        self.failures += usize::from(!matches!(event, EventKind::StepApplied { .. }));
        if self.steps > MOST_STEPS || self.failures > MOST_FAILURES {
            self.left_out += 1;
            return;
        }
        if let EventKind::StepApplied { key, cause: Cause::Drift, by, .. } = &mut event {
            *by = (self.culprit)(key);
        }
        self.publisher.emit(event);
    }
}

fn event_of(entry: Entry) -> Option<EventKind> {
    match entry {
        Entry::Applied(line, cause) => {
            Some(EventKind::StepApplied { action: line.action, key: line.key, cause, by: None })
        }
        Entry::Finding { key, finding } => match finding {
            Finding::Failed { action, failure } => {
                Some(EventKind::StepFailed { action, key, failure })
            }
            Finding::NotShown { action, failure } => {
                Some(EventKind::StepFailed { action: Some(action), key, failure })
            }
            Finding::Conflict { owner, .. } => {
                Some(EventKind::Conflict { key, owner: owner.to_string() })
            }
            Finding::Pending { on } => Some(EventKind::Pending { key, on }),
            _ => None,
        },
        Entry::Pass { about, failure } => {
            Some(EventKind::StepFailed { action: None, key: about.name().to_owned(), failure })
        }
        _ => None,
    }
}

/// The failures, conflicts and waits that were published and still last. One that ends in the same way after another
/// try is not published again before [`REPEAT_AFTER`].
#[derive(Debug, Default)]
struct ReportedFailures {
    /// Fingerprints of the texts, by fingerprints of the keys: there may be a million.
    last: HashMap<u64, u64>,
    /// When all of them are published again.
    expires: Option<Time>,
}

impl ReportedFailures {
    /// Whether this was not published yet. A failure, a conflict or a wait is remembered from here on.
    fn is_new(&mut self, event: &EventKind) -> bool {
        let (key, text) = match event {
            EventKind::StepFailed { key, failure, .. } => {
                (key, Fingerprint::of_text(&failure.error))
            }
            EventKind::Conflict { key, owner } => (key, Fingerprint::of_text(owner)),
            EventKind::Pending { key, on } => (key, Fingerprint::of_text(on)),
            _ => return true,
        };
        self.last.insert(Fingerprint::of_text(key), text) != Some(text)
    }
}

#[cfg(test)]
mod tests {
    use homeostat_core::{Action, Line, WaitsOn};

    use super::*;

    /// A report of keys that wait for the same.
    struct Waits {
        keys: Vec<String>,
        on: WaitsOn,
    }

    impl Explain for Waits {
        fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
            for key in self.keys.iter().filter(|_| kind == Kind::Pending) {
                let finding = Finding::Pending { on: self.on.clone() };
                emit(Entry::Finding { key: key.clone(), finding });
            }
        }

        fn summary(&self) -> Summary {
            Summary::default()
        }

        fn is_converged(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_wait_is_published_when_it_begins_when_its_reason_changes_and_once_an_hour() {
        let events = Events::default();
        let mut received = events.subscribe();
        let status = watch::channel(Status::default()).0;
        let mut publisher = Publisher::new("memory", "test".into(), events, status);
        let mut publish = |publisher: &mut Publisher, on: &WaitsOn, seconds| {
            let report =
                Waits { keys: (0..150).map(|key| key.to_string()).collect(), on: on.clone() };
            let now = Time::from_epoch(Duration::from_secs(seconds));
            publisher.emit_steps(&report, now, |_: &u32| None);
            let (mut waits, mut more) = (0, 0);
            while let Ok(event) = received.try_recv() {
                match event.kind {
                    EventKind::Pending { on: waits_on, .. } if waits_on == *on => waits += 1,
                    EventKind::More { steps } => more += steps,
                    other => panic!("{other:?}"),
                }
            }
            (waits, more)
        };
        let [eth0, eth1] = ["eth0", "eth1"].map(WaitsOn::link);
        assert_eq!(publish(&mut publisher, &eth0, 0), (100, 50));
        assert_eq!(publish(&mut publisher, &eth0, 1), (0, 0), "nothing new");
        assert_eq!(publish(&mut publisher, &eth1, 2), (100, 50));
        assert_eq!(publish(&mut publisher, &eth1, 3600), (100, 50), "an hour has passed");
        publisher.forget_cured(&Focus::<u32>::All, &BTreeMap::from([(7, "open")]));
        assert_eq!(publish(&mut publisher, &eth1, 3601), (100, 49), "all but one began again");
    }

    /// A publisher, and what it publishes.
    fn publisher() -> (Publisher, tokio::sync::broadcast::Receiver<Event>) {
        let (events, status) = (Events::default(), watch::channel(Status::default()).0);
        let received = events.subscribe();
        (Publisher::new("memory", "test".into(), events, status), received)
    }

    #[test]
    fn of_a_wakeup_for_very_many_keys_a_hundred_are_named() {
        for (count, named) in [(0, 0), (100, 100), (50_000, 100)] {
            let (mut publisher, mut received) = publisher();
            publisher.woken(Reason::Hint, 0..count, Some("bird".into()));
            let keys = (0..named).map(|key| key.to_string()).collect();
            let (reasons, by, more) = (Reason::Hint.into(), Some("bird".into()), count - named);
            let expected = EventKind::Woken { reasons, keys, more, by };
            assert_eq!(received.try_recv().unwrap().kind, expected);
        }
    }

    /// Steps that were applied. Their texts are made only for events that have a subscriber.
    struct Healed(usize);

    impl Explain for Healed {
        fn explain(&self, kind: Kind, _: &mut dyn FnMut(Entry)) {
            assert_ne!(kind, Kind::Applied);
        }

        fn sample(&self, kind: Kind, sampler: &mut dyn Sampler) {
            assert_eq!(kind, Kind::Applied);
            for key in 0..self.0 {
                if sampler.wants(Cause::Drift) {
                    let line = Line::new(Action::Create, key.to_string());
                    sampler.take(Entry::Applied(line, Cause::Drift));
                }
            }
        }

        fn summary(&self) -> Summary {
            Summary::default()
        }

        fn is_converged(&self) -> bool {
            true
        }
    }

    #[test]
    fn of_very_many_applied_steps_a_thousand_are_put_into_words_with_who_gave_cause() {
        let (mut publisher, mut received) = publisher();
        let culprit = |key: &u32| (*key == 7).then(|| "bird".into());
        publisher.emit_steps(&Healed(10_000), Time::EPOCH, culprit);
        let (mut applied, mut named, mut more) = (0, Vec::new(), 0);
        while let Ok(event) = received.try_recv() {
            match event.kind {
                EventKind::StepApplied { key, by, .. } => {
                    applied += 1;
                    named.extend(by.map(|_| key));
                }
                EventKind::More { steps } => more += steps,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((applied, named, more), (1000, vec!["7".to_owned()], 9000));
    }
}
