//! A cluster in memory, what is declared of it, and processes that come and go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use homeostat_engine::journal::{Clock, JournalError, Millis};
use homeostat_engine::{
    Alone, Bound, Config, DispatchGuard, Event, Events, Handle, Journal, Ledger, LedgerKey, Limits,
    Loop, LoopDeps, Operations, Ownership, Pace, Source as _, SqliteLedger,
};
use homeostat_guests::{
    Client, DesiredState, Guests, Kind, Run, Stop, Timeouts, Token, Trust, Vmid, Wanted,
};
use homeostat_pve_simulator::{Guest, InMemory, Kind as Made, OnShutdown, Simulator, World};
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::ground::{desired, options};

/// The number of the first guest, and of the first that is not declared.
pub(crate) const FIRST: u32 = 101;
pub(crate) const UNDECLARED: u32 = 9000;
const NODES: u32 = 10;
/// How long the cluster's resource manager takes.
pub(crate) const HA_DELAY: Duration = Duration::from_secs(20);
/// Where a wait for the disk is none.
const FAST: &str = "/dev/shm";

pub(crate) struct Stage {
    pub(crate) cluster: InMemory,
    pub(crate) state: TempDir,
    pub(crate) desired: Arc<DesiredState>,
    pub(crate) limits: Limits,
    /// Whether no client can reach the cluster.
    pub(crate) is_cut_off: Arc<AtomicBool>,
    /// How long an answer is waited for.
    pub(crate) answer: Duration,
    /// The longest event of any process, in characters.
    pub(crate) longest_event: Arc<AtomicUsize>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
}

impl Stage {
    pub(crate) fn new(seed: u64, (guests, limits): (u32, Limits)) -> Self {
        let desired = desired((FIRST..FIRST + guests).map(|vmid| (vmid, wanted(vmid))));
        Stage {
            cluster: InMemory::new(world(&desired)).unwrap(),
            state: TempDir::new_in(FAST).unwrap(),
            desired,
            limits,
            is_cut_off: Arc::default(),
            answer: Timeouts::default().answer,
            longest_event: Arc::default(),
            clock: clock(seed),
            seed,
        }
    }

    /// The source, as the daemon makes it, but for the wires.
    fn source(&self) -> Guests {
        let trust = Trust::Pinned(self.cluster.fingerprint().parse().unwrap());
        let token = Token::parse(&Simulator::token()).unwrap();
        let client = Client::new(InMemory::endpoint().parse().unwrap(), token, &trust).unwrap();
        let (cluster, is_cut_off) = (self.cluster.clone(), Arc::clone(&self.is_cut_off));
        let client = client.through(move |_| {
            let is_cut_off = is_cut_off.load(Ordering::Relaxed);
            let reached = (!is_cut_off).then(|| cluster.dial());
            async move { reached.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused)) }
        });
        // Less than some tasks take, and than some nodes are silent.
        let timeouts =
            Timeouts { answer: self.answer, task: Duration::from_mins(2), ..Timeouts::default() };
        Guests::new(&client, "default", timeouts)
    }

    pub(crate) fn bound(&self, operations: &Operations<Vmid>) -> Bound<Guests> {
        let place = LedgerKey::new("default", Guests::NAME, "host").with_identity("cluster");
        let mut config = Config::default();
        (config.dispatch, config.lanes) = (DispatchGuard::Operations(operations.clone()), 64);
        let desired = Arc::clone(&self.desired);
        Bound::new(self.source(), desired, Ownership::Checkpoint, place)
            .with_config(config)
            .with_nothing(DesiredState::default())
    }
}

/// Our clock follows virtual time. It is ahead of those of the nodes, or behind.
pub(crate) fn clock(seed: u64) -> Clock {
    let (skew, now) = (Duration::from_secs(45), UNIX_EPOCH.elapsed().unwrap());
    let shown = if seed.is_multiple_of(2) { now + skew } else { now.saturating_sub(skew) };
    let since = Instant::now();
    Arc::new(move || Millis(u64::try_from((shown + since.elapsed()).as_millis()).unwrap()))
}

/// Ten nodes, by the last digit.
pub(crate) fn node(number: u32) -> String {
    format!("pve{}", number % NODES)
}

