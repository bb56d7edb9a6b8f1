//! The table of what metrics show of every loop.

use homeostat_engine::Status;

/// One name in the metrics: what it says, and which sorts of it there are.
pub(super) struct Shown {
    pub(super) name: &'static str,
    pub(super) told: &'static str,
    /// The label that tells the sorts apart; empty where there is one only.
    pub(super) by: &'static str,
    pub(super) sorts: &'static [(&'static str, Read)],
}

/// How a number is read off a loop.
type Read = fn(&Status) -> u64;

/// What only grows.
pub(super) const COUNTS: &[Shown] = &[
    Shown {
        name: "passes",
        told: "Passes, by whether they looked at everything",
        by: "focus",
        sorts: &[("full", |status| status.counts.full), ("keys", |status| status.counts.focused)],
    },
    Shown {
        name: "passes_broken",
        told: "Passes that could not be made",
        by: "",
        sorts: &[("", |status| status.counts.broken)],
    },
    Shown {
        name: "steps",
        told: "Steps, by what became of them",
        by: "outcome",
        sorts: &[
            ("applied", |status| status.counts.applied),
            ("failed", |status| status.counts.failed),
        ],
    },
    Shown {
        name: "drift",
        told: "What had left its declared state, by what told of it",
        by: "found_by",
        sorts: &[
            ("hint", |status| status.counts.drift_by_hint),
            ("resync", |status| status.counts.drift_by_resync),
        ],
    },
    Shown {
        name: "hints_lost",
        told: "How often hints were lost",
        by: "",
        sorts: &[("", |status| status.counts.lost)],
    },
    Shown {
        name: "resubscriptions",
        told: "How often hints were asked for anew",
        by: "",
        sorts: &[("", |status| status.counts.resubscribed)],
    },
];

/// What is so at this moment.
pub(super) const STATES: &[Shown] = &[
    Shown {
        name: "converged",
        told: "Whether all is as declared",
        by: "",
        sorts: &[("", |status| status.is_converged.into())],
    },
    Shown {
        name: "ready",
        told: "Whether a full pass was made",
        by: "",
        sorts: &[("", |status| status.is_ready.into())],
    },
    Shown {
        name: "paused",
        told: "Whether passes are held off",
        by: "",
        sorts: &[("", |status| status.is_paused.into())],
    },
    Shown {
        name: "stalled",
        told: "Whether the loop is stuck",
        by: "",
        sorts: &[("", |status| status.stall.is_some().into())],
    },
    Shown {
        name: "contended",
        told: "Keys that somebody keeps undoing",
        by: "",
        sorts: &[("", |status| status.contended.len() as u64)],
    },
    Shown {
        name: "not_converging",
        told: "Keys whose writes never show",
        by: "",
        sorts: &[("", |status| status.not_converging.len() as u64)],
    },
    Shown {
        name: "failure_streak",
        told: "Passes in a row that could not be made",
        by: "",
        sorts: &[("", |status| status.failures.into())],
    },
];
