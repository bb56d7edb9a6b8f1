//! What the daemon holds with a million routes, beyond what it holds with a hundred.

use anyhow::Result;

use super::super::bird::Bird;
use super::super::network::TestNetwork;
use super::super::wire::Ip;
use super::daemon::Daemon;
use super::fixture::{clear, with_fixture};
use super::latency::{LARGE, size};
use crate::{Budget, Contestant, Group, Run, Unit, memory::Weight};

/// Resident memory, the peak too. It is compared with a daemon that keeps 100 routes.
pub const GROUP: Group = Group {
    name: "heal: memory of the daemon, 1M routes",
    unit: Unit::Bytes,
    contestants: &[
        Contestant::new("that it added", added, &[Budget::BytesEach(100.0)]),
        Contestant::new("that it found", found, &[Budget::BytesEach(100.0)]),
        Contestant::new("BIRD", bird, &[]),
    ],
};

const FEW: usize = 100;

fn idle() -> Result<usize> {
    with_fixture(FEW, |fixture| fixture.daemon.running.resident_bytes())
}

fn weigh(run: &mut Run, daemon: &Daemon, size: usize) -> Result<()> {
    let idle = idle()?;
    let held = daemon.running.resident_bytes()?.saturating_sub(idle);
    let peak = daemon.running.peak_bytes()?.saturating_sub(idle);
    run.weighed(size, Weight { held, peak });
    Ok(())
}

fn added(run: &mut Run) -> Result<()> {
    let size = size(run, LARGE);
    let network = TestNetwork::new()?;
    let daemon = Daemon::start(size)?;
    network.expect(Ip::V4, size)?;
    weigh(run, &daemon, size)
}

fn found(run: &mut Run) -> Result<()> {
    let size = size(run, LARGE);
    let idle = idle()?;
    with_fixture(size, |fixture| {
        let (running, size) = (&fixture.daemon.running, fixture.size);
        let held = running.resident_bytes()?.saturating_sub(idle);
        let peak = running.peak_bytes()?.saturating_sub(idle);
        run.weighed(size, Weight { held, peak });
        Ok(())
    })
}

fn bird(run: &mut Run) -> Result<()> {
    let size = size(run, LARGE);
    clear();
    let network = TestNetwork::new()?;
    let bird = Bird::new(Ip::V4, size)?.start(&network)?;
    run.record_bytes(bird.resident_bytes()?);
    Ok(())
}
