//! The counters and gauges of every loop, as a table.

use homeostat_engine::{Kind, OpenCounts, Status};

use self::MetricKind::{Counter, Gauge};

pub(super) struct LoopMetric {
    pub(super) kind: MetricKind,
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Empty if there is only one value.
    pub(super) label: &'static str,
    pub(super) read: Read,
}

pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// Reads the numbers from a loop's status, with the value of the label of each.
type Read = fn(&Status) -> Vec<(&'static str, u64)>;

pub(super) const LOOP_METRICS: &[LoopMetric] = &[
    metric(Counter, "passes", "Passes, over everything or over single keys", "focus", |status| {
        vec![("full", status.counts.full), ("keys", status.counts.focused)]
    }),
    metric(Counter, "passes_broken", "Passes that failed as a whole", "", |status| {
        vec![("", status.counts.broken)]
    }),
    metric(Counter, "steps", "Steps, by outcome", "outcome", |status| {
        vec![("applied", status.counts.applied), ("failed", status.counts.failed)]
    }),
    metric(Counter, "drift", "Keys that drifted, by what found them", "found_by", |status| {
        vec![("hint", status.counts.drift_by_hint), ("resync", status.counts.drift_by_resync)]
    }),
    metric(Counter, "hints_lost", "Times that hints were lost", "", |status| {
        vec![("", status.counts.lost)]
    }),
    metric(
        Counter,
        "resubscriptions",
        "Times that the subscription was opened again",
        "",
        |status| vec![("", status.counts.resubscribed)],
    ),
    metric(Gauge, "open", "Keys that are not as declared, by reason", "why", |status| {
        let counts = Kind::open().map(|kind| (kind, status.open.count(kind)));
        counts.map(|(kind, count)| (OpenCounts::kind_name(kind), count as u64)).collect()
    }),
    metric(Gauge, "converged", "Whether everything is as declared", "", |status| {
        vec![("", status.is_converged.into())]
    }),
    metric(Gauge, "ready", "Whether the first full pass has completed", "", |status| {
        vec![("", status.is_ready.into())]
    }),
    metric(Gauge, "paused", "Whether passes are paused", "", |status| {
        vec![("", status.is_paused.into())]
    }),
    metric(Gauge, "stalled", "Whether the loop is stuck", "", |status| {
        vec![("", status.stall.is_some().into())]
    }),
    metric(Gauge, "contended", "Keys that another program keeps changing", "", |status| {
        vec![("", status.contended.len() as u64)]
    }),
    metric(
        Gauge,
        "not_converging",
        "Keys whose writes succeed but never read back",
        "",
        |status| vec![("", status.not_converging.len() as u64)],
    ),
    metric(Gauge, "failure_streak", "Passes in a row that failed as a whole", "", |status| {
        vec![("", status.failures.into())]
    }),
];

const fn metric(
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: Read,
) -> LoopMetric {
    LoopMetric { kind, name, help, label, read }
}
