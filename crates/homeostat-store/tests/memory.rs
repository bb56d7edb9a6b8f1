//! The laws over the store in memory, and what its faults do.

use std::sync::Arc;
use std::time::Duration;

use homeostat_kit::store::WatchEvent;
use homeostat_store::laws::{self, Stage};
use homeostat_store::{
    Call, Candidate, Clock as _, Committed, Error, Fault, Guard, Keys, Lost, MemoryStore,
    Predecessor, RuntimeTime, Store as _, Transaction,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

const SECOND: Duration = Duration::from_secs(1);

fn stage(store: &MemoryStore) -> Stage {
    let one: Arc<dyn homeostat_store::Store> = Arc::new(store.clone());
    Stage {
        other: Arc::clone(&one),
        one,
        prefix: "/laws/".to_owned(),
        clock: Arc::new(RuntimeTime::new()),
        shortest: 5 * SECOND,
    }
}

/// Lets virtual time pass.
async fn pass_time(time: Duration) {
    let started = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval_at(started + time, time);
    ticks.tick().await;
}

fn candidate(store: &MemoryStore, name: &str) -> Candidate {
    Candidate::new(Arc::new(store.clone()), Arc::new(RuntimeTime::new()), "/lead", name, 5 * SECOND)
}

#[tokio::test(start_paused = true)]
async fn the_laws_hold() {
    laws::all(&stage(&MemoryStore::new())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_compacted_and_a_regressed_store_are_noticed() {
    let store = MemoryStore::new();
    laws::compaction(&stage(&store), async |_| store.compact()).await.unwrap();
    laws::regression(&stage(&store)).await.unwrap();
    let before = store.backup();
    let put = |value| store.commit(Transaction::new().put("/a", value));
    let Committed::Done { revision } = put("1").await.unwrap() else { panic!("it has no guard") };
    let mut watch = store.watch(Keys::One("/a".into()), revision).await.unwrap();
    store.restore(&before);
    watch.next().await.unwrap_err();
    let mut watch = store.watch(Keys::One("/a".into()), revision).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Regressed);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn whatever_is_written_is_told(acts in laws::acts()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let run = async { laws::replay(&stage(&MemoryStore::new()), &acts).await };
        let judged = runtime.block_on(run);
        prop_assert!(judged.is_ok(), "{}", judged.unwrap_err());
    }
}

/// A store that breaks a law, and the law.
#[tokio::test(start_paused = true)]
async fn the_laws_notice_a_store_that_breaks_them() {
    for (call, fault, law) in [
        (Call::List, Fault::NoLeader, 1),
        (Call::Watch, Fault::NoLeader, 2),
        (Call::Renew, Fault::Unreachable, 5),
    ] {
        let store = MemoryStore::new();
        store.set_faults(move |asked| if asked == call { fault } else { Fault::None });
        assert_eq!(laws::all(&stage(&store)).await.unwrap_err().law, law);
    }
}

#[tokio::test(start_paused = true)]
async fn an_election_whose_answer_was_lost_holds_nobody_up() {
    for fault in [Fault::LostAnswer, Fault::LateRequest(2 * SECOND)] {
        let store = MemoryStore::new();
        let mut commits = 0;
        store.set_faults(move |call| {
            commits += u32::from(call == Call::Commit);
            if call == Call::Commit && commits == 1 { fault } else { Fault::None }
        });
        let [a, b] = ["a", "b"].map(|name| candidate(&store, name));
        assert!(a.elected().await.unwrap_err().is_in_doubt());
        let begun = RuntimeTime::new();
        b.elected().await.unwrap();
        assert_eq!(begun.now(), Duration::ZERO, "{fault:?}");
        pass_time(3 * SECOND).await;
        assert_eq!(b.leader().await.unwrap().as_deref(), Some("b"), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stands_down_before_the_next_one_begins() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").elected().await.unwrap();
    let next = tokio::spawn({
        let b = candidate(&store, "b");
        async move { b.elected().await.unwrap() }
    });
    // Longer than the lease lasts, and it is kept.
    tokio::select! {
        lost = first.keep() => panic!("{lost}"),
        () = pass_time(60 * SECOND) => {}
    }
    store.set_faults(|call| if call == Call::Renew { Fault::Unreachable } else { Fault::None });
    let lost = first.keep().await;
    assert!(
        matches!(&lost, Lost::NotRenewed { why } if why.contains("cannot be reached")),
        "{lost}"
    );
    assert!(!first.is_held() && !next.is_finished());
    let second = next.await.unwrap();
    assert_eq!(second.predecessor(), Predecessor::Expired);
    let late = Transaction::new().only_if(first.guard()).put("/act", "");
    assert!(matches!(store.commit(late).await, Ok(Committed::Refused { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_store_ended_ends_the_term_at_once() {
    let store = MemoryStore::new();
    let term = candidate(&store, "a").elected().await.unwrap();
    store.leases().into_iter().for_each(|lease| store.expire(lease));
    assert_eq!(term.keep().await, Lost::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_notices_a_vacancy_although_its_watch_is_mute() {
    let store = MemoryStore::new();
    let first = candidate(&store, "a").elected().await.unwrap();
    let b = candidate(&store, "b");
    let (elected, ()) = tokio::join!(b.elected(), async {
        pass_time(SECOND).await;
        store.mute_watches();
        first.resign().await.unwrap();
    });
    assert_eq!(elected.unwrap().predecessor(), Predecessor::Resigned);
}

#[tokio::test(start_paused = true)]
async fn faults_do_what_they_say() {
    let store = MemoryStore::new();
    let put = || store.commit(Transaction::new().put("/a", "1"));
    let held = || async { store.list(Keys::One("/a".into())).await.map(|it| it.values.len()) };
    for (fault, error, then) in [
        (Fault::Unreachable, "the store cannot be reached: a fault of the test", 0),
        (Fault::NoLeader, "the store has no leader", 0),
        (Fault::NoSpace, "the store is full", 0),
        (Fault::LateRequest(SECOND), "the answer of the store was lost: a fault of the test", 0),
        (Fault::LostAnswer, "the answer of the store was lost: a fault of the test", 1),
    ] {
        store.set_faults(move |call| if call == Call::Commit { fault } else { Fault::None });
        assert_eq!(put().await.unwrap_err().to_string(), error);
        assert_eq!(held().await.unwrap(), then, "{fault:?}");
        pass_time(2 * SECOND).await;
        let is_late = matches!(fault, Fault::LateRequest(_));
        assert_eq!(held().await.unwrap(), then.max(usize::from(is_late)), "{fault:?}");
        store.clear_faults();
        let gone = Guard::Absent { key: "/b".into() };
        let _ = store.commit(Transaction::new().only_if(gone).delete("/a")).await.unwrap();
    }
    store.set_faults(|_| Fault::Delay(3 * SECOND));
    let begun = RuntimeTime::new();
    let _ = put().await.unwrap();
    assert_eq!(begun.now(), 3 * SECOND);
    store.set_faults(|_| Fault::NoLeader);
    assert_eq!(held().await.unwrap_err(), Error::NoLeader);
}
