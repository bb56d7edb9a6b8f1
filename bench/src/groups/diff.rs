//! A million declared against a million seen objects: the core's mark-and-sweep and the obvious way.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use anyhow::{Result, ensure};
use homeostat_engine::{
    Changes, Desired, Diff, Focus, OnRelease, Owner, Ownership, Records, Rights, Seen, Slot,
};

use super::routes::{DesiredState, Key};
use crate::{Budget, Contestant, Group, Run, Unit};

/// Everything is as declared.
pub const CONVERGED: Group = Group {
    name: "diff: converged pass",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("stream only", |run| stream(run, Target::Full), &[]),
        Contestant::new("two trees", |run| trees(run, Target::Full), &[]),
        Contestant::new(
            "homeostat",
            |run| streamed(run, Target::Full),
            &[Budget::Faster(3.0, "two trees"), Budget::BytesEach(1.0)],
        ),
    ],
};

/// Nothing is there yet.
pub const COLD: Group = Group {
    name: "diff: cold plan",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("two trees", |run| trees(run, Target::Empty), &[]),
        Contestant::new(
            "homeostat",
            |run| streamed(run, Target::Empty),
            &[Budget::AtMost(0.05), Budget::BytesEach(48.0)],
        ),
    ],
};

/// One key among all: the cost must not grow with the desired state.
pub const FOCUSED: Group = Group {
    name: "diff: one key in focus, 1000 times",
    unit: Unit::Seconds,
    contestants: &[
        Contestant::new("of 100", |run| focused(run, 100), &[]),
        Contestant::new("of 1M", |run| focused(run, 1_000_000), &[]),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Target {
    Full,
    Empty,
}

/// What a reader would hand over, one by one.
fn observed(desired: &DesiredState, target: Target) -> impl Iterator<Item = Seen<Key, u32>> + '_ {
    let len = if target == Target::Full { desired.len() } else { 0 };
    (0..len).map(Slot::at).map(|slot| Seen::Present {
        key: black_box(desired.key(slot)),
        object: desired.object(slot),
        owner: Owner::Ours,
    })
}

fn stream(run: &mut Run, target: Target) -> Result<()> {
    let desired = DesiredState::new(run.size(1_000_000, 10_000));
    let count = run.time(desired.len(), || observed(&desired, target).map(black_box).count());
    ensure!(count == desired.len(), "streamed {count} objects");
    Ok(())
}

fn streamed(run: &mut Run, target: Target) -> Result<()> {
    let desired = DesiredState::new(run.size(1_000_000, 10_000));
    let changes = run
        .time_and_weigh(desired.len(), || diff(&desired, &Focus::All, observed(&desired, target)));
    let expected = if target == Target::Full { 0 } else { desired.len() };
    ensure!(changes.list.len() == expected, "found {} changes", changes.list.len());
    Ok(())
}

fn diff(
    desired: &DesiredState,
    focus: &Focus<Key>,
    seen: impl Iterator<Item = Seen<Key, u32>>,
) -> Changes<Key, u32> {
    let rights = Rights {
        ownership: &Ownership::Marked,
        records: &Records::new(),
        adopt: &BTreeSet::new(),
        on_release: OnRelease::Leave,
    };
    let mut diff = Diff::new(desired, focus, rights);
    seen.for_each(|seen| diff.see(seen));
    diff.finish()
}

/// The obvious way: both sides into trees, then compare key by key.
fn trees(run: &mut Run, target: Target) -> Result<()> {
    let desired = DesiredState::new(run.size(1_000_000, 10_000));
    let changes = run.time_and_weigh(desired.len(), || {
        let mut there = BTreeMap::new();
        for seen in observed(&desired, target) {
            if let Seen::Present { key, object, owner } = seen {
                there.insert(key, (object, owner));
            }
        }
        let slots = (0..desired.len()).map(Slot::at);
        let wanted: BTreeMap<_, _> =
            slots.map(|slot| (desired.key(slot), desired.object(slot))).collect();
        let differ = |(key, gateway): &(&Key, &u32)| {
            there.get(*key).is_none_or(|(object, _)| object != *gateway)
        };
        wanted.iter().filter(differ).map(|(key, _)| *key).collect::<Vec<_>>()
    });
    let expected = if target == Target::Full { 0 } else { desired.len() };
    ensure!(changes.len() == expected, "found {} changes", changes.len());
    Ok(())
}

fn focused(run: &mut Run, size: usize) -> Result<()> {
    const LOOKS: u32 = 1000;
    let desired = DesiredState::new(run.size(size, size / 10));
    let step = u32::try_from(desired.len()).unwrap_or(u32::MAX) / LOOKS.min(100);
    let found = run.time(LOOKS as usize, || {
        let one = |number: u32| {
            let key = Key(number % 100 * step);
            diff(&desired, &Focus::Keys([key].into()), std::iter::empty())
        };
        (0..LOOKS)
            .map(one)
            .filter(|changes| changes.list.creates().len() == 1 && changes.list.len() == 1)
            .count()
    });
    ensure!(found == LOOKS as usize, "found {found} of {LOOKS}");
    Ok(())
}
