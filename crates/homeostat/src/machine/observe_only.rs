//! The plan of a source that only observes: what differs is reported, and held back.

use homeostat_engine::{Entry, Explain, Finding, HeldBy, Kind, LedgerKey, Line, Summary};

use crate::output::line::values;

/// A plan that is not applied.
pub(crate) struct ObserveOnlyPlan {
    plan: Box<dyn Explain>,
    source: String,
}

impl ObserveOnlyPlan {
    /// A plan that was made in `place`.
    pub(crate) fn of(plan: Box<dyn Explain>, place: &LedgerKey) -> Self {
        ObserveOnlyPlan { plan, source: place.source.clone() }
    }

    fn hold(&self, line: &Line) -> Entry {
        let why = format!(
            "{} is only reported: `mode` is \"observe\" in [settings.{}]",
            values(line).unwrap_or_else(|| "it".to_owned()),
            self.source
        );
        Entry::Finding {
            key: line.key.clone(),
            finding: Finding::Held { action: line.action, by: HeldBy::ObserveOnly, why },
        }
    }
}

impl Explain for ObserveOnlyPlan {
    fn explain(&self, kind: Kind, report: &mut dyn FnMut(Entry)) {
        if kind == Kind::Held {
            self.plan.explain(Kind::Change, &mut |entry| {
                if let Entry::Change(line, _) = entry {
                    report(self.hold(&line));
                }
            });
        }
        if kind != Kind::Change {
            self.plan.explain(kind, report);
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        self.plan.is_converged()
    }
}
