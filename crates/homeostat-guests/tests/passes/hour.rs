//! An hour of trouble in virtual time, over what users run: the source, the loop, lanes, a journal and a ledger on
//! disk, and HTTPS to the simulated cluster. Only the wires are missing.
//!
//! Judged from outside in the end: by the tasks that the cluster had, the requests that reached it, and what it is.

mod judge;
mod pair;
pub(crate) mod stage;
mod trouble;

use std::sync::atomic::Ordering;
use std::time::Duration;

use homeostat_engine::{Control as _, Limits};

use self::judge::{Judge, assert_is_kept};
use self::stage::{Process, Stage, let_pass};
use self::trouble::Trouble;

/// How much.
struct Size {
    guests: u32,
    minutes: u32,
    /// Guests that something happens to at once, at most.
    troubled: u32,
    limits: Limits,
}

/// A life as short as a test should be, and one as long as it takes to trust it.
const SHORT: Size =
    Size { guests: 40, minutes: 8, troubled: 8, limits: Limits { total: 5, per_node: 2 } };
const FULL: Size =
    Size { guests: 500, minutes: 60, troubled: 24, limits: Limits { total: 16, per_node: 2 } };

/// Once nothing goes wrong any more, all is well before this time is over. It separates late from never, and no
/// more: virtual time runs on, through many looks, while the journal waits for a disk that is real.
const BEFORE_LONG: Duration = Duration::from_hours(24);

/// In the quarter of a minute at most between two troubles, for each guest. While a cluster refuses everything, each
/// retry of a guest looks at all nodes.
const REQUESTS: usize = 100;

/// What is kept of anything that the target says, at most, in characters.
const KEPT: usize = 20_000;

/// Lives through it, and returns the most tasks at once, on a node and in all.
async fn a_life(seed: u64, size: &Size) -> (usize, usize) {
    let stage = Stage::new(seed, (size.guests, size.limits));
    let mut trouble = Trouble::new(&stage, (seed, size.troubled));
    let mut process = Process::start(&stage).await;
    let requests = || stage.cluster.with(|world| world.calls.len());
    for _ in 0..size.minutes * 6 {
        let (pause, before) = (trouble.pause(), requests());
        let_pass(pause).await;
        let sent = requests() - before;
        let most = REQUESTS * usize::try_from(size.guests).unwrap();
        assert!(sent < most, "seed {seed}: {sent} requests in {pause:?}");
        trouble.stir();
        if trouble.rarely() {
            process.put_again(&stage);
        }
        if trouble.rarely() {
            process.kill().await;
            process = Process::start(&stage).await;
        }
    }
    trouble.end();
    let converged = tokio::time::timeout(BEFORE_LONG, process.converge()).await;
    let open = process.operations.journal().open_steps();
    assert!(converged.is_ok(), "seed {seed}: {:?}, {open:?}", process.handle.status());
    process.operations.tasks_finished().await;
    assert!(process.operations.journal().open_steps().is_empty(), "seed {seed}");
    assert_is_kept(&stage, seed);
    let length = std::fs::metadata(stage.state.path().join("journal")).unwrap().len();
    // Below a megabyte it is not worth making anew; above, it may grow to twice what it needs.
    let most = (1 << 20).max(u64::from(size.guests) * 4000);
    assert!(length < most, "seed {seed}: the journal has {length} bytes");
    let longest = stage.longest_event.load(Ordering::Relaxed);
    assert!(longest < KEPT, "seed {seed}: an event of {longest} characters");
    stays_quiet(&stage).await;
    stage.cluster.with(|world| {
        let judge = Judge::of(world, &trouble.disturbances);
        assert_eq!(judge.breaches(), Vec::<String>::new(), "seed {seed}");
        judge.most_at_once()
    })
}

/// What is as declared is left alone.
async fn stays_quiet(stage: &Stage) {
    let before = stage.cluster.with(|world| (world.writes().len(), world.calls.len()));
    let_pass(Duration::from_mins(2)).await;
    let after = stage.cluster.with(|world| (world.writes().len(), world.calls.len()));
    assert_eq!(before.0, after.0, "nothing is written");
    assert!(before.1 < after.1, "it was looked at");
}

#[tokio::test(start_paused = true)]
async fn guests_on_ten_nodes_come_through_an_hour_of_faults() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let (size, seeds) = if is_soak { (FULL, 3) } else { (SHORT, 2) };
    let (mut on_a_node, mut in_all) = (0, 0);
    for seed in 1..=seeds {
        let most = a_life(seed, &size).await;
        (on_a_node, in_all) = (on_a_node.max(most.0), in_all.max(most.1));
    }
    let Limits { total, per_node } = size.limits;
    assert_eq!((on_a_node, in_all), (per_node, total), "as many as may be, and no more");
}
