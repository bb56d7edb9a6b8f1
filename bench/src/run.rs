//! One round of one contestant: the size of its input and what it measures.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::json;

use crate::clock;
use crate::memory::{self, Weight};
use crate::unit::Unit;

/// The size of the inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// The sizes of the budgets.
    #[default]
    Full,
    /// The same, for slow contestants too.
    Whole,
    /// Small, to check that everything runs.
    Quick,
}

impl Scale {
    /// Its name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Whole => "whole",
            Scale::Quick => "quick",
        }
    }

    /// The option of the command line for it.
    #[must_use]
    pub fn option(self) -> Option<&'static str> {
        match self {
            Scale::Full => None,
            Scale::Whole => Some("--full"),
            Scale::Quick => Some("--quick"),
        }
    }
}

/// Passed to a contestant for one round. Only what happens inside its methods is measured.
#[derive(Debug, Default)]
pub struct Run {
    scale: Scale,
    elapsed: Duration,
    at_work: Duration,
    operations: u64,
    figure: Option<f64>,
    memory: Option<Memory>,
}

/// The memory of a contestant, and for how many objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    #[serde(flatten)]
    pub weight: Weight,
    pub objects: u64,
}

impl Memory {
    /// Bytes held for each object.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "bytes and objects stay far below 2^52")]
    pub fn bytes_each(&self) -> Option<f64> {
        (self.objects > 0).then(|| self.weight.held as f64 / self.objects as f64)
    }
}

/// Why a contestant is left out. As the error of a round it does not stop the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("left out: {0}")]
pub struct LeftOut(pub String);

/// The result of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// In the group's unit.
    pub value: f64,
    /// The CPU seconds of the contestant's thread while it was timed. Other processes do not count, so it varies
    /// less than the elapsed time on a busy machine.
    pub at_work: Option<f64>,
    /// If the contestant measured it.
    pub memory: Option<Memory>,
}

impl Run {
    #[must_use]
    pub fn new(scale: Scale) -> Self {
        Self { scale, ..Self::default() }
    }

    /// Chooses the size by the scale.
    #[must_use]
    pub fn size(&self, full: usize, quick: usize) -> usize {
        match self.scale {
            Scale::Full | Scale::Whole => full,
            Scale::Quick => quick,
        }
    }

    /// Leaves out a contestant that takes minutes at full size, unless `--full` is given.
    pub fn leave_out_if_slow(&self) -> Result<()> {
        match self.scale {
            Scale::Full => Err(LeftOut("it takes minutes; `--full` runs it".to_owned()).into()),
            Scale::Quick | Scale::Whole => Ok(()),
        }
    }

    /// Does `work`, which is `operations` operations, and adds its time. Can be called repeatedly.
    pub fn time<T>(&mut self, operations: usize, work: impl FnOnce() -> T) -> T {
        let ((made, at_work), elapsed) = clock::time(|| clock::time_at_work(work));
        self.elapsed += elapsed;
        self.at_work += at_work;
        self.operations += operations as u64;
        made
    }

    /// Does `work` untimed and measures its heap memory for `objects` objects.
    pub fn weigh<T>(&mut self, objects: usize, work: impl FnOnce() -> T) -> T {
        let (made, weight) = memory::weigh(work);
        self.memory = Some(Memory { weight, objects: objects as u64 });
        made
    }

    /// Measures both time and memory of `work`: `count` is the number of its operations and objects.
    pub fn time_and_weigh<T>(&mut self, count: usize, work: impl FnOnce() -> T) -> T {
        let (made, weight) = memory::weigh(|| self.time(count, work));
        self.memory = Some(Memory { weight, objects: count as u64 });
        made
    }

    /// Records the memory of another process for `objects` objects.
    pub fn weighed(&mut self, objects: usize, weight: Weight) {
        self.memory = Some(Memory { weight, objects: objects as u64 });
    }

    /// Sets the value of the round in the unit of the group, if it is not measured by this type: a percentile, the
    /// size of a file, the memory of another process.
    pub fn record(&mut self, figure: f64) {
        self.figure = Some(figure);
    }

    /// Sets the value of the round of a group in bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes stay far below 2^52")]
    pub fn record_bytes(&mut self, bytes: usize) {
        self.figure = Some(bytes as f64);
    }

    /// The result, or an error if nothing was measured.
    #[expect(clippy::cast_precision_loss, reason = "counts of operations stay far below 2^52")]
    pub fn finish(self, unit: Unit) -> Result<Sample> {
        let seconds = self.elapsed.as_secs_f64();
        let measured = match unit {
            Unit::Seconds if seconds > 0.0 => Some(seconds),
            Unit::PerSecond if seconds > 0.0 => Some(self.operations as f64 / seconds),
            Unit::Bytes => self.memory.map(|memory| memory.weight.held as f64),
            Unit::Seconds | Unit::PerSecond | Unit::Count => None,
        };
        let at_work = (seconds > 0.0).then_some(self.at_work.as_secs_f64());
        match self.figure.or(measured) {
            Some(value) => Ok(Sample { value, at_work, memory: self.memory }),
            None => bail!("measured nothing in {}", json!(unit).as_str().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_by_scale_is_done() {
        assert_eq!(Run::new(Scale::Full).size(1000, 10), 1000);
        assert_eq!(Run::new(Scale::Quick).size(1000, 10), 10);
    }

    #[test]
    fn slow_contestants_run_only_in_small_or_when_asked_for() {
        let is_left_out = |scale| Run::new(scale).leave_out_if_slow().is_err();
        assert_eq!(
            [Scale::Quick, Scale::Full, Scale::Whole].map(is_left_out),
            [false, true, false]
        );
        assert_eq!(Run::new(Scale::Whole).size(1000, 10), 1000);
    }

    #[test]
    fn a_rate_is_operations_by_time() {
        let mut run = Run::new(Scale::Full);
        run.elapsed = Duration::from_millis(500);
        run.operations = 100;
        let sample = Sample { value: 200.0, at_work: Some(0.0), memory: None };
        assert_eq!(run.finish(Unit::PerSecond).unwrap(), sample);
    }

    #[test]
    fn times_of_several_parts_add_up() {
        let mut run = Run::new(Scale::Full);
        run.time(1, || std::hint::black_box(vec![0_u8; 1000]));
        let first = run.elapsed;
        run.time(2, || std::hint::black_box(vec![0_u8; 1000]));
        assert!(run.elapsed > first);
        assert_eq!(run.operations, 3);
    }

    #[test]
    fn a_recorded_figure_wins() {
        let mut run = Run::new(Scale::Full);
        run.time(1, || ());
        run.record(0.25);
        assert_eq!(run.finish(Unit::Seconds).unwrap().value.to_bits(), 0.25_f64.to_bits());
    }

    #[test]
    fn what_was_weighed_is_in_the_sample() {
        let mut run = Run::new(Scale::Full);
        let kept = run.time_and_weigh(10, || vec![1_u8; 16 << 20]);
        let memory = run.finish(Unit::Seconds).unwrap().memory.unwrap();
        assert_eq!(memory.objects, 10);
        // Other tests of this process allocate meanwhile, but by far not this much.
        assert!(memory.weight.held >= kept.len() / 2, "{memory:?}");
    }

    #[test]
    fn a_contestant_that_measures_nothing_is_an_error() {
        let error = Run::new(Scale::Full).finish(Unit::PerSecond).unwrap_err();
        assert_eq!(error.to_string(), "measured nothing in 1/s");
    }
}
