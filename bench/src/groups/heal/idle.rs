//! What a minute of a daemon with 100 unchanged routes costs.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::super::network::TestNetwork;
use super::daemon::Daemon;
use super::fixture::with_fixture;
use crate::{Budget, Contestant, Group, LeftOut, Run, Unit, program, program::Running};

/// Wakeups and system calls, in a minute with two resyncs.
pub const COUNTS: Group = Group {
    name: "heal: an idle minute, 100 routes",
    unit: Unit::Count,
    contestants: &[
        Contestant::new("wakeups", |run| record(run, |cost| cost.wakeups), &[]),
        Contestant::new("system calls", calls, &[]),
    ],
};

/// Written bytes in that minute, and memory.
pub const BYTES: Group = Group {
    name: "heal: an idle daemon, 100 routes",
    unit: Unit::Bytes,
    contestants: &[
        Contestant::new(
            "resident",
            |run| memory(run, Running::resident_bytes),
            &[Budget::AtMost(15e6)],
        ),
        Contestant::new(
            "resident, without files",
            |run| memory(run, Running::anonymous_bytes),
            &[],
        ),
        Contestant::new("resident, with nft and knobs", of_all_kinds, &[]),
        Contestant::new("written to disk a minute", |run| record(run, |cost| cost.to_disk), &[]),
        Contestant::new("written to anybody a minute", |run| record(run, |cost| cost.written), &[]),
    ],
};

/// CPU time in that minute.
pub const WORK: Group = Group {
    name: "heal: work in an idle minute, 100 routes",
    unit: Unit::Seconds,
    contestants: &[Contestant::new("homeostat", |run| record(run, |cost| cost.work), &[])],
};

const ROUTES: usize = 100;
const MINUTE: Duration = Duration::from_mins(1);

/// What a minute costs.
#[derive(Clone, Copy)]
struct Cost {
    wakeups: f64,
    to_disk: f64,
    written: f64,
    work: f64,
}

thread_local! {
    // Measured once for all contestants and rounds.
    static COST: RefCell<Option<Cost>> = const { RefCell::new(None) };
    static CALLS: RefCell<Option<f64>> = const { RefCell::new(None) };
}

fn window(run: &Run) -> Duration {
    MINUTE / u32::try_from(run.size(1, 60)).unwrap_or(1)
}

fn record(run: &mut Run, figure: fn(&Cost) -> f64) -> Result<()> {
    let known = COST.with_borrow(|cost| *cost);
    let cost = known.map_or_else(|| measure(window(run)), Ok)?;
    COST.replace(Some(cost));
    run.record(figure(&cost));
    Ok(())
}

fn measure(window: Duration) -> Result<Cost> {
    with_fixture(ROUTES, |fixture| {
        let running = &fixture.daemon.running;
        // Work that the start has delayed is not idle.
        std::thread::sleep(window / 6);
        let before = counts(running)?;
        std::thread::sleep(window);
        let after = counts(running)?;
        let scale = MINUTE.as_secs_f64() / window.as_secs_f64();
        let [wakeups, to_disk, written, work] = [0, 1, 2, 3].map(|at| {
            let of = |counts: &[f64; 4]| counts.get(at).copied().unwrap_or_default();
            (of(&after) - of(&before)) * scale
        });
        Ok(Cost { wakeups, to_disk, written, work })
    })
}

/// Wakeups, bytes to the disk, bytes of all writes, CPU seconds.
fn counts(running: &Running) -> Result<[f64; 4]> {
    let [status, io] = ["status", "io"].map(|name| running.proc_file(name));
    let (status, io) = (status?, io?);
    let number = |text: &str, name: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("no `{name}`"))?.trim().parse()?)
    };
    let wakeups = number(&status, "voluntary_ctxt_switches:")?;
    let (to_disk, written) = (number(&io, "write_bytes:")?, number(&io, "wchar:")?);
    // In nanoseconds; other files have ticks.
    let schedstat = running.proc_file("schedstat")?;
    let work: f64 = schedstat.split_whitespace().next().context("no time at work")?.parse()?;
    Ok([wakeups, to_disk, written, work / 1e9])
}

fn calls(run: &mut Run) -> Result<()> {
    if program::find("strace").is_none() {
        return Err(
            LeftOut("strace is not here; `apt-get install strace` brings it".to_owned()).into()
        );
    }
    let known = CALLS.with_borrow(|calls| *calls);
    let calls = known.map_or_else(|| count_calls(window(run)), Ok)?;
    CALLS.replace(Some(calls));
    run.record(calls);
    Ok(())
}

fn count_calls(window: Duration) -> Result<f64> {
    with_fixture(ROUTES, |fixture| {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("calls");
        let place = path.to_str().context("an odd directory")?;
        let pid = fixture.daemon.running.pid().to_string();
        let seconds = window.as_secs().max(1);
        let watch = [
            "--signal=INT",
            &seconds.to_string(),
            "strace",
            "-q",
            "-f",
            "-c",
            "-p",
            &pid,
            "-o",
            place,
        ];
        // It ends by the signal, which is no failure.
        let _ = program::run_quietly("timeout", &watch);
        let summary = std::fs::read_to_string(&path)?;
        let total = summary.lines().rev().find(|line| line.ends_with(" total"));
        let count = total.and_then(|line| line.split_whitespace().nth(3));
        // Nothing was called: there is no summary then.
        let count: f64 = count.map_or(Ok(0.0), str::parse)?;
        Ok(count * MINUTE.as_secs_f64() / window.as_secs_f64().max(1.0))
    })
}

fn memory(run: &mut Run, bytes: fn(&Running) -> Result<usize>) -> Result<()> {
    with_fixture(ROUTES, |fixture| {
        run.record_bytes(bytes(&fixture.daemon.running)?);
        Ok(())
    })
}

/// With all sources, not only that of routes.
fn of_all_kinds(run: &mut Run) -> Result<()> {
    const MORE: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n[nftables]\nruleset = \"\"\"\ntable inet \
                        filter {\n chain input {\n tcp dport 22 accept\n }\n}\n\"\"\"\n";
    let network = TestNetwork::new()?;
    let daemon = Daemon::start_with(ROUTES, MORE)?;
    run.record_bytes(daemon.running.resident_bytes()?);
    drop(daemon);
    drop(network);
    Ok(())
}
