//! What the daemon holds with a million routes, beyond what it holds with a hundred.

use anyhow::Result;

use super::super::bird::Bird;
use super::super::network::TestNetwork;
use super::super::wire::Ip;
use super::daemon::Daemon;
use super::fixture::{clear, with_fixture};
use super::latency::{LARGE, size};
use crate::memory::Weight;
use crate::program::{PEAK, RESIDENT, Running};
use crate::{Budget, Group, Run, Unit};

/// Resident memory, the peak too. It is compared with a daemon that keeps 100 routes.
pub(super) fn group() -> Group {
    Group::new("heal: memory of the daemon, 1M routes", Unit::Bytes)
        .with("that it added", added, &[Budget::BytesEach(60.0)])
        .with("that it found", found, &[Budget::BytesEach(60.0)])
        .with("BIRD", bird, &[])
}

/// Resident memory of a daemon with few routes.
fn idle() -> Result<usize> {
    with_fixture(100, |fixture| fixture.daemon.running.memory(RESIDENT))
}

fn weigh(run: &mut Run, running: &Running, idle: usize, size: usize) -> Result<()> {
    let held = running.memory(RESIDENT)?.saturating_sub(idle);
    let peak = running.memory(PEAK)?.saturating_sub(idle);
    run.weighed(size, Weight { held, peak });
    Ok(())
}

fn added(run: &mut Run) -> Result<()> {
    let (size, idle) = (size(run, LARGE), idle()?);
    let network = TestNetwork::new()?;
    let daemon = Daemon::start(size, "")?;
    network.expect(Ip::V4, size)?;
    weigh(run, &daemon.running, idle, size)
}

fn found(run: &mut Run) -> Result<()> {
    let (size, idle) = (size(run, LARGE), idle()?);
    with_fixture(size, |fixture| weigh(run, &fixture.daemon.running, idle, size))
}

fn bird(run: &mut Run) -> Result<()> {
    let size = size(run, LARGE);
    clear();
    let network = TestNetwork::new()?;
    let bird = Bird::new(Ip::V4, size)?.start(&network)?;
    run.record_bytes(bird.memory(RESIDENT)?);
    Ok(())
}
