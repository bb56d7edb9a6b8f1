//! One route is deleted behind the daemon's back, another one each time: how soon it is back.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::rivals;
use super::scene::on_scene;
use crate::budget::Budget;
use crate::contest::{Contestant, Group};
use crate::run::Run;
use crate::unit::Unit;

/// From the deletion to the kernel's event of the route's return. The first figure of each size
/// measures, the others tell more of the same round.
pub const GROUP: Group = Group {
    name: "heal: one deleted route",
    unit: Unit::Seconds,
    contestants: &[
        Contestant { name: "of 100, p50", run: |run| measure(run, 100), budgets: &[] },
        Contestant { name: "of 100, p99", run: |run| tell(run, 100, 99), budgets: &[] },
        Contestant { name: "of 100, max", run: |run| tell(run, 100, 100), budgets: &[] },
        Contestant { name: "of 10k, p50", run: |run| measure(run, 10_000), budgets: &[] },
        Contestant { name: "of 10k, p99", run: |run| tell(run, 10_000, 99), budgets: &[] },
        Contestant { name: "of 10k, max", run: |run| tell(run, 10_000, 100), budgets: &[] },
        Contestant {
            name: "of 1M, p50",
            run: |run| measure(run, LARGE),
            budgets: &[Budget::Within(1.5, "of 100, p50"), Budget::AtMost(0.0005)],
        },
        Contestant {
            name: "of 1M, p99",
            run: |run| tell(run, LARGE, 99),
            budgets: &[Budget::AtMost(0.002)],
        },
        Contestant { name: "of 1M, max", run: |run| tell(run, LARGE, 100), budgets: &[] },
        Contestant {
            name: "BIRD that scans every second, of 10k",
            run: rivals::bird,
            budgets: &[],
        },
        Contestant {
            name: "a loop that asks `ip` every second, of 10k",
            run: rivals::poll,
            budgets: &[],
        },
    ],
};

/// The size that the budgets speak of.
pub(super) const LARGE: usize = 1_000_000;

/// Deleted in each round. A few more on the same hundred keys would be a fight to the daemon.
const HEALS: usize = 1000;

/// The size to work with.
pub(super) fn size(run: &Run, full: usize) -> usize {
    run.size(full, full.min(5000))
}

fn measure(run: &mut Run, full: usize) -> Result<()> {
    let size = size(run, full);
    let heals = HEALS.min(size).min(run.size(HEALS, 50));
    on_scene(size, |scene| {
        let times: Result<Vec<Duration>> = (0..heals).map(|_| scene.heal_another()).collect();
        scene.times = times?;
        scene.times.sort_unstable();
        record(run, &scene.times, 50)
    })
}

fn tell(run: &mut Run, full: usize, percentile: usize) -> Result<()> {
    let size = size(run, full);
    on_scene(size, |scene| record(run, &scene.times, percentile))
}

/// Gives a percentile of sorted times as the round's figure.
pub(super) fn record(run: &mut Run, times: &[Duration], percentile: usize) -> Result<()> {
    let at = (times.len() * percentile / 100).min(times.len().saturating_sub(1));
    run.record(times.get(at).context("nothing was healed")?.as_secs_f64());
    Ok(())
}
