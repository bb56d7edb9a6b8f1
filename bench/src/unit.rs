//! What a group's figures mean, and how they are written for people.

use serde::{Deserialize, Serialize};

/// The unit of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Less is better.
    #[serde(rename = "s")]
    Seconds,
    /// Operations per second: more is better.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Less is better.
    #[serde(rename = "bytes")]
    Bytes,
    /// A number of something: less is better.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    /// The figure with three digits and a fitting prefix: `12.3 ms`, `4.56 M/s`, `7.89 MiB`.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds => scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]),
            Unit::PerSecond => {
                scaled(value, &[(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")])
            }
            Unit::Bytes => {
                let steps =
                    [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];
                scaled(value, &steps)
            }
            Unit::Count => three_digits(value),
        }
    }

    /// How many times as costly `ours` is as `theirs`: above 1 is worse, whatever the unit.
    #[must_use]
    pub fn cost_ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Unit::Seconds | Unit::Bytes | Unit::Count => ours / theirs,
            Unit::PerSecond => theirs / ours,
        }
    }
}

/// The first step that the value reaches decides; below all of them the last one does.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let reached = steps.iter().find(|(step, _)| value >= *step).or(steps.last());
    let (step, name) = reached.copied().unwrap_or((1.0, ""));
    format!("{} {name}", three_digits(value / step))
}

/// As many decimals as make three digits.
#[must_use]
pub fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_fitting_prefix() {
        let check = |unit: Unit, value: f64, text: &str| assert_eq!(unit.show(value), text);
        check(Unit::Seconds, 3.1, "3.10 s");
        check(Unit::Seconds, 0.0123, "12.3 ms");
        check(Unit::Seconds, 0.000_456, "456 us");
        check(Unit::Seconds, 2.1e-8, "21.0 ns");
        check(Unit::PerSecond, 4_560_000.0, "4.56 M/s");
        check(Unit::PerSecond, 0.5, "0.50 /s");
        check(Unit::Bytes, 1024.0, "1.00 KiB");
        check(Unit::Bytes, 0.0, "0.00 B");
        check(Unit::Count, 14.0, "14.0");
    }

    #[test]
    fn a_slower_contestant_costs_more_in_every_unit() {
        assert!(Unit::Seconds.cost_ratio(2.0, 1.0) > 1.0);
        assert!(Unit::Bytes.cost_ratio(2.0, 1.0) > 1.0);
        assert!(Unit::PerSecond.cost_ratio(1.0, 2.0) > 1.0);
    }
}
