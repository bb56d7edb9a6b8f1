//! What a minute of a daemon with 100 unchanged routes costs.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;

use super::super::network::TestNetwork;
use super::daemon::Daemon;
use super::fixture::with_fixture;
use crate::program::{self, ANONYMOUS, RESIDENT, Running};
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        // Wakeups and system calls, in a minute with two resyncs.
        Group::new("heal: an idle minute, 100 routes", Unit::Count)
            .with("wakeups", |run| record(run, |cost| cost.wakeups), &[])
            .with("system calls", calls, &[]),
        // Written bytes in that minute, and memory.
        Group::new("heal: an idle daemon, 100 routes", Unit::Bytes)
            .with("resident", |run| memory(run, RESIDENT), &[Budget::AtMost(15e6)])
            .with("resident, without files", |run| memory(run, ANONYMOUS), &[])
            .with("resident, with nft and knobs", of_all_kinds, &[])
            .with("written to disk a minute", |run| record(run, |cost| cost.to_disk), &[])
            .with("written to anybody a minute", |run| record(run, |cost| cost.written), &[]),
        // CPU time in that minute.
        Group::new("heal: work in an idle minute, 100 routes", Unit::Seconds).with(
            "homeostat",
            |run| record(run, |cost| cost.work),
            &[],
        ),
    ]
}

const ROUTES: usize = 100;
const MINUTE: Duration = Duration::from_mins(1);

/// What a daemon has cost so far, or in a minute.
#[derive(Clone, Copy)]
struct Cost {
    wakeups: f64,
    /// Bytes.
    to_disk: f64,
    /// Bytes of all writes.
    written: f64,
    /// CPU seconds.
    work: f64,
}

thread_local! {
    // Measured once for all contestants and rounds.
    static COST: Cell<Option<Cost>> = const { Cell::new(None) };
    static CALLS: Cell<Option<f64>> = const { Cell::new(None) };
}

fn window(run: &Run) -> Duration {
    if run.size(1, 0) > 0 { MINUTE } else { Duration::from_secs(1) }
}

fn record(run: &mut Run, figure: fn(&Cost) -> f64) -> Result<()> {
    let cost = COST.get().map_or_else(|| measure(window(run)), Ok)?;
    COST.set(Some(cost));
    run.record(figure(&cost));
    Ok(())
}

fn measure(window: Duration) -> Result<Cost> {
    with_fixture(ROUTES, |fixture| {
        let running = &fixture.daemon.running;
        // Work that the start has delayed is not idle.
        std::thread::sleep(window / 6);
        let before = cost_so_far(running)?;
        std::thread::sleep(window);
        let after = cost_so_far(running)?;
        let a_minute = |of: fn(&Cost) -> f64| (of(&after) - of(&before)) * windows_a_minute(window);
        Ok(Cost {
            wakeups: a_minute(|cost| cost.wakeups),
            to_disk: a_minute(|cost| cost.to_disk),
            written: a_minute(|cost| cost.written),
            work: a_minute(|cost| cost.work),
        })
    })
}

fn windows_a_minute(window: Duration) -> f64 {
    MINUTE.as_secs_f64() / window.as_secs_f64()
}

fn cost_so_far(running: &Running) -> Result<Cost> {
    Ok(Cost {
        // Each loop has a thread of its own.
        wakeups: running.total("status", "voluntary_ctxt_switches:")?,
        to_disk: running.number("io", "write_bytes:")?,
        written: running.number("io", "wchar:")?,
        work: running.work()?,
    })
}

fn calls(run: &mut Run) -> Result<()> {
    program::find_or_leave_out("strace", "strace")?;
    let calls = CALLS.get().map_or_else(|| count_calls(window(run)), Ok)?;
    CALLS.set(Some(calls));
    run.record(calls);
    Ok(())
}

fn count_calls(window: Duration) -> Result<f64> {
    with_fixture(ROUTES, |fixture| {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("calls");
        let place = program::text(&path)?;
        let seconds = window.as_secs().to_string();
        let pid = fixture.daemon.running.pid().to_string();
        let timeout = ["--signal=INT", &seconds];
        let strace = ["strace", "-q", "-f", "-c", "-p", &pid, "-o", place];
        // It ends by the signal, which is no failure.
        let _ = program::run_quietly("timeout", &[&timeout[..], &strace].concat());
        let summary = std::fs::read_to_string(&path)?;
        let total = summary.lines().rev().find(|line| line.ends_with(" total"));
        let count = total.and_then(|line| line.split_whitespace().nth(3));
        // Nothing was called: there is no summary then.
        let count: f64 = count.map_or(Ok(0.0), str::parse)?;
        Ok(count * windows_a_minute(window))
    })
}

fn memory(run: &mut Run, name: &str) -> Result<()> {
    with_fixture(ROUTES, |fixture| {
        run.record_bytes(fixture.daemon.running.memory(name)?);
        Ok(())
    })
}

/// With all sources, not only that of routes.
fn of_all_kinds(run: &mut Run) -> Result<()> {
    const MORE: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n[nftables]\nruleset = \"\"\"\ntable inet \
                        filter {\n chain input {\n tcp dport 22 accept\n }\n}\n\"\"\"\n";
    let _network = TestNetwork::new()?;
    let daemon = Daemon::start(ROUTES, MORE)?;
    run.record_bytes(daemon.running.memory(RESIDENT)?);
    Ok(())
}
