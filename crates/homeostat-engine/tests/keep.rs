//! The loop in virtual time, over a target in memory.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Config, Events, Handle, Loop, Means, MemoryLedger, Mode, OnStop, Ownership, Pace,
    Place, Table,
};
use homeostat_testkit::memory::{Independent, Mark, Memory, Target};
use tokio::task::JoinHandle;

type Source = Memory<Independent>;

/// A loop over a target in memory.
struct Stage {
    target: Target,
    handle: Handle<Source>,
    running: JoinHandle<()>,
}

fn wish(entries: &[(&str, &str)]) -> Table<String, String> {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Table::new(entries).expect("the keys differ")
}

fn bound(target: &Target, entries: &[(&str, &str)]) -> Bound<Source> {
    Bound {
        source: Memory::marked(target.clone()),
        wish: Arc::new(wish(entries)),
        ownership: Ownership::Marked,
        config: Config::default(),
        place: Place {
            owner: "default".into(),
            source: "memory-independent".into(),
            scope: "test".into(),
            identity: String::new(),
        },
        nothing: Some(Arc::new(wish(&[]))),
    }
}

/// Lets virtual time pass.
async fn later(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

fn pace() -> Pace {
    Pace::of::<Source>(7)
}

impl Stage {
    fn start(entries: &[(&str, &str)], pace: Pace) -> Self {
        let target = Target::default();
        let means = Means {
            lock: Arc::new(Alone::i_am_the_only_writer()),
            ledger: Arc::new(MemoryLedger::default()),
            events: Events::default(),
        };
        let (looped, handle) = Loop::new(bound(&target, entries), means, pace);
        let running = tokio::spawn(looped.run());
        Stage { target, handle, running }
    }

    async fn converged(&self) {
        self.handle.wait_for(|status| status.is_converged).await.unwrap();
    }

    /// What is there, but for marks.
    fn values(&self) -> Vec<String> {
        let objects = self.target.objects().into_iter();
        let mut values: Vec<_> =
            objects.map(|held| format!("{}={}", held.key, held.value)).collect();
        values.sort();
        values
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_makes_what_is_wished_and_heals_what_a_hint_names_at_once() {
    let stage = Stage::start(&[("a", "1"), ("b", "2")], pace());
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1", "b=2"]);
    // The target tells of our own writes, too: their windows have to end first.
    later(Duration::from_secs(1)).await;
    let began = tokio::time::Instant::now();
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 1).await.unwrap();
    assert_eq!(stage.values(), ["a=1", "b=2"]);
    assert!(began.elapsed() < Duration::from_millis(5), "{:?}", began.elapsed());
    stage.handle.stop(OnStop::Leave).await;
    stage.running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_all_hints_lost_the_resync_heals() {
    let stage = Stage::start(&[("a", "1")], pace());
    stage.converged().await;
    stage.target.faults(|faults| {
        faults.hints = homeostat_testkit::memory::HintFault::Lost;
    });
    let began = tokio::time::Instant::now();
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.drift_by_resync == 1).await.unwrap();
    assert_eq!(stage.values(), ["a=1"]);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited <= Duration::from_secs(34), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_converged_loop_is_silent_between_resyncs() {
    let stage = Stage::start(&[("a", "1")], pace());
    stage.converged().await;
    let writes = stage.target.writes();
    later(Duration::from_mins(5)).await;
    let counts = stage.handle.status().counts;
    assert!((9..=12).contains(&counts.full), "{counts:?}");
    assert!(counts.focused <= 1, "own writes wake nobody for long: {counts:?}");
    assert_eq!(stage.target.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_new_wish_is_applied_and_a_foreign_object_stays() {
    let stage = Stage::start(&[("a", "1"), ("b", "2")], pace());
    stage.converged().await;
    stage.target.add("x", "9", Mark::Foreign);
    stage.handle.put(bound(&stage.target, &[("b", "3")])).unwrap();
    let told = stage.handle.pass().await.unwrap().unwrap();
    assert!(told.is_converged());
    assert_eq!(stage.values(), ["b=3", "x=9"]);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_observes_writes_nothing_and_says_what_drifted() {
    let stage = Stage::start(&[("a", "1")], pace().with_mode(Mode::Observe));
    stage.handle.wait_for(|status| status.is_ready).await.unwrap();
    assert_eq!(stage.values(), Vec::<String>::new());
    let status = stage.handle.status();
    assert_eq!((status.open.drifted, status.is_converged), (1, false));
    assert_eq!(stage.target.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_with_growing_pauses() {
    let stage = Stage::start(&[("a", "1"), ("b", "2")], pace());
    stage.target.faults(|faults| {
        faults.refused.insert("a".into());
    });
    stage.handle.wait_for(|status| status.is_ready).await.unwrap();
    assert_eq!(stage.values(), ["b=2"]);
    assert!(!stage.handle.status().is_converged);
    later(Duration::from_mins(1)).await;
    let tries = stage.target.writes();
    assert!((6..=16).contains(&tries), "{tries}");
    stage.target.faults(|faults| {
        faults.refused.clear();
    });
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1", "b=2"]);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_seen_is_never_converged_and_recovers() {
    let stage = Stage::start(&[("a", "1")], pace());
    stage.converged().await;
    stage.target.faults(|faults| faults.blind = true);
    let told = stage.handle.pass().await.unwrap();
    assert!(told.is_err());
    let status = stage.handle.status();
    assert!(!status.is_converged && status.failures == 1 && status.last_error.is_some());
    stage.target.faults(|faults| faults.blind = false);
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn two_who_fight_over_a_key_are_slowed_down_and_the_key_is_never_given_up() {
    let stage = Stage::start(&[("a", "1")], pace().with_min_interval(Duration::from_millis(1)));
    stage.converged().await;
    let mut healed = 0;
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_mins(1) {
        if stage.values() == ["a=1"] {
            healed += 1;
            stage.target.remove("a");
        }
        later(Duration::from_millis(2)).await;
    }
    assert!((6..=30).contains(&healed), "{healed}");
    assert_eq!(stage.handle.status().contended.len(), 1);
    stage.converged().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_loop_does_nothing_until_it_is_resumed() {
    let stage = Stage::start(&[("a", "1")], pace());
    stage.converged().await;
    stage.handle.pause(Some(Duration::from_mins(10))).unwrap();
    stage.handle.wait_for(|status| status.is_paused).await.unwrap();
    stage.target.remove("a");
    later(Duration::from_secs(500)).await;
    assert_eq!(stage.values(), Vec::<String>::new());
    later(Duration::from_secs(200)).await;
    assert_eq!(stage.values(), ["a=1"], "the pause has ended by itself");
    stage.handle.pause(None).unwrap();
    stage.target.remove("a");
    later(Duration::from_secs(5000)).await;
    assert_eq!(stage.values(), Vec::<String>::new());
    stage.handle.resume().unwrap();
    stage.handle.wait_for(|status| !status.is_paused && status.is_converged).await.unwrap();
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_revert_takes_back_what_we_made_and_nothing_else() {
    let stage = Stage::start(&[("a", "1")], pace());
    stage.target.add("x", "9", Mark::Foreign);
    stage.converged().await;
    stage.handle.stop(OnStop::Revert).await;
    assert_eq!(stage.values(), ["x=9"]);
    stage.running.await.unwrap();
}
