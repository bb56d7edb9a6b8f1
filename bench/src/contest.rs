//! Groups of contestants, and how a group is run: interleaved, round by round.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::budget::{Budget, Figures};
use crate::clock;
use crate::results::{Absent, Row, Spread, typical_memory, typical_work};
use crate::run::{LeftOut, Run, Sample, Scale};
use crate::unit::Unit;

/// Contestants that do the same work in different ways.
pub struct Group {
    /// Its name in the table and for filters.
    pub name: &'static str,
    unit: Unit,
    /// The others are compared with the first: the floor or the baseline.
    pub contestants: Vec<Contestant>,
}

/// One round of a contestant: it prepares what it needs and measures through the [`Run`].
type Round = Box<dyn Fn(&mut Run) -> Result<()>>;

/// One way to do the group's work.
pub struct Contestant {
    /// Its name in the table and in budgets.
    name: &'static str,
    run: Round,
    budgets: Vec<Budget>,
}

impl Group {
    #[must_use]
    pub fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, contestants: Vec::new() }
    }

    /// Adds a contestant, and what it must reach. `run` is one round: it prepares what it needs and measures through
    /// the [`Run`].
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        run: impl Fn(&mut Run) -> Result<()> + 'static,
        budgets: &[Budget],
    ) -> Self {
        self.contestants.push(Contestant { name, run: Box::new(run), budgets: budgets.to_vec() });
        self
    }

    /// The `group/contestant` names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.contestants.iter().map(|one| format!("{}/{}", self.name, one.name))
    }

    /// Whether a filter is part of one of its `group/contestant` names, or there is no filter.
    #[must_use]
    pub fn is_named_by(&self, filters: &[String]) -> bool {
        filters.is_empty()
            || self.names().any(|name| filters.iter().any(|filter| name.contains(filter)))
    }
}

#[derive(Debug, Default)]
pub struct GroupResults {
    /// One per contestant that ran.
    pub rows: Vec<Row>,
    /// Contestants that were left out.
    pub absent: Vec<Absent>,
}

/// A group that has taken this long ends, if it has had enough rounds for a median.
const LONG: Duration = Duration::from_secs(45);
const ENOUGH: usize = 3;

/// Runs a group: every contestant once in each round, so that a slow phase of the machine affects all of them.
pub fn run_group(group: &Group, rounds: usize, scale: Scale) -> Result<GroupResults> {
    let start = clock::now();
    let mut samples = vec![Ok(Vec::new()); group.contestants.len()];
    for round in 0..rounds {
        if round >= ENOUGH && start.elapsed() >= LONG {
            break;
        }
        for (contestant, samples) in group.contestants.iter().zip(&mut samples) {
            let Ok(so_far) = samples else { continue };
            let mut run = Run::new(scale);
            let ran = (contestant.run)(&mut run).and_then(|()| run.finish(group.unit));
            match ran.map_err(anyhow::Error::downcast::<LeftOut>) {
                Ok(sample) => so_far.push(sample),
                Err(Ok(left_out)) => *samples = Err(left_out),
                Err(Err(error)) => {
                    return Err(error.context(format!("contestant `{}`", contestant.name)));
                }
            }
        }
    }
    summarize(group, samples, scale)
}

