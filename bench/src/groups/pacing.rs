//! Merging wakeups: a million keys, all inside their window.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use homeostat_engine::pacing::{KeyPacer, Pacer, Policy, Reason, Time};

use crate::{Budget, Group, Run, Unit};

/// Five hints a key in random order.
pub(super) fn group() -> Group {
    Group::new("pacing: hints merged", Unit::PerSecond)
        .with("set of keys, no window", set, &[])
        .with("homeostat, per key", per_key, &[Budget::AtLeast(1_000_000.0)])
        .with("homeostat, per source", per_source, &[Budget::AtLeast(1_000_000.0)])
}

const HINTS_PER_KEY: usize = 5;

/// Keys in an order that is not theirs.
fn hints(run: &Run) -> (u64, Vec<u64>) {
    let keys = run.size(1_000_000, 10_000) as u64;
    let mut state = 88_172_645_463_325_252_u64;
    let count = usize::try_from(keys).unwrap_or(usize::MAX) * HINTS_PER_KEY;
    let hints = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % keys
    })
    .take(count)
    .collect();
    (keys, hints)
}

fn set(run: &mut Run) -> Result<()> {
    let (keys, hints) = hints(run);
    let merged = run.time(hints.len(), || hints.iter().copied().collect::<BTreeSet<_>>());
    ensure!(merged.len() as u64 <= keys, "more keys than there are");
    Ok(())
}

fn per_key(run: &mut Run) -> Result<()> {
    let (keys, hints) = hints(run);
    let interval = Duration::from_millis(100);
    let mut pacer = KeyPacer::new(interval);
    (0..keys).for_each(|key| pacer.on_hint(key, Time::EPOCH));
    let first = pacer.take_due(Time::EPOCH).len() as u64;
    run.time(hints.len(), || hints.iter().for_each(|key| pacer.on_hint(*key, Time::EPOCH)));
    let due = pacer.take_due(Time::EPOCH.after(interval));
    let unique: BTreeSet<_> = due.iter().collect();
    ensure!(first == keys && unique.len() == due.len(), "a key fired twice in its window");
    Ok(())
}

fn per_source(run: &mut Run) -> Result<()> {
    let (_, hints) = hints(run);
    let mut pacer = Pacer::new(Policy::default());
    pacer.on_command(Reason::Start, Time::EPOCH);
    ensure!(pacer.fire(Time::EPOCH).is_some(), "the first pass did not start");
    pacer.synced();
    pacer.finished();
    run.time(hints.len(), || hints.iter().for_each(|_| pacer.on_paced(Reason::Hint, Time::EPOCH)));
    ensure!(pacer.fire(Time::EPOCH).is_none(), "a hint broke the window");
    Ok(())
}
