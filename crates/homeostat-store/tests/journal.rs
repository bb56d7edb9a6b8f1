//! The journal in the store: what a successor finds in it, and what the store's faults and former holders cannot do
//! to it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::sync::Arc;
use std::time::Duration;

use homeostat_kit::engine::Journal;
use homeostat_kit::engine::journal::{
    Clock as WallClock, CommandKey, End, Intent, JournalError, Known, Millis, Repeat, StepId,
    Subject,
};
use homeostat_store::{
    Call, Candidate, Committed, Fault, Held, Holder, Keys, MemoryStore, RuntimeTime, Store as _,
    Transaction, open_journal,
};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
const PREFIX: &str = "/once/guests/journal";

async fn pass_time(time: Duration) {
    assert!(tokio::time::timeout(time, std::future::pending::<()>()).await.is_err());
}

/// A process that holds the lead until it is killed.
struct Process {
    held: Held,
    running: JoinHandle<()>,
}

impl Process {
    async fn elected(store: &MemoryStore) -> Self {
        let (send, receive) = oneshot::channel();
        let (shared, clock) = (Arc::new(store.clone()), Arc::new(RuntimeTime::new()));
        let candidate = Candidate::new(shared, clock, "/lead", "a", TTL);
        let mut send = Some(send);
        let running = tokio::spawn(async move {
            let work = |held: Held| {
                if let Some(send) = send.take() {
                    let _ = send.send(held);
                }
                std::future::pending()
            };
            Holder::new(candidate, SECOND).while_held(work, std::future::pending()).await;
        });
        let held = receive.await.unwrap();
        held.until_clear().await;
        Process { held, running }
    }

    async fn journal(&self, store: &MemoryStore) -> Result<Journal, JournalError> {
        let clock: WallClock = Arc::new(|| Millis(1));
        open_journal(Arc::new(store.clone()), PREFIX, self.held.clone(), clock).await
    }

    fn kill(&self) {
        self.running.abort();
    }
}

fn intent(key: &str) -> Intent {
    let (source, scope, key) = ("guests".to_owned(), "pve".to_owned(), key.to_owned());
    Intent {
        subject: Subject { source, scope, key },
        kind: "start".to_owned(),
        parameters: "9f2c".to_owned(),
        precondition: None,
        node: "one".to_owned(),
        repeat: Repeat::Hurts,
        command: None,
    }
}

fn done() -> End {
    End::Succeeded { answer: serde_json::Value::Null }
}

#[tokio::test(start_paused = true)]
async fn a_successor_goes_on_with_what_was_written() {
    let store = MemoryStore::new();
    let first = Process::elected(&store).await;
    let journal = first.journal(&store).await.unwrap();
    let ended = journal.begin(intent("a")).await.unwrap();
    journal.dispatched(ended, "task-a").await.unwrap();
    journal.end(ended, done()).await.unwrap();
    let open = journal.begin(intent("b")).await.unwrap();
    journal.dispatched(open, "task-b").await.unwrap();
    let mut named = intent("c");
    named.command = Some(CommandKey { name: "once".to_owned(), expires: Millis(1000) });
    let command = journal.begin(named).await.unwrap();
    journal.end(command, done()).await.unwrap();
    first.kill();
    let second = Process::elected(&store).await;
    let journal = second.journal(&store).await.unwrap();
    let steps = journal.open_steps();
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].id, steps[0].task.as_deref()), (open, Some("task-b")));
    assert_eq!(journal.known("once"), Some(Known::Ended(done())));
    assert!(journal.begin(intent("b")).await.is_err(), "its step is open");
    let next = journal.begin(intent("a")).await.unwrap();
    assert!(next > open, "ids grow over all machines");
    assert_eq!(journal.open_step(&intent("a").subject).unwrap().after.as_deref(), Some("task-a"));
}