fn summarize(
    group: &Group,
    samples: Vec<Result<Vec<Sample>, LeftOut>>,
    scale: Scale,
) -> Result<GroupResults> {
    let mut results = GroupResults::default();
    let mut present = Vec::new();
    for (contestant, samples) in group.contestants.iter().zip(samples) {
        match samples {
            Ok(samples) => {
                let spread = Spread::of(samples.iter().map(|sample| sample.value));
                present.push((contestant, spread.context("no rounds")?, samples));
            }
            Err(LeftOut(why)) => {
                results.absent.push(Absent { group: group.name, contestant: contestant.name, why });
            }
        }
    }
    let medians: Vec<(&'static str, f64)> =
        present.iter().map(|(one, spread, _)| (one.name, spread.median)).collect();
    for (contestant, spread, samples) in present {
        let memory = typical_memory(&samples);
        let figures = Figures {
            scale,
            unit: group.unit,
            median: spread.median,
            bytes_each: memory.and_then(|memory| memory.bytes_each()),
            group: &medians,
        };
        results.rows.push(Row {
            group: group.name,
            contestant: contestant.name,
            unit: group.unit,
            spread,
            ratio: spread.median / medians.first().map_or(f64::NAN, |(_, median)| *median),
            at_work: typical_work(&samples),
            memory,
            verdicts: contestant.budgets.iter().map(|budget| budget.judge(&figures)).collect(),
        });
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anyhow::{anyhow, bail};

    use super::*;
    use crate::budget::{MET, MISSED, NOT_JUDGED};

    static ORDER: Mutex<String> = Mutex::new(String::new());

    fn first(run: &mut Run) -> Result<()> {
        ORDER.lock().map_err(|_| anyhow!("poisoned"))?.push('a');
        run.record(2.0);
        Ok(())
    }

    fn second(run: &mut Run) -> Result<()> {
        ORDER.lock().map_err(|_| anyhow!("poisoned"))?.push('b');
        run.record(3.0);
        Ok(())
    }

    fn interleaved() -> Group {
        Group::new("interleaved", Unit::Seconds).with("a", first, &[]).with(
            "b",
            second,
            &[Budget::Within(1.5, "a"), Budget::AtMost(1.0)],
        )
    }

    #[test]
    fn contestants_run_interleaved_and_are_compared_with_the_first() {
        let rows = run_group(&interleaved(), 3, Scale::Full).unwrap().rows;
        assert_eq!(*ORDER.lock().unwrap(), "ababab");
        let ratios: Vec<String> = rows.iter().map(|row| row.ratio.to_string()).collect();
        assert_eq!(ratios, ["1", "1.5"]);
        let verdicts =
            rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.verdict));
        assert_eq!(verdicts.collect::<Vec<_>>(), [MET, MISSED]);
    }

    const THREE: fn(&mut Run) -> Result<()> = |run| {
        run.record(3.0);
        Ok(())
    };

    #[test]
    fn small_sizes_are_not_judged() {
        let small = Group::new("small", Unit::Seconds).with("a", THREE, &[Budget::AtMost(1.0)]);
        let rows = run_group(&small, 1, Scale::Quick).unwrap().rows;
        let verdicts =
            rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.verdict));
        assert_eq!(verdicts.collect::<Vec<_>>(), [NOT_JUDGED]);
    }

    #[test]
    fn a_contestant_that_is_left_out_is_named_and_the_others_run() {
        let group = Group::new("left out", Unit::Seconds)
            .with("a", |_| Err(LeftOut("slow".to_owned()).into()), &[])
            .with("b", THREE, &[Budget::Within(1.0, "a")]);
        let results = run_group(&group, 2, Scale::Full).unwrap();
        let absent: Vec<_> = results.absent.iter().map(|one| (one.contestant, &*one.why)).collect();
        assert_eq!(absent, [("a", "slow")]);
        let [row] = &*results.rows else { panic!("{:?}", results.rows) };
        assert_eq!((row.contestant, row.verdicts[0].verdict), ("b", NOT_JUDGED));
    }

    #[test]
    fn a_failing_contestant_is_named() {
        let failing = Group::new("failing", Unit::Seconds).with("a", |_| bail!("no route"), &[]);
        let error = run_group(&failing, 1, Scale::Full).unwrap_err();
        assert_eq!(format!("{error:#}"), "contestant `a`: no route");
    }

    #[test]
    fn a_filter_chooses_whole_groups() {
        let check = |filter: &str, named: bool| {
            assert_eq!(interleaved().is_named_by(&[filter.to_owned()]), named, "{filter}");
        };
        check("leaved/b", true);
        check("inter", true);
        check("leaved/c", false);
        assert!(interleaved().is_named_by(&[]));
    }
}
