//! The figures of a whole run.

use serde::Serialize;

use crate::budget::Verdict;
use crate::machine::Machine;
use crate::run::{Memory, Sample, Scale};
use crate::unit::Unit;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    pub machine: Machine,
    /// How often each contestant ran, at most.
    pub rounds: usize,
    pub scale: Scale,
    /// One per contestant, groups together.
    pub rows: Vec<Row>,
    /// Contestants that were left out.
    #[serde(rename = "left_out")]
    pub absent: Vec<Absent>,
}

/// A contestant that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Absent {
    pub group: &'static str,
    pub contestant: &'static str,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub group: &'static str,
    pub contestant: &'static str,
    pub unit: Unit,
    /// Over all rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// Its median divided by that of the group's first contestant.
    #[serde(rename = "ratio_to_first")]
    pub ratio: f64,
    /// Median of the CPU seconds of its thread, if all rounds were timed.
    #[serde(rename = "at_work_seconds")]
    pub at_work: Option<f64>,
    /// Median of what it holds, maximum of its peaks.
    pub memory: Option<Memory>,
    /// One per budget.
    #[serde(rename = "budgets")]
    pub verdicts: Vec<Verdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of the values of at least one round.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// The median of the CPU seconds, if all rounds have them.
#[must_use]
pub fn typical_work(samples: &[Sample]) -> Option<f64> {
    let works: Option<Vec<f64>> = samples.iter().map(|sample| sample.at_work).collect();
    Spread::of(works?).map(|spread| spread.median)
}

/// The median of the held memory and the maximum of the peaks, if all rounds have them.
#[must_use]
pub fn typical_memory(samples: &[Sample]) -> Option<Memory> {
    let mut memories: Vec<Memory> = samples.iter().filter_map(|sample| sample.memory).collect();
    memories.sort_by_key(|memory| memory.weight.held);
    let peak = memories.iter().map(|memory| memory.weight.peak).max()?;
    let mut typical = *memories.get(memories.len() / 2)?;
    typical.weight.peak = peak;
    Some(typical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Weight;

    fn sample(value: f64, held: usize, peak: usize) -> Sample {
        let memory = Some(Memory { weight: Weight { held, peak }, objects: 4 });
        Sample { value, at_work: Some(value / 2.0), memory }
    }

    #[test]
    fn the_median_is_the_middle_round_or_the_mean_of_the_two() {
        let three = Spread { median: 2.0, min: 1.0, max: 9.0 };
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), Some(three));
        assert_eq!(Spread::of([3.0, 1.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([]), None);
        let two = [sample(3.0, 0, 0), sample(1.0, 0, 0)];
        assert_eq!(typical_work(&two), Some(1.0));
        let unknown = Sample { at_work: None, ..two[0] };
        assert_eq!(typical_work(&[two[0], unknown]), None, "not all rounds have it");
    }

    #[test]
    fn memory_is_the_median_held_and_the_highest_peak() {
        let samples = [sample(1.0, 30, 90), sample(1.0, 10, 95), sample(1.0, 20, 80)];
        let memory = typical_memory(&samples).unwrap();
        assert_eq!(memory.weight, Weight { held: 20, peak: 95 });
        assert_eq!(memory.bytes_each(), Some(5.0));
        assert_eq!(typical_memory(&[]), None);
    }
}
