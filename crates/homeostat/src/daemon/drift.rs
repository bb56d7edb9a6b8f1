//! What was healed lately: each key once for each culprit, the newest first, with how often and how long it took; and
//! how long healing took since the start. It learns from events, and nothing is decided by it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_engine::pacing::Reason;
use homeostat_engine::{Action, Cause, Event, EventKind};

use super::clock::Stamp;
use super::metrics::BUCKETS;

/// How many different heals are kept.
pub(super) const KEPT: usize = 200;

/// A heal, with those before it that were the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Healed {
    /// Counts from one; the newest has the highest.
    pub(super) id: u64,
    /// The same for all heals that are folded into one row.
    pub(super) row: u64,
    pub(super) at: Stamp,
    pub(super) source: &'static str,
    pub(super) scope: Arc<str>,
    pub(super) action: Action,
    pub(super) key: Arc<str>,
    /// Who caused it, where the target says so.
    pub(super) by: Option<Arc<str>>,
    /// From the event of the target to the end of the pass; nothing if a full look found it, as then nobody knows when it
    /// began.
    pub(super) took: Option<Duration>,
    pub(super) times: u64,
}

/// How long healing took, counted in the same steps as the histogram of the metrics. The last count is of what took
/// longer than the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latencies {
    pub(super) counts: [u64; BUCKETS.len() + 1],
    pub(super) longest: Duration,
}

impl Latencies {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BUCKETS.partition_point(|most| *most < seconds);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.longest = self.longest.max(took);
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The bound that this part of all heals, in percent, did not exceed. It is that of a step, or the longest.
    pub(super) fn bound(&self, percent: u64) -> Duration {
        let wanted = (self.total() * percent).div_ceil(100);
        let mut seen = 0;
        for (count, most) in self.counts.iter().zip(BUCKETS) {
            seen += count;
            if seen >= wanted {
                return Duration::from_secs_f64(most).min(self.longest);
            }
        }
        self.longest
    }
}

/// What was healed lately. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct DriftLog(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// The newest first.
    rows: VecDeque<Healed>,
    running: BTreeMap<(&'static str, Arc<str>), Pass>,
    latencies: BTreeMap<&'static str, Latencies>,
    last: u64,
    /// Heals that were counted only: a pass names the first hundred.
    unnamed: u64,
}

/// The pass that a loop is in.
#[derive(Debug, Default)]
struct Pass {
    waited: Duration,
    is_hinted: bool,
    healed: Vec<(Action, Arc<str>, Option<Arc<str>>)>,
    more: usize,
}

