//! The laws of a loop that a lease starts and stops, over the store in memory and in virtual time: with machines that
//! die, stop, sleep and are cut off from the store.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use homeostat_store::{
    Call, Candidate, Clock, Fault, Held, Holder, MemoryStore, Notice, Predecessor, Withheld,
};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
const ANSWERS: Duration = Duration::from_secs(2);
/// How long after an expired predecessor nothing is sent.
const WAIT: Duration = Duration::from_secs(7);
/// The loop of the tests sends something this often.
const TICK: Duration = Duration::from_millis(100);

/// Lets virtual time pass.
async fn pass_time(time: Duration) {
    assert!(tokio::time::timeout(time, std::future::pending::<()>()).await.is_err());
}

/// The clock of one machine, which jumps ahead when the machine was asleep.
#[derive(Clone, Debug)]
struct MachineClock {
    began: Instant,
    slept: Arc<AtomicU64>,
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.began.elapsed() + Duration::from_millis(self.slept.load(Ordering::Relaxed))
    }
}

/// What happened, in order. Times are those of the machine.
#[derive(Clone, Debug, PartialEq)]
enum Happened {
    Notice(usize, Notice, Duration),
    Started(usize, u64),
    Dropped(usize, u64),
    Sent(usize, u64, Duration),
    Withheld(usize, Withheld),
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Happened>>>);

impl Log {
    fn add(&self, happened: Happened) {
        self.0.lock().unwrap().push(happened);
    }

    fn all(&self) -> Vec<Happened> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, is_meant: impl Fn(&Happened) -> bool) -> usize {
        self.all().iter().filter(|happened| is_meant(happened)).count()
    }

    /// Waits until something has happened so often.
    async fn wait_for(&self, times: usize, is_meant: impl Fn(&Happened) -> bool) {
        while self.count(&is_meant) < times {
            pass_time(Duration::from_millis(10)).await;
        }
    }
}

struct Machine {
    id: usize,
    store: MemoryStore,
    log: Log,
    clock: MachineClock,
    /// Nothing of the process runs before then.
    frozen: Arc<Mutex<Instant>>,
    running: Option<(JoinHandle<()>, Arc<Notify>)>,
}

impl Machine {
    fn new(id: usize, store: &MemoryStore, log: &Log) -> Self {
        let clock = MachineClock { began: Instant::now(), slept: Arc::default() };
        let frozen = Arc::new(Mutex::new(Instant::now()));
        let (store, log) = (store.clone(), log.clone());
        let mut machine = Machine { id, store, log, clock, frozen, running: None };
        machine.start();
        machine
    }

    fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        let (id, log) = (self.id, self.log.clone());
        let store = Arc::new(self.store.clone());
        let clock = Arc::new(self.clock.clone());
        let candidate = Candidate::new(store, clock, "/lead", id.to_string(), TTL);
        let (told, time) = (log.clone(), self.clock.clone());
        let holder = Holder::new(candidate, ANSWERS)
            .with_notices(move |notice| told.add(Happened::Notice(id, notice, time.now())));
        let (stop, stopped) = (Arc::new(Notify::new()), Arc::clone(&self.frozen));
        let asked = Arc::clone(&stop);
        let clock = self.clock.clone();
        let run = async move {
            let work = |held| work(id, held, log.clone(), clock.clone());
            holder.while_held(work, asked.notified()).await;
        };
        self.running = Some((tokio::spawn(freezable(run, stopped)), stop));
    }

    fn kill(&mut self) {
        if let Some((running, _)) = self.running.take() {
            running.abort();
        }
    }

    async fn stop(&mut self) {
        if let Some((running, stop)) = self.running.take() {
            stop.notify_one();
            // A store that does not answer holds it up for some time.
            running.await.unwrap();
        }
    }

    fn freeze(&self, time: Duration) {
        *self.frozen.lock().unwrap() = Instant::now() + time;
    }

    fn suspend(&self, time: Duration) {
        self.clock.slept.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

/// A process that is stopped by a signal: nothing of it runs, time passes all the same.
async fn freezable(run: impl Future<Output = ()>, frozen: Arc<Mutex<Instant>>) {
    let mut run = std::pin::pin!(run);
    let mut thaw: Option<Pin<Box<tokio::time::Sleep>>> = None;
    std::future::poll_fn(move |context| {
        let until = *frozen.lock().unwrap();
        if until > Instant::now() {
            let sleep = thaw.insert(Box::pin(tokio::time::sleep_until(until)));
            let _ = sleep.as_mut().poll(context);
            return Poll::Pending;
        }
        run.as_mut().poll(context)
    })
    .await;
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Sends something in each tick; answers come within the time for it.
async fn work(id: usize, held: Held, log: Log, clock: MachineClock) {
    let term = held.term().revision();
    log.add(Happened::Started(id, term));
    let _dropped = OnDrop(|| log.add(Happened::Dropped(id, term)));
    loop {
        match held.dispatch() {
            Ok(dispatch) => {
                log.add(Happened::Sent(id, term, clock.now()));
                pass_time(TICK).await;
                dispatch.answered();
            }
            Err(withheld) => {
                log.add(Happened::Withheld(id, withheld));
                pass_time(TICK).await;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Wait(Duration),
    Kill(usize),
    Stop(usize),
    Start(usize),
    Freeze(usize, Duration),
    Sleep(usize, Duration),
    Store(Trouble),
    MuteWatches,
    BreakWatches,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Away,
    LoseAnswers,
    Late,
    Slow,
}

const MACHINES: usize = 3;

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let time = |most: u64| (1..most).prop_map(Duration::from_millis);
    let machine = 0..MACHINES;
    let trouble = prop_oneof![
        Just(Trouble::None),
        Just(Trouble::Away),
        Just(Trouble::LoseAnswers),
        Just(Trouble::Late),
        Just(Trouble::Slow),
    ];
    let act = prop_oneof![
        6 => time(12_000).prop_map(Act::Wait),
        2 => machine.clone().prop_map(Act::Kill),
        2 => machine.clone().prop_map(Act::Stop),
        3 => machine.clone().prop_map(Act::Start),
        2 => (machine.clone(), time(15_000)).prop_map(|(id, time)| Act::Freeze(id, time)),
        2 => (machine, time(15_000)).prop_map(|(id, time)| Act::Sleep(id, time)),
        3 => trouble.prop_map(Act::Store),
        1 => Just(Act::MuteWatches),
        1 => Just(Act::BreakWatches),
    ];
    prop::collection::vec(act, 1..40)
}

fn trouble(store: &MemoryStore, trouble: Trouble) {
    let mut calls = 0_u32;
    store.set_faults(move |call| {
        calls += 1;
        match trouble {
            Trouble::None => Fault::None,
            Trouble::Away => Fault::Unreachable,
            // A third of them, so that something goes on.
            _ if !calls.is_multiple_of(3) => Fault::None,
            Trouble::LoseAnswers => Fault::LostAnswer,
            Trouble::Late if call == Call::Commit => Fault::LateRequest(3 * SECOND),
            Trouble::Late => Fault::None,
            Trouble::Slow => Fault::Delay(SECOND),
        }
    });
}

async fn replay(acts: &[Act]) -> Log {
    let (store, log) = (MemoryStore::new(), Log::default());
    let mut machines: Vec<_> = (0..MACHINES).map(|id| Machine::new(id, &store, &log)).collect();
    for act in acts {
        match act {
            Act::Wait(time) => pass_time(*time).await,
            Act::Kill(id) => machines[*id].kill(),
            Act::Stop(id) => machines[*id].stop().await,
            Act::Start(id) => machines[*id].start(),
            Act::Freeze(id, time) => machines[*id].freeze(*time),
            Act::Sleep(id, time) => machines[*id].suspend(*time),
            Act::Store(what) => trouble(&store, *what),
            Act::MuteWatches => store.mute_watches(),
            Act::BreakWatches => store.break_watches(),
        }
    }
    // Everything is well again: law 7. Candidates look by themselves every 30 s, and a frozen process is one, too.
    store.clear_faults();
    for machine in &mut machines {
        machine.start();
    }
    let sent = log.count(|happened| matches!(happened, Happened::Sent(..)));
    let again = log.wait_for(sent + 1, |happened| matches!(happened, Happened::Sent(..)));
    let in_time = tokio::time::timeout(15 * SECOND + TTL + WAIT + 31 * SECOND, again).await;
    assert!(in_time.is_ok(), "nobody leads in the end");
    log
}

/// What breaks a law.
fn judge(log: &Log) -> Result<(), String> {
    let mut newest = 0;
    let mut last_sent = 0;
    let mut clear = Duration::ZERO;
    for happened in log.all() {
        match happened {
            Happened::Notice(_, Notice::Leads { term, predecessor }, at) => {
                if term <= newest {
                    return Err(format!("law 3: term {term} after {newest}"));
                }
                newest = term;
                clear = if predecessor == Predecessor::Expired { at + WAIT } else { at };
            }
            Happened::Sent(id, term, at) => {
                if term < last_sent || term < newest {
                    return Err(format!("law 1: machine {id} sent in term {term} of {newest}"));
                }
                last_sent = term;
                if at < clear {
                    return Err(format!("law 4: machine {id} sent too soon in term {term}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        cases: if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 10_000 } else { 64 },
        ..Config::default()
    })]

    #[test]
    fn one_machine_at_a_time_sends_and_successors_wait(acts in acts()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let judged = judge(&runtime.block_on(replay(&acts)));
        prop_assert!(judged.is_ok(), "{}", judged.unwrap_err());
    }
}

fn is_sent_by(id: usize) -> impl Fn(&Happened) -> bool {
    move |happened| matches!(happened, Happened::Sent(by, ..) if *by == id)
}

fn is_dropped(happened: &Happened) -> bool {
    matches!(happened, Happened::Dropped(..))
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_stops_its_loop_within_half_a_second() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let machine = Machine::new(0, &store, &log);
    log.wait_for(3, is_sent_by(0)).await;
    store.set_faults(|call| if call == Call::Renew { Fault::Unreachable } else { Fault::None });
    machine.suspend(TTL);
    let sent = log.count(is_sent_by(0));
    pass_time(Duration::from_millis(500)).await;
    assert_eq!(log.count(is_dropped), 1);
    assert_eq!(log.count(is_sent_by(0)), sent, "nothing is sent after the deadline");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_stops_the_loop() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let _machine = Machine::new(0, &store, &log);
    log.wait_for(3, is_sent_by(0)).await;
    store.leases().into_iter().for_each(|lease| store.expire(lease));
    // It is asked for with each renewal.
    pass_time(TTL / 3 + TICK).await;
    assert!(log.count(is_dropped) >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_successor_waits_after_an_expired_lease_and_not_after_a_resigned_one() {
    for is_killed in [true, false] {
        let (store, log) = (MemoryStore::new(), Log::default());
        let mut first = Machine::new(0, &store, &log);
        log.wait_for(3, is_sent_by(0)).await;
        let _second = Machine::new(1, &store, &log);
        pass_time(SECOND).await;
        let ended = Instant::now();
        if is_killed {
            first.kill();
        } else {
            // In the moment in which nothing is on its way.
            log.wait_for(log.count(is_sent_by(0)) + 1, is_sent_by(0)).await;
            first.stop().await;
        }
        log.wait_for(1, |it| matches!(it, Happened::Started(1, _))).await;
        let taken_over = ended.elapsed();
        log.wait_for(1, is_sent_by(1)).await;
        if is_killed {
            assert!(taken_over <= TTL, "it took {taken_over:?}");
            assert!(ended.elapsed() >= taken_over + WAIT);
        }
        assert_eq!(judge(&log), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn who_stops_resigns_unless_something_is_without_an_answer() {
    for (is_answered, expected) in [(true, Predecessor::Resigned), (false, Predecessor::Expired)] {
        let store = MemoryStore::new();
        let clock = MachineClock { began: Instant::now(), slept: Arc::default() };
        let candidate = |name: &str| {
            let (store, clock) = (Arc::new(store.clone()), Arc::new(clock.clone()));
            Candidate::new(store, clock, "/lead", name, TTL)
        };
        let holder = Holder::new(candidate("a"), ANSWERS);
        let work = |held: Held| async move {
            let dispatch = held.dispatch().unwrap();
            if is_answered {
                dispatch.answered();
                std::future::pending::<()>().await;
            } else {
                // Dropped with the loop while it waits for the answer.
                std::future::pending::<()>().await;
                dispatch.answered();
            }
        };
        holder.while_held(work, pass_time(SECOND)).await;
        let before = Instant::now();
        let term = candidate("b").elected().await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO, "nobody waits for the lease");
        assert_eq!(term.predecessor(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_ends_gives_the_lead_to_others() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let clock = Arc::new(MachineClock { began: Instant::now(), slept: Arc::default() });
    let candidate = Candidate::new(Arc::new(store.clone()), clock, "/lead", "short", TTL);
    let holder = Holder::new(candidate, ANSWERS);
    let mut other = None;
    let work = |_| {
        other.get_or_insert_with(|| Machine::new(1, &store, &log));
        pass_time(SECOND)
    };
    tokio::select! {
        () = holder.while_held(work, std::future::pending()) => panic!("nobody stopped it"),
        () = log.wait_for(1, is_sent_by(1)) => {}
    }
}
