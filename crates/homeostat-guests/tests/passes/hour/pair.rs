//! The same trouble for two machines of which one acts at a time: the holder dies, is cut off from the store, or its
//! clock jumps, and the other one goes on with the journal that both have in the store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Alone, Control as _, Handle, Ledger, Limits, Loop, LoopDeps, Operations, Pace, Source as _,
    SqliteLedger,
};
use homeostat_guests::{Guests, Vmid};
use homeostat_store::{
    Call, Candidate, Clock, Fault, Held, Holder, MemoryStore, Notice, Withheld, open_journal,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::judge::{Judge, assert_is_kept};
use super::stage::{Stage, clock, let_pass};
use super::trouble::Trouble;
use super::{BEFORE_LONG, SHORT, Size, stays_quiet};

const TTL: Duration = Duration::from_secs(10);
/// As the loop of the guests has it.
const ANSWERS: Duration = Duration::from_secs(10);
const FULL: Size =
    Size { guests: 100, minutes: 60, troubled: 16, limits: Limits { total: 16, per_node: 2 } };

/// The time since the boot, which goes on while the machine sleeps.
#[derive(Clone, Debug)]
struct BootClock {
    began: Instant,
    slept: Arc<AtomicU64>,
}

impl Clock for BootClock {
    fn now(&self) -> Duration {
        self.began.elapsed() + Duration::from_secs(self.slept.load(Ordering::Relaxed))
    }
}

/// What runs on the holder.
type Acting = Arc<Mutex<Option<(Operations<Vmid>, Handle<Guests>)>>>;

struct Machine {
    id: u64,
    boot: BootClock,
    ledger: TempDir,
    acting: Acting,
    /// When it last began to act, or nothing while it does not.
    leads: Arc<Mutex<Option<Instant>>>,
    running: Option<JoinHandle<()>>,
}

impl Machine {
    fn new(id: u64) -> Self {
        Machine {
            id,
            boot: BootClock { began: Instant::now(), slept: Arc::default() },
            ledger: TempDir::new_in("/dev/shm").unwrap(),
            acting: Arc::default(),
            leads: Arc::default(),
            running: None,
        }
    }

    fn start(&mut self, stage: &Arc<Stage>, store: &MemoryStore) {
        let candidate = Candidate::new(
            Arc::new(store.clone()),
            Arc::new(self.boot.clone()),
            "/lead/guests",
            self.id.to_string(),
            TTL,
        );
        let leads = Arc::clone(&self.leads);
        let holder = Holder::new(candidate, ANSWERS).with_notices(move |notice| {
            let now = matches!(notice, Notice::Leads { .. }).then(Instant::now);
            *leads.lock().unwrap() = now;
        });
        let (stage, store, acting) = (Arc::clone(stage), store.clone(), Arc::clone(&self.acting));
        let (ledger, id) = (self.ledger.path().to_owned(), self.id);
        self.running = Some(tokio::spawn(async move {
            let work = |held: Held| {
                let (stage, store, acting) = (Arc::clone(&stage), store.clone(), acting.clone());
                let ledger = Arc::new(SqliteLedger::open(&ledger).unwrap());
                async move { Box::pin(act(&stage, store, held, ledger, acting, id)).await }
            };
            holder.while_held(work, std::future::pending()).await;
        }));
    }

    async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
        *self.acting.lock().unwrap() = None;
        *self.leads.lock().unwrap() = None;
    }

    fn leads(&self) -> Option<Instant> {
        *self.leads.lock().unwrap()
    }
}

/// What a holder does: it recovers the journal, then the loop begins with a full pass.
async fn act(
    stage: &Stage,
    store: MemoryStore,
    held: Held,
    ledger: Arc<dyn Ledger>,
    acting: Acting,
    id: u64,
) {
    let journal = loop {
        let shared = Arc::new(store.clone());
        let opened = open_journal(shared, "/once/guests", held.clone(), clock(stage.seed + id));
        match opened.await {
            Ok(journal) => break journal,
            Err(error) => {
                assert!(!error.to_string().contains("damaged"), "{error}");
                let_pass(Duration::from_secs(1)).await;
            }
        }
    };
    let operations = Operations::new(Arc::new(journal), Guests::NAME, "host", stage.limits);
    if let Err(Withheld::Predecessor { left }) = held.check() {
        operations.clear_at(Instant::now() + left);
    }
    let deps = LoopDeps::new(Arc::new(Alone::i_am_the_only_writer()), ledger);
    let pace = Pace::of::<Guests>(stage.seed).with_resync(Duration::from_secs(30)).unwrap();
    let (kept, handle) = Loop::new(stage.bound(&operations), deps, pace);
    *acting.lock().unwrap() = Some((operations, handle));
    let _clear = Clear(acting);
    Box::pin(kept.run()).await;
}

struct Clear(Acting);

impl Drop for Clear {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = None;
    }
}

struct Pair {
    stage: Arc<Stage>,
    store: MemoryStore,
    is_away: Arc<AtomicBool>,
    machines: [Machine; 2],
}

