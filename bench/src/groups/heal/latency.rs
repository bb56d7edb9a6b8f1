//! How soon a deleted route is restored.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::fixture::with_fixture;
use super::rivals;
use crate::{Budget, Group, Run, Unit};

/// From the deletion to the kernel's event of the route's return. The first contestant of each size
/// measures; the others show more of the same round.
pub(super) fn group() -> Group {
    Group::new("heal: one deleted route", Unit::Seconds)
        .with("of 100, p50", |run| measure(run, 100), &[])
        .with("of 100, p99", |run| record_percentile(run, 100, 99), &[])
        .with("of 100, max", |run| record_percentile(run, 100, 100), &[])
        .with("of 10k, p50", |run| measure(run, 10_000), &[])
        .with("of 10k, p99", |run| record_percentile(run, 10_000, 99), &[])
        .with("of 10k, max", |run| record_percentile(run, 10_000, 100), &[])
        .with(
            "of 1M, p50",
            |run| measure(run, LARGE),
            &[Budget::Within(1.5, "of 100, p50"), Budget::AtMost(0.0005)],
        )
        .with("of 1M, p99", |run| record_percentile(run, LARGE, 99), &[Budget::AtMost(0.002)])
        .with("of 1M, max", |run| record_percentile(run, LARGE, 100), &[])
        .with("BIRD that scans every second, of 10k", rivals::bird, &[])
        .with("a loop that asks `ip` every second, of 10k", rivals::poll, &[])
}

/// The size of the budgets.
pub(super) const LARGE: usize = 1_000_000;

/// Deletions in each round. With more on the same hundred keys the daemon would see contention.
const HEALS: usize = 1000;

/// The size to work with.
pub(super) fn size(run: &Run, full: usize) -> usize {
    run.size(full, full.min(5000))
}

fn measure(run: &mut Run, full: usize) -> Result<()> {
    let size = size(run, full);
    let heals = HEALS.min(size).min(run.size(HEALS, 50));
    with_fixture(size, |fixture| {
        let times: Result<Vec<Duration>> = (0..heals).map(|_| fixture.heal_another()).collect();
        fixture.times = times?;
        fixture.times.sort_unstable();
        record(run, &fixture.times, 50)
    })
}

fn record_percentile(run: &mut Run, full: usize, percentile: usize) -> Result<()> {
    with_fixture(size(run, full), |fixture| record(run, &fixture.times, percentile))
}

/// Records a percentile of sorted times.
pub(super) fn record(run: &mut Run, times: &[Duration], percentile: usize) -> Result<()> {
    let at = (times.len() * percentile / 100).min(times.len().saturating_sub(1));
    run.record(times.get(at).context("nothing was healed")?.as_secs_f64());
    Ok(())
}
