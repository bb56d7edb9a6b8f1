//! How soon a deleted route is restored, by the daemon and by others.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::super::bird::Bird;
use super::super::listener::RouteListener;
use super::super::network::TestNetwork;
use super::super::wire::{FOREIGN, Ip, RouteMessages};
use super::fixture::{heal, with_fixture};
use crate::program::{self, Running};
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
            &[Budget::Within(1.5, "of 100, p50"), Budget::AtMost(0.0001)],
        )
        .with("of 1M, p99", |run| record_percentile(run, LARGE, 99), &[Budget::AtMost(0.0005)])
        .with("of 1M, max", |run| record_percentile(run, LARGE, 100), &[Budget::AtMost(0.01)])
        .with("BIRD that scans every second, of 10k", bird, &[])
        .with("a loop that asks `ip` every second, of 10k", poll, &[])
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

/// The others restore a deleted route too: BIRD at its next scan, and a loop around `ip`.
const RIVAL_ROUTES: usize = 10_000;

/// Each takes up to a second, so few are enough.
const RIVAL_HEALS: usize = 5;

/// The shortest interval of BIRD; its default is a minute.
const SCAN_SECONDS: u32 = 1;

const LOOP: &str = "while :; do
    ip -4 route show proto 76 | cut -d ' ' -f 1 | sort > seen
    comm -13 seen wanted | while read -r to; do ip route add $to via 10.0.0.9 proto 76; done
    sleep 1
done";

fn bird(run: &mut Run) -> Result<()> {
    let (size, network) = (size(run, RIVAL_ROUTES), TestNetwork::new()?);
    let bird = Bird::scanning(Ip::V4, size, SCAN_SECONDS)?;
    let _running = bird.start(&network)?;
    heals(run, &network, RouteMessages { ip: Ip::V4, protocol: FOREIGN })
}

fn poll(run: &mut Run) -> Result<()> {
    let size = size(run, RIVAL_ROUTES);
    let network = TestNetwork::filled(RouteMessages::ours(Ip::V4), size)?;
    let directory = tempfile::tempdir()?;
    let lines = (0..size).map(|number| Ip::V4.destination(number));
    let mut wanted: Vec<String> = lines.map(|(dst, len)| format!("{dst}/{len}")).collect();
    wanted.sort();
    std::fs::write(directory.path().join("wanted"), wanted.join("\n") + "\n")?;
    let place = program::text(directory.path())?;
    let _running = Running::start("sh", &["-c", &format!("cd {place}\n{LOOP}")])?;
    heals(run, &network, RouteMessages::ours(Ip::V4))
}

fn heals(run: &mut Run, network: &TestNetwork, messages: RouteMessages) -> Result<()> {
    let (socket, mut listener) = (network.socket()?, RouteListener::open()?);
    let mut times = Vec::new();
    for nth in 0..run.size(RIVAL_HEALS, 2) {
        // At any moment between two scans, not always right after one.
        std::thread::sleep(Duration::from_millis(170 * nth as u64));
        times.push(heal(messages, 50 + nth, &socket, &mut listener)?);
    }
    times.sort_unstable();
    record(run, &times, 50)
}