impl DriftLog {
    /// Learns from an event. Returns the heals that are known because of it.
    pub(super) fn take(&self, event: &Event, at: Stamp) -> Vec<Healed> {
        let mut inner = self.inner();
        let place = (event.source, Arc::clone(&event.scope));
        match &event.kind {
            EventKind::Started { reasons, waited, .. } => {
                let (waited, is_hinted) = (*waited, reasons.contains(Reason::Hint));
                let pass = Pass { waited, is_hinted, ..Pass::default() };
                let former = inner.running.insert(place.clone(), pass);
                // A pass that ended without a result has healed what it said.
                former.map(|former| inner.add(&place, former, None, at)).unwrap_or_default()
            }
            EventKind::StepApplied { action, key, cause: Cause::Drift, by } => {
                let pass = inner.running.entry(place).or_default();
                pass.healed.push((*action, key.as_str().into(), by.clone()));
                Vec::new()
            }
            EventKind::More { steps } => {
                let pass = inner.running.entry(place).or_default();
                pass.more += steps;
                Vec::new()
            }
            EventKind::Completed { took, .. } => {
                let Some(pass) = inner.running.remove(&place) else { return Vec::new() };
                let took = pass.is_hinted.then_some(pass.waited + *took);
                inner.add(&place, pass, took, at)
            }
            EventKind::Stopped => {
                inner.running.remove(&place);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The heals, the newest first, and how many were counted without their names.
    pub(super) fn rows(&self) -> (Vec<Healed>, u64) {
        let inner = self.inner();
        (inner.rows.iter().cloned().collect(), inner.unnamed)
    }

    /// How long healing took, by source.
    pub(super) fn latencies(&self) -> BTreeMap<&'static str, Latencies> {
        self.inner().latencies.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(
        &mut self,
        (source, scope): &(&'static str, Arc<str>),
        pass: Pass,
        took: Option<Duration>,
        at: Stamp,
    ) -> Vec<Healed> {
        let mut added = Vec::with_capacity(pass.healed.len());
        if !pass.healed.is_empty() {
            self.unnamed += pass.more as u64;
        }
        for (action, key, by) in pass.healed {
            if let Some(took) = took {
                self.latencies.entry(source).or_default().add(took);
            }
            let is_same = |row: &Healed| {
                (row.source, &row.scope, &row.key) == (*source, scope, &key)
                    && (row.action, &row.by) == (action, &by)
            };
            let former = self.rows.iter().position(is_same).and_then(|at| self.rows.remove(at));
            self.last += 1;
            let id = self.last;
            let row = former.as_ref().map_or(id, |former| former.row);
            let times = former.map_or(1, |former| former.times + 1);
            let (source, scope) = (*source, Arc::clone(scope));
            let healed = Healed { id, row, at, source, scope, action, key, by, took, times };
            self.rows.push_front(healed.clone());
            self.rows.truncate(KEPT);
            added.push(healed);
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use homeostat_engine::{PassId, Summary};

    use super::*;

    fn take(log: &DriftLog, kind: EventKind) -> Vec<Healed> {
        log.take(&Event::new(PassId(1), "rtnl", "host".into(), kind), Stamp::of_millis(0))
    }

    fn heal(log: &DriftLog, reason: Reason, key: &str, by: Option<&str>) {
        let (reasons, waited) = (reason.into(), Duration::from_micros(100));
        take(log, EventKind::Started { reasons, keys: None, waited });
        let (action, by) = (Action::Create, by.map(Arc::from));
        let cause = Cause::Drift;
        take(log, EventKind::StepApplied { action, key: key.to_owned(), cause, by });
        let (summary, took) = (Summary::default(), Duration::from_micros(300));
        take(log, EventKind::Completed { summary, converged: true, took });
    }

    #[test]
    fn the_same_heal_is_one_row_with_its_number_and_the_newest_is_first() {
        let log = DriftLog::default();
        heal(&log, Reason::Hint, "route 10.0.0.0/8", Some("bird"));
        heal(&log, Reason::Hint, "route 10.1.0.0/16", None);
        heal(&log, Reason::Hint, "route 10.0.0.0/8", Some("bird"));
        heal(&log, Reason::Resync, "route 10.0.0.0/8", None);
        let (rows, _) = log.rows();
        let rows: Vec<_> = rows.iter().map(|row| (&*row.key, row.times, row.took)).collect();
        let took = Some(Duration::from_micros(400));
        assert_eq!(
            rows,
            [
                ("route 10.0.0.0/8", 1, None),
                ("route 10.0.0.0/8", 2, took),
                ("route 10.1.0.0/16", 1, took)
            ]
        );
        assert_eq!(log.latencies()["rtnl"].total(), 3, "the one of the resync has none");
    }

    #[test]
    fn what_a_document_changes_is_no_drift() {
        let log = DriftLog::default();
        let (action, key, cause) = (Action::Create, "route ::/0".to_owned(), Cause::Config);
        take(&log, EventKind::StepApplied { action, key, cause, by: None });
        let (summary, took) = (Summary::default(), Duration::from_micros(300));
        assert!(take(&log, EventKind::Completed { summary, converged: true, took }).is_empty());
    }

    #[test]
    fn only_so_many_rows_are_kept() {
        let log = DriftLog::default();
        (0..2 * KEPT).for_each(|at| heal(&log, Reason::Hint, &format!("route {at}"), None));
        let (rows, _) = log.rows();
        assert_eq!((rows.len(), &*rows[0].key), (KEPT, "route 399"));
    }

    #[test]
    fn a_part_of_all_heals_did_not_take_longer_than_its_bound() {
        let mut latencies = Latencies::default();
        (0..99).for_each(|_| latencies.add(Duration::from_micros(80)));
        latencies.add(Duration::from_millis(7));
        assert_eq!(latencies.bound(50), Duration::from_micros(100));
        assert_eq!(latencies.bound(99), Duration::from_micros(100));
        assert_eq!(latencies.bound(100), Duration::from_millis(7), "not 10 ms, its step");
        latencies.add(Duration::from_mins(2));
        assert_eq!(latencies.bound(100), Duration::from_mins(2));
    }
}