impl Pair {
    fn new(seed: u64, size: &Size) -> Self {
        let stage = Arc::new(Stage::new(seed, (size.guests, size.limits)));
        let (store, is_away) = (MemoryStore::new(), Arc::new(AtomicBool::new(false)));
        let mut machines = [Machine::new(0), Machine::new(1)];
        for machine in &mut machines {
            machine.start(&stage, &store);
        }
        let mut pair = Pair { stage, store, is_away, machines };
        pair.set_faults();
        pair
    }

    /// Some answers of the store are lost or late, for good.
    fn set_faults(&mut self) {
        let (is_away, mut calls) = (Arc::clone(&self.is_away), 0_u32);
        self.store.set_faults(move |call| {
            calls += 1;
            match calls % 40 {
                _ if is_away.load(Ordering::Relaxed) => Fault::Unreachable,
                7 => Fault::LostAnswer,
                17 if call == Call::Commit => Fault::LateRequest(Duration::from_secs(3)),
                27 => Fault::Delay(Duration::from_secs(1)),
                _ => Fault::None,
            }
        });
    }

    fn holder(&self) -> Option<usize> {
        self.machines.iter().position(|machine| machine.leads().is_some())
    }

    fn acting(&self) -> Option<(Operations<Vmid>, Handle<Guests>)> {
        self.machines.iter().find_map(|machine| machine.acting.lock().unwrap().clone())
    }

    /// Something happens to the holder.
    async fn disturb(&mut self, kind: u32) {
        let Some(holder) = self.holder() else { return };
        let machine = &mut self.machines[holder];
        match kind {
            0 => {
                machine.kill().await;
                machine.start(&self.stage, &self.store);
            }
            1 => _ = machine.boot.slept.fetch_add(TTL.as_secs(), Ordering::Relaxed),
            2 => self.store.leases().into_iter().for_each(|lease| self.store.expire(lease)),
            _ => self.is_away.store(true, Ordering::Relaxed),
        }
    }
}

async fn a_life(seed: u64, size: &Size) -> usize {
    let mut pair = Pair::new(seed, size);
    let stage = Arc::clone(&pair.stage);
    let mut trouble = Trouble::new(&stage, (seed, size.troubled));
    let (mut holders, mut disturbed) = (0, 0);
    let mut last = None;
    for round in 0..size.minutes * 6 {
        let_pass(trouble.pause()).await;
        trouble.stir();
        pair.is_away.store(false, Ordering::Relaxed);
        if round % 5 == 4 {
            pair.disturb(disturbed % 4).await;
            disturbed += 1;
        }
        let leads = pair.holder();
        if leads.is_some() && leads != last {
            (last, holders) = (leads, holders + 1);
        }
    }
    trouble.end();
    pair.is_away.store(false, Ordering::Relaxed);
    let converged = async {
        loop {
            let_pass(Duration::from_secs(1)).await;
            if let Some((operations, handle)) = pair.acting()
                && handle.status().is_converged
                && operations.journal().open_steps().is_empty()
            {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(BEFORE_LONG, converged).await;
    assert!(in_time.is_ok(), "seed {seed}: {:?}", pair.acting().map(|(_, loops)| loops.status()));
    assert_is_kept(&stage, seed);
    stays_quiet(&stage).await;
    stage.cluster.with(|world| {
        let judge = Judge::of(world, &trouble.disturbances);
        assert_eq!(judge.breaches(), Vec::<String>::new(), "seed {seed}");
    });
    holders
}

#[tokio::test(start_paused = true)]
async fn two_machines_take_over_from_each_other_and_start_no_guest_twice() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let (size, seeds) = if is_soak { (FULL, 3) } else { (SHORT, 1) };
    for seed in 1..=seeds {
        let holders = a_life(seed, &size).await;
        assert!(holders > 2, "seed {seed}: the lead has changed {holders} times");
    }
}

#[tokio::test(start_paused = true)]
async fn a_takeover_takes_the_time_of_the_lease_and_one_pass() {
    let mut pair = Pair::new(1, &SHORT);
    pair.store.clear_faults();
    let ready = async |pair: &Pair, other_than: Option<usize>| {
        loop {
            if let Some(holder) = pair.holder().filter(|holder| Some(*holder) != other_than) {
                let acting = pair.machines[holder].acting.lock().unwrap().clone();
                if acting.is_some_and(|(_, handle)| handle.status().is_converged) {
                    return holder;
                }
            }
            let_pass(Duration::from_millis(100)).await;
        }
    };
    let first = ready(&pair, None).await;
    // A quiet cluster: what the successor has to do is to look.
    let_pass(Duration::from_mins(1)).await;
    let writes = pair.stage.cluster.with(|world| world.writes().len());
    let died = Instant::now();
    pair.machines[first].kill().await;
    ready(&pair, Some(first)).await;
    // A pass over a cluster that answers takes no virtual time, but for the poll of this test.
    assert!(died.elapsed() <= TTL + Duration::from_secs(2), "it took {:?}", died.elapsed());
    let_pass(Duration::from_mins(1)).await;
    assert_eq!(pair.stage.cluster.with(|world| world.writes().len()), writes, "nothing was redone");
}