/// Guests of all kinds.
fn wanted(vmid: u32) -> Wanted {
    let machine = vmid.is_multiple_of(3);
    let declared: &[(&str, &str)] = match machine {
        _ if vmid.is_multiple_of(13) => &[],
        true => &[("description", "one of many"), ("tags", "web")],
        false => &[("cores", "2"), ("description", "one of many")],
    };
    Wanted {
        kind: if machine { Kind::Qemu } else { Kind::Lxc },
        node: (!vmid.is_multiple_of(7)).then(|| node(vmid)),
        run: Some(if vmid.is_multiple_of(4) { Run::Stopped } else { Run::Running }),
        stop: match vmid % 8 {
            0 => Stop::Immediate,
            _ => Stop::Graceful(Duration::from_secs(25)),
        },
        ..options(declared)
    }
}

fn world(desired: &DesiredState) -> World {
    let mut world = World::default();
    world.ha_delay = HA_DELAY;
    for (Vmid(vmid), wanted) in desired.iter() {
        let kind = if wanted.kind == Kind::Lxc { Made::Lxc } else { Made::Qemu };
        let guest = Guest {
            is_ha: vmid.is_multiple_of(11),
            on_shutdown: if vmid.is_multiple_of(5) {
                OnShutdown::Ignores
            } else {
                OnShutdown::Stops
            },
            ..Guest::new(kind, node(*vmid))
        };
        world.put(*vmid, guest);
    }
    for vmid in UNDECLARED..UNDECLARED + 2 * NODES {
        let guest = Guest::new(Made::Lxc, node(vmid));
        world.put(vmid, if vmid.is_multiple_of(2) { guest.running() } else { guest });
    }
    world
}

/// One life of the process.
pub(crate) struct Process {
    pub(crate) operations: Operations<Vmid>,
    pub(crate) handle: Handle<Guests>,
    running: JoinHandle<()>,
}

impl Process {
    pub(crate) async fn start(stage: &Stage) -> Self {
        let journal = Arc::new(journal(stage).await);
        let operations = Operations::new(journal, Guests::NAME, "host", stage.limits);
        let ledger: Arc<dyn Ledger> = Arc::new(SqliteLedger::open(stage.state.path()).unwrap());
        let lock = Arc::new(Alone::i_am_the_only_writer());
        let events = Events::default();
        tokio::spawn(measure(events.subscribe(), Arc::clone(&stage.longest_event)));
        let deps = LoopDeps::new(lock, ledger).with_events(events);
        // As the daemon keeps a cluster.
        let pace = Pace::of::<Guests>(stage.seed).with_resync(Duration::from_secs(30)).unwrap();
        let (kept, handle) = Loop::new(stage.bound(&operations), deps, pace);
        Process { operations, handle, running: tokio::spawn(kept.run()) }
    }

    /// Puts the same desired state again, with a client of its own, as a reload does.
    pub(crate) fn put_again(&self, stage: &Stage) {
        self.handle.put(stage.bound(&self.operations)).unwrap();
    }

    /// Waits until all is as declared.
    pub(crate) async fn converge(&self) {
        self.handle.wait_for(|status| status.is_converged).await.unwrap();
    }

    /// Nothing of it goes on: no loop, no wait for a task, no journal.
    pub(crate) async fn kill(self) {
        let Process { operations, handle, running } = self;
        running.abort();
        let _ = running.await;
        drop((operations, handle));
    }
}

/// Measures the events of a process, as long as it lives.
async fn measure(mut events: Receiver<Event>, longest: Arc<AtomicUsize>) {
    loop {
        match events.recv().await {
            Ok(event) => {
                longest.fetch_max(format!("{:?}", event.kind).len(), Ordering::Relaxed);
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// What a killed process had handed over is written before its journal is free.
async fn journal(stage: &Stage) -> Journal {
    for _ in 0..100_000 {
        match Journal::open(stage.state.path(), Arc::clone(&stage.clock)) {
            Err(JournalError::Busy { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
    panic!("another process holds the journal");
}

/// Lets virtual time pass, with everything that happens in it.
pub(crate) async fn let_pass(time: Duration) {
    let never = tokio::time::timeout(time, std::future::pending::<()>()).await;
    assert!(never.is_err());
}
