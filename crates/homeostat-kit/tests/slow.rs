//! Steps that take their time, on a clock that the test holds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use homeostat_engine::{
    Alone, Bound, Control as _, Failure, Handle, Loop, LoopDeps, MemoryLedger, Owner, Pace, Retry,
    Seen,
};
use homeostat_kit::simple::{
    Adapted, Api, DesiredObjects, Listed, Progress, Refusal, Written, place,
};
use homeostat_kit::strategy::Strategy;
use tokio::time::Instant;

/// One door; a script says what its makers answer.
#[derive(Default)]
struct Door {
    is_there: Mutex<bool>,
    answers: Mutex<Vec<Refusal>>,
    tasks: Mutex<Vec<Progress>>,
    calls: Mutex<Vec<(Duration, &'static str)>>,
    began: Mutex<Option<Instant>>,
    /// How long a create takes to be answered.
    takes: Mutex<Duration>,
}

impl Door {
    fn call(&self, what: &'static str) {
        let began = *self.began.lock().unwrap().get_or_insert_with(Instant::now);
        self.calls.lock().unwrap().push((began.elapsed(), what));
    }

    fn times(&self, what: &str) -> Vec<Duration> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(_, call)| *call == what).map(|(time, _)| *time).collect()
    }
}

impl Api for Door {
    const NAME: &'static str = "doors";
    type Key = String;
    type Object = u8;

    async fn list(&self) -> Result<Listed<Self>, Failure> {
        let (key, owner) = ("door".to_owned(), Owner::Unmarked);
        let is_there = *self.is_there.lock().unwrap();
        Ok(is_there.then_some(Seen::Present { key, object: 1, owner }).into_iter().collect())
    }

    async fn create(&self, _: &String, _: &u8) -> Written<Self> {
        self.call("create");
        let takes = *self.takes.lock().unwrap();
        tokio::time::sleep_until(Instant::now() + takes).await;
        if let Some(refusal) = self.answers.lock().unwrap().pop() {
            return Err(refusal);
        }
        *self.is_there.lock().unwrap() = true;
        Ok(None)
    }

    async fn update(&self, _: &String, _: &u8, _: &u8) -> Written<Self> {
        Ok(None)
    }

    async fn delete(&self, _: &String, _: &u8) -> Result<(), Refusal> {
        Ok(())
    }

    async fn task(&self, _: &str) -> Result<Progress, Failure> {
        self.call("task");
        let progress = self.tasks.lock().unwrap().pop().unwrap_or(Progress::Over);
        if progress == Progress::Over {
            *self.is_there.lock().unwrap() = true;
        }
        Ok(progress)
    }
}

fn bound(source: &Adapted<Door>) -> Bound<Adapted<Door>> {
    let desired = DesiredObjects::new([("door".to_owned(), 1)]).unwrap();
    source.bind(&Strategy::Checkpoint, desired, place::<Door>("me", "here")).unwrap()
}

fn keep(door: &Arc<Door>, ledger: &Arc<MemoryLedger>) -> Handle<Adapted<Door>> {
    keep_by(&Adapted::shared(Arc::clone(door)), ledger)
}

fn keep_by(source: &Adapted<Door>, ledger: &Arc<MemoryLedger>) -> Handle<Adapted<Door>> {
    let lock = Arc::new(Alone::i_am_the_only_writer());
    let deps = LoopDeps::new(lock, ledger.clone());
    let pace = Pace::of::<Adapted<Door>>(1).with_resync(Duration::from_hours(1)).unwrap();
    let (kept, handle) = Loop::new(bound(source), deps, pace);
    tokio::spawn(kept.run());
    handle
}

