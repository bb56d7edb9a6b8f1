//! Groups of contestants, and how a group is run: interleaved, round by round.

use anyhow::{Context, Result};

use crate::budget::{Budget, Figures, Verdict};
use crate::results::{Row, Spread, typical_memory};
use crate::run::{Memory, Run, Sample, Scale};
use crate::unit::Unit;

/// Contestants that do the same work in different ways.
#[derive(Debug)]
pub struct Group {
    /// Its name in the table and for filters.
    pub name: &'static str,
    /// What its figures mean.
    pub unit: Unit,
    /// The first is what the others are compared with: the floor or the baseline.
    pub contestants: &'static [Contestant],
}

/// One way to do the group's work.
#[derive(Debug)]
pub struct Contestant {
    /// Its name in the table and in budgets.
    pub name: &'static str,
    /// One round: prepares what it needs and measures through the [`Run`].
    pub run: fn(&mut Run) -> Result<()>,
    /// What it must reach.
    pub budgets: &'static [Budget],
}

impl Group {
    /// Whether a filter is part of one of its `group/contestant` names, or there is no filter.
    #[must_use]
    pub fn is_named_by(&self, filters: &[String]) -> bool {
        let names = || self.contestants.iter().map(|one| format!("{}/{}", self.name, one.name));
        filters.is_empty() || filters.iter().any(|filter| names().any(|name| name.contains(filter)))
    }
}

/// Runs a group: in each round everybody once, so that a slow minute of the machine hits all alike.
pub fn hold(group: &Group, rounds: usize, scale: Scale) -> Result<Vec<Row>> {
    let mut samples: Vec<Vec<Sample>> = group.contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contestant, samples) in group.contestants.iter().zip(&mut samples) {
            let sample = one_round(contestant, scale, group.unit);
            samples.push(sample.with_context(|| format!("contestant `{}`", contestant.name))?);
        }
    }
    rows(group, &samples, scale)
}

fn one_round(contestant: &Contestant, scale: Scale, unit: Unit) -> Result<Sample> {
    let mut run = Run::new(scale);
    (contestant.run)(&mut run)?;
    run.finish(unit)
}

fn rows(group: &Group, samples: &[Vec<Sample>], scale: Scale) -> Result<Vec<Row>> {
    let spreads: Option<Vec<Spread>> = samples.iter().map(|samples| Spread::of(samples)).collect();
    let spreads = spreads.context("no rounds")?;
    let names = group.contestants.iter().map(|contestant| contestant.name);
    let medians: Vec<(&'static str, f64)> =
        names.zip(spreads.iter().map(|spread| spread.median)).collect();
    let first = medians.first().map_or(f64::NAN, |(_, median)| *median);
    let memories = samples.iter().map(|samples| typical_memory(samples));
    let each = group.contestants.iter().zip(spreads).zip(memories);
    let row = |((contestant, spread), memory): ((&Contestant, Spread), Option<Memory>)| {
        let bytes_each = memory.and_then(|memory| memory.bytes_each());
        let figures =
            Figures { unit: group.unit, median: spread.median, bytes_each, group: &medians };
        Row {
            group: group.name,
            contestant: contestant.name,
            unit: group.unit,
            spread,
            ratio: spread.median / first,
            memory,
            verdicts: verdicts(contestant, &figures, scale),
        }
    };
    Ok(each.map(row).collect())
}

fn verdicts(contestant: &Contestant, figures: &Figures<'_>, scale: Scale) -> Vec<Verdict> {
    let judge = |budget: &Budget| match scale {
        Scale::Full => budget.judge(figures),
        Scale::Quick => budget.unjudged(figures.unit),
    };
    contestant.budgets.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anyhow::{anyhow, bail};

    use super::*;
    use crate::budget::State;

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

    const INTERLEAVED: Group = Group {
        name: "interleaved",
        unit: Unit::Seconds,
        contestants: &[
            Contestant { name: "a", run: first, budgets: &[] },
            Contestant {
                name: "b",
                run: second,
                budgets: &[Budget::Within(1.5, "a"), Budget::AtMost(1.0)],
            },
        ],
    };

    #[test]
    fn contestants_run_interleaved_and_are_compared_with_the_first() {
        let rows = hold(&INTERLEAVED, 3, Scale::Full).unwrap();
        assert_eq!(*ORDER.lock().unwrap(), "ababab");
        let ratios: Vec<String> = rows.iter().map(|row| row.ratio.to_string()).collect();
        assert_eq!(ratios, ["1", "1.5"]);
        let states = rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.state));
        assert_eq!(states.collect::<Vec<_>>(), [State::Met, State::Missed]);
    }

    const SMALL: Group = Group {
        name: "small",
        unit: Unit::Seconds,
        contestants: &[Contestant {
            name: "a",
            run: |run| {
                run.record(3.0);
                Ok(())
            },
            budgets: &[Budget::AtMost(1.0)],
        }],
    };

    #[test]
    fn small_sizes_are_not_judged() {
        let rows = hold(&SMALL, 1, Scale::Quick).unwrap();
        let states = rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.state));
        assert_eq!(states.collect::<Vec<_>>(), [State::NotJudged]);
    }

    #[test]
    fn a_failing_contestant_is_named() {
        let contestants = &[Contestant { name: "a", run: |_| bail!("no route"), budgets: &[] }];
        let group = Group { name: "failing", unit: Unit::Seconds, contestants };
        let error = hold(&group, 1, Scale::Full).unwrap_err();
        assert_eq!(format!("{error:#}"), "contestant `a`: no route");
    }

    #[test]
    fn a_filter_chooses_whole_groups() {
        let check = |filter: &str, named: bool| {
            assert_eq!(INTERLEAVED.is_named_by(&[filter.to_owned()]), named, "{filter}");
        };
        check("leaved/b", true);
        check("inter", true);
        check("leaved/c", false);
        assert!(INTERLEAVED.is_named_by(&[]));
    }
}
