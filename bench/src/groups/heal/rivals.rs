//! Others that restore a deleted route: BIRD at its next scan, and a loop around `ip`.

use std::time::Duration;

use anyhow::Result;

use super::super::bird::Bird;
use super::super::network::TestNetwork;
use super::super::wire::{FOREIGN, Ip, RouteMessages};
use super::fixture::heal;
use super::latency::{record, size};
use super::listener::RouteListener;
use crate::Run;
use crate::program::{self, Running};

const ROUTES: usize = 10_000;

/// Each takes up to a second, so few are enough.
const HEALS: usize = 5;

/// The shortest interval of BIRD; its default is a minute.
const SCAN_SECONDS: u32 = 1;

const LOOP: &str = "while :; do
    ip -4 route show proto 76 | cut -d ' ' -f 1 | sort > seen
    comm -13 seen wanted | while read -r to; do ip route add $to via 10.0.0.9 proto 76; done
    sleep 1
done";

pub(super) fn bird(run: &mut Run) -> Result<()> {
    let (size, network) = (size(run, ROUTES), TestNetwork::new()?);
    let bird = Bird::scanning(Ip::V4, size, SCAN_SECONDS)?;
    let _running = bird.start(&network)?;
    heals(run, &network, RouteMessages { ip: Ip::V4, protocol: FOREIGN })
}

pub(super) fn poll(run: &mut Run) -> Result<()> {
    let size = size(run, ROUTES);
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
    for nth in 0..run.size(HEALS, 2) {
        // At any moment between two scans, not always right after one.
        std::thread::sleep(Duration::from_millis(170 * nth as u64));
        times.push(heal(messages, 50 + nth, &socket, &mut listener)?);
    }
    times.sort_unstable();
    record(run, &times, 50)
}
