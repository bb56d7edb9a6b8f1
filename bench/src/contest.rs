//! Groups of contestants, and how a group is run: interleaved, round by round.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::budget::{Budget, Figures, Verdict};
use crate::clock;
use crate::results::{Absent, Row, Spread, typical_memory, typical_work};
use crate::run::{LeftOut, Run, Sample, Scale};
use crate::unit::Unit;

/// Contestants that do the same work in different ways.
#[derive(Debug)]
pub struct Group {
    /// Its name in the table and for filters.
    pub name: &'static str,
    pub unit: Unit,
    /// The others are compared with the first: the floor or the baseline.
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

impl Contestant {
    #[must_use]
    pub const fn new(
        name: &'static str,
        run: fn(&mut Run) -> Result<()>,
        budgets: &'static [Budget],
    ) -> Self {
        Self { name, run, budgets }
    }
}

impl Group {
    /// Whether a filter is part of one of its `group/contestant` names, or there is no filter.
    #[must_use]
    pub fn is_named_by(&self, filters: &[String]) -> bool {
        let names = || self.contestants.iter().map(|one| format!("{}/{}", self.name, one.name));
        filters.is_empty() || filters.iter().any(|filter| names().any(|name| name.contains(filter)))
    }
}

/// The results of a group.
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
    let mut entries: Vec<Entry> = group.contestants.iter().map(Entry::new).collect();
    for round in 0..rounds {
        if round >= ENOUGH && start.elapsed() >= LONG {
            break;
        }
        for entry in &mut entries {
            entry.one_round(group, scale)?;
        }
    }
    summarize(group, entries, scale)
}

/// A contestant with its samples, or why it was left out.
struct Entry {
    contestant: &'static Contestant,
    samples: Vec<Sample>,
    absent: Option<LeftOut>,
}

impl Entry {
    fn new(contestant: &'static Contestant) -> Self {
        Entry { contestant, samples: Vec::new(), absent: None }
    }

    fn one_round(&mut self, group: &Group, scale: Scale) -> Result<()> {
        if self.absent.is_some() {
            return Ok(());
        }
        let mut run = Run::new(scale);
        let ran = (self.contestant.run)(&mut run).and_then(|()| run.finish(group.unit));
        match ran.map_err(anyhow::Error::downcast::<LeftOut>) {
            Ok(sample) => self.samples.push(sample),
            Err(Ok(absent)) => self.absent = Some(absent),
            Err(Err(error)) => {
                return Err(error.context(format!("contestant `{}`", self.contestant.name)));
            }
        }
        Ok(())
    }
}

fn summarize(group: &Group, entries: Vec<Entry>, scale: Scale) -> Result<GroupResults> {
    let mut results = GroupResults::default();
    let mut present = Vec::new();
    for Entry { contestant, samples, absent } in entries {
        match absent {
            Some(LeftOut(why)) => {
                results.absent.push(Absent { group: group.name, contestant: contestant.name, why });
            }
            None => present.push((contestant, Spread::of(&samples).context("no rounds")?, samples)),
        }
    }
    let medians: Vec<(&'static str, f64)> =
        present.iter().map(|(one, spread, _)| (one.name, spread.median)).collect();
    let row = |(contestant, spread, samples): &(&Contestant, Spread, Vec<Sample>)| {
        let memory = typical_memory(samples);
        let bytes_each = memory.and_then(|memory| memory.bytes_each());
        let figures =
            Figures { unit: group.unit, median: spread.median, bytes_each, group: &medians };
        Row {
            group: group.name,
            contestant: contestant.name,
            unit: group.unit,
            spread: *spread,
            ratio: spread.median / medians.first().map_or(f64::NAN, |(_, median)| *median),
            at_work: typical_work(samples),
            memory,
            verdicts: verdicts(contestant, &figures, scale),
        }
    };
    results.rows = present.iter().map(row).collect();
    Ok(results)
}

fn verdicts(contestant: &Contestant, figures: &Figures<'_>, scale: Scale) -> Vec<Verdict> {
    let judge = |budget: &Budget| match scale {
        Scale::Full | Scale::Whole => budget.judge(figures),
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
            Contestant::new("a", first, &[]),
            Contestant::new("b", second, &[Budget::Within(1.5, "a"), Budget::AtMost(1.0)]),
        ],
    };

    #[test]
    fn contestants_run_interleaved_and_are_compared_with_the_first() {
        let rows = run_group(&INTERLEAVED, 3, Scale::Full).unwrap().rows;
        assert_eq!(*ORDER.lock().unwrap(), "ababab");
        let ratios: Vec<String> = rows.iter().map(|row| row.ratio.to_string()).collect();
        assert_eq!(ratios, ["1", "1.5"]);
        let states = rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.state));
        assert_eq!(states.collect::<Vec<_>>(), [State::Met, State::Missed]);
    }

    const THREE: fn(&mut Run) -> Result<()> = |run| {
        run.record(3.0);
        Ok(())
    };

    const SMALL: Group = Group {
        name: "small",
        unit: Unit::Seconds,
        contestants: &[Contestant::new("a", THREE, &[Budget::AtMost(1.0)])],
    };

    #[test]
    fn small_sizes_are_not_judged() {
        let rows = run_group(&SMALL, 1, Scale::Quick).unwrap().rows;
        let states = rows.iter().flat_map(|row| row.verdicts.iter().map(|verdict| verdict.state));
        assert_eq!(states.collect::<Vec<_>>(), [State::NotJudged]);
    }

    const LEFT_OUT: Group = Group {
        name: "left out",
        unit: Unit::Seconds,
        contestants: &[
            Contestant::new("a", |_| Err(LeftOut("slow".to_owned()).into()), &[]),
            Contestant::new("b", THREE, &[Budget::Within(1.0, "a")]),
        ],
    };

    #[test]
    fn a_contestant_that_is_left_out_is_named_and_the_others_run() {
        let results = run_group(&LEFT_OUT, 2, Scale::Full).unwrap();
        let absent: Vec<_> = results.absent.iter().map(|one| (one.contestant, &*one.why)).collect();
        assert_eq!(absent, [("a", "slow")]);
        let [row] = &*results.rows else { panic!("{:?}", results.rows) };
        assert_eq!((row.contestant, row.verdicts[0].state), ("b", State::NotJudged));
    }

    #[test]
    fn a_failing_contestant_is_named() {
        const FAILING: Group = Group {
            name: "failing",
            unit: Unit::Seconds,
            contestants: &[Contestant::new("a", |_| bail!("no route"), &[])],
        };
        let error = run_group(&FAILING, 1, Scale::Full).unwrap_err();
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