#[tokio::test(start_paused = true)]
async fn a_former_holder_writes_nothing() {
    let store = MemoryStore::new();
    let first = Process::elected(&store).await;
    let former = first.journal(&store).await.unwrap();
    former.begin(intent("a")).await.unwrap();
    // The store ends its lease, and its own clock does not tell.
    store.leases().into_iter().for_each(|lease| store.expire(lease));
    first.kill();
    let second = Process::elected(&store).await;
    second.journal(&store).await.unwrap();
    let error = former.begin(intent("b")).await.unwrap_err();
    assert!(matches!(error, JournalError::NotHeld { .. }), "{error}");
    let journal = second.journal(&store).await.unwrap();
    assert_eq!(journal.open_steps().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_found_out_and_a_late_request_does_nothing() {
    for fault in [Fault::LostAnswer, Fault::LateRequest(2 * SECOND)] {
        let store = MemoryStore::new();
        let process = Process::elected(&store).await;
        let journal = process.journal(&store).await.unwrap();
        let mut commits = 0;
        store.set_faults(move |call| {
            commits += u32::from(call == Call::Commit);
            if call == Call::Commit && commits == 1 { fault } else { Fault::None }
        });
        let step = journal.begin(intent("a")).await.unwrap();
        journal.end(step, done()).await.unwrap();
        pass_time(3 * SECOND).await;
        let second = journal.begin(intent("a")).await.unwrap();
        let again = process.journal(&store).await.unwrap();
        let open: Vec<StepId> = again.open_steps().iter().map(|step| step.id).collect();
        assert_eq!(open, [second], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_nothing_begins_and_what_has_happened_is_written_later() {
    let store = MemoryStore::new();
    let process = Process::elected(&store).await;
    let journal = process.journal(&store).await.unwrap();
    let step = journal.begin(intent("a")).await.unwrap();
    let fails = |call| if call == Call::Commit { Fault::NoLeader } else { Fault::None };
    store.set_faults(fails);
    let error = journal.begin(intent("b")).await.unwrap_err();
    assert!(error.to_string().contains("the store has no leader"), "{error}");
    assert!(error.help().unwrap().contains("see to the store"));
    assert!(journal.end(step, done()).await.is_err());
    store.clear_faults();
    let other = journal.begin(intent("c")).await.unwrap();
    let again = process.journal(&store).await.unwrap();
    assert_eq!(again.open_steps().iter().map(|step| step.id).collect::<Vec<_>>(), [other]);
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_while_requests_of_a_lost_predecessor_may_arrive() {
    let store = MemoryStore::new();
    let first = Process::elected(&store).await;
    first.kill();
    let (shared, clock) = (Arc::new(store.clone()), Arc::new(RuntimeTime::new()));
    let holder = Holder::new(Candidate::new(shared, clock, "/lead", "b", TTL), SECOND);
    let work = |held: Held| {
        let store = store.clone();
        async move {
            let clock: WallClock = Arc::new(|| Millis(1));
            let journal = open_journal(Arc::new(store), PREFIX, held.clone(), clock).await.unwrap();
            let error = journal.begin(intent("a")).await.unwrap_err();
            assert!(error.to_string().contains("may still arrive"), "{error}");
            let mut harmless = intent("b");
            harmless.repeat = Repeat::Harmless;
            journal.begin(harmless).await.unwrap();
            held.until_clear().await;
            journal.begin(intent("a")).await.unwrap();
            std::future::pending::<()>().await;
        }
    };
    holder.while_held(work, pass_time(30 * SECOND)).await;
    let records = store.list(Keys::Below(format!("{PREFIX}/record/"))).await.unwrap();
    assert_eq!(records.values.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn large_batches_are_split_and_old_steps_are_deleted() {
    let store = MemoryStore::new();
    let process = Process::elected(&store).await;
    let journal = process.journal(&store).await.unwrap();
    for round in 0..12 {
        let keys: Vec<String> = (0..300).map(|key| format!("{round}-{key}")).collect();
        let begun = keys.iter().map(|key| journal.begin(intent("x").with_key(key)));
        let begun = futures_join(begun).await;
        for step in begun {
            journal.end(step, End::Failed { why: "x".repeat(200) }).await.unwrap();
        }
        // The same keys again, so that the former steps are not needed.
        let again =
            futures_join(keys.iter().map(|key| journal.begin(intent("x").with_key(key)))).await;
        for step in again {
            journal.end(step, done()).await.unwrap();
        }
    }
    let records = store.list(Keys::Below(format!("{PREFIX}/record/"))).await.unwrap();
    let all = 12 * 300 * 4;
    assert!(records.values.len() < all, "old steps are deleted");
    let again = process.journal(&store).await.unwrap();
    assert!(again.open_steps().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_interrupted_and_a_damaged_record_are_told_apart() {
    let store = MemoryStore::new();
    let process = Process::elected(&store).await;
    let journal = process.journal(&store).await.unwrap();
    let step = journal.begin(intent("a")).await.unwrap();
    journal.end(step, done()).await.unwrap();
    let delete = Transaction::new().delete(format!("{PREFIX}/record/1"));
    assert!(matches!(store.commit(delete).await, Ok(Committed::Done { .. })));
    let journal = process.journal(&store).await.unwrap();
    assert!(journal.open_steps().is_empty());
    journal.begin(intent("a")).await.unwrap();
    let left = store.list(Keys::One(format!("{PREFIX}/record/2"))).await.unwrap();
    assert!(left.values.is_empty(), "the rest of it is deleted");
    let _ = store.commit(Transaction::new().put(format!("{PREFIX}/record/9"), "{")).await.unwrap();
    let error = process.journal(&store).await.unwrap_err();
    assert!(error.to_string().contains("record 9"), "{error}");
    assert!(error.help().unwrap().contains("delete them"));
}

trait WithKey {
    fn with_key(self, key: &str) -> Self;
}

impl WithKey for Intent {
    fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.subject.key);
        self
    }
}

/// All of them at once, so that they share batches.
async fn futures_join(
    all: impl Iterator<Item = impl Future<Output = Result<StepId, JournalError>>>,
) -> Vec<StepId> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (future, result) in all.iter_mut().filter(|(_, result)| result.is_none()) {
            if let std::task::Poll::Ready(answer) = future.as_mut().poll(context) {
                *result = Some(answer.unwrap());
            }
        }
        if all.iter().all(|(_, result)| result.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    all.into_iter().filter_map(|(_, result)| result).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Begin(u8),
    Task(u8),
    End(u8),
    Takeover,
    Reopen,
    Faults(u8),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = 0..4_u8;
    let act = prop_oneof![
        6 => key.clone().prop_map(Act::Begin),
        3 => key.clone().prop_map(Act::Task),
        4 => key.prop_map(Act::End),
        1 => Just(Act::Takeover),
        1 => Just(Act::Reopen),
        3 => (0..5_u8).prop_map(Act::Faults),
        2 => (1..4000_u64).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..60)
}

fn set_faults(store: &MemoryStore, kind: u8) {
    let mut calls = 0_u32;
    store.set_faults(move |call| {
        calls += 1;
        match kind {
            _ if !matches!(call, Call::Commit | Call::List) || !calls.is_multiple_of(3) => {
                Fault::None
            }
            1 => Fault::LostAnswer,
            2 => Fault::LateRequest(3 * SECOND),
            3 => Fault::Unreachable,
            4 => Fault::Delay(SECOND),
            _ => Fault::None,
        }
    });
}

/// Opens it, after another election if the term was lost; a store that fails is asked again.
async fn opened(process: &mut Process, store: &MemoryStore) -> Journal {
    loop {
        if !process.held.is_held() {
            process.kill();
            *process = Process::elected(store).await;
        }
        match process.journal(store).await {
            Ok(journal) => return journal,
            Err(JournalError::NotHeld { .. }) => {}
            Err(JournalError::Shared { why, .. }) if !why.contains("damaged") => {}
            Err(error) => panic!("{error}"),
        }
        pass_time(Duration::from_millis(100)).await;
    }
}

/// Whatever the store does and whoever takes over: the journal can be read, and has every step that was begun and not
/// ended.
async fn replay(acts: &[Act]) {
    let store = MemoryStore::new();
    let mut process = Process::elected(&store).await;
    let mut journal = opened(&mut process, &store).await;
    // What was acknowledged: the step of each key, and whether an end was tried.
    let mut open: [Option<(StepId, bool)>; 4] = [None; 4];
    for act in acts {
        match act {
            Act::Begin(key) => {
                if let Ok(step) = journal.begin(intent(&key.to_string())).await {
                    open[usize::from(*key)] = Some((step, false));
                }
            }
            Act::Task(key) => {
                if let Some((step, _)) = open[usize::from(*key)] {
                    let _ = journal.dispatched(step, "task").await;
                }
            }
            Act::End(key) => {
                if let Some((step, is_tried)) = &mut open[usize::from(*key)] {
                    let ended = journal.end(*step, done()).await;
                    *is_tried = true;
                    if ended.is_ok() {
                        open[usize::from(*key)] = None;
                    }
                }
            }
            Act::Faults(kind) => set_faults(&store, *kind),
            Act::Wait(millis) => pass_time(Duration::from_millis(*millis)).await,
            Act::Takeover | Act::Reopen => {
                if matches!(act, Act::Takeover) {
                    process.kill();
                    process = Process::elected(&store).await;
                }
                journal = opened(&mut process, &store).await;
                for (key, known) in open.iter_mut().enumerate() {
                    let found = journal.open_step(&intent(&key.to_string()).subject);
                    let found = found.map(|step| step.id);
                    match *known {
                        // Its end may or may not have been written.
                        Some((step, true)) => assert!(found.is_none_or(|found| found >= step)),
                        Some((step, false)) => assert_eq!(found, Some(step), "key {key}"),
                        None => {}
                    }
                    *known = found.map(|step| (step, false));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        cases: if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 10_000 } else { 100 },
        ..Config::default()
    })]

    #[test]
    fn no_step_is_lost_whatever_the_store_does(acts in acts()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(replay(&acts));
    }
}