async fn converge(door: &Arc<Door>) -> Handle<Adapted<Door>> {
    let handle = keep(door, &Arc::default());
    let converged = handle.wait_for(|status| status.is_converged);
    tokio::time::timeout(Duration::from_mins(10), converged).await.unwrap().unwrap();
    handle
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn accepted_work_is_left_alone_until_it_may_be_there() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Recheck { after: MINUTE });
    let makes = Arc::clone(&door);
    tokio::spawn(async move {
        tokio::time::advance(MINUTE / 2).await;
        *makes.is_there.lock().unwrap() = true;
    });
    converge(&door).await;
    assert_eq!(door.times("create").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn accepted_work_that_never_shows_is_sent_again_after_its_time() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Recheck { after: MINUTE });
    let handle = converge(&door).await;
    let times = door.times("create");
    assert_eq!(times.len(), 2);
    assert!(times[1] >= MINUTE && times[1] < MINUTE + Duration::from_secs(5), "{times:?}");
    assert_eq!(handle.status().counts.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_now_is_no_failure_and_comes_back_in_time() {
    let door = Arc::<Door>::default();
    let not_now = || Refusal::NotNow { after: MINUTE, on: "the painter".to_owned() };
    door.answers.lock().unwrap().extend([not_now(), not_now(), not_now()]);
    let handle = converge(&door).await;
    let times = door.times("create");
    for (number, time) in (0..).zip(&times) {
        let due = MINUTE * number;
        assert!(*time >= due && *time < due + Duration::from_secs(5), "{times:?}");
    }
    assert_eq!((times.len(), handle.status().counts.failed), (4, 0), "pauses do not grow");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_puts_off_again_and_again_is_asked_less_and_less_often() {
    let door = Arc::<Door>::default();
    let not_now = || Refusal::NotNow { after: Duration::ZERO, on: "the painter".to_owned() };
    door.answers.lock().unwrap().extend(std::iter::repeat_with(not_now).take(12));
    converge(&door).await;
    let times = door.times("create");
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert_eq!(pauses.len(), 12);
    assert!(
        pauses[0] < Duration::from_secs(1) && pauses[11] >= Duration::from_secs(4),
        "{pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_is_asked_for_after_growing_pauses_and_never_sent_again() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Task { id: "t1".to_owned() });
    door.tasks.lock().unwrap().extend(vec![Progress::Running; 12]);
    converge(&door).await;
    assert_eq!(door.times("create").len(), 1);
    let times = door.times("task");
    assert_eq!(times.len(), 13);
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[11] >= Duration::from_secs(10), "{pauses:?}");
    assert!(pauses[11] < Duration::from_secs(11), "there is a longest pause: {pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn another_desired_state_goes_on_waiting_for_the_task_of_the_last_one() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Task { id: "t1".to_owned() });
    door.tasks.lock().unwrap().extend(vec![Progress::Running; 5]);
    let source = Adapted::shared(Arc::clone(&door));
    let handle = keep_by(&source, &Arc::default());
    handle.wait_for(|status| status.is_ready).await.unwrap();
    handle.replace(bound(&source)).unwrap();
    handle.wait_for(|status| status.is_converged).await.unwrap();
    assert_eq!(door.times("create").len(), 1);
    assert!(handle.status().counts.full >= 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_target_has_lost_is_judged_by_a_look() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Task { id: "t1".to_owned() });
    door.tasks.lock().unwrap().push(Progress::Lost);
    converge(&door).await;
    assert_eq!(door.times("create").len(), 2, "nothing was there, so it is sent again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_counts_as_the_failure_of_its_step() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Task { id: "t1".to_owned() });
    let failure = Failure::new("out of paint", Retry::Soon);
    door.tasks.lock().unwrap().push(Progress::Failed(failure));
    let handle = converge(&door).await;
    assert_eq!(handle.status().counts.failed, 1);
    assert_eq!(door.times("create").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_refusal_waits_for_another_desired_state() {
    let door = Arc::<Door>::default();
    let never = Refusal::Failed(Failure::new("never", Retry::Never));
    door.answers.lock().unwrap().push(never);
    let handle = keep(&door, &Arc::default());
    handle.wait_for(|status| status.counts.failed == 1).await.unwrap();
    tokio::time::advance(MINUTE * 30).await;
    tokio::task::yield_now().await;
    assert_eq!(door.times("create").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_moved_under_a_write_is_looked_at_and_written_again_at_once() {
    let door = Arc::<Door>::default();
    door.answers.lock().unwrap().push(Refusal::Moved);
    converge(&door).await;
    let times = door.times("create");
    assert_eq!(times.len(), 2);
    assert!(times[1] < Duration::from_secs(1), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pass_without_operations_waits_for_all_of_its_lanes() {
    let door = Arc::<Door>::default();
    *door.takes.lock().unwrap() = MINUTE / 2;
    let began = Instant::now();
    let handle = keep(&door, &Arc::default());
    let report = handle.pass().await.unwrap().unwrap();
    assert!(report.is_converged());
    assert!(began.elapsed() >= MINUTE / 2, "{:?}", began.elapsed());
    assert_eq!(door.times("create").len(), 1);
}
