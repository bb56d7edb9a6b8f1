//! A thousand namespaces in one daemon, each with a link, two addresses and three routes: its start, what it costs at
//! rest, and one heal. Needs root.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_testkit::namespace::Namespace;

use super::document::Document;
use crate::clock;
use crate::program::{self, RESIDENT, Running};
use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    vec![
        Group::new("namespaces: 1,000 in one daemon", Unit::Seconds)
            .with(
                "start, until converged",
                |run| with(run, |kept| kept.start),
                &[Budget::AtMost(10.0)],
            )
            .with("CPU time of the start", |run| with(run, |kept| kept.start_work), &[])
            .with(
                "CPU time of an idle minute",
                |run| with(run, |kept| kept.idle_work),
                &[Budget::AtMost(0.6)],
            )
            .with("heal of a route, by `ip`", heal, &[]),
        Group::new("namespaces: descriptors and threads, 1,000 in one daemon", Unit::Count)
            .with("descriptors", |run| with(run, |kept| kept.descriptors), &[])
            .with("threads", |run| with(run, |kept| kept.threads), &[]),
        Group::new("namespaces: memory, 1,000 in one daemon", Unit::Bytes).with(
            "resident",
            |run| with(run, |kept| kept.resident),
            &[],
        ),
    ]
}

/// Work that the start has delayed is over after two resyncs.
const SETTLED: Duration = Duration::from_secs(70);
const MINUTE: Duration = Duration::from_mins(1);

/// A daemon, and what was measured of it.
struct Kept {
    running: Running,
    _document: Document,
    _namespace: Namespace,
    size: usize,
    start: f64,
    start_work: f64,
    idle_work: f64,
    descriptors: f64,
    threads: f64,
    resident: f64,
}

thread_local! {
    // Measured once for all contestants and rounds.
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

fn kept<T>(run: &Run, act: impl FnOnce(&Kept) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => act(kept),
        none => act(none.insert(Kept::start(run)?)),
    })
}

fn with(run: &mut Run, figure: fn(&Kept) -> f64) -> Result<()> {
    let figure = kept(run, |kept| Ok(figure(kept)))?;
    run.record(figure);
    Ok(())
}

impl Kept {
    fn start(run: &Run) -> Result<Self> {
        let (size, is_full) = (run.size(1000, 3), run.size(1, 0) > 0);
        let namespace = Namespace::enter()?;
        let document = Document::new(&text(size)?)?;
        let (running, start) = clock::time(|| document.keep_with_own_names(&[]));
        let running = running?;
        let start_work = running.work()?;
        let (settled, minute) = if is_full { (SETTLED, MINUTE) } else { Default::default() };
        std::thread::sleep(settled);
        let before = running.work()?;
        std::thread::sleep(minute);
        let process = format!("/proc/{}", running.pid());
        let count = |list: &str| -> Result<f64> {
            let entries = std::fs::read_dir(Path::new(&process).join(list))?.count();
            Ok(f64::from(u32::try_from(entries)?))
        };
        Ok(Kept {
            size,
            start: start.as_secs_f64(),
            start_work,
            idle_work: running.work()? - before,
            descriptors: count("fd")?,
            threads: count("task")?,
            resident: f64::from(u32::try_from(running.memory(RESIDENT)?)?),
            running,
            _document: document,
            _namespace: namespace,
        })
    }
}

/// Deletes a route in the middle one, and looks until it is there again. The time includes that of starting `ip`.
fn heal(run: &mut Run) -> Result<()> {
    let healed = kept(run, |kept| {
        let mounts = format!("--mount=/proc/{}/ns/mnt", kept.running.pid());
        let ip = format!("ip -n n{} route", kept.size / 2);
        let script = format!(
            "{ip} del blackhole 192.0.2.0/24; until {ip} show 192.0.2.0/24 | grep -q .; do :; done"
        );
        let (done, time) =
            clock::time(|| program::run_quietly("nsenter", &[&mounts, "sh", "-ec", &script]));
        done.context("no heal")?;
        Ok(time)
    })?;
    run.record(healed.as_secs_f64());
    Ok(())
}

fn text(size: usize) -> Result<String> {
    let mut text = String::new();
    for nth in 0..size {
        write!(
            text,
            "[namespaces.n{nth}]\ncreate = true\n\
             routes = [\n\
             {{ to = \"192.0.2.0/24\", type = \"blackhole\" }},\n\
             {{ to = \"198.51.100.0/24\", type = \"blackhole\" }},\n\
             {{ to = \"2001:db8::/32\", type = \"blackhole\" }},\n]\n\
             [namespaces.n{nth}.links.e0]\nkind = \"veth\"\npeer = \"e1\"\nup = true\n\
             addresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n"
        )?;
    }
    Ok(text)
}
