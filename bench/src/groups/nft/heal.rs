//! How soon the running loop restores a ruleset: from the change until the event of the commit that restores it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use homeostat_engine::{Alone, Bound, Handle, Loop, LoopDeps, MemoryLedger, Ownership, Pace};
use homeostat_netlink::uapi::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN};
use homeostat_netlink::{Batch, Event, Family, Group as Multicast, Listener, Options};
use homeostat_nft::{DesiredState, Nft};

use super::super::fixture::place;
use super::load::{self, Load, source};
use super::prepared::fresh;
use super::raw::{self, Missing};
use crate::{Group, Run, Unit, clock};

/// By the kind of change, and by the size of the ruleset.
pub(super) fn group() -> Group {
    Group::new("nft: heal in the loop, p50", Unit::Seconds)
        .with("a rule of 10", |run| ours(run, SMALL, RULE), &[])
        .with("`flush ruleset`, 10", |run| ours(run, SMALL, FLUSH), &[])
        .with("a rule of 10k", |run| ours(run, load::RULES, RULE), &[])
        .with("`flush ruleset`, 10k rules", |run| ours(run, load::RULES, FLUSH), &[])
        .with("an element of 100k", |run| ours(run, load::ELEMENTS, ELEMENT), &[])
}

/// A host's own firewall.
const SMALL: Load = Load { rules: 10, elements: 0 };
/// Too few to count as contention, which would cause pauses.
const HEALS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(30);

type Change = fn(Load) -> Result<Batch>;
const RULE: Change = |load| Ok(Missing::rule(load)?.delete);
const ELEMENT: Change = |load| Ok(Missing::element(load)?.delete);
const FLUSH: Change = |_| raw::flush();

fn ours(run: &mut Run, load: Load, change: Change) -> Result<()> {
    let load = load.at(run);
    let _namespace = fresh()?;
    let mut commits = CommitListener::open()?;
    let running = RunningLoop::start(load.desired()?);
    commits.next()?;
    let socket = raw::socket(0)?;
    let mut times = Vec::new();
    for _ in 0..HEALS {
        let change = change(load)?;
        // After a pass, a key waits for the minimum interval.
        thread::sleep(Duration::from_millis(20));
        let start = clock::now();
        raw::commit(&socket, &change)?;
        commits.next()?;
        commits.next()?;
        times.push(start.elapsed());
    }
    running.stop()?;
    times.sort_unstable();
    run.record(times.get(HEALS / 2).context("nothing was healed")?.as_secs_f64());
    Ok(())
}

/// Receives events of commits.
struct CommitListener(Listener);

impl CommitListener {
    fn open() -> Result<Self> {
        let groups = [Multicast(NFNLGRP_NFTABLES)];
        Ok(CommitListener(Listener::open(Family::Netfilter, &groups, &Options::for_events())?))
    }

    fn next(&mut self) -> Result<()> {
        const COMMIT: u16 = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN;
        let mut is_done = false;
        while !is_done {
            let received = self.0.receive_within(TIMEOUT, &mut |event| {
                is_done |= matches!(&event, Event::Message(message) if message.kind == COMMIT);
            })?;
            ensure!(received, "no commit");
        }
        Ok(())
    }
}

/// A loop on a thread of its own.
struct RunningLoop {
    handle: Handle<Nft>,
    thread: thread::JoinHandle<Result<()>>,
}

impl RunningLoop {
    fn start(desired: Arc<DesiredState>) -> Self {
        let bound = Bound::new(source(), desired, Ownership::Marked, place("nft"));
        let deps = LoopDeps::new(Alone::i_am_the_only_writer(), Arc::new(MemoryLedger::default()));
        let mut pace = Pace::of::<Nft>(1);
        pace.min_interval = Duration::from_millis(1);
        let (kept, handle) = Loop::new(bound, deps, pace);
        // A thread begins in the namespace of the one that starts it.
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(kept.run());
            Ok(())
        });
        RunningLoop { handle, thread }
    }

    fn stop(self) -> Result<()> {
        drop(self.handle);
        self.thread.join().map_err(|_| anyhow!("the loop panicked"))?
    }
}
