//! A million wished against a million seen objects: the core's mark-and-sweep beside what one would
//! write first.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use anyhow::{Result, ensure};
use homeostat_engine::desired::find_near;
use homeostat_engine::{
    Agreement, Change, Changes, Desired, Diff, Focus, OnRelease, Owner, Ownership, Records, Rights,
    Seen, Slot,
};

use crate::budget::Budget;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// Everything is as wished.
pub const CONVERGED: Group = Group {
    name: "diff: converged pass",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "stream only", run: |run| stream(run, Target::Full), budgets: &[] },
        Contestant { name: "two trees", run: |run| trees(run, Target::Full), budgets: &[] },
        Contestant {
            name: "homeostat",
            run: |run| streamed(run, Target::Full),
            budgets: &[Budget::Faster(3.0, "two trees"), Budget::BytesEach(1.0)],
        },
    ],
};

/// Nothing is there yet.
pub const COLD: Group = Group {
    name: "diff: cold plan",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "two trees", run: |run| trees(run, Target::Empty), budgets: &[] },
        Contestant {
            name: "homeostat",
            run: |run| streamed(run, Target::Empty),
            budgets: &[Budget::Within(1.0, "two trees"), Budget::BytesEach(48.0)],
        },
    ],
};

/// One key among all: the cost must not grow with the wish.
pub const FOCUSED: Group = Group {
    name: "diff: one key in focus, 1000 times",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "of 100", run: |run| focused(run, 100), budgets: &[] },
        Contestant { name: "of 1M", run: |run| focused(run, 1_000_000), budgets: &[] },
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Target {
    Full,
    Empty,
}

/// A route-like key: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    table: u32,
    destination: u32,
    metric: u32,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.table, self.destination, self.metric)
    }
}

impl std::str::FromStr for Key {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(' ').map(str::parse);
        let mut next = || parts.next().unwrap_or(Ok(0));
        Ok(Key { table: next()?, destination: next()?, metric: next()? })
    }
}

/// Keys and gateways side by side, in key order.
struct Wish {
    keys: Vec<Key>,
    gateways: Vec<u32>,
}

impl Desired for Wish {
    type Key = Key;
    type Object = u32;

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.keys, near, |known| known.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.keys[slot.index()]
    }

    fn object(&self, slot: Slot) -> u32 {
        self.gateways[slot.index()]
    }

    fn compare(&self, slot: Slot, seen: &u32) -> Agreement {
        Agreement::when(self.gateways[slot.index()] == *seen)
    }
}

fn key(number: u32) -> Key {
    Key { table: 254, destination: number << 8, metric: 0 }
}

fn wish(size: usize) -> Wish {
    let numbers = 0..u32::try_from(size).unwrap_or(u32::MAX);
    Wish { keys: numbers.clone().map(key).collect(), gateways: numbers.map(|n| n % 7).collect() }
}

/// What a reader would hand over, one by one.
fn observed(wish: &Wish, target: Target) -> impl Iterator<Item = Seen<Key, u32>> + '_ {
    let len = if target == Target::Full { wish.keys.len() } else { 0 };
    wish.keys.iter().zip(&wish.gateways).take(len).map(|(key, gateway)| Seen::Present {
        key: black_box(*key),
        object: *gateway,
        owner: Owner::Ours,
    })
}

fn stream(run: &mut Run, target: Target) -> Result<()> {
    let wish = wish(run.size(1_000_000, 10_000));
    let count = run.time(wish.len(), || observed(&wish, target).map(black_box).count());
    ensure!(count == wish.len(), "streamed {count} objects");
    Ok(())
}

fn streamed(run: &mut Run, target: Target) -> Result<()> {
    let wish = wish(run.size(1_000_000, 10_000));
    let changes =
        run.time_and_weigh(wish.len(), || diff(&wish, &Focus::All, observed(&wish, target)));
    let expected = if target == Target::Full { 0 } else { wish.len() };
    ensure!(changes.list.len() == expected, "found {} changes", changes.list.len());
    Ok(())
}

fn diff(
    wish: &Wish,
    focus: &Focus<Key>,
    seen: impl Iterator<Item = Seen<Key, u32>>,
) -> Changes<Key, u32> {
    let rights = Rights {
        ownership: &Ownership::Marked,
        records: &Records::new(),
        adopt: &BTreeSet::new(),
        on_release: OnRelease::Leave,
    };
    let mut diff = Diff::new(wish, focus, rights);
    seen.for_each(|seen| diff.see(seen));
    diff.finish()
}

/// The obvious way: both sides into trees, then compare key by key.
fn trees(run: &mut Run, target: Target) -> Result<()> {
    let wish = wish(run.size(1_000_000, 10_000));
    let changes = run.time_and_weigh(wish.len(), || {
        let mut there = BTreeMap::new();
        for seen in observed(&wish, target) {
            if let Seen::Present { key, object, owner } = seen {
                there.insert(key, (object, owner));
            }
        }
        let wanted: BTreeMap<_, _> = wish.keys.iter().zip(&wish.gateways).collect();
        let differ = |(key, gateway): &(&&Key, &&u32)| {
            there.get(**key).is_none_or(|(object, _)| object != **gateway)
        };
        wanted.iter().filter(differ).map(|(key, _)| **key).collect::<Vec<_>>()
    });
    let expected = if target == Target::Full { 0 } else { wish.len() };
    ensure!(changes.len() == expected, "found {} changes", changes.len());
    Ok(())
}

fn focused(run: &mut Run, size: usize) -> Result<()> {
    const LOOKS: u32 = 1000;
    let wish = wish(run.size(size, size / 10));
    let step = u32::try_from(wish.len()).unwrap_or(u32::MAX) / LOOKS.min(100);
    let found = run.time(LOOKS as usize, || {
        let one = |number: u32| {
            let key = key(number % 100 * step);
            diff(&wish, &Focus::Keys([key].into()), std::iter::empty())
        };
        (0..LOOKS)
            .map(one)
            .filter(|changes| matches!(changes.list[..], [Change::Create { .. }]))
            .count()
    });
    ensure!(found == LOOKS as usize, "found {found} of {LOOKS}");
    Ok(())
}
