//! Budgets of contestants, and whether they are met.

use serde::Serialize;

use crate::run::Scale;
use crate::unit::{Unit, three_digits};

/// A limit for the median of a contestant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// No more than this, in the group's unit.
    AtMost(f64),
    /// No less than this, in the group's unit.
    AtLeast(f64),
    /// Costs no more than this many times what the named contestant costs.
    Within(f64, &'static str),
    /// Costs no more than the larger of the two: so many times what the named contestant costs.
    WithinEither([(f64, &'static str); 2]),
    /// No more than this above the named contestant, in the group's unit.
    Beyond(f64, &'static str),
    /// Costs at least this many times less than the named contestant.
    Faster(f64, &'static str),
    /// Holds no more than this many bytes for each object.
    BytesEach(f64),
}

/// The figures that a budget is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'f> {
    pub scale: Scale,
    pub unit: Unit,
    pub median: f64,
    /// The memory for each object, if it was measured.
    pub bytes_each: Option<f64>,
    /// Names and medians of the whole group.
    pub group: &'f [(&'static str, f64)],
}

/// A budget as text, and whether it is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Such as `<= 1.50 x floor`.
    pub budget: String,
    /// [`MET`], [`MISSED`] or [`NOT_JUDGED`].
    pub verdict: &'static str,
}

pub const MET: &str = "met";
pub const MISSED: &str = "MISSED";
/// The inputs had other sizes than the budget is for, or the other contestant is missing.
pub const NOT_JUDGED: &str = "not judged";

impl Budget {
    /// Compares the figures with the budget, which is for inputs of full size.
    #[must_use]
    pub fn judge(self, figures: &Figures<'_>) -> Verdict {
        let Figures { unit, median, bytes_each, .. } = *figures;
        let (budget, is_met) = match self {
            Budget::AtMost(most) => (format!("<= {}", unit.show(most)), Some(median <= most)),
            Budget::AtLeast(least) => (format!(">= {}", unit.show(least)), Some(median >= least)),
            Budget::Within(times, other) => {
                let cost = figures.cost_against(other);
                (format!("<= {} x {other}", three_digits(times)), cost.map(|cost| cost <= times))
            }
            Budget::WithinEither(limits) => {
                let texts =
                    limits.map(|(times, other)| format!("{} x {other}", three_digits(times)));
                let costs =
                    limits.map(|(times, other)| Some(figures.cost_against(other)? <= times));
                // Where a contestant is missing, only the other one can say that it is met.
                let is_met = match costs {
                    [Some(true), _] | [_, Some(true)] => Some(true),
                    [Some(false), Some(false)] => Some(false),
                    _ => None,
                };
                (format!("<= {}, or {}", texts[0], texts[1]), is_met)
            }
            Budget::Beyond(more, other) => {
                let theirs = figures.of(other);
                let is_met = theirs.map(|theirs| median <= theirs + more);
                (format!("<= {} above {other}", unit.show(more)), is_met)
            }
            Budget::Faster(times, other) => {
                let is_met = figures.cost_against(other).map(|cost| cost * times <= 1.0);
                (format!(">= {} x faster than {other}", three_digits(times)), is_met)
            }
            Budget::BytesEach(most) => {
                let is_met = bytes_each.map(|bytes| bytes <= most);
                (format!("<= {} B each", three_digits(most)), is_met)
            }
        };
        let verdict = match is_met {
            _ if figures.scale == Scale::Quick => NOT_JUDGED,
            Some(true) => MET,
            Some(false) => MISSED,
            None => NOT_JUDGED,
        };
        Verdict { budget, verdict }
    }
}

impl Figures<'_> {
    fn of(&self, other: &str) -> Option<f64> {
        self.group.iter().find(|(name, _)| *name == other).map(|(_, median)| *median)
    }

    fn cost_against(&self, other: &str) -> Option<f64> {
        Some(self.unit.cost_ratio(self.median, self.of(other)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(budget: Budget, unit: Unit, median: f64, expected: (&str, &str)) {
        let group = [("floor", 2.0), ("slow", 9.0)];
        let scale = Scale::Full;
        let figures = Figures { scale, unit, median, bytes_each: Some(40.0), group: &group };
        let verdict = budget.judge(&figures);
        assert_eq!((verdict.budget.as_str(), verdict.verdict), expected);
    }

    #[test]
    fn absolute_budgets_are_judged_in_the_unit() {
        check(Budget::AtMost(0.25), Unit::Seconds, 0.25, ("<= 250 ms", MET));
        check(Budget::AtMost(0.25), Unit::Seconds, 0.26, ("<= 250 ms", MISSED));
        check(Budget::AtLeast(1e6), Unit::PerSecond, 1e6, (">= 1.00 M/s", MET));
        check(Budget::AtLeast(1e6), Unit::PerSecond, 9e5, (">= 1.00 M/s", MISSED));
    }

    #[test]
    fn relative_budgets_are_judged_by_cost() {
        let within = Budget::Within(1.5, "floor");
        check(within, Unit::Seconds, 3.0, ("<= 1.50 x floor", MET));
        check(within, Unit::Seconds, 3.1, ("<= 1.50 x floor", MISSED));
        check(within, Unit::PerSecond, 1.5, ("<= 1.50 x floor", MET));
        check(within, Unit::PerSecond, 1.0, ("<= 1.50 x floor", MISSED));
        let faster = Budget::Faster(3.0, "slow");
        check(faster, Unit::Seconds, 3.0, (">= 3.00 x faster than slow", MET));
        check(faster, Unit::Seconds, 3.1, (">= 3.00 x faster than slow", MISSED));
        check(faster, Unit::PerSecond, 27.0, (">= 3.00 x faster than slow", MET));
    }

    #[test]
    fn what_another_one_costs_too_does_not_count() {
        check(Budget::Beyond(0.05, "floor"), Unit::Seconds, 2.05, ("<= 50.0 ms above floor", MET));
        check(
            Budget::Beyond(0.05, "floor"),
            Unit::Seconds,
            2.06,
            ("<= 50.0 ms above floor", MISSED),
        );
    }

    #[test]
    fn of_two_limits_the_larger_one_counts() {
        let limits = [(1.0, "floor"), (0.5, "slow")];
        let text = "<= 1.00 x floor, or 0.50 x slow";
        check(Budget::WithinEither(limits), Unit::Seconds, 4.5, (text, MET));
        check(Budget::WithinEither(limits), Unit::Seconds, 4.6, (text, MISSED));
        let limits = [(1.0, "floor"), (1.5, "nobody")];
        let text = "<= 1.00 x floor, or 1.50 x nobody";
        check(Budget::WithinEither(limits), Unit::Seconds, 2.0, (text, MET));
        check(Budget::WithinEither(limits), Unit::Seconds, 2.1, (text, NOT_JUDGED));
    }

    #[test]
    fn memory_is_judged_for_each_object() {
        check(Budget::BytesEach(40.0), Unit::Seconds, 1.0, ("<= 40.0 B each", MET));
        check(Budget::BytesEach(39.0), Unit::Seconds, 1.0, ("<= 39.0 B each", MISSED));
    }

    #[test]
    fn without_something_to_compare_there_is_no_verdict() {
        let budget = Budget::Within(1.5, "nobody");
        check(budget, Unit::Seconds, 1.0, ("<= 1.50 x nobody", NOT_JUDGED));
    }
}
