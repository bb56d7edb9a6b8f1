//! The counters and gauges of every loop, as a table.

use homeostat_engine::Status;

/// One metric of a loop, with a value for each value of its label.
pub(super) struct LoopMetric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Empty if there is only one value.
    pub(super) label: &'static str,
    pub(super) values: &'static [(&'static str, Read)],
}

/// Reads the number from a loop's status.
type Read = fn(&Status) -> u64;

/// Counters.
pub(super) const COUNTS: &[LoopMetric] = &[
    LoopMetric {
        name: "passes",
        help: "Passes, over everything or over single keys",
        label: "focus",
        values: &[("full", |status| status.counts.full), ("keys", |status| status.counts.focused)],
    },
    LoopMetric {
        name: "passes_broken",
        help: "Passes that failed as a whole",
        label: "",
        values: &[("", |status| status.counts.broken)],
    },
    LoopMetric {
        name: "steps",
        help: "Steps, by outcome",
        label: "outcome",
        values: &[
            ("applied", |status| status.counts.applied),
            ("failed", |status| status.counts.failed),
        ],
    },
    LoopMetric {
        name: "drift",
        help: "Keys that drifted, by what found them",
        label: "found_by",
        values: &[
            ("hint", |status| status.counts.drift_by_hint),
            ("resync", |status| status.counts.drift_by_resync),
        ],
    },
    LoopMetric {
        name: "hints_lost",
        help: "Times that hints were lost",
        label: "",
        values: &[("", |status| status.counts.lost)],
    },
    LoopMetric {
        name: "resubscriptions",
        help: "Times that the subscription was opened again",
        label: "",
        values: &[("", |status| status.counts.resubscribed)],
    },
];

/// Gauges.
pub(super) const STATES: &[LoopMetric] = &[
    LoopMetric {
        name: "converged",
        help: "Whether everything is as declared",
        label: "",
        values: &[("", |status| status.is_converged.into())],
    },
    LoopMetric {
        name: "ready",
        help: "Whether the first full pass has completed",
        label: "",
        values: &[("", |status| status.is_ready.into())],
    },
    LoopMetric {
        name: "paused",
        help: "Whether passes are paused",
        label: "",
        values: &[("", |status| status.is_paused.into())],
    },
    LoopMetric {
        name: "stalled",
        help: "Whether the loop is stuck",
        label: "",
        values: &[("", |status| status.stall.is_some().into())],
    },
    LoopMetric {
        name: "contended",
        help: "Keys that another program keeps changing",
        label: "",
        values: &[("", |status| status.contended.len() as u64)],
    },
    LoopMetric {
        name: "not_converging",
        help: "Keys whose writes succeed but never read back",
        label: "",
        values: &[("", |status| status.not_converging.len() as u64)],
    },
    LoopMetric {
        name: "failure_streak",
        help: "Passes in a row that failed as a whole",
        label: "",
        values: &[("", |status| status.failures.into())],
    },
];
